# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures one case with one number of threads: libattn and its peers in alternation, each checked before."""

import math
import statistics

import attn_bench
import cases as known
import peers

BOUNDS = {"f32": 1e-4, "f16": 8e-3, "bf16": 8e-3, "int8": 8e-3}  # errors above which libattn counts as wrong
PEER_BOUND = 5e-2  # the same for peers: ggml adds up an f16 cache in f16, whose error grows with the keys
SAMPLE_SECONDS = 0.3
ENOUGH_SECONDS = 10  # a peer that was sampled for so long, three times at least, is left out of further rounds
LEAST_SAMPLES = 3


class Runner:
    """Something that is sampled: `samples` are medians of a round's calls."""

    def __init__(self, take):
        self.take, self.samples, self.least, self.most, self.spent = take, [], math.inf, 0.0, 0.0

    def sample(self):
        if len(self.samples) >= LEAST_SAMPLES and self.spent > ENOUGH_SECONDS:
            return
        median, least, most, spent = self.take()
        self.samples.append(median)
        self.least, self.most, self.spent = min(self.least, least), max(self.most, most), self.spent + spent

    def times(self):
        return {"us": {"median": statistics.median(self.samples), "min": self.least, "max": self.most},
                "samples_us": self.samples}


class Wrong(Exception):
    """How far from right a result is."""


class Measurement:
    """All runs of one case."""

    def __init__(self, bench, others, case, threads, rounds):
        self.bench, self.others, self.case, self.threads, self.rounds = bench, others, case, threads, rounds
        self.runners, self.runs, self.rows = {}, {}, []

    def run(self):
        """The case as it goes into the document."""
        if self.attempt("libattn", self.open_libattn):
            for kind in self.case.peers if self.others is not None else ():
                if kind not in self.others.absent:
                    self.attempt(kind, lambda kind=kind: self.open_peer(kind))
        for turn in range(self.rounds):
            for name in list(self.runners)[:: -1 if turn % 2 else 1]:
                self.attempt(name, self.runners[name].sample)
        for kind in set(self.runners) - {"libattn"}:
            try:
                self.others.get(kind).close_case()
            except peers.Missing:
                pass  # it ended after its last sample; the next case starts it again
        return self.result()

    def attempt(self, name, step):
        """Whether a step succeeded. What did not is measured no further, and its run says why."""
        try:
            step()
            return True
        except Wrong as error:
            self.runs[name] = {"wrong": str(error)}
        except (peers.Missing, attn_bench.Failure) as error:
            self.runs[name] = {"missing": str(error)}
        self.runners.pop(name, None)
        return False

    def open_libattn(self):
        row = self.bench.check(self.case, self.threads)
        self.judge(row)
        self.runners["libattn"] = Runner(lambda: self.sample_libattn(row["us"]["median"]))

    def judge(self, row):
        check_error(row["error"], BOUNDS["f32" if self.case.stock_mask else self.case.kv])

    def sample_libattn(self, estimate):
        row = self.bench.sample(self.case, self.threads, SAMPLE_SECONDS, estimate)
        self.judge(row)
        self.rows.append(row)
        us = row["us"]
        return us["median"], us["min"], us["max"], 0.0  # libattn has every round, however long it takes

    def open_peer(self, kind):
        process = self.others.get(kind)
        told = process.open(self.case)
        check_error(told["error"], PEER_BOUND)
        self.runs[kind] = told
        self.runners[kind] = Runner(lambda: self.sample_peer(process))

    @staticmethod
    def sample_peer(process):
        times = process.sample(SAMPLE_SECONDS)
        return statistics.median(times), min(times), max(times), sum(times) * 1e-6

    def result(self):
        runs = {}
        for name in ("libattn", *peers.NAMES):
            if name in self.runners:
                runs[name] = {**self.runners[name].times(), **self.runs.get(name, {})}
            elif name in self.runs:
                runs[name] = self.runs[name]
        if "libattn" in self.runners:
            add_libattn(runs["libattn"], self.rows)
            work = runs["libattn"]["tflops"] * runs["libattn"]["us"]["median"]
            for name in set(self.runners) - {"libattn"}:
                runs[name]["tflops"] = work / runs[name]["us"]["median"]
        case = self.case
        return {"name": case.name, "group": case.group, "threads": self.threads, "batch": case.batch, "kv": case.kv,
                "runs": runs, "bars": [known.judge(case, runs)]}


def check_error(error, bound):
    if error is None or not error <= bound:
        raise Wrong(f"error {'unknown' if error is None else format(error, '.2g')}, at most {bound:g} is right")


def add_libattn(run, rows):
    """What attn-bench tells beside the times: medians of the rounds, and the largest error."""
    def median(key):
        values = [row[key] for row in rows if row[key] is not None]
        return statistics.median(values) if values else None

    microseconds = run["us"]["median"]
    work = {key: rows[0][key] * rows[0]["us"]["median"] / microseconds for key in ("gbps", "tflops")}
    run.update(error=max(row["error"] for row in rows), kernel=rows[0]["kernel"], problem=rows[0]["problem"],
               reps=[row["rounds"] for row in rows], **work, ceiling_gbps=median("ceiling_gbps"),
               ceiling_tflops=median("ceiling_tflops"), roof_ratio=median("roof_ratio"))
