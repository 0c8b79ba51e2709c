# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch beside libattn: its attention kernels on the same device memory, a float32 reference, and ceilings."""

import ctypes
import warnings

import packages as others

# In the order in which they are measured. "heads first" has a copy of the cache with the heads outside of the tokens.
NAMES = ("flash", "cudnn", "cudnn, heads first", "efficient", "fa3", "fa3, paged", "flashinfer", "xqa")
# Keys of a problem that the float32 reference does not know, with the values that say nothing.
FEATURES = {"alibi": "none", "softcap": "0", "mask": "none", "window": "-1", "sinks": "0", "align": "end", "cp": "0",
            "kv_source": "cache", "positions": "0", "seq_causal": "0"}
SCALES = ("scales", "k_scale", "v_scale", "q_scale", "out_scale")
SAMPLED_SEQUENCES, SAMPLED_ROWS = 5, 48


def find():
    """torch with a GPU, or None and why not."""
    try:
        import torch
    except ImportError:
        return None, "torch not found"
    except OSError as error:  # a library of its own that is missing
        return None, f"torch cannot be loaded: {error}"
    if not torch.cuda.is_available():
        return None, "torch finds no CUDA device"
    return torch, ""


class Memory(ctypes.Structure):
    """Bytes of somebody else's device memory as a DLPack tensor, which torch takes without another package."""

    CUDA, UNSIGNED = 2, 1
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]
    kept = []  # torch looks at them until its tensors are gone

    @classmethod
    def wrap(cls, torch, address, size):
        memory = cls(address, cls.CUDA, torch.cuda.current_device(), 1, cls.UNSIGNED, 8, 1,
                     (ctypes.c_int64 * 1)(size))
        cls.kept.append(memory)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return torch.from_dlpack(make(ctypes.addressof(memory), b"dltensor", None))


def parse_problem(text):
    return dict(pair.split("=", 1) for pair in text.replace(",", " ").split())


