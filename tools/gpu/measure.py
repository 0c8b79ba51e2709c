# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures one case: libattn, torch's kernels and a ceiling in alternation, each checked before."""

import math
import statistics
import time

import bridge as libattn
import cases as known
import peers

COLD_BYTES = 600e6  # what the buffers of a graph hold together at least: L2 serves nothing of it
CALLS = 4  # of a graph at least
MOST_SETS = 256
BOUND = 8e-3  # relative error above which a kernel counts as wrong, and is not timed
PAUSE = 0.03  # seconds between single calls: the device is to be cool


CACHE_CEILINGS = {  # of each operation on caches; a ceiling is its own
    "write": "plain copy", "gather": "plain copy", "copy pages": "plain copy", "plain copy": "plain copy",
    "swap out": "plain to host", "plain to host": "plain to host",
    "swap in": "plain to device", "plain to device": "plain to device",
}


class Runner:
    """Something that is timed: `launch` puts it on the stream, `calls` of them."""

    def __init__(self, launch, calls, flops, bytes_read, error=None, close=None, problem=None):
        self.launch, self.calls, self.flops, self.bytes = launch, calls, flops, bytes_read
        self.error, self.close, self.problem = error, close, problem
        self.samples = []


class Bench:
    """What all cases share."""

    def __init__(self, bridge, torch, missing, ordinal, seed, rounds, kernels):
        self.bridge, self.torch, self.missing = bridge, torch, missing
        self.seed, self.rounds = seed, rounds
        self.torch_stream = torch.cuda.Stream() if torch else None
        if torch:
            torch.cuda.set_stream(self.torch_stream)  # one stream for all: nothing overlaps
        self.stream = self.torch_stream.cuda_stream if torch else bridge.stream()
        self.driver = libattn.Driver(bridge, self.stream, ordinal, kernels)
        self.matmul = peers.Matmul(torch) if torch else None


def sets_of(bench, problem, lengths):
    """Caches that together hold what L2 cannot, of a case that is bound by memory."""
    if not bench.driver.by_events:  # no device whose caches count
        return 2
    if any(queries > 1 for queries, _ in lengths) and len({pair for pair in lengths}) == 1:
        return 1
    probe = libattn.Case(bench.bridge, problem, [min(lengths, key=lambda pair: pair[1])], 1)
    shortest = min(keys for _, keys in lengths)
    each = probe.key_bytes / shortest
    probe.close()
    return max(1, min(MOST_SETS, math.ceil(COLD_BYTES / (each * sum(keys for _, keys in lengths)))))


