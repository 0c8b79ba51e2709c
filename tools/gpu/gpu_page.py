# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of what tools/gpu-bench measured: bars of shares of the ceilings, and all numbers."""

from html import escape

import page as common
from page import Malformed, duration, mapping, number, short, text

WIDTH, LEFT, NAME, RIGHT = 720, 8, 190, 150  # of a drawing: edge, names before the bars, numbers behind them
LINE, BAR, HEAD = 19, 12, 26


class Run:
    """One kernel on one case, or why there is none."""

    def __init__(self, name, source, where):
        mapping(source, where)
        self.name = name
        self.absent = text(source.get("missing"), f"{where}.missing") or text(source.get("wrong"), f"{where}.wrong")
        self.wrong = "wrong" in source
        if not self.absent:
            us = mapping(source.get("us"), f"{where}.us")
            self.median, self.least, self.most = (
                self.need(us.get(key), f"{where}.us.{key}") for key in ("median", "min", "max"))
        self.ceiling = text(source.get("ceiling"), f"{where}.ceiling")
        self.share = number(source.get("share"), f"{where}.share")
        self.tbps = number(source.get("tbps") or None, f"{where}.tbps")
        self.tflops = number(source.get("tflops") or None, f"{where}.tflops")
        self.error = number(source.get("error") or None, f"{where}.error")
        self.kernels = text(source.get("kernels"), f"{where}.kernels")
        self.own = "problem" in source

    @staticmethod
    def need(value, where):
        if number(value, where) is None:
            raise Malformed(f"{where} is null; accepted are numbers above 0")
        return value

    @property
    def drawn(self):
        return not self.absent and self.share is not None and self.ceiling != self.name

    @property
    def kind(self):
        if self.name == "libattn" or (self.own and self.ceiling.startswith("plain")):
            return "memory"
        return "other" if self.own or self.name.startswith("gather") else "arithmetic"


class Case:
    def __init__(self, source, index):
        where = f"cases[{index}]"
        mapping(source, where)
        self.name, self.group, self.batch = (text(source.get(key), f"{where}.{key}")
                                             for key in ("name", "group", "batch"))
        if not self.name:
            raise Malformed(f"{where} has no name")
        self.runs = [Run(name, run, f"{where}.runs.{name}")
                     for name, run in mapping(source.get("runs"), f"{where}.runs").items()]
        bars = source.get("bars", [])
        if not isinstance(bars, list):
            raise Malformed(f"{where}.bars is no array")
        self.bars = [self.read_bar(bar, f"{where}.bars[{place}]") for place, bar in enumerate(bars)]

    def read_bar(self, bar, where):
        """Cells of the table of bars."""
        mapping(bar, where)
        passed = bar.get("passed")
        if not (passed is None or isinstance(passed, bool)) or bar.get("sense") not in ("least", "most"):
            raise Malformed(f"{where} has no passed (true, false, null) or no sense (least, most)")
        ratio, aim = number(bar.get("ratio"), f"{where}.ratio"), number(bar.get("aim"), f"{where}.aim")
        return [f"{self.name}: {text(bar.get('text'), where + '.text')}", "–" if ratio is None else f"{ratio:.3f}",
                f"at {bar['sense']} {short(aim)}", {True: "pass", False: "miss", None: "not measured"}[passed]]


def draw_run(run, top, scale):
    shown = run.name if len(run.name) <= 26 else run.name[:25] + "…"
    begin = LEFT + NAME
    behind = f"{run.share * 100:.0f} %"
    rate = f"{short(run.tflops)} TFLOP/s" if run.ceiling == "matmul" else f"{short(run.tbps)} TB/s"
    return (f"<g><title>{escape(run.name)}: {duration(run.median)}, {run.share * 100:.1f} % of {escape(run.ceiling)}"
            f'</title><text class="small" x="{begin - 6}" y="{top + 11}" text-anchor="end">{escape(shown)}</text>'
            f'<rect class="{run.kind}" x="{begin}" y="{top}" width="{run.share * scale:.2f}" height="{BAR}"/>'
            f'<text x="{begin + run.share * scale + 6:.2f}" y="{top + 11}">{behind} '
            f'<tspan class="small">{rate}, {duration(run.median)}</tspan></text></g>')


