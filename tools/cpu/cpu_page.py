# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of what tools/cpu-bench measured: bars of speeds relative to the fastest peer, and all numbers."""

from html import escape

import page as common
from page import Malformed, bandwidth, compute, duration, mapping, needed, number, percent, short, text

PEERS = {"torch": "torch", "ggml": "ggml", "vllm": "vLLM"}  # by the names that cpu-bench gives


class Run(common.Run):
    """One side of one case, or why there is none."""

    NUMBERS = ("gbps", "tflops", "ceiling_gbps", "ceiling_tflops", "roof_ratio", "error")

    def __init__(self, name, source, where):
        super().__init__(name, source, where)
        for key in self.NUMBERS:
            setattr(self, key, number(source.get(key) or None, f"{where}.{key}"))
        self.how = text(source.get("kernel"), f"{where}.kernel") or text(source.get("reads"), f"{where}.reads")

    @property
    def bound(self):
        """The ceiling at which the case takes longer, or none."""
        if None in (self.gbps, self.tflops, self.ceiling_gbps, self.ceiling_tflops):
            return None
        return "memory" if self.gbps / self.ceiling_gbps >= self.tflops / self.ceiling_tflops else "compute"


class Case:
    def __init__(self, source, index):
        where = f"cases[{index}]"
        mapping(source, where)
        self.name, self.group, self.batch = (text(source.get(key), f"{where}.{key}")
                                             for key in ("name", "group", "batch"))
        if not self.name:
            raise Malformed(f"{where} has no name")
        self.threads = needed(source.get("threads"), f"{where}.threads")
        self.runs = {name: Run(name, run, f"{where}.runs.{name}")
                     for name, run in mapping(source.get("runs"), f"{where}.runs").items()}
        bars = source.get("bars")
        if not isinstance(bars, list) or len(bars) != 1:
            raise Malformed(f"{where}.bars is no array of one bar")
        bar = mapping(bars[0], f"{where}.bars[0]")
        self.aim = needed(bar.get("aim"), f"{where}.bars[0].aim")
        self.ratio, self.ratio_min = (number(bar.get(key), f"{where}.bars[0].{key}") for key in ("ratio", "ratio_min"))

    @property
    def ours(self):
        """libattn's run, if it was measured."""
        return self.measured("libattn")

    def measured(self, name):
        run = self.runs.get(name)
        return run if run is not None and not run.absent else None

    @property
    def fastest(self):
        """The fastest peer, if one was measured."""
        runs = [run for run in map(self.measured, PEERS) if run is not None]
        return min(runs, key=lambda run: run.median, default=None)

    @property
    def drawn(self):
        return self.ours is not None and self.fastest is not None and self.ratio is not None

    @property
    def result(self):
        return "not measured" if self.ratio is None else "pass" if self.ratio >= self.aim else "miss"


def count(threads):
    return f"{threads} thread{'s' if threads != 1 else ''}"


def draw(cases):
    """The bars of one group with one number of threads."""
    caption = ("Speed of libattn relative to the fastest peer: the median time of that peer divided by libattn's. At "
               "the line, 1.00, both are alike; longer is better.")
    most, lines = max([1.0] + [case.ratio for case in cases]), []
    for case in cases:
        times = [f"libattn {duration(case.ours.median)}"]
        times += [f"{title} {duration(case.measured(name).median)}" for name, title in PEERS.items()
                  if case.measured(name)]
        lines += [common.heading(case.name, f"{case.batch}; {', '.join(times)}"),
                  common.bar(f"beside {PEERS[case.fastest.name]}", case.ratio,
                             "own" if case.result == "pass" else "other",
                             f"aim {short(case.aim)}", most, f"{case.ratio:.2f}")]
    return common.chart(caption, lines)


def rate(run):
    """What libattn reached of the ceiling that bounds the case."""
    if run.bound == "memory":
        return bandwidth(run.gbps, run.ceiling_gbps)
    return compute(run.tflops, run.ceiling_tflops)


def draw_table(cases):
    names = [name for name in PEERS if any(case.measured(name) for case in cases)]
    titles = ("case", "threads", "libattn", "least", "of ceiling", "rate", "error",
              *(f"{PEERS[name]}{more}" for name in names for more in ("", ", least", ", error")),
              "ratio", "of the least", "aim", "result")
    rows = []
    for case in cases:
        ours, cells = case.ours, [case.name, str(case.threads)]
        if ours is None:
            cells += ["–"] * 5
        else:
            cells += [duration(ours.median), duration(ours.least), percent(ours.roof_ratio), rate(ours), error_of(ours)]
        for name in names:
            run = case.measured(name)
            cells += ["–"] * 3 if run is None else [duration(run.median), duration(run.least), error_of(run)]
        ratios = ["–" if ratio is None else f"{ratio:.2f}" for ratio in (case.ratio, case.ratio_min)]
        rows.append([*cells, *ratios, short(case.aim), case.result])
    return common.table(titles, rows)