class Measurement:
    """The runners of one case. Closed in any event."""

    def __init__(self, bench, case, with_peers=True):
        self.bench, self.case = bench, case
        self.runners, self.missing, self.wrong, self.cases, self.names = {}, {}, {}, [], []
        self.graphs = case.group not in known.SINGLE
        try:
            self.build(with_peers)
        except BaseException:
            self.close()
            raise

    def build(self, with_peers):
        bench, case, lengths = self.bench, self.case, self.case.lengths
        if case.group == "operations on caches":
            self.add_cache_operations(lengths)
            return
        self.add_libattn("libattn", case.problem, lengths, False)
        for name, (problem, ordered) in case.others.items():
            self.add_libattn(name, problem, lengths, ordered)
        if not with_peers:
            return
        if self.graphs:
            self.add_ceilings()
        if bench.torch is None:
            for name in (["flash", "cudnn"] if case.peers else []) + ([] if self.graphs else ["matmul"]):
                self.missing[name] = bench.missing
            return
        self.add_torch(lengths)

    def close(self):
        for runner in self.runners.values():
            if runner.close:
                runner.close()
        self.runners.clear()
        for case in self.cases:
            case.close()
        if self.bench.torch:
            self.bench.torch.cuda.empty_cache()

    def add(self, name, runner):
        if runner.error is not None and not runner.error <= BOUND:
            self.wrong[name] = f"error {runner.error:.2g}, at most {BOUND:g} is right"
            if runner.close:
                runner.close()
            return
        self.runners[name] = runner

    def repeat(self, sets):
        """Sets in the order in which a graph's calls read them."""
        return [index for _ in range(-(-CALLS // sets)) for index in range(sets)]

    def add_libattn(self, name, problem, lengths, ordered):
        bench = self.bench
        sets = sets_of(bench, problem, lengths)
        case = libattn.Case(bench.bridge, problem, lengths, sets, ordered)
        self.cases.append(case)
        self.names.append(name)
        error = self.check(name, case)
        if self.graphs:
            order = self.repeat(sets)
            graph = libattn.Graph(bench.bridge, bench.stream,
                                  lambda: [case.run(index, bench.stream) for index in order])
            runner = Runner(graph.launch, len(order), case.flops, case.key_bytes, error, graph.close, case)
        else:
            runner = Runner(lambda stream: case.run(0, stream), 1, case.flops, case.key_bytes, error, None, case)
        self.add(name, runner)

    def add_cache_operations(self, lengths):
        """Each compared byte by byte, beside the plain copy that is its ceiling."""
        bench = self.bench
        case = libattn.Case(bench.bridge, self.case.problem, lengths, 1)
        self.cases.append(case)
        case.kv_init()
        for name, ceiling in CACHE_CEILINGS.items():
            try:
                if name != ceiling:
                    case.kv_check(name)
            except libattn.Failure as failure:
                self.wrong[name] = str(failure)
                continue
            self.add(name, Runner(lambda stream, name=name: case.kv_run(name, stream), 1, 0.0, case.kv_bytes(name),
                                  None if name == ceiling else 0.0, None, case))

    def check(self, name, case):
        """Fills a case, runs it over its first and last set and returns the larger error."""
        bench = self.bench
        if bench.torch is None:
            return case.judge()
        view = peers.View(bench.torch, case)
        view.fill(bench.seed)
        if name == "libattn":
            self.view = view
        if view.scaled:
            bench.torch.cuda.synchronize()
            return case.judge()
        return max(self.error_of(view, case, index) for index in {0, case.sets - 1})

    def error_of(self, view, case, index):
        """The error of a run over one set, whose result is rubbish before; not a number counts as infinite."""
        view.out.fill_(float("nan"))
        self.bench.torch.cuda.synchronize()
        case.run(index, self.bench.stream)
        self.bench.bridge.synchronize(self.bench.stream)
        error = view.error(index)
        return error if error == error else math.inf

    def add_ceilings(self):
        """Reading all bytes of the caches in order, and bringing their pages in as a kernel would."""
        bench, driver = self.bench, self.bench.driver
        if driver.read is None:
            self.missing["read"] = driver.missing
            return
        own, number = self.cases[0], self.cases[0].number
        size = number("cache_bytes")
        self.add_ceiling("read", own, lambda index: driver.read_memory(number("cache", index), size),
                         float(size // driver.BULK * driver.BULK))
        for name, case in zip(self.names, self.cases):
            if driver.can_gather(case):
                self.add_ceiling("gather" if case is own else f"gather, {name}", case,
                                 lambda index, case=case: driver.gather_pages(case, index), case.key_bytes)

    def add_ceiling(self, name, case, call, size):
        bench, order = self.bench, self.repeat(case.sets)
        graph = libattn.Graph(bench.bridge, bench.stream, lambda: [call(index) for index in order])
        self.add(name, Runner(graph.launch, len(order), 0.0, size, close=graph.close))

    def add_torch(self, lengths):
        bench, view, torch = self.bench, self.view, self.bench.torch
        paths = {"flash": ("flash", False), "cudnn": ("cudnn", False)}
        if self.graphs:
            paths["cudnn, heads first"] = ("cudnn", True)
        alike = len(set(lengths)) == 1
        for name, (backend, heads_first) in paths.items() if self.case.peers and alike else ():
            try:
                self.add_peer(name, peers.Peer(view, backend, heads_first))
            except (RuntimeError, ValueError) as error:
                text = str(error).strip()
                self.missing[name] = text.splitlines()[0][:200] if text else type(error).__name__
        if not self.graphs:
            self.add("matmul", Runner(lambda _: bench.matmul.run(), 1, bench.matmul.flops, 0.0))

    def add_peer(self, name, peer):
        bench, own = self.bench, self.cases[0]
        error = peer.error()
        if self.graphs:
            order = self.repeat(own.sets)
            graph = peers.Captured(bench.torch, bench.torch_stream, lambda: [peer.run(index) for index in order])
            self.add(name, Runner(graph.launch, len(order), own.flops, own.key_bytes, error))
            return
        self.add(name, Runner(lambda _: peer.run(0), 1, own.flops, own.key_bytes, error))

    def run(self):
        """Samples all runners in alternation."""
        bench = self.bench
        for runner in self.runners.values():
            runner.launch(bench.stream)
        bench.bridge.synchronize(bench.stream)
        for _ in range(bench.rounds):
            for runner in self.runners.values():
                if self.graphs:
                    runner.launch(bench.stream)
                else:
                    bench.bridge.synchronize(bench.stream)
                    time.sleep(PAUSE)
                    bench.driver.fill()
                took = bench.driver.measure(lambda runner=runner: runner.launch(bench.stream))
                runner.samples.append(took / runner.calls)

    def result(self):
        """The case as it goes into the document."""
        runs = {}
        for name, runner in self.runners.items():
            median = statistics.median(runner.samples)
            runs[name] = {
                "us": {"median": median, "min": min(runner.samples), "max": max(runner.samples)},
                "samples_us": runner.samples,
                "calls": runner.calls,
                "bytes": runner.bytes,
                "flops": runner.flops,
                "tbps": runner.bytes / median * 1e-6,
                "tflops": runner.flops / median * 1e-6,
                "error": runner.error,
            }
            if runner.problem is not None:
                runs[name]["problem"] = runner.problem.text("problem")
                runs[name]["kernels"] = runner.problem.text("kernels")
                runs[name]["sets"] = runner.problem.sets
        caches = self.case.group == "operations on caches"
        add_shares(runs, CACHE_CEILINGS if caches else {}, "read" if self.graphs else "matmul")
        for name, text in self.missing.items():
            runs[name] = {"missing": text}
        for name, text in self.wrong.items():
            runs[name] = {"wrong": text}
        return {
            "name": self.case.name,
            "group": self.case.group,
            "batch": self.case.batch,
            "timed": "calls in a graph" if self.graphs else "single calls",
            "runs": runs,
            "bars": [judge_bar(bar, runs) for bar in self.case.bars],
        }


def add_shares(runs, ceilings, ceiling_of_all):
    """What share of its ceiling each run reaches."""
    for name, run in runs.items():
        ceiling = ceilings.get(name, ceiling_of_all)
        unit = "tflops" if ceiling == "matmul" else "tbps"
        run["ceiling"] = ceiling if ceiling in runs else None
        run["share"] = run[unit] / runs[ceiling][unit] if ceiling in runs else None


def judge_bar(bar, runs):
    """A bar with its ratio, which is none where a side of it was not measured."""
    def time_of(name):
        names = [run for run in runs if run.startswith(("flash", "cudnn"))] if name == "peers" else [name]
        return min((runs[run]["us"]["median"] for run in names if "us" in runs.get(run, {})), default=None)

    above, below = time_of(bar.above), time_of(bar.below)
    ratio = above / below if above and below else None
    passed = None if ratio is None else ratio >= bar.aim if bar.sense == "least" else ratio <= bar.aim
    return {"text": bar.text, "ratio": ratio, "aim": bar.aim, "sense": bar.sense, "passed": passed}
