# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is measured, and the bars that are set."""

import re
from dataclasses import dataclass, field

CACHES = "operations on caches"  # the group of these, which are no attention
ROWS = "cliffs"  # the group of gpu-bench --rows
COMPUTE = ("prefill", "chunked prefill")  # groups that arithmetic bounds, not memory
HEADS = "heads=32 kv_heads=8 head_dim=128 q=bf16"
MOST_SEQUENCES, MOST_KEYS = 65536, 1 << 24
MANY_QUERIES = 64  # of a sequence, beyond which arithmetic bounds a case rather than memory


class Malformed(Exception):
    """A text that describes no batch."""


@dataclass
class Bar:
    """us[above] / us[below] (`peers` is the fastest of them) is to be at least or at most `aim`. Where `below` is
    "us" or "tflops" it is this figure of `above` itself."""

    text: str
    above: str
    below: str
    sense: str
    aim: float


@dataclass
class Case:
    """`others`: libattn once more, under another problem or with pages in order, sampled in alternation. `prefix`: keys
    that all sequences begin with."""

    name: str
    group: str
    problem: str
    batch: str
    bars: list = field(default_factory=list)
    others: dict = field(default_factory=dict)  # name: (problem, ordered)
    peers: bool = True
    quick: bool = False
    prefix: int = 0

    @property
    def lengths(self):
        return parse_batch(self.batch)

    @property
    def description(self):
        """The batch in words."""
        return self.batch + (f", the first {self.prefix} keys shared" if self.prefix else "")

    @property
    def decodes(self):
        return all(queries == 1 for queries, _ in self.lengths)

    @property
    def computes(self):
        """Whether the rate of a matrix product is its ceiling, else that of reading."""
        if self.group == ROWS:
            rated = any(bar.below == "tflops" for bar in self.bars)
            return rated or all(queries > MANY_QUERIES for queries, _ in self.lengths)
        return self.group in COMPUTE


def parse_batch(text):
    """Pairs of query tokens and keys: "32x1/4096", or several such runs joined by "+"."""
    lengths = []
    for run in text.split("+"):
        match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})/([0-9]{1,9})", run.strip())
        if not match:
            raise Malformed(f'batch "{text}": "{run}" is no run of sequences; accepted is SEQUENCESxQUERIES/KEYS, '
                            "and several of them joined by +")
        count, queries, keys = (int(number) for number in match.groups())
        if not 1 <= count <= MOST_SEQUENCES or len(lengths) + count > MOST_SEQUENCES:
            raise Malformed(f'batch "{text}" has {len(lengths) + count} sequences; accepted are 1 to '
                            f"{MOST_SEQUENCES}")
        if not 1 <= queries <= keys <= MOST_KEYS:
            raise Malformed(f'batch "{text}": {queries} query tokens over {keys} keys; accepted are 1 to '
                            f"as many as there are keys, and keys up to {MOST_KEYS}")
        lengths += [(queries, keys)] * count
    return lengths


def against_peers(aim):
    return [Bar("against the fastest peer", "peers", "libattn", "least", aim)]


def decode(name, batch, problem=HEADS, bars=(), **more):
    return Case("decode-" + name, "decode", problem, batch, list(bars), **more)


def prefill(name, batch, problem, bars=(), **more):
    return Case("prefill-" + name, "prefill", problem, batch, list(bars), **more)


def cascade(name, batch, prefix, aim):
    return Case("cascade-" + name, "cascade", HEADS + " cascade=64", batch, peers=False, prefix=prefix,
                others={"flat": (HEADS, False)}, bars=[Bar("against reading the prefix for each sequence", "flat",
                                                           "libattn", "least", aim)])


def fp8(name, batch, kv, scales="unit", bars=(), **more):
    return Case(name, "8-bit cache", f"{HEADS} kv={kv} scales={scales}", batch, list(bars),
                peers=more.pop("peers", scales == "unit"), **more)


