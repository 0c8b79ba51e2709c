# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A picture of what tools/gpu-bench measured: libattn beside the fastest peer, a bar a case.

Which cases: those of decode whose problem is 32 heads over 8 kv heads of 128, in bf16, and of the others those that
have an aim; each only where a peer was measured. Nothing is chosen by its result.
"""

from html import escape

from gpu_page import PEERS, SINGLE, Case, torch_version
from page import Malformed, duration, mapping, text

WIDTH, EDGE, NAME, VALUE = 880, 16, 150, 56  # of the picture, its edge, names before the bars, ratios behind them
HEAD, LINE, BAR, FOOT = 62, 42, 14, 48
COMMON_PROBLEM = {"heads=32", "kv_heads=8", "head_dim=128"}
SIZES = ("max_seqs", "max_q", "max_kv", "max_rows")

STYLE = """
svg { color-scheme: light dark; --back: #ffffff; --text: #1d2125; --muted: #5b6570; --track: #eceff2; --blue: #2a6fb0; }
@media (prefers-color-scheme: dark) { svg { --back: #15181b; --text: #e7e9eb; --muted: #a0aab3; --track: #24292e;
  --blue: #5aa2e0; } }
text { fill: var(--text); font: 13px system-ui, sans-serif; } .title { font-size: 15px; font-weight: 600; }
.small { fill: var(--muted); font-size: 12px; } .back { fill: var(--back); } .track { fill: var(--track); }
.own { fill: var(--blue); } .line { stroke: var(--text); stroke-width: 2; }
"""


def is_common(source):
    """Whether a case's problem is the one of most decode cases, sizes of the step aside."""
    run = mapping(source.get("runs"), "runs").get("libattn", {})
    keys = text(mapping(run, "libattn").get("problem"), "problem").split()
    return {key for key in keys if key.partition("=")[0] not in SIZES} == COMMON_PROBLEM


def chosen(document):
    """Cases by the rule above, with libattn's run and the fastest peer's."""
    sources = document.get("cases")
    if document.get("tool") != "gpu-bench" or document.get("schema_version") != 1 or not isinstance(sources, list):
        raise Malformed("no picture is made of this; accepted is what tools/gpu-bench --json writes")
    for index, source in enumerate(sources):
        case = Case(source, index)
        if case.ours is None or not case.peers:
            continue
        if case.bars or (case.group == "decode" and is_common(source)):
            yield case, case.ours, case.peers[0]


def draw(case, ours, best, top, scale):
    """Name and times of a case, and its bar."""
    ratio = best.median / ours.median
    begin = EDGE + NAME
    times = "; ".join(f"{PEERS[peer.name]} {duration(peer.median)}" for peer in case.peers)
    timed = "graph" if case.timed == "calls in a graph" else case.timed
    return "\n".join([
        f'<text x="{EDGE}" y="{top + 12}">{escape(case.name)}</text>',
        f'<text class="small" x="{EDGE}" y="{top + 28}">{escape(case.batch)}</text>',
        f'<rect class="track" x="{begin}" y="{top}" width="{scale:.2f}" height="{BAR}"/>',
        f'<rect class="own" x="{begin}" y="{top}" width="{ratio * scale:.2f}" height="{BAR}"/>',
        f'<text x="{WIDTH - EDGE}" y="{top + 12}" text-anchor="end">{ratio:.2f}</text>',
        f'<text class="small" x="{begin}" y="{top + 28}">libattn {duration(ours.median)}; {escape(times)} '
        f'({escape(timed)})</text>'])


def picture(document):
    mapping(document, "the document")
    cases = list(chosen(document))
    if not cases:
        raise Malformed("no case has both libattn and a peer, so there is nothing to draw")
    device = mapping(mapping(document.get("device"), "device").get("before"), "device.before")
    name = text(device.get("name"), "device.before.name") or "a GPU"
    most = max([1.0] + [best.median / ours.median for _, ours, best in cases])
    scale = (WIDTH - 2 * EDGE - NAME - VALUE) / most
    height = HEAD + LINE * len(cases) + FOOT
    line = EDGE + NAME + scale
    title = f"Speed of libattn beside the fastest of other attention kernels, on {name}"
    note = ("Speed relative to the fastest peer, the line at 1.00; longer is better. Batch: sequences x query tokens / "
            "keys.")
    single = any(case.timed == SINGLE for case, _, _ in cases)
    caution = " single calls: the host's part is in them, which makes peers look slower." if single else ""
    feet = ("Median times of a call. graph: calls in a CUDA graph." + caution,
            f"libattn {text(document.get('libattn'), 'libattn')}, {torch_version(document)}; bf16. Made of "
            "docs/results/cuda.json, with all other cases on the page beside it.")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text class="title" x="{EDGE}" y="26">{escape(title)}</text>',
        f'<text class="small" x="{EDGE}" y="46">{escape(note)}</text>',
        *(draw(case, ours, best, HEAD + LINE * index, scale) for index, (case, ours, best) in enumerate(cases)),
        *(f'<line class="line" x1="{line:.2f}" x2="{line:.2f}" y1="{HEAD + LINE * index - 3}" '
          f'y2="{HEAD + LINE * index + BAR + 3}"/>' for index in range(len(cases))),
        *(f'<text class="small" x="{EDGE}" y="{height - 30 + 18 * index}">{escape(foot)}</text>'
          for index, foot in enumerate(feet)),
        "</svg>"]) + "\n"
