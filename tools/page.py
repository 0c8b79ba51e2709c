# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the pages of tools/results-page share: style, checks of a document, and how numbers are written."""

import math
from html import escape

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1d2125; --muted: #5b6570; --rule: #d8dde2;
  --memory: #2a6fb0; --arithmetic: #c2611a; --over: #c6ced6; --other: #8fb6d8; }
@media (prefers-color-scheme: dark) { :root { --back: #15181b; --text: #e7e9eb; --muted: #a0aab3;
  --rule: #363d44; --memory: #5aa2e0; --arithmetic: #e38f4a; --over: #4a535c; --other: #35597a; } }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 940px; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: .3rem; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .2rem; }
.muted { color: var(--muted); } svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--text); font: 13px system-ui, sans-serif; paint-order: stroke; stroke: var(--back);
  stroke-width: 3px; }
svg .small { fill: var(--muted); font-size: 12px; }
svg .memory { fill: var(--memory); } svg .arithmetic { fill: var(--arithmetic); }
svg .over { fill: var(--over); } svg .other { fill: var(--other); }
svg .notch { fill: var(--back); } svg .grid { stroke: var(--rule); }
svg .roof { stroke: var(--text); stroke-width: 2; }
.key { display: inline-block; width: .9em; height: .9em; vertical-align: -.1em; margin: 0 .3em 0 1em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { border-bottom: 1px solid var(--rule); padding: .25rem .4rem; text-align: right;
  white-space: nowrap; }
th { color: var(--muted); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
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


def short(value):
    """Three digits that count, without an exponent."""
    if value is None:
        return "–"
    if value < 1e-3:
        return f"{value:.1e}"
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:,.{digits}f}"


def duration(us):
    return f"{short(us / 1000)} ms" if us >= 1000 else f"{short(us)} µs"


def tick_step(most):
    """Distance of the lines behind the bars: 1, 2 or 5 times a power of ten, at most eight of them."""
    decade = 1
    while True:
        for step in (decade, 2 * decade, 5 * decade):
            if most / step <= 8:
                return step
        decade *= 10


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