def build():
    dense32 = "heads=32 kv_heads=32 head_dim={} q=bf16 addr=dense"
    dense8 = "heads=32 kv_heads=8 head_dim={} q=bf16 addr=dense"
    e4m3 = "heads=32 kv_heads=32 head_dim=128 q=e4m3 kv=e4m3 scales=unit q_scale=unit addr=dense"
    mla = "heads={} kv_heads=1 head_dim=576/512 q=bf16 mla=1 block=64"
    return [
        decode("1-1k", "1x1/1024"),
        decode("1-16k", "1x1/16384"),
        decode("1-64k", "1x1/65536"),
        decode("8-1k", "8x1/1024"),
        decode("8-4k", "8x1/4096", bars=against_peers(0.80), quick=True),
        decode("32-1k", "32x1/1024"),
        decode("32-4k", "32x1/4096", bars=against_peers(0.80), quick=True),
        decode("128-4k", "128x1/4096", bars=against_peers(0.80), quick=True),
        decode("gather-32-4k", "32x1/4096", quick=True,
               others={"in order": (HEADS, True), "pages of 4096": (HEADS + " block=4096", False)},
               bars=[Bar("pages of 16 at random against the same in order", "libattn", "in order", "most", 1.10),
                     Bar("pages of 16 at random against one page a sequence", "libattn", "pages of 4096", "most",
                         1.10)], peers=False),
        decode("mqa-32-16k", "32x1/16384", "heads=32 kv_heads=1 head_dim=128 q=bf16"),
        decode("mha-8-4k", "8x1/4096", "heads=32 kv_heads=32 head_dim=128 q=bf16"),
        decode("d64-32-4k", "32x1/4096", "heads=32 kv_heads=8 head_dim=64 q=bf16"),
        decode("d256-32-4k", "32x1/4096", "heads=32 kv_heads=8 head_dim=256 q=bf16"),
        Case("skew", "skew", HEADS, "1x1/65536+31x1/1024", peers=False, quick=True,
             bars=[Bar("one sequence of 64k and 31 of 1k against reading their bytes", "libattn", "read", "most",
                       1.4)]),
        fp8("fp8-8-4k", "8x1/4096", "e4m3"),
        fp8("fp8-32-4k", "32x1/4096", "e4m3", others={"bf16": (HEADS, False)}, quick=True,
              bars=[Bar("an e4m3 cache against a bf16 one", "bf16", "libattn", "least", 1.4)]),
        fp8("fp8-128-4k", "128x1/4096", "e4m3"),
        fp8("e5m2-32-4k", "32x1/4096", "e5m2"),
        fp8("int8-32-4k", "32x1/4096", "int8", "token-head"),
        prefill("16k", "1x16384/16384", dense32.format(128), quick=True,
                bars=[Bar("against torch's flash path", "flash", "libattn", "least", 1.0)]),
        prefill("4k", "4x4096/4096", dense32.format(128)),
        prefill("1k", "16x1024/1024", dense32.format(128)),
        prefill("gqa-16k", "1x16384/16384", dense8.format(128)),
        prefill("full-16k", "1x16384/16384", dense32.format(128) + " causal=0"),
        prefill("pages-16k", "1x16384/16384", HEADS),
        prefill("e4m3-16k", "1x16384/16384", e4m3, others={"bf16": (dense32.format(128), False)}),
        prefill("e4m3-4k", "4x4096/4096", e4m3, others={"bf16": (dense32.format(128), False)}),
        prefill("d64-16k", "1x16384/16384", dense32.format(64)),
        prefill("d256-16k", "1x16384/16384", dense32.format(256)),
        Case("chunk-2k-16k", "chunked prefill", HEADS, "1x2048/16384"),
        Case("chunk-512-16k", "chunked prefill", HEADS, "1x512/16384"),
        Case("chunk-512-64k", "chunked prefill", HEADS, "1x512/65536"),
        *(fp8(f"{kv}-prefill-{name}", batch, kv, scales, others={"bf16": (HEADS, False)}, peers=False,
              bars=[Bar(f"an {kv} cache against a bf16 one", "bf16", "libattn", "least", 0.85)])
          for kv, scales in (("e4m3", "unit"), ("int8", "token-head"))
          for name, batch in (("16k", "1x16384/16384"), ("512-16k", "1x512/16384"), ("1k", "16x1024/1024"))),
        Case("mixed", "mixed", HEADS, "1x2048/8192+63x1/4096", peers=False),
        cascade("64-32k", "64x1/33280", 32768, 6),
        cascade("64-4k", "64x1/4608", 4096, 1.3),
        cascade("64-none", "64x1/4608", 0, 0.9),
        Case("mla-16-128-4k", "MLA decode", mla.format(16), "128x1/4096", peers=False),
        Case("mla-128-32-4k", "MLA decode", mla.format(128), "32x1/4096", peers=False),
        Case("cache", CACHES, HEADS, "32x1/2048", peers=False),
    ]


def row(name, problem, batch, text, above, below, sense, aim, **more):
    """A case with one bar."""
    bar = Bar(text, above, below, sense, aim)
    return Case(name, ROWS, problem, batch, [bar], peers=more.pop("peers", False), **more)


def within(name, batch, us, problem=HEADS):
    return row(name, problem, batch, "microseconds", "libattn", "us", "most", us, peers=True)


def beside(name, batch, problem, other, text, aim, sense="least"):
    """The time of `other` (a name and a problem) by that of `problem`, at least; or the other way round, at most."""
    above, below = (other[0], "libattn") if sense == "least" else ("libattn", other[0])
    return row(name, problem, batch, text, above, below, sense, aim, others={other[0]: (other[1], False)})


