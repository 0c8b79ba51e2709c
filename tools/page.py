# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the pages of tools/results-page share: style, checks of a document, and how numbers are written."""

import math
from html import escape

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1d2125; --muted: #5b6570; --rule: #d8dde2;
  --track: #eceff2; --blue: #2a6fb0; --orange: #c2611a; --pale: #8fb6d8; }
@media (prefers-color-scheme: dark) { :root { --back: #15181b; --text: #e7e9eb; --muted: #a0aab3;
  --rule: #363d44; --track: #24292e; --blue: #5aa2e0; --orange: #e38f4a; --pale: #35597a; } }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 1100px; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .2rem; }
p { max-width: 60rem; } .muted, figcaption { color: var(--muted); } figure { margin: 0; }
figcaption { max-width: 60rem; margin-bottom: .6rem; }
.case { margin: .7rem 0 .1rem; } .case .muted { margin-left: .5em; }
.run { display: grid; grid-template-columns: 11rem 1fr 17rem; column-gap: .6rem; align-items: center;
  font-size: 13px; }
.label { text-align: right; color: var(--muted); } .value { white-space: nowrap; }
.track { position: relative; height: 12px; }
.track::before { content: ""; position: absolute; inset: 0 auto 0 0; width: calc(100% / var(--most));
  background: var(--track); }
.track::after { content: ""; position: absolute; inset: -2px auto -2px calc(100% / var(--most) - 1px);
  border-left: 2px solid var(--text); }
.bar { position: absolute; inset: 0 auto 0 0; }
.memory, .own { background: var(--blue); } .compute, .peer { background: var(--orange); }
.other { background: var(--pale); }
.key { display: inline-block; width: .9em; height: .9em; vertical-align: -.1em; margin: 0 .3em 0 0; }
.keys > span { display: inline-block; margin-right: 1em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { border-bottom: 1px solid var(--rule); padding: .25rem .4rem; text-align: right;
  white-space: nowrap; }
th { color: var(--muted); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
td:first-child { white-space: normal; min-width: 9rem; overflow-wrap: anywhere; }
@media (max-width: 700px) { .run { grid-template-columns: 1fr; margin-top: .35rem; }
  .label { text-align: left; } .value { white-space: normal; } }
"""


class Malformed(Exception):
    """What is wrong with the document."""


def number(value, where):
    """A number above zero, or None for null."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise Malformed(f"{where} is {value!r}; accepted are numbers above 0 and null")
    return value


def text(value, where):
    """A string, or "" for null and what is not there."""
    if value is not None and not isinstance(value, str):
        raise Malformed(f"{where} is {value!r}; accepted are strings and null")
    return value or ""


def mapping(value, where):
    if not isinstance(value, dict):
        raise Malformed(f"{where} is no object")
    return value


def needed(value, where):
    if number(value, where) is None:
        raise Malformed(f"{where} is null; accepted are numbers above 0")
    return value


class Run:
    """What was measured of one kernel or library on one case, or why nothing was."""

    def __init__(self, name, source, where):
        mapping(source, where)
        self.name = name
        self.absent = text(source.get("missing"), f"{where}.missing") or text(source.get("wrong"), f"{where}.wrong")
        self.wrong = "wrong" in source
        if not self.absent:
            us = mapping(source.get("us"), f"{where}.us")
            self.median, self.least, self.most = (
                needed(us.get(key), f"{where}.us.{key}") for key in ("median", "min", "max"))


def short(value):
    """Three digits that count, without an exponent."""
    if value is None:
        return "–"
    if value < 1e-3:
        return f"{value:.1e}"
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:,.{digits}f}"


def duration(us):
    size, name = next((size, name) for size, name in ((1e6, "s"), (1000, "ms"), (0, "µs")) if us >= size)
    return f"{short(us / (size or 1))} {name}"


def rates(values, units):
    """Rates in the unit that leaves one to three digits before the point of the last one; "6.80 of 13.6 GB/s"."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    size, name = next((unit for unit in units if known[-1] >= unit[0]), units[-1])
    return " of ".join(short(value / size) for value in known) + " " + name


def bandwidth(*gbps):
    return rates(gbps, ((1000, "TB/s"), (1, "GB/s"), (1e-3, "MB/s")))


def compute(*tflops):
    return rates(tflops, ((1, "TFLOP/s"), (1e-3, "GFLOP/s"), (1e-6, "MFLOP/s")))


def percent(share):
    return "–" if share is None else f"{share * 100:.0f} %"


def bar(label, share, kind, value, most, shown=None):
    """One bar: as long as its share, before a track that ends at the ceiling; `most` is the longest of the page. `shown`
    stands behind it where the share is no percentage."""
    return (f'<div class="run"><span class="label">{escape(label)}</span>'
            f'<span class="track" style="--most: {most:.4f}">'
            f'<span class="bar {kind}" style="width: {share / most * 100:.2f}%"></span></span>'
            f'<span class="value">{shown or percent(share)} <span class="muted">{escape(value)}</span></span></div>')


def heading(name, batch):
    """Above the bars of a case."""
    return f'<div class="case">{escape(name)}<span class="muted">{escape(batch)}</span></div>'


def chart(caption, lines):
    return "\n".join(["<figure>", f"<figcaption>{escape(caption)}</figcaption>", *lines, "</figure>"])


def legend(*keys):
    """What the colours mean: pairs of a class and a text."""
    return '<p class="muted keys">' + "".join(
        f'<span><span class="key {kind}"></span>{escape(meaning)}</span>' for kind, meaning in keys) + "</p>"


def head(title):
    """The lines before a page's first heading."""
    return [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        "</head>",
        "<body>",
        f"<h1>{escape(title)}</h1>",
    ]


def table(titles, rows):
    """Cells are texts; the first column is a name."""
    lines = ['<div class="wide"><table>', "<tr>" + "".join(f"<th>{title}</th>" for title in titles) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join(lines + ["</table></div>"])
