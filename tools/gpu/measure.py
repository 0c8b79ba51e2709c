# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures one case: libattn, torch's kernels and a ceiling in alternation, each checked before."""

import math
import statistics
import time

import bridge as libattn
import buffers
import cases as known
import peers

BOUND = 8e-3  # relative error above which a kernel counts as wrong, and is not timed
E4M3_BOUND = 4e-2  # of libattn's kernel that rounds weights to e4m3
PEER_BOUND_8BIT = 8e-2  # the same, of a peer on an 8-bit cache: some round weights to 8 bits
PAUSE = 0.03  # seconds between operations on caches: the device is to be cool
MOST_RESTED = 50  # samples of each kernel
REST = 0.25  # before a sample of a case that computes: within 0.1 s of products the chip lowers its clock


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

    def __init__(self, bridge, torch, missing, ordinal, seed, rounds, kernels, packages=None):
        self.bridge, self.torch, self.missing, self.packages = bridge, torch, missing, packages
        self.seed, self.rounds = seed, rounds
        self.torch_stream = torch.cuda.Stream() if torch else None
        if torch:
            torch.cuda.set_stream(self.torch_stream)  # one stream for all: nothing overlaps
        self.stream = self.torch_stream.cuda_stream if torch else bridge.stream()
        self.driver = libattn.Driver(bridge, self.stream, ordinal, kernels)
        self.matmul = peers.Matmul(torch) if torch else None


