# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ggml's FLASH_ATTN_EXT as a peer: its CPU backend on the caches that llama.cpp would give it."""

import array
import ctypes
import math
import os
import random
import struct

import ggml_library as ggml
import oracle
import timing

POOL_ROWS = 4099  # random rows that caches repeat; prime, so that the heads of a token differ
PAD = 64  # rows that older ggml wants a mask to be a multiple of
GRAPH_US = 50000  # calls of a graph, which is a sample, take about so long together, or are one
LEAST_POOL_PARAMS = 4096  # bytes that hold struct ggml_threadpool_params of any version


class Peer:
    """One process's ggml, with a pool of threads that lives as long as it, as llama.cpp's does."""

    def __init__(self, settings):
        self.settings = settings
        self.library = library = ggml.load(settings["ggml"])
        self.backend = library.ggml_backend_cpu_init()
        if not self.backend:
            raise ValueError("ggml made no CPU backend")
        params = ctypes.create_string_buffer(LEAST_POOL_PARAMS)
        library.ggml_threadpool_params_init(params, settings["threads"])
        self.pool = library.ggml_threadpool_new(params)
        library.ggml_backend_cpu_set_threadpool(self.backend, self.pool)
        library.ggml_backend_cpu_set_n_threads(self.backend, settings["threads"])
        self.rows, self.problem = {}, None

    def about(self):
        told = ggml.describe(self.settings["ggml"])
        return {**told, "file": os.path.basename(told["file"])}

    def random_rows(self, dim):
        """Normal numbers, made once for a dimension."""
        if dim not in self.rows:
            rng = random.Random(self.settings["seed"])
            self.rows[dim] = array.array("f", (rng.gauss(0.0, 1.0) for _ in range(POOL_ROWS * dim)))
        return self.rows[dim]

    def open(self, case):
        self.close()
        self.problem = Problem(self, case)
        return self.problem.check()

    def sample(self, seconds):
        times = self.problem.rotation.sample(seconds)
        self.library.ggml_threadpool_pause(self.pool)  # else its threads spin while others are measured
        return times

    def close(self):
        if self.problem is not None:
            self.problem.close()
            self.problem = None


