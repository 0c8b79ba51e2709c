# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is measured, and the bars that are set."""

import re
from dataclasses import dataclass, field

SINGLE = ("prefill", "chunked prefill", "operations on caches")  # groups whose calls are timed one by one
HEADS = "heads=32 kv_heads=8 head_dim=128 q=bf16"
MOST_SEQUENCES, MOST_KEYS = 65536, 1 << 24


class Malformed(Exception):
    """A text that describes no batch."""


@dataclass
class Bar:
    """us[above] / us[below] (`peers` is the fastest of torch's paths) is to be at least or at most `aim`."""

    text: str
    above: str
    below: str
    sense: str
    aim: float


@dataclass
class Case:
    """`others`: libattn once more, under another problem or with pages in order, sampled in alternation."""

    name: str
    group: str
    problem: str
    batch: str
    bars: list = field(default_factory=list)
    others: dict = field(default_factory=dict)  # name: (problem, ordered)
    peers: bool = True
    quick: bool = False

    @property
    def lengths(self):
        return parse_batch(self.batch)


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
    return [Bar("against the fastest of torch's paths on a contiguous cache", "peers", "libattn", "least", aim)]


def decode(name, batch, problem=HEADS, bars=(), **more):
    return Case("decode-" + name, "decode", problem, batch, list(bars), **more)


def prefill(name, batch, problem, bars=(), **more):
    return Case("prefill-" + name, "prefill", problem, batch, list(bars), **more)


def fp8(name, batch, kv, scales="unit", bars=(), **more):
    return Case(name, "8-bit cache", f"{HEADS} kv={kv} scales={scales}", batch, list(bars), peers=False, **more)


def build():
    dense32 = "heads=32 kv_heads=32 head_dim={} q=bf16 addr=dense"
    dense8 = "heads=32 kv_heads=8 head_dim={} q=bf16 addr=dense"
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
        prefill("d64-16k", "1x16384/16384", dense32.format(64)),
        prefill("d256-16k", "1x16384/16384", dense32.format(256)),
        Case("chunk-2k-16k", "chunked prefill", HEADS, "1x2048/16384"),
        Case("chunk-512-16k", "chunked prefill", HEADS, "1x512/16384"),
        Case("chunk-512-64k", "chunked prefill", HEADS, "1x512/65536"),
        Case("mixed", "mixed", HEADS, "1x2048/8192+63x1/4096", peers=False),
        Case("mla-16-128-4k", "MLA decode", mla.format(16), "128x1/4096", peers=False),
        Case("mla-128-32-4k", "MLA decode", mla.format(128), "32x1/4096", peers=False),
        Case("cache", "operations on caches", HEADS, "32x1/2048", peers=False),
    ]
