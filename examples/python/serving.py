# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small engine on builder, state and layers: requests join while others run, prompts go with the decodes of a step,
and steps of decodes alone launch graphs that were captured once.

usage: serving.py

The model is a toy of two layers with random weights. All answers are computed again by numpy alone, each from all of
its tokens, without cache and batch; the program fails if one differs. Needs libattn and numpy.
"""
import sys

import numpy

import libattn

LAYERS, HEADS, KV_HEADS, DIM, WORDS = 2, 8, 2, 64, 100
BLOCK, BLOCKS, MOST_SEQS, MOST_TOKENS, LONGEST = 16, 24, 8, 128, 96
WIDTH = HEADS * DIM
PROBLEM = (f"heads={HEADS} kv_heads={KV_HEADS} head_dim={DIM} q=f32 block={BLOCK} graph=single "
           f"max_seqs={MOST_SEQS} max_q={MOST_TOKENS} max_kv={LONGEST} max_rows={MOST_TOKENS}")
random = numpy.random.default_rng(1)


def normal(*shape):
    return random.standard_normal(shape, numpy.float32)


def normed(x):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True))


class Model:
    """Embeddings, and the weights of each layer."""

    def __init__(self):
        self.words = normal(WORDS, WIDTH)
        heads = dict(q=HEADS, k=KV_HEADS, v=KV_HEADS)
        self.layers = [{name: normal(WIDTH, n * DIM) * WIDTH**-0.5 for name, n in heads.items()}
                       | {"out": normal(WIDTH, WIDTH) * WIDTH**-0.5} for _ in range(LAYERS)]

    def answer(self, tokens):
        """Scores of all words behind each token of one sequence, in double precision."""
        x, n = self.words[tokens].astype(numpy.float64), len(tokens)
        for weights in self.layers:
            q, k, v = ((normed(x) @ weights[name]).reshape(n, -1, DIM) for name in "qkv")
            k, v = (numpy.repeat(y, HEADS // KV_HEADS, 1) for y in (k, v))
            scores = numpy.where(numpy.tri(n, dtype=bool), numpy.einsum("nhd,mhd->hnm", q, k) * DIM**-0.5, -numpy.inf)
            shares = numpy.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            x = x + numpy.einsum("hnm,mhd->nhd", shares, v).reshape(n, WIDTH) @ weights["out"]
        return normed(x) @ self.words.T


class Request:
    """A prompt, the words that follow it so far, and where their keys are."""

    def __init__(self, prompt, wanted):
        self.prompt, self.wanted = prompt, wanted  # in tokens
        self.tokens = [int(token) for token in random.integers(WORDS, size=prompt)]
        self.cached, self.blocks, self.scores = 0, [], []

    def needs(self):
        """Blocks for all of its tokens."""
        return -(-(self.prompt + self.wanted) // BLOCK)


class Engine:
    """Plans, caches and graphs for one model."""

    def __init__(self, model):
        groups = [(BLOCK, LONGEST // BLOCK)]
        self.model = model
        self.free = list(random.permutation(BLOCKS))
        self.steps = self.launched = 0
        self.backend = libattn.backend(PROBLEM, device="cpu")
        self.builder = self.backend.builder(groups, max_seqs=MOST_SEQS, max_tokens=MOST_TOKENS)
        self.state = self.backend.state([PROBLEM], groups)
        self.layer = self.backend.layer(PROBLEM, scale=DIM**-0.5)
        self.kvs = [self.backend.kv(*(numpy.zeros((BLOCKS, BLOCK, KV_HEADS, DIM), numpy.float32) for _ in range(2)))
                    for _ in model.layers]
        # What layers read and write, in one place for all steps, as graphs have it.
        self.q, self.out = (numpy.zeros((MOST_TOKENS, HEADS, DIM), numpy.float32) for _ in range(2))
        self.k, self.v = (numpy.zeros((MOST_TOKENS, KV_HEADS, DIM), numpy.float32) for _ in range(2))
        self.graphs = self.capture()

    def capture(self):
        """For each size of decode batch a graph of each layer: numpy computes the rest of the model in between."""
        graphs = {}
        self.state.begin_capture(MOST_SEQS)
        for size in (8, 4, 2, 1):
            metadata = self.state.get_capture_metadata(size)
            clone = self.state.clone(size)
            clone.begin_forward(metadata)
            graphs[size] = [self.backend.graph() for _ in self.kvs]
            for graph, kv in zip(graphs[size], self.kvs):
                with graph:
                    self.attend(clone, kv, graph.stream)
        self.state.end_capture()
        return graphs

    def attend(self, state, kv, stream=0):
        self.layer.forward(state, self.q, self.out, kv=kv, k=self.k, v=self.v, stream=stream)

    def begin(self, requests, prompts):
        """Plans a step, and gives the graphs of its layers; None for a step with prompts."""
        self.builder.reset()
        for i, request in enumerate(requests):
            self.builder.add(request.cached, len(request.tokens) - request.cached, request.blocks, prompt=i < prompts)
        self.steps += 1
        if prompts:
            self.state.begin_forward(self.builder.build())
            return None
        self.launched += 1
        size = min(size for size in self.graphs if size >= len(requests))
        self.state.begin_forward(self.builder.build(graph=True, pad=size - len(requests)))
        return self.graphs[size]

    def step(self, requests, prompts):
        """One more word for each request, of which the first `prompts` are new; those at their end leave."""
        graphs = self.begin(requests, prompts)
        new = [request.tokens[request.cached :] for request in requests]
        x = self.model.words[numpy.concatenate(new)]
        for i, weights in enumerate(self.model.layers):
            for name, array in (("q", self.q), ("k", self.k), ("v", self.v)):
                array[: len(x)] = (normed(x) @ weights[name]).reshape(len(x), -1, DIM)
            if graphs is None:
                self.attend(self.state, self.kvs[i])
            else:
                graphs[i].launch()
            x = x + self.out[: len(x)].reshape(len(x), WIDTH) @ weights["out"]
        last = numpy.cumsum([len(tokens) for tokens in new]) - 1
        for request, scores in zip(requests, normed(x[last]) @ self.model.words.T):
            request.cached = len(request.tokens)
            request.tokens.append(int(scores.argmax()))
            request.scores.append(scores)
            if len(request.scores) == request.wanted:
                self.free += request.blocks
        return [request for request in requests if len(request.scores) < request.wanted]

    def admit(self, waiting, running):
        """The next requests that fit into a step and into the free blocks, which they take."""
        new, tokens = [], len(running)
        while waiting and len(running) + len(new) < MOST_SEQS:
            request = waiting[0]
            tokens += request.prompt
            if tokens > MOST_TOKENS or request.needs() > len(self.free):
                break
            request.blocks = [self.free.pop() for _ in range(request.needs())]
            new.append(waiting.pop(0))
        return new

    def serve(self, requests):
        waiting, running = list(requests), []
        while waiting or running:
            new = self.admit(waiting, running) if not running or self.steps % 4 == 0 else []
            running = self.step(new + running, len(new))


def main():
    model = Model()
    engine = Engine(model)
    requests = [Request(int(random.integers(1, 60)), int(random.integers(4, 30))) for _ in range(16)]
    engine.serve(requests)
    wrong = 0
    for request in requests:
        want = model.answer(request.tokens[:-1])[request.prompt - 1 :]
        away = abs(request.scores - want).max() / abs(want).max()
        wrong += not away < 1e-4
    words = sum(request.wanted for request in requests)
    print(f"{engine.backend.name}: {len(requests)} requests, {words} words in {engine.steps} steps, "
          f"{engine.launched} of them by graphs; {wrong} requests wrong")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