class Problem:
    """Tensors and graphs of a case."""

    def __init__(self, peer, case):
        self.peer, self.library, self.case = peer, peer.library, case
        self.kind = ggml.TYPES[case["kv"]]
        self.row_bytes = self.library.ggml_row_size(self.kind, case["dim"])
        set_bytes = 2 * case["seqs"] * case["keys"] * case["kv_heads"] * self.row_bytes
        self.sets = timing.sets_for(case, set_bytes, peer.settings["cold_bytes"])
        self.context = self.buffer = None
        try:
            self.make_tensors()
            self.fill()
            self.make_graphs()
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.buffer:
            self.library.ggml_backend_buffer_free(self.buffer)
        if self.context:
            self.library.ggml_free(self.context)
        self.buffer = self.context = None

    def tensor(self, kind, heads, tokens):
        """A tensor, and its view [dim, tokens, heads, seqs] as the operation wants it."""
        case, library = self.case, self.library
        if case["stock_mask"]:  # as ggml's own tests have it
            made = library.ggml_new_tensor_4d(self.context, kind, case["dim"], tokens, heads, case["seqs"])
            return made, made
        made = library.ggml_new_tensor_4d(self.context, kind, case["dim"], heads, tokens, case["seqs"])
        return made, library.ggml_permute(self.context, made, 0, 2, 1, 3)

    def make_tensors(self):
        case, library = self.case, self.library
        self.graph_size = 8 * self.sets + 32
        room = (8 * self.sets + 32) * library.ggml_tensor_overhead()
        room += (self.sets + 2) * library.ggml_graph_overhead_custom(self.graph_size, False)
        self.context = library.ggml_init(ggml.InitParams(room, None, True))
        if not self.context:
            raise ValueError(f"ggml made no context of {room} bytes")
        self.query, query = self.tensor(ggml.F32, case["heads"], case["queries"])
        self.mask = None
        if case["stock_mask"] or case["queries"] > 1:  # without one where nothing is hidden, which is the faster way
            rows = -(-case["queries"] // PAD) * PAD
            self.mask = library.ggml_new_tensor_4d(self.context, ggml.F16, case["keys"], rows, 1, 1)
        self.keys, self.values, self.nodes = [], [], []
        for _ in range(self.sets):
            key, key_view = self.tensor(self.kind, case["kv_heads"], case["keys"])
            value, value_view = self.tensor(self.kind, case["kv_heads"], case["keys"])
            self.keys.append(key)
            self.values.append(value)
            self.nodes.append(library.ggml_flash_attn_ext(self.context, query, key_view, value_view, self.mask,
                                                          case["dim"] ** -0.5, 0.0, 0.0))
        self.buffer = library.ggml_backend_alloc_ctx_tensors(self.context, self.peer.backend)
        if not self.buffer:
            raise ValueError(f"ggml has no memory for {self.sets} sets of keys and values")

    def fill(self):
        case, rows = self.case, self.peer.random_rows(self.case["dim"])
        plain = ggml.encode(self.library, ggml.F32, rows, case["dim"])
        self.repeat(self.query, plain, 4 * case["dim"], 0)
        coded = ggml.encode(self.library, self.kind, rows, case["dim"])
        for index, tensor in enumerate(self.keys + self.values):
            self.repeat(tensor, coded, self.row_bytes, 1 + 17 * index)
        if self.mask:
            data = stock_mask(case, self.peer.settings["seed"]) if case["stock_mask"] else causal_mask(case)
            ctypes.memset(self.data(self.mask), 0, self.library.ggml_nbytes(self.mask))
            ctypes.memmove(self.data(self.mask), data, len(data))

    def data(self, tensor):
        return self.library.ggml_get_data(tensor)

    def repeat(self, tensor, pool, row_bytes, first):
        """Fills a tensor with the rows of the pool over and over, beginning with row `first`."""
        start = first % POOL_ROWS * row_bytes
        turned = pool[start:] + pool[:start]
        address, size = self.data(tensor), self.library.ggml_nbytes(tensor)
        done = min(size, len(turned))
        ctypes.memmove(address, turned, done)
        while done < size:
            more = min(done, size - done)
            ctypes.memmove(address + done, address, more)
            done += more

    def graph(self, nodes):
        made = self.library.ggml_new_graph_custom(self.context, self.graph_size, False)
        for node in nodes:
            self.library.ggml_build_forward_expand(made, node)
        return made

    def compute(self, graph):
        status = self.library.ggml_backend_graph_compute(self.peer.backend, graph)
        if status != 0:
            raise ValueError(f"ggml's graph ended with status {status}")

    def make_graphs(self):
        """Graphs of so many calls, each on the next set, that what it takes to start one does not count."""
        single = self.graph(self.nodes[:1])
        once = timing.Rotation(lambda _: self.compute(single), 1).sample(0.0)
        calls = max(1, min(self.sets, int(GRAPH_US / min(once))))
        graphs = [self.graph(self.nodes[first:first + calls]) for first in range(0, self.sets - calls + 1, calls)]
        self.rotation = timing.Rotation(lambda index: self.compute(graphs[index]), len(graphs), calls)
        self.calls = calls

    def check(self):
        """The error of sampled rows of the first set, whose result is rubbish before."""
        case, node = self.case, self.nodes[0]
        ctypes.memset(self.data(node), 0xff, self.library.ggml_nbytes(node))
        self.rotation.once()
        self.rotation.next = 0
        self.library.ggml_threadpool_pause(self.peer.pool)
        rows = []
        for sequence, token, head in oracle.pairs(case, self.peer.settings["seed"]):
            count = oracle.visible(case, token)
            kv_head = head * case["kv_heads"] // case["heads"]
            query = ggml.decode(ggml.F32, self.row(self.query, ggml.F32, sequence, head, token, case["heads"],
                                                   case["queries"]))
            sides = [ggml.decode(self.kind, b"".join(
                self.row(side, self.kind, sequence, kv_head, key, case["kv_heads"], case["keys"])
                for key in range(count))) for side in (self.keys[0], self.values[0])]
            bias = None
            if case["stock_mask"]:
                start = self.data(self.mask) + token * case["keys"] * 2
                bias = ggml.decode(ggml.F16, ctypes.string_at(start, count * 2))
            where = ((sequence * case["queries"] + token) * case["heads"] + head) * case["dim"] * 4
            got = ggml.decode(ggml.F32, ctypes.string_at(self.data(node) + where, case["dim"] * 4))
            rows.append((got, oracle.attention(query, *sides, bias)))
        return {"error": oracle.distance(rows), "sets": self.sets, "calls": self.calls,
                "reads": f"{ggml.NAMES[self.kind]}, {'heads first' if case['stock_mask'] else 'tokens first'}, "
                         f"{'a mask' if self.mask else 'no mask'}, f32 queries"}

    def row(self, tensor, kind, sequence, head, token, heads, tokens):
        """The bytes of one row of a tensor."""
        size = self.library.ggml_row_size(kind, self.case["dim"])
        index = head * tokens + token if self.case["stock_mask"] else token * heads + head
        return ctypes.string_at(self.data(tensor) + (sequence * heads * tokens + index) * size, size)


def halves(numbers):
    """f16 bytes of floats."""
    return struct.pack(f"<{len(numbers)}e", *numbers)


def causal_mask(case):
    """f16 rows that hide later keys, the queries being the last of them."""
    shown, hidden = halves([0.0]), halves([-math.inf])
    counts = [oracle.visible(case, token) for token in range(case["queries"])]
    return b"".join(shown * count + hidden * (case["keys"] - count) for count in counts)


def stock_mask(case, seed):
    """The mask of ggml's own tests: uniform numbers from -1 to 1, and a fifth of them in blocks of 128 keys by 64
    queries that are 0 or, half of these, minus infinity."""
    keys, queries, rng = case["keys"], case["queries"], random.Random(seed)
    mask = [rng.uniform(-1.0, 1.0) for _ in range(keys * queries)]
    for _ in range(int(0.2 * keys * queries / (128 * 64))):
        first_row, first, value = rng.randrange(queries), rng.randrange(keys), rng.choice((0.0, -math.inf))
        for row in range(first_row, min(queries, first_row + 64)):
            last = min(keys, first + 128)
            mask[row * keys + first:row * keys + last] = [value] * (last - first)
    return halves(mask)
