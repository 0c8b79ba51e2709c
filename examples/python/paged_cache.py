# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A paged cache from Python: a prompt, a chunk and a decode in one batch, then the speed of decode by context length.

usage: paged_cache.py [--plot FILE.png]

Needs libattn and numpy; the plot matplotlib too.
"""
import sys
import time

import numpy

import libattn

HEADS, KV_HEADS, DIM, BLOCK, PAGES, LONGEST = 32, 8, 128, 16, 4096, 32768
PROBLEM = (f"heads={HEADS} kv_heads={KV_HEADS} head_dim={DIM} q=f32 kv=f16 block={BLOCK} "
           f"max_seqs=8 max_q=256 max_kv={LONGEST} max_rows=512")
random = numpy.random.default_rng(1)


def normal(*shape, dtype=numpy.float32):
    return random.standard_normal(shape, numpy.float32).astype(dtype)


class Cache:
    """Keys and values of one layer in pages, and which pages are free."""

    def __init__(self, backend):
        self.backend = backend
        self.keys = numpy.full((PAGES, BLOCK, KV_HEADS, DIM), 0.25, numpy.float16)
        self.values = self.keys.copy()
        self.kv = backend.kv(self.keys, self.values)
        self.free = list(random.permutation(PAGES))

    def pages(self, tokens):
        """Pages for a new sequence of so many tokens."""
        return numpy.array([self.free.pop() for _ in range(-(-tokens // BLOCK))], numpy.int32)

    def write(self, pages, first, keys, values):
        """Writes keys and values of tokens [n, kv_heads, dim] behind the first ones of a sequence."""
        places = numpy.arange(first, first + len(keys))
        slots = pages[places // BLOCK].astype(numpy.int64) * BLOCK + places % BLOCK
        self.backend.kv_write(self.kv, keys, values, slots)


def table_of(sequences):
    """Pages of all sequences as one table; cells behind a sequence's pages are not read."""
    table = numpy.zeros((len(sequences), max(map(len, sequences))), numpy.int32)
    for row, pages in zip(table, sequences):
        row[: len(pages)] = pages
    return table


def mixed_batch(backend, plan):
    """A prompt of 100 tokens, a chunk of 50 behind 300, and one token behind 1,000, in one call."""
    new, total = [100, 50, 1], numpy.array([100, 350, 1001], numpy.int32)
    cache = Cache(backend)
    sequences = [cache.pages(n) for n in total]
    for pages, n in zip(sequences, total):
        cache.write(pages, 0, normal(n, KV_HEADS, DIM), normal(n, KV_HEADS, DIM))
    step = plan.step()
    step.prepare(numpy.cumsum([0, *new]).astype(numpy.int32), total, num_tokens=sum(new), max_q=max(new),
                 max_kv=int(total.max()), table=table_of(sequences), pages=PAGES)
    q = normal(sum(new), HEADS, DIM)
    out = numpy.empty_like(q)
    plan.run(step, q, out, scale=DIM**-0.5, kv=cache.kv)
    print(f"{len(new)} sequences, {sum(new)} tokens: out {out.shape}, by {', '.join(plan.kernels)}")


def decode_speed(backend, plan, context):
    """Microseconds of a layer, and GB/s of keys and values, for one token of one sequence."""
    cache, step = Cache(backend), plan.step()
    q, out = normal(1, HEADS, DIM), numpy.empty((1, HEADS, DIM), numpy.float32)
    step.prepare(numpy.array([0, 1], numpy.int32), numpy.array([context], numpy.int32), num_tokens=1, max_q=1,
                 max_kv=context, table=table_of([cache.pages(context)]), pages=PAGES)
    times = []
    for _ in range(30):
        began = time.perf_counter()
        plan.run(step, q, out, scale=DIM**-0.5, kv=cache.kv)
        times.append(time.perf_counter() - began)
    seconds = sorted(times)[len(times) // 2]
    return seconds * 1e6, 2 * context * KV_HEADS * DIM * 2 / seconds * 1e-9


def main():
    backend = libattn.backend(PROBLEM, device="cpu")
    plan = backend.plan(PROBLEM)
    print(libattn.select(PROBLEM, device="cpu").text)
    mixed_batch(backend, plan)
    contexts = [1024 * 2**i for i in range(6)]
    speeds = [decode_speed(backend, plan, context) for context in contexts]
    most = max(rate for _, rate in speeds)
    for context, (us, rate) in zip(contexts, speeds):
        print(f"{context:6} keys {us:8.0f} us {rate:6.1f} GB/s {'#' * round(40 * rate / most)}")
    if len(sys.argv) == 3 and sys.argv[1] == "--plot":
        from matplotlib import pyplot
        pyplot.plot(contexts, [rate for _, rate in speeds], marker="o")
        pyplot.xscale("log", base=2)
        pyplot.xlabel("keys of the sequence")
        pyplot.ylabel("GB/s of keys and values")
        pyplot.title(f"decode of one token on {backend.name}")
        pyplot.savefig(sys.argv[2])


if __name__ == "__main__":
    main()