class Measurement:
    """The runners of one case. Closed in any event."""

    def __init__(self, bench, case, with_peers=True):
        self.bench, self.case = bench, case
        self.runners, self.missing, self.wrong, self.cases, self.names, self.orders = {}, {}, {}, [], [], []
        self.graphs = case.group != known.CACHES
        try:
            self.build(with_peers)
        except BaseException:
            self.close()
            raise

    def build(self, with_peers):
        bench, case, lengths = self.bench, self.case, self.case.lengths
        if not self.graphs:
            self.add_cache_operations(lengths)
            return
        self.add_libattn("libattn", case.problem, lengths, False)
        for name, (problem, ordered) in case.others.items():
            self.add_libattn(name, problem, lengths, ordered)
        if with_peers and not case.computes or any("read" in (bar.above, bar.below) for bar in case.bars):
            self.add_ceilings()
        if not with_peers:
            return
        if bench.torch is None:
            asked = {"peers": case.peers, "matmul": case.computes}
            self.missing.update({name: bench.missing for name in asked if asked[name]})
            return
        if case.computes:
            self.add_captured("matmul", lambda _: bench.matmul.run(), [0] * buffers.CALLS, bench.matmul.flops, 0.0)
        if case.peers:
            self.add_peers(lengths)

    def close(self):
        for runner in self.runners.values():
            if runner.close:
                runner.close()
        self.runners.clear()
        for case in self.cases:
            case.close()
        if self.bench.torch:
            self.bench.torch.cuda.empty_cache()

    def add(self, name, runner, bound=BOUND):
        if runner.error is not None and not runner.error <= bound:
            self.wrong[name] = f"error {runner.error:.2g}, at most {bound:g} is right"
            if runner.close:
                runner.close()
            return
        self.runners[name] = runner

    def copies(self, lengths):
        """How often a peer copies libattn's cache."""
        if self.bench.torch is None or not self.case.peers or len(set(lengths)) != 1:
            return 0
        return peers.copies(self.case.problem, self.case.decodes)

    def add_libattn(self, name, problem, lengths, ordered):
        bench = self.bench
        sets = buffers.sets_of(bench, problem, lengths, self.copies(lengths) if name == "libattn" else 0)
        case = libattn.Case(bench.bridge, problem, lengths, sets, ordered, self.case.prefix)
        self.cases.append(case)
        self.names.append(name)
        error = self.check(name, case)
        took = bench.driver.measure(lambda: case.run(0, bench.stream))
        order = [index % sets for index in range(buffers.calls_for(sets, took))]
        self.orders.append(order)
        graph = libattn.Graph(bench.bridge, bench.stream, lambda: [case.run(index, bench.stream) for index in order])
        bound = E4M3_BOUND if "prefill_mma_e4m3" in case.text("kernels") else BOUND
        self.add(name, Runner(graph.launch, len(order), case.flops, case.key_bytes, error, graph.close, case), bound)

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
        """Fills a case, runs it over its first and last set and returns the larger error; none where the result has 8
        bits, of which its own rounding is more than the bound."""
        bench = self.bench
        eight = case.number("out_bytes") == 1
        if bench.torch is None:
            error = case.judge()
            return None if eight and error == error else error
        view = peers.View(bench.torch, case)
        view.fill(bench.seed)
        if name == "libattn":
            self.view = view
        if view.scaled or view.featured or eight:
            bench.torch.cuda.synchronize()
            error = case.judge()
            return None if eight and error == error else error
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
        self.add_ceiling("read", self.orders[0], lambda index: driver.read_memory(number("cache", index), size),
                         float(size // driver.BULK * driver.BULK))
        for name, case, order in zip(self.names, self.cases, self.orders):
            if driver.can_gather(case):
                self.add_ceiling("gather" if case is own else f"gather, {name}", order,
                                 lambda index, case=case: driver.gather_pages(case, index), case.key_bytes)

    def add_ceiling(self, name, order, call, size):
        bench = self.bench
        graph = libattn.Graph(bench.bridge, bench.stream, lambda: [call(index) for index in order])
        self.add(name, Runner(graph.launch, len(order), 0.0, size, close=graph.close))

    def add_peers(self, lengths):
        bench, own = self.bench, self.cases[0]
        found = peers.of(self.view, self.case.decodes, bench.packages)
        for name, make in found.items():
            try:
                if len(set(lengths)) != 1:
                    raise ValueError("the sequences of this batch differ")
                if self.view.scaled or self.view.featured:
                    raise ValueError("this problem has more than peers are asked for here")
                peer = make()
                error = peer.error()
                bound = PEER_BOUND_8BIT if own.number("k_bytes") == 1 else BOUND
                self.add_captured(name, peer.run, self.orders[0], own.flops, own.key_bytes, error, bound)
            except Exception as failure:  # whatever a package raises is no reason to lose the rest
                text = str(failure).strip()
                self.missing[name] = text.splitlines()[0][:200] if text else type(failure).__name__
                bench.torch.cuda.synchronize()

    def add_captured(self, name, call, order, flops, size, error=None, bound=BOUND):
        """Calls of torch's in a graph, each of which has run before."""
        if error is not None and not error <= bound:
            self.add(name, Runner(None, 1, flops, size, error), bound)
            return
        bench = self.bench
        call(order[0])
        bench.torch.cuda.synchronize()
        graph = peers.Captured(bench.torch, bench.torch_stream, lambda: [call(index) for index in order])
        self.add(name, Runner(graph.launch, len(order), flops, size, error), bound)

    def run(self):
        """Samples all runners in alternation, every other round in reverse."""
        bench = self.bench
        for runner in self.runners.values():
            runner.launch(bench.stream)
        bench.bridge.synchronize(bench.stream)
        for turn in range(bench.rounds):
            for runner in list(self.runners.values())[:: -1 if turn % 2 else 1]:
                if self.graphs:
                    self.rest()
                    runner.launch(bench.stream)
                else:
                    bench.bridge.synchronize(bench.stream)
                    time.sleep(PAUSE)
                    bench.driver.fill()
                took = bench.driver.measure(lambda runner=runner: runner.launch(bench.stream))
                runner.samples.append(took / runner.calls)

    def rest(self):
        """Lets the device cool, so that no runner is slower for what ran before it. Who asks for many samples is after
        the rate that it keeps."""
        if self.case.computes and self.bench.driver.by_events and self.bench.rounds <= MOST_RESTED:
            self.bench.bridge.synchronize(self.bench.stream)
            time.sleep(REST)

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
        add_shares(runs, {} if self.graphs else CACHE_CEILINGS, "matmul" if self.case.computes else "read")
        for name, text in self.missing.items():
            runs[name] = {"missing": text}
        for name, text in self.wrong.items():
            runs[name] = {"wrong": text}
        return {
            "name": self.case.name,
            "group": self.case.group,
            "batch": self.case.description,
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
    """A bar with its ratio (or figure), which is none where a side of it was not measured."""
    def time_of(name):
        names = peers.NAMES if name == "peers" else [name]
        return min((runs[run]["us"]["median"] for run in names if "us" in runs.get(run, {})), default=None)

    above, below = time_of(bar.above), time_of(bar.below)
    if bar.below == "us":
        ratio = above
    elif bar.below == "tflops":
        ratio = runs[bar.above]["tflops"] if above else None
    else:
        ratio = above / below if above and below else None
    passed = None if ratio is None else ratio >= bar.aim if bar.sense == "least" else ratio <= bar.aim
    return {"text": bar.text, "ratio": ratio, "aim": bar.aim, "sense": bar.sense, "passed": passed}
