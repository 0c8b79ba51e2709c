# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of what tools/gpu-bench measured: bars of shares of the ceilings, and all numbers."""

from html import escape

import page as common
from page import Malformed, bandwidth, compute, duration, mapping, number, percent, short, text

# What a ceiling is, as gpu-bench measures it.
CEILINGS = {"read": "the rate at which memory is read in order", "matmul": "the rate of a product of bf16 matrices",
            "plain copy": "the rate of a plain copy", "plain to host": "the rate of a plain copy to the host",
            "plain to device": "the rate of a plain copy to the device"}
# Other kernels, by the names that gpu-bench gives.
PEERS = {"flash": "torch flash", "cudnn": "torch cuDNN", "cudnn, heads first": "torch cuDNN (heads first)",
         "efficient": "torch efficient", "fa3": "FlashAttention-3", "fa3, paged": "FlashAttention-3 (paged)",
         "flashinfer": "FlashInfer", "xqa": "FlashInfer XQA"}
# Of documents that an earlier gpu-bench wrote.
SINGLE = "single calls"
SINGLE_CAUTION = ("A single call's time has in it what the host's part of the call adds, which is more for torch's "
                  "kernels than for libattn's: in cases timed as single calls peers look slower than they are.")


class Run(common.Run):
    """One kernel on one case, or why there is none."""

    def __init__(self, name, source, where):
        super().__init__(name, source, where)
        self.ceiling = text(source.get("ceiling"), f"{where}.ceiling")
        self.share = number(source.get("share"), f"{where}.share")
        self.tbps = number(source.get("tbps") or None, f"{where}.tbps")
        self.tflops = number(source.get("tflops") or None, f"{where}.tflops")
        self.error = number(source.get("error") or None, f"{where}.error")
        self.kernels = text(source.get("kernels"), f"{where}.kernels")
        self.own = "problem" in source

    @property
    def drawn(self):
        return not self.absent and self.share is not None and self.ceiling != self.name

    @property
    def peer(self):
        return self.name in PEERS

    @property
    def kind(self):
        if self.peer:
            return "peer"
        return "own" if self.name == "libattn" or (self.own and self.ceiling.startswith("plain")) else "other"


class Case:
    def __init__(self, source, index):
        where = f"cases[{index}]"
        mapping(source, where)
        self.name, self.group, self.batch = (text(source.get(key), f"{where}.{key}")
                                             for key in ("name", "group", "batch"))
        if not self.name:
            raise Malformed(f"{where} has no name")
        self.timed = text(source.get("timed"), f"{where}.timed")
        self.runs = [Run(name, run, f"{where}.runs.{name}")
                     for name, run in mapping(source.get("runs"), f"{where}.runs").items()]
        bars = source.get("bars", [])
        if not isinstance(bars, list):
            raise Malformed(f"{where}.bars is no array")
        self.bars = [self.read_bar(bar, f"{where}.bars[{place}]") for place, bar in enumerate(bars)]

    @property
    def ours(self):
        """libattn's run, if it was measured."""
        return next((run for run in self.runs if run.name == "libattn" and not run.absent), None)

    @property
    def peers(self):
        """Runs of peers that were measured, the fastest first."""
        return sorted((run for run in self.runs if run.peer and not run.absent), key=lambda run: run.median)

    def read_bar(self, bar, where):
        """Cells of the table of aims."""
        mapping(bar, where)
        passed = bar.get("passed")
        if not (passed is None or isinstance(passed, bool)) or bar.get("sense") not in ("least", "most"):
            raise Malformed(f"{where} has no passed (true, false, null) or no sense (least, most)")
        ratio, aim = number(bar.get("ratio"), f"{where}.ratio"), number(bar.get("aim"), f"{where}.aim")
        return [f"{self.name}: {text(bar.get('text'), where + '.text')}", "–" if ratio is None else f"{ratio:.3f}",
                f"at {bar['sense']} {short(aim)}", {True: "pass", False: "miss", None: "not measured"}[passed]]


def draw(cases, most):
    """The bars of one group, case by case."""
    drawn = [run for case in cases for run in case.runs if run.drawn]
    kinds = ", or of ".join(dict.fromkeys(CEILINGS.get(run.ceiling, run.ceiling) for run in drawn))
    timed = " and ".join(dict.fromkeys(case.timed for case in cases if case.timed))
    caption = (f"The share that each kernel reaches of {kinds}; the line is that ceiling, longer is better."
               f"{' Timed as ' + timed + '.' if timed else ''}")
    if any(case.timed == SINGLE and case.peers for case in cases):
        caption += " " + SINGLE_CAUTION
    lines = []
    for case in cases:
        lines.append(common.heading(case.name, case.batch))
        for run in case.runs:
            if run.drawn:
                rate = compute(run.tflops) if run.ceiling == "matmul" else bandwidth(run.tbps and 1000 * run.tbps)
                lines.append(common.bar(PEERS.get(run.name, run.name), run.share, run.kind,
                                        f"{rate}, {duration(run.median)}", most))
    return common.chart(caption, lines)