def error_of(run):
    return "–" if run.error is None else f"{run.error:.1e}"


def aims(cases):
    """How many bars were reached, for each kind of case and number of threads."""
    rows = []
    for group, threads in dict.fromkeys((case.group, case.threads) for case in cases):
        results = [case.result for case in cases if (case.group, case.threads) == (group, threads)]
        rows.append([f"{group}, {count(threads)}",
                     *(str(results.count(kind)) for kind in ("pass", "miss", "not measured"))])
    return common.table(("cases", "reached", "missed", "not measured"), rows)


def load(values, where):
    if values is None:
        return "not known"
    if not isinstance(values, list) or not all(isinstance(value, (int, float)) for value in values):
        raise Malformed(f"{where} is {values!r}; accepted are arrays of numbers and null")
    return f"{values[0]:.2f}" if values else "not known"


def peer_versions(document):
    """What the peers are of, in words."""
    versions, parts = mapping(document.get("versions"), "versions"), []
    for name, title in PEERS.items():
        if name in versions:
            about = mapping(versions[name], f"versions.{name}")
            features = about.get("features") or about.get("capability")
            more = " ".join(map(str, features)) if isinstance(features, list) else text(features, f"versions.{name}")
            version = text(about.get("version"), f"versions.{name}.version")
            parts.append(f"{title} {version}" + (f" ({more})" if more else ""))
    return ", ".join(parts) or "without peers"


def describe(document):
    """Lines on what was measured on, and with what."""
    machine = mapping(document.get("machine"), "machine")
    cpus = number(machine.get("cpus"), "machine.cpus")
    parts = [text(machine.get("processor"), "machine.processor") or "processor not known"]
    if cpus is not None:
        parts.append(f"{cpus} CPU{'s' if cpus != 1 else ''}")
    parts.append(f"load {load(machine.get('load_before'), 'machine.load_before')} before, "
                 f"{load(machine.get('load_after'), 'machine.load_after')} after")
    return (f'<p class="muted">libattn {escape(text(document.get("libattn"), "libattn"))}; {escape(", ".join(parts))}; '
            f"{escape(peer_versions(document))}; medians of {escape(str(document.get('rounds')))} rounds, in decode "
            f"{escape(str(document.get('cold_mib')))} MiB of keys and values in turn</p>")


LEGEND = """<p>libattn and its peers were sampled in alternation with the same number of threads, each checked before.
libattn reads pages of 16 tokens in random order, torch contiguous tensors in the way that was fastest, ggml the cache
of llama.cpp and, in its own cases, that of its tests. int8 of ggml is q8_0. Behind a name: sequences x query tokens /
keys, and median times.</p>
""" + common.legend(("own", "reaches its aim"), ("other", "below its aim"))


def page(document):
    if document.get("schema_version") != 1 or not isinstance(document.get("cases"), list):
        raise Malformed("no schema_version 1 with an array cases; accepted is what tools/cpu-bench --json writes")
    cases = [Case(source, index) for index, source in enumerate(document["cases"])]
    drawn = [case for case in cases if case.drawn]
    lines = common.head("cpu: speed beside the peers") + [describe(document)]
    if cases:
        lines += ["<h2>Aims</h2>", aims(cases)]
    if drawn:
        lines.append(LEGEND)
    for group, threads in dict.fromkeys((case.group, case.threads) for case in drawn):
        lines += [f"<h2>{escape(group)}, {count(threads)}</h2>",
                  draw([case for case in drawn if (case.group, case.threads) == (group, threads)])]
    lines += ["<h2>Numbers</h2>", "<p>The share of the ceiling is libattn's, of memory or of arithmetic, whichever "
              "bounds the case. The ratio is that of the chart, beside it that of the shortest times of all.</p>",
              draw_table(cases)]
    absent = [f"<li>{escape(PEERS.get(name, name))}: {escape(text(why, f'missing.{name}'))}</li>"
              for name, why in mapping(document.get("missing", {}), "missing").items()]
    absent += [f"<li>{escape(case.name)}, {count(case.threads)}, {escape(PEERS.get(run.name, run.name))}: "
               f"{'wrong, ' if run.wrong else ''}{escape(run.absent)}</li>"
               for case in cases for run in case.runs.values() if run.absent]
    if absent:
        lines += ["<h2>Not measured</h2>", "<ul>", *absent, "</ul>"]
    return "\n".join(lines + ["</body>", "</html>"]) + "\n"