def draw(group, cases, most):
    """The bars of one group, case by case."""
    scale = (WIDTH - LEFT - NAME - RIGHT) / most
    lines, top = [], 0
    for case in cases:
        lines.append(f'<text x="{LEFT}" y="{top + 16}">{escape(case.name)}'
                     f'<tspan class="small" dx="8">{escape(case.batch)}</tspan></text>')
        top += HEAD
        for run in case.runs:
            if run.drawn:
                lines.append(draw_run(run, top, scale))
                top += LINE
    roof = LEFT + NAME + scale  # behind the numbers
    lines.insert(0, f'<line class="roof" x1="{roof:.2f}" x2="{roof:.2f}" y1="{HEAD - 4}" y2="{top}"/>')
    label = f"{escape(group)}: share of the ceiling"
    return "\n".join([f'<svg viewBox="0 0 {WIDTH} {top + 6}" role="img" aria-label="{label}">', *lines, "</svg>"])


def cells(case, run):
    name = f"{case.name}, {run.name}"
    if run.absent:
        return [name, run.absent if len(run.absent) <= 60 else run.absent[:59] + "…"] + ["–"] * 5
    return [name, duration(run.median), f"{duration(run.least)} to {duration(run.most)}", short(run.tbps),
            short(run.tflops), "–" if run.share is None else f"{run.share:.3f} of {run.ceiling}",
            "–" if run.error is None else f"{run.error:.1e}"]


def describe(document):
    """A line on what was measured on, and with what."""
    device = mapping(document.get("device"), "device")
    before = mapping(device.get("before"), "device.before")
    versions = mapping(document.get("versions"), "versions")
    parts = [text(before.get("name"), "device.before.name") or "device not known"]
    for key, title, unit in (("driver_version", "driver", ""), ("clocks.max.sm", "up to", " MHz"),
                             ("power.limit", "limit", " W")):
        value = text(before.get(key), f"device.before.{key}")
        if value:
            parts.append(f"{title} {value}{unit}")
    torch = text(versions.get("torch"), "versions.torch")
    parts.append(f"torch {torch}" if torch else "without torch")
    cudnn = number(versions.get("cudnn"), "versions.cudnn")
    if cudnn is not None:
        parts.append(f"cuDNN {cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}")
    return (f'<p class="muted">libattn {escape(text(document.get("libattn"), "libattn"))}; '
            f"{escape(', '.join(parts))}; {escape(str(document.get('rounds')))} samples of each, by the "
            f"{escape(text(document.get('clock'), 'clock'))}</p>")


LEGEND = """<p>A bar is the share of its ceiling that a kernel reaches, both sampled in alternation in one process: of
the rate at which memory is read in order in decode, of a matrix product in prefill, of a plain copy for operations
on caches. The line is the ceiling; longer is better.</p>
<p class="muted"><span class="key" style="background: var(--memory)"></span>libattn
<span class="key" style="background: var(--other)"></span>libattn on another problem, gather alone
<span class="key" style="background: var(--arithmetic)"></span>torch's kernels on a contiguous cache</p>"""


def page(document):
    if document.get("schema_version") != 1 or not isinstance(document.get("cases"), list):
        raise Malformed("no schema_version 1 with an array cases; accepted is what tools/gpu-bench --json writes")
    cases = [Case(source, index) for index, source in enumerate(document["cases"])]
    shares = [run.share for case in cases for run in case.runs if run.drawn]
    title = text(document.get("backend"), "backend") or "gpu-bench"
    lines = common.head(f"{title}: share of the ceilings") + [describe(document)]
    bars = [bar for case in cases for bar in case.bars]
    if bars:
        lines += ["<h2>Bars</h2>", common.table(("bar", "ratio", "aim", "result"), bars)]
    if shares:
        lines.append(LEGEND)
    for group in dict.fromkeys(case.group for case in cases):
        drawn = [case for case in cases if case.group == group and any(run.drawn for run in case.runs)]
        if drawn:
            lines += [f"<h2>{escape(group)}</h2>", draw(group, drawn, max([1.05] + shares))]
    rows = [cells(case, run) for case in cases for run in case.runs]
    titles = ("case, kernel", "median", "least to most", "TB/s", "TFLOP/s", "share", "error")
    return "\n".join(lines + ["<h2>Numbers</h2>", common.table(titles, rows), "</body>", "</html>"]) + "\n"