def peer_table(cases):
    """libattn's time beside that of every peer, and the ratio to the fastest."""
    rows, beside = [], [case for case in cases if case.ours is not None and case.peers]
    names = [name for name in PEERS if any(run.name == name for case in beside for run in case.peers)]
    caution = " " + SINGLE_CAUTION if any(case.timed == SINGLE for case in beside) else ""
    for case in beside:
        times = {run.name: duration(run.median) for run in case.peers}
        rows.append([case.name, duration(case.ours.median), *(times.get(name, "–") for name in names),
                     PEERS[case.peers[0].name], f"{case.peers[0].median / case.ours.median:.2f}", case.timed or "–"])
    if not rows:
        return []
    return ["<h2>Beside the peers</h2>",
            "<p>Median times, and the time of the fastest peer divided by libattn's: above 1 libattn is faster, below "
            f"1 the peer is.{caution}</p>",
            common.table(("case", "libattn", *map(PEERS.get, names), "fastest peer", "ratio", "timed as"), rows)]


def cells(case, run):
    name = f"{case.name}, {run.name}"
    return [name, duration(run.median), f"{duration(run.least)} to {duration(run.most)}",
            bandwidth(run.tbps and 1000 * run.tbps), compute(run.tflops), "–" if run.share is None else f"{percent(run.share)} of {run.ceiling}",
            "–" if run.error is None else f"{run.error:.1e}"]


def torch_version(document):
    """What the peers are of."""
    versions = mapping(document.get("versions"), "versions")
    torch = text(versions.get("torch"), "versions.torch")
    cudnn = number(versions.get("cudnn"), "versions.cudnn")
    beside = f", cuDNN {cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}" if cudnn is not None else ""
    return f"torch {torch}{beside}" if torch else "without torch"


def describe(document):
    """A line on what was measured on, and with what."""
    device = mapping(document.get("device"), "device")
    before = mapping(device.get("before"), "device.before")
    parts = [text(before.get("name"), "device.before.name") or "device not known"]
    for key, title, unit in (("driver_version", "driver", ""), ("clocks.max.sm", "up to", " MHz"),
                             ("power.limit", "limit", " W")):
        value = text(before.get(key), f"device.before.{key}")
        if value:
            parts.append(f"{title} {value}{unit}")
    parts.append(torch_version(document))
    return (f'<p class="muted">libattn {escape(text(document.get("libattn"), "libattn"))}; '
            f"{escape(', '.join(parts))}; {escape(str(document.get('rounds')))} samples of each, by the "
            f"{escape(text(document.get('clock'), 'clock'))}</p>")


LEGEND = """<p>A bar is the share of its ceiling that a kernel reaches, both sampled in alternation in one process;
longer is better on all of this page. torch's kernels and FlashAttention-3 read a contiguous cache, libattn in decode a
paged one, FlashInfer the same pages. Behind a name: sequences x query tokens / keys.</p>
""" + common.legend(("own", "libattn"), ("other", "libattn on another problem, and reading page by page without arithmetic"),
                    ("peer", "other kernels"))


def page(document):
    if document.get("schema_version") != 1 or not isinstance(document.get("cases"), list):
        raise Malformed("no schema_version 1 with an array cases; accepted is what tools/gpu-bench --json writes")
    cases = [Case(source, index) for index, source in enumerate(document["cases"])]
    shares = [run.share for case in cases for run in case.runs if run.drawn]
    title = text(document.get("backend"), "backend") or "gpu-bench"
    lines = common.head(f"{title}: share of the ceilings") + [describe(document)]
    bars = [bar for case in cases for bar in case.bars]
    if bars:
        lines += ["<h2>Aims</h2>", "<p>Ratios of times, and what was aimed at.</p>",
                  common.table(("aim", "ratio", "wanted", "result"), bars)]
    lines += peer_table(cases)
    if shares:
        lines.append(LEGEND)
    for group in dict.fromkeys(case.group for case in cases):
        drawn = [case for case in cases if case.group == group and any(run.drawn for run in case.runs)]
        if drawn:
            lines += [f"<h2>{escape(group)}</h2>", draw(drawn, max([1.0] + shares))]
    rows = [cells(case, run) for case in cases for run in case.runs if not run.absent]
    absent = [f"<li>{escape(case.name)}, {escape(run.name)}: {'wrong, ' if run.wrong else ''}{escape(run.absent)}</li>"
              for case in cases for run in case.runs if run.absent]
    titles = ("case, kernel", "median", "least to most", "memory", "compute", "of ceiling", "error")
    lines += ["<h2>Numbers</h2>", common.table(titles, rows)]
    if absent:
        lines += ["<h2>Not measured</h2>", "<ul>", *absent, "</ul>"]
    return "\n".join(lines + ["</body>", "</html>"]) + "\n"