def reading(name, batch, problem, aim):
    return row(name, problem, batch, "share of the rate at which memory is read", "read", "libattn", "least", aim)


def matrix_rate(name, batch, problem, aim):
    return row(name, problem, batch, "TFLOP/s", "libattn", "tflops", "least", aim)


def query_rows():
    """Query tokens over a long and a short context: no step where kernels change."""
    for queries in (1, 2, 4, 8, 12, 16, 17, 24, 32, 48, 64, 96, 128, 256, 512, 1024):
        made = row(f"q{queries}-32k", HEADS, f"1x{queries}/32768", "against FlashAttention-2", "libattn", "flash",
                   "most", 1.15, peers=True)
        if queries == 17:
            made.bars.append(Bar("microseconds", "libattn", "us", "most", 150))
        yield made
    yield within("q17-4k", "1x17/4096", 30)
    yield within("q64-4k", "1x64/4096", 30)
    yield within("q17-8-8k", "8x17/8192", 100)


def feature_rows():
    plain, masked = ("plain", HEADS), " span=full"
    for name, keys in (("alibi", "alibi=key"), ("softcap", "softcap=20")):
        yield beside(f"prefill-{name}", "1x4096/4096", f"{HEADS} {keys}", plain, "against no such feature", 0.85)
    for name in ("bits", "f16"):
        yield beside(f"prefill-mask-{name}", "1x2048/2048", f"{HEADS} mask={name}{masked}", plain,
                     "against no mask", 0.6)
    for name in ("e4m3", "int8"):
        for kind, batch in (("decode", "32x1/4096"), ("prefill", "1x2048/2048")):
            yield beside(f"{kind}-out-{name}", batch, f"{HEADS} out={name} out_scale=unit", plain,
                         "against bf16 results", 0.85)
    for name, batch in (("det-32-4k", "32x1/4096"), ("det-1-64k", "1x1/65536")):
        yield beside(name, batch, HEADS + " det=1", ("without", HEADS), "against det=0", 1.1, "most")
    yield reading("decode-mask-bits", "32x1/4096", f"{HEADS} mask=bits{masked}", 0.75)


def type_rows():
    cache, heads = HEADS + " kv={} scales={}", HEADS.replace("q=bf16", "q={}")
    yield beside("prefill-int8", "1x4096/4096", cache.format("int8", "token-head"), ("bf16", HEADS),
                 "against a bf16 cache", 0.85)
    for name, batch in (("decode-q-e4m3", "32x1/4096"), ("prefill-q-e4m3", "1x2048/2048")):
        yield beside(name, batch, heads.format("e4m3 kv=e4m3 scales=unit q_scale=unit"),
                     ("bf16 queries", cache.format("e4m3", "unit")), "against bf16 queries", 0.9)
    for kv in ("e4m3", "e5m2"):
        for name, batch in (("decode", "32x1/4096"), ("prefill", "1x2048/2048")):
            yield beside(f"{name}-{kv}fnuz", batch, cache.format(kv + "fnuz", "unit"), (kv, cache.format(kv, "unit")),
                         f"against {kv}", 0.85)
    yield row("decode-f32", heads.format("f32"), "32x1/4096", "against reading its bytes", "libattn", "read", "most",
              1.1)
    yield within("prefill-f32", "1x2048/2048", 1200, heads.format("f32"))


def size_rows():
    dim, mla = "heads=32 kv_heads=8 head_dim={} q=bf16", "heads={} kv_heads=1 head_dim=576/512 q=bf16 mla=1 block=64"
    yield beside("mla-e4m3-32-4k", "32x1/4096", mla.format(16) + " kv=e4m3 k_scale=unit", ("bf16", mla.format(16)),
                 "against a bf16 cache", 0.7, "most")
    yield matrix_rate("mla-128-128-4k", "128x1/4096", mla.format(128), 330)
    yield row("mla-16-1-64k", mla.format(16), "1x1/65536", "microseconds", "libattn", "us", "most", 60)
    yield reading("decode-d512", "32x1/4096", dim.format(512), 0.5)
    yield beside("prefill-d512", "1x2048/2048", dim.format(512), ("d256", dim.format(256)), "against half its size",
                 0.3)
    for size in (40, 80):
        yield reading(f"decode-d{size}", "32x1/4096", dim.format(size), 0.75)
    yield reading("decode-1024-64", "1024x1/64", HEADS, 0.6)
    yield matrix_rate("prefill-d256-rate", "1x16384/16384", "heads=32 kv_heads=32 head_dim=256 q=bf16 addr=dense", 330)
    yield within("decode-1-1k-us", "1x1/1024", 8)
    yield within("decode-8-1k-us", "8x1/1024", 15)


def rows():
    """What fell off a cliff once, each with what it must be."""
    return [*query_rows(), *feature_rows(), *type_rows(), *size_rows()]
