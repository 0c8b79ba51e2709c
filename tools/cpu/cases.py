# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is measured on a CPU, and the bars that are set."""

from dataclasses import asdict, dataclass

DECODE, PREFILL, CHUNKS, GGML = "decode", "prefill", "chunked prefill", "ggml's own cases"
TYPES = ("bf16", "f16", "f32", "int8")  # of the cache; queries of int8 are bf16, and ggml has q8_0 for it
FLOATS = TYPES[:3]
ALL_PEERS = ("torch", "ggml", "vllm")


class Malformed(Exception):
    """An expression that finds no case, or numbers of threads that are none here."""


@dataclass
class Case:
    """`queries` tokens on `keys` of each of `seqs` sequences. `stock_mask`: a random f16 mask and no causality, as
    ggml's own tests have it, and f32 queries; the caches of ggml are then in the order of these tests, heads outside
    of the tokens. `aim`: what the time of the fastest peer by libattn's is to be at least."""

    name: str
    group: str
    seqs: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    dim: int
    kv: str
    aim: float
    peers: tuple = ALL_PEERS
    stock_mask: bool = False
    quick: bool = False

    @property
    def causal(self):
        return not self.stock_mask

    @property
    def decodes(self):
        return self.queries == 1

    @property
    def batch(self):
        return f"{self.seqs}x{self.queries}/{self.keys}"

    @property
    def problem(self):
        """The problem string for libattn."""
        text = f"heads={self.heads} kv_heads={self.kv_heads} head_dim={self.dim} "
        if self.stock_mask:
            return text + f"q=f32 kv={self.kv} causal=0 mask=f16"
        return text + ("q=bf16 kv=int8 scales=token-head" if self.kv == "int8" else f"q={self.kv}")

    @property
    def bench_arguments(self):
        """Mode and keys of attn-bench."""
        mode = "decode" if self.decodes else "prefill"
        return [mode, *self.problem.split(), f"seqs={self.seqs}", f"q_len={self.queries}", f"ctx={self.keys}"]

    def as_request(self):
        """The case as a peer's process gets it."""
        return {**asdict(self), "causal": self.causal}


def decode(name, seqs, keys, heads=32, kv_heads=8, dim=128, quick=()):
    return [Case(f"decode-{name}-{kv}", DECODE, seqs, 1, keys, heads, kv_heads, dim, kv, 1.5, quick=kv in quick)
            for kv in TYPES]


def prefill(name, queries, kv_heads=8, dim=128, quick=()):
    return [Case(f"prefill-{name}-{kv}", PREFILL, 1, queries, queries, 32, kv_heads, dim, kv, 1.2, quick=kv in quick)
            for kv in FLOATS]


def stock(name, queries, keys, heads, aim, quick=False):
    """A case of ggml's: 8 kv heads of 128, an f16 cache, and a mask."""
    return Case(f"ggml-{name}", GGML, 1, queries, keys, heads, 8, 128, "f16", aim, ("ggml",), True, quick)


def build():
    found = [
        *decode("1x4k", 1, 4096, quick=TYPES),
        *decode("1x16k", 1, 16384),
        *decode("8x4k", 8, 4096, quick=("bf16",)),
        *decode("32x1k", 32, 1024),
        *decode("gqa1-1x4k", 1, 4096, kv_heads=32),
        *decode("gqa8-1x4k", 1, 4096, kv_heads=4),
        *decode("d64-1x4k", 1, 4096, dim=64),
    ]
    for name, queries in (("512", 512), ("1k", 1024), ("2k", 2048)):
        found += prefill(name, queries, quick=FLOATS if name == "1k" else ())
        found += prefill(f"gqa1-{name}", queries, kv_heads=32)
    found += prefill("d64-2k", 2048, dim=64)
    found += [Case(f"chunk-512-8k-{kv}", CHUNKS, 1, 512, 8192, 32, 8, 128, kv, 1.2, quick=kv == "bf16")
              for kv in FLOATS]
    return found + [
        stock("gqa4-4k", 1, 4096, 32, 1.5, quick=True),
        stock("gqa4-16k", 1, 16384, 32, 1.5),
        stock("gqa1-4k", 1, 4096, 8, 1.0),
        stock("gqa1-16k", 1, 16384, 8, 1.0),
        stock("prefill-512", 512, 512, 32, 1.3),
    ]


def chosen(expression, quick):
    """The cases that were asked for; raises Malformed."""
    found = [case for case in build() if case.quick or not quick]
    if expression is not None:
        found = [case for case in found if expression.search(case.name)]
    if not found:
        raise Malformed(f'no case\'s name has "{expression.pattern}"; --list shows the names')
    return found


def judge(case, runs):
    """The bar of a case with its ratio, of medians and of the shortest times; none where a side was not measured."""
    def ratio(key):
        times = {name: run["us"][key] for name, run in runs.items() if "us" in run}
        own = times.pop("libattn", None)
        return min(times.values()) / own if own and times else None

    of_medians = ratio("median")
    return {"text": "against the fastest peer", "ratio": of_medians, "ratio_min": ratio("min"), "aim": case.aim,
            "sense": "least", "passed": None if of_medians is None else of_medians >= case.aim}