class View:
    """The tensors of a case of libattn's, as torch tensors on the same memory."""

    def __init__(self, torch, case):
        keys = parse_problem(case.given)
        self.torch, self.case, self.causal = torch, case, keys.get("causal", "1") == "1"
        names = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8,
                 "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e4m3fnuz": torch.float8_e4m3fnuz,
                 "e5m2fnuz": torch.float8_e5m2fnuz}
        q = keys.get("q", "bf16")
        kv = keys.get("kv", q)
        self.q_type, self.k_type = names[q], names[kv]
        self.out_type = names[keys.get("out", q if self.q_type.itemsize > 1 else "bf16")]
        self.mla = keys.get("mla", "0") == "1"
        self.scaled = any(keys.get(name, "none") not in ("none", "unit") for name in SCALES)
        self.featured = any(keys.get(name, usual) != usual for name, usual in FEATURES.items())
        self.dense = keys.get("addr", "table") == "dense"
        number = case.number
        self.heads, self.kv_heads = number("heads"), number("kv_heads")
        self.dim, self.dim_vo = number("head_dim"), number("head_dim_vo")
        self.rows, self.block, self.pages = number("rows"), number("block"), number("pages")
        self.q = self.tensor("q", self.q_type, (self.rows, self.heads, self.dim))
        self.out = self.tensor("out", self.out_type, (self.rows, self.heads, self.dim_vo))
        self.table = None if self.dense else self.tensor(
            "table", torch.int32, (number("seqs"), number("table_width")))

    def wrap(self, address, size, kind):
        return Memory.wrap(self.torch, address, size).view(kind)

    def tensor(self, name, kind, shape):
        size = kind.itemsize
        for extent in shape:
            size *= extent
        return self.wrap(self.case.number(name), size, kind).view(shape)

    def cache(self, index):
        """The whole allocation of a set, as bytes."""
        number = self.case.number
        return self.wrap(number("cache", index), number("cache_bytes"), self.torch.uint8)

    def side(self, index, which):
        """Keys ("k") or values ("v") of a set: [page, token, head, dim]."""
        number, size = self.case.number, self.k_type.itemsize
        memory = self.cache(index).view(self.k_type)
        strides = [number(f"{which}_{part}_stride") // size for part in ("page", "token", "head")]
        offset = (number(which, index) - number("cache", index)) // size
        dim = self.dim if which == "k" else self.dim_vo
        return memory.as_strided((self.pages, self.block, self.kv_heads, dim), (*strides, 1), offset)

    def sides(self, index):
        k = self.side(index, "k")
        return k, k[..., : self.dim_vo] if self.mla else self.side(index, "v")

    def fill(self, seed):
        """Normal numbers in queries and caches; nothing that an 8-bit integer holds well, which stay."""
        torch = self.torch
        generator = torch.Generator("cuda").manual_seed(seed)
        self.q.copy_(torch.randn(self.q.shape, generator=generator, device="cuda"))
        if self.k_type == torch.int8:
            return
        for index in range(self.case.sets):
            memory = self.cache(index).view(self.k_type)
            for part in memory.split(1 << 26):
                part.copy_(torch.randn(part.shape, generator=generator, device="cuda"))

    def reference(self, index, sequence, rows, scattered=True):
        """Attention of rows of a sequence over a set, in float32: [row, head, dim]."""
        torch = self.torch
        queries, keys = self.case.lengths[sequence]
        first = sum(pair[0] for pair in self.case.lengths[:sequence])
        k, v = self.sides(index)
        if self.dense:
            pages = torch.tensor([sequence], device="cuda")
        elif scattered:
            pages = self.table[sequence, : -(-keys // self.block)].long()
        else:
            begin = sum(-(-pair[1] // self.block) for pair in self.case.lengths[:sequence])
            pages = torch.arange(begin, begin + -(-keys // self.block), device="cuda")
        k, v = (self.floats(side, pages)[:keys] for side in (k, v))
        q = self.q[first + rows].float().view(len(rows), self.kv_heads, -1, self.dim)
        scores = torch.einsum("nkgd,tkd->nkgt", q, k) * self.dim**-0.5
        if self.causal:
            hidden = torch.arange(keys, device="cuda")[None, :] > (rows + keys - queries)[:, None]
            scores.masked_fill_(hidden[:, None, None, :], float("-inf"))
        return torch.einsum("nkgt,tkd->nkgd", scores.softmax(-1), v).reshape(len(rows), self.heads, self.dim_vo)

    def floats(self, side, pages):
        """Pages of one side in a row, in float32. Bytes are gathered: not every type can be indexed."""
        if side.element_size() == 1 and side.dtype != self.torch.int8:
            side = side.view(self.torch.uint8)[pages].view(side.dtype)
        else:
            side = side[pages]
        return side.reshape(-1, *side.shape[2:]).float()

    def samples(self):
        """Sequences and rows of them that are compared."""
        count = len(self.case.lengths)
        for sequence in sorted({index * (count - 1) // max(1, SAMPLED_SEQUENCES - 1)
                                for index in range(SAMPLED_SEQUENCES)}):
            queries = self.case.lengths[sequence][0]
            picked = sorted({index * (queries - 1) // max(1, SAMPLED_ROWS - 1) for index in range(SAMPLED_ROWS)})
            yield sequence, self.torch.tensor(picked, device="cuda")

    def error(self, index, out=None, scattered=True):
        """Relative distance (Frobenius) of libattn's result, or of a peer's [row, head, dim], on samples."""
        above = below = 0.0
        for sequence, rows in self.samples():
            first = sum(pair[0] for pair in self.case.lengths[:sequence])
            want = self.reference(index, sequence, rows, scattered)
            got = (self.out if out is None else out)[first + rows].float()
            above += float((got - want).square().sum(dtype=self.torch.float64))
            below += float(want.square().sum(dtype=self.torch.float64))
        return (above / below) ** 0.5


def copies(problem, decodes):
    """How many times a peer takes the cache's size beside it."""
    keys = parse_problem(problem)
    heads = int(keys.get("heads", 1))
    return 1 if decodes else heads // int(keys.get("kv_heads", heads))


def of(view, decodes, packages):
    """What makes each peer of a case. Making one raises where it does not serve."""
    made = {"flash": lambda: Peer(view, "flash"), "cudnn": lambda: Peer(view, "cudnn"),
            "efficient": lambda: Peer(view, "efficient")}
    if decodes:
        made["cudnn, heads first"] = lambda: Peer(view, "cudnn", heads_first=True)
    made["fa3"] = lambda: others.FlashAttention3(view, packages, paged=False)
    if view.table is not None:
        made["fa3, paged"] = lambda: others.FlashAttention3(view, packages, paged=True)
    made["flashinfer"] = lambda: others.FlashInfer(view, packages, decodes)
    if decodes and view.table is not None:
        made["xqa"] = lambda: others.Xqa(view, packages)
    return {name: made[name] for name in NAMES if name in made}


class Peer:
    """One of torch's attention kernels on a case whose sequences are alike. Its cache is contiguous: the same
    memory as libattn's, read in order."""

    def __init__(self, view, backend, heads_first=False):
        torch = view.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if view.q_type.itemsize == 1 or view.k_type != view.q_type:
            raise ValueError("torch's kernels take no such types")
        self.torch, self.view = torch, view
        self.chosen = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
                       "efficient": SDPBackend.EFFICIENT_ATTENTION}[backend]
        self.limit = sdpa_kernel
        queries, keys = view.case.lengths[0]
        count, group = len(view.case.lengths), view.heads // view.kv_heads
        self.more = {"scale": view.dim**-0.5, "enable_gqa": group > 1 and backend != "efficient"}
        if backend == "efficient" and group > 1 and queries == 1:
            raise ValueError("it wants a copy of the cache for every query head")
        self.q = view.q.view(count, queries, view.heads, view.dim).transpose(1, 2)
        self.sets = []
        for index in range(view.case.sets):
            sides = [others.in_order(side, count, keys) for side in view.sides(index)]
            if backend == "efficient" and group > 1:
                sides = [side.repeat_interleave(group, dim=1) for side in sides]
            self.sets.append([side.contiguous() if heads_first else side for side in sides])
        if view.causal and queries == keys:
            self.more["is_causal"] = True
        elif view.causal and queries > 1:
            from torch.nn.attention.bias import causal_lower_right

            self.more["attn_mask"] = causal_lower_right(queries, keys)

    def run(self, index):
        k, v = self.sets[index]
        with self.limit(self.chosen), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.torch.nn.functional.scaled_dot_product_attention(self.q, k, v, **self.more)

    def error(self):
        out = self.run(0).transpose(1, 2)
        return self.view.error(0, out.reshape(self.view.rows, self.view.heads, self.view.dim_vo), scattered=False)


class Captured:
    """Calls of torch in a graph. What they read is kept with `capture`."""

    def __init__(self, torch, stream, capture):
        self.capture = capture
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.results = capture()

    def launch(self, _):
        self.graph.replay()


class Matmul:
    """The product of two square matrices of bf16."""

    SIZE = 8192

    def __init__(self, torch):
        self.torch = torch
        self.a, self.b = (torch.randn(self.SIZE, self.SIZE, device="cuda").bfloat16() for _ in range(2))
        self.out = torch.empty_like(self.a)
        self.flops = 2.0 * self.SIZE**3

    def run(self):
        self.torch.mm(self.a, self.b, out=self.out)
