# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cliffs: one parameter at a time is varied around base cases, and jumps of the time per unit of work are told.

The work of a case is its floor: the time that its bytes take at the rate of reading, or its operations at that of a
matrix product, whichever is longer, and never less than what launching takes.
"""

import statistics
import time
from dataclasses import dataclass, field

import bridge as libattn
import buffers
import cases as known

GROWTH = 1.3  # of time per floor between neighbours, beyond which a step is told
LAUNCH_US = 4.0  # the floor of any case
COLD_BYTES = 150e6  # that the caches of a case hold together: more than L2, and made quickly
SAMPLES, SAMPLE_US = 3, 4e3  # of each point, and what one takes about
LONG_US = 50e3  # a call that takes so long is sampled once
OPERATIONS_PER_BYTE = 188  # of an H200, where no matrix product could be measured
F32_RATE = 1 / 6  # of a product of f32 matrices as three of tf32, by that of bf16
READ_BATCH = "128x1/4096"  # whose keys and values are the sample of reading

# Steps that have a reason: (sweep, what comes after the step): the reason. docs/gpu.md has figures of the larger ones.
CODES = "codes and their scales cost instructions between shared memory and the matrix units"
EACH_KEY = "scores are multiplied by a scale of each key, and codes are converted to 16 bits before"
FNUZ = "no instruction converts FNUZ codes: it takes several for two of them"
TWO_PARTS = "P is the sum of two numbers, for codes that are right: products with V are twice as many"
PADDED = "columns are padded to the next kernel's, whose tiles have fewer rows"
LAUNCH = "both cases have less work than a launch takes, the second four times as much"
SCALES = "a scale of 4 bytes is copied for each vector of 128"
EXPLAINED = {
    ("query tokens on 4k keys", "4"): "tiles of 16 rows in the place of 8: their warps wait for each other",
    ("query tokens on 4k keys", "12"): "partial results of more rows are combined by the last CTA of a head",
    ("query tokens on 32k keys", "48"): "a second tile of 128 rows multiplies the same keys",
    ("query tokens on 32k keys", "768"): "192 equal tiles take two rounds of 132 multiprocessors, 128 take one",
    ("keys, decode 1", "256"): "keys are split from here on, and splits combined",
    ("keys, decode 8", "256"): "keys are split from here on, and splits combined",
    ("keys, prefill", "256"): LAUNCH,
    ("keys, prefill", "512"): LAUNCH,
    ("features, decode 32 x 4k", "window=127"): "a CTA has one head of three tiles, and waits for its first keys",
    ("features, prefill 2k", "mask=f16"): "a mask is read for every head: at least 0.6 of plain is the bar",
    ("features, prefill 2k", "window=1023"): "whole tiles of keys are multiplied, of which rows see a part",
    ("features, prefill 2k", "window=127"): "whole tiles of keys are multiplied, of which rows see a part",
    ("features, prefill 2k", "out=f32"): "results go through shared memory, and are twice as long",
    ("features, prefill 2k", "out=e4m3"): TWO_PARTS,
    ("features, prefill 2k", "out=int8"): TWO_PARTS,
    ("types, decode 32 x 4k", "e4m3 token-head"): SCALES,
    ("types, decode 32 x 4k", "int8"): SCALES,
    ("types, decode 32 x 4k", "e4m3fnuz"): FNUZ,
    ("types, decode 32 x 4k", "e5m2fnuz"): FNUZ,
    **{("types, prefill 2k", kinds): EACH_KEY for kinds in ("e4m3 token-head", "int8")},
    ("types, prefill 2k", "q=e4m3"): CODES,
    ("head dim, prefill 2k", "160"): PADDED,
    ("head dim, prefill 2k", "320"): PADDED,
    ("MLA heads, 32 x 4k", "128"): "arithmetic bounds 128 heads, reading 64",
    **{(f"MLA caches, {heads} heads, 32 x 4k", kv): CODES for heads in (16, 128) for kv in ("e4m3", "e5m2", "int8")},
}


@dataclass
class Point:
    """One measurement; `us` is None where there was none, and `why` says why."""

    label: str
    problem: str
    batch: str
    us: float = None
    floor: float = None
    kernels: str = ""
    why: str = ""


@dataclass
class Sweep:
    """Points in order. In a star the first is the neighbour of all others, else each is of the next."""

    name: str
    points: list = field(default_factory=list)
    star: bool = False

    def pairs(self):
        before = self.points[:1] * (len(self.points) - 1) if self.star else self.points
        return zip(before, self.points[1:])


@dataclass
class Step:
    """A jump, or a point that could not be measured (`growth` is None)."""

    sweep: str
    before: Point
    after: Point
    growth: float
    reason: str = ""


def floor_us(flops, size, read_tbps, matrix_tflops):
    """Microseconds that the work takes at best."""
    return max(LAUNCH_US, size / read_tbps * 1e-6, flops / matrix_tflops * 1e-6)


def steps(sweep, explained=None):
    """The steps of a sweep whose points were measured."""
    explained, found = EXPLAINED if explained is None else explained, []
    for before, after in sweep.pairs():
        if before.us and after.us:
            growth = (after.us / after.floor) / (before.us / before.floor)
            if growth > GROWTH:
                found.append(Step(sweep.name, before, after, growth, explained.get((sweep.name, after.label), "")))
    for point in sweep.points:
        if point.why:
            found.append(Step(sweep.name, point, point, None, explained.get((sweep.name, point.label), "")))
    return found


# ---------------------------------------------------------------- what is swept

HEADS = known.HEADS
QUERIES = (1, 2, 4, 8, 12, 16, 17, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
KEYS = [64 << power for power in range(12)]
DIMS = (32, 40, 64, 80, 96, 112, 128, 160, 192, 256, 320, 512)
GROUPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
PAGES = (256, 128, 64, 32, 16, 8, 4, 2, 1)
FEATURES = ("alibi=key", "softcap=20", "mask=bits", "mask=f16", "window=1023", "window=127", "sinks=1", "lse=1",
            "det=1", "out=f16", "out=f32", "out=e4m3", "out=int8")
CACHES = {"q=f16": "q=f16", "q=f32": "q=f32", "e4m3": "q=bf16 kv=e4m3 scales=unit",
          "e4m3 token-head": "q=bf16 kv=e4m3 scales=token-head", "e5m2": "q=bf16 kv=e5m2 scales=unit",
          "int8": "q=bf16 kv=int8 scales=token-head", "e4m3fnuz": "q=bf16 kv=e4m3fnuz scales=unit",
          "e5m2fnuz": "q=bf16 kv=e5m2fnuz scales=unit", "q=e4m3": "q=e4m3 kv=e4m3 scales=unit q_scale=unit",
          "q=f16, e4m3": "q=f16 kv=e4m3 scales=unit"}
BASES = (("decode 32 x 4k", "32x1/4096"), ("prefill 2k", "1x2048/2048"))
MLA = "heads={} kv_heads=1 head_dim=576/512 q=bf16 mla=1 block=64"


def with_feature(keys):
    if keys.startswith("mask="):
        keys += " span=full"
    if keys in ("out=e4m3", "out=int8"):
        keys += " out_scale=unit"
    return f"{HEADS} {keys}"


def lengths_sweeps():
    for name, keys in (("4k", 4096), ("32k", 32768)):
        yield Sweep(f"query tokens on {name} keys", [Point(str(q), HEADS, f"1x{q}/{keys}") for q in QUERIES])
    for count in (1, 8):
        yield Sweep(f"keys, decode {count}", [Point(str(keys), HEADS, f"{count}x1/{keys}") for keys in KEYS])
    yield Sweep("keys, prefill", [Point(str(keys), HEADS, f"1x{keys}/{keys}") for keys in KEYS[:9]])
    for keys in (64, 1024):
        yield Sweep(f"sequences of {keys} keys",
                    [Point(str(1 << power), HEADS, f"{1 << power}x1/{keys}") for power in range(11)])


def shape_sweeps():
    for base, batch in BASES:
        yield Sweep(f"group, {base}", [Point(str(group), f"heads={8 * group} kv_heads=8 head_dim=128 q=bf16", batch)
                                       for group in GROUPS])
        yield Sweep(f"head dim, {base}", [Point(str(dim), HEADS.replace("=128", f"={dim}"), batch) for dim in DIMS])
        yield Sweep(f"page, {base}", [Point(str(page), f"{HEADS} block={page}", batch) for page in PAGES])


def star_sweeps():
    for base, batch in BASES:
        plain = Point("plain", HEADS, batch)
        yield Sweep(f"features, {base}",
                    [plain, *(Point(keys, with_feature(keys), batch) for keys in FEATURES)], star=True)
        yield Sweep(f"types, {base}", [Point("bf16", HEADS, batch), *(
            Point(label, HEADS.replace("q=bf16", keys), batch) for label, keys in CACHES.items())], star=True)


def mla_sweeps():
    yield Sweep("MLA heads, 32 x 4k",
                [Point(str(heads), MLA.format(heads), "32x1/4096") for heads in (8, 16, 32, 64, 128)])
    yield Sweep("MLA keys, 16 heads", [Point(str(keys), MLA.format(16), f"1x1/{keys}") for keys in KEYS[2:11]])
    for heads in (16, 128):
        yield Sweep(f"MLA caches, {heads} heads, 32 x 4k", [
            Point("bf16", MLA.format(heads), "32x1/4096"),
            *(Point(kv, f"{MLA.format(heads)} kv={kv} k_scale=unit", "32x1/4096") for kv in ("e4m3", "e5m2", "int8")),
            Point("q=f16", MLA.format(heads).replace("q=bf16", "q=f16"), "32x1/4096")], star=True)


def sweeps(wanted=None):
    """All, or those in whose name an expression is found."""
    made = [*lengths_sweeps(), *star_sweeps(), *shape_sweeps(), *mla_sweeps()]
    return [sweep for sweep in made if wanted is None or wanted.search(sweep.name)]


# ---------------------------------------------------------------- measuring

def rates(bench):
    """TB/s of reading, TFLOP/s of a matrix product."""
    driver = bench.driver
    if driver.read is None:
        raise libattn.Failure(f"--cliffs takes the rate of reading as its measure: {driver.missing}")
    memory = libattn.Case(bench.bridge, HEADS, known.parse_batch(READ_BATCH), 1)
    try:
        size = memory.number("cache_bytes") // driver.BULK * driver.BULK
        taken = sample(driver, lambda: driver.read_memory(memory.number("cache"), size))
    finally:
        memory.close()
    read = size / taken * 1e-6
    if bench.matmul is None:
        return read, read * OPERATIONS_PER_BYTE
    return read, bench.matmul.flops / sample(driver, bench.matmul.run) * 1e-6


def sample(driver, launch):
    """The median of a few, after one that is not counted."""
    launch()
    return statistics.median(driver.measure(launch) for _ in range(SAMPLES))


def moved_bytes(case):
    """Keys and values once, queries and results."""
    number = case.number
    return case.key_bytes + number("rows") * number("heads") * (
        number("head_dim") * number("q_bytes") + number("head_dim_vo") * number("out_bytes"))


def measure_point(bench, point, read, matrix):
    """Fills in a point."""
    lengths, stream = known.parse_batch(point.batch), bench.stream
    sets = buffers.sets_of(bench, point.problem, lengths, cold=COLD_BYTES)
    case = libattn.Case(bench.bridge, point.problem, lengths, sets)
    graph = None
    try:
        point.kernels = case.text("kernels")
        rate = matrix * (F32_RATE if case.number("q_bytes") == 4 else 1)
        point.floor = floor_us(case.flops, moved_bytes(case), read, rate)
        case.run(0, stream)
        point.us = bench.driver.measure(lambda: case.run(0, stream))
        if point.us > LONG_US:
            return
        calls = max(buffers.FEWEST_CALLS, min(buffers.MOST_SETS, int(SAMPLE_US / point.us)))
        graph = libattn.Graph(bench.bridge, stream, lambda: [case.run(index % sets, stream) for index in range(calls)])
        point.us = sample(bench.driver, lambda: graph.launch(stream)) / calls
    finally:
        bench.bridge.synchronize(stream)
        if graph is not None:
            graph.close()
        case.close()


def run(bench, made, minutes, tell):
    """Measures sweeps within a time. The steps, the rates and how many points there was no time for."""
    deadline = time.monotonic() + 60 * minutes
    read, matrix = rates(bench)
    tell(f"reading {read:.2f} TB/s, matrix product {matrix:.0f} TFLOP/s")
    found, left = [], 0
    for sweep in made:
        for point in sweep.points:
            if time.monotonic() > deadline:
                left += 1
                continue
            try:
                measure_point(bench, point, read, matrix)
            except (libattn.Failure, RuntimeError) as error:
                point.us, point.why = None, str(error).strip().split("\n")[0]
        new = steps(sweep)
        found += new
        times = " ".join(f"{point.label}:{point.us:.1f}" if point.us else f"{point.label}:-" for point in sweep.points)
        tell(f"{sweep.name}: {times}")
        for step in new:
            tell("    " + line(step))
    return found, (read, matrix), left


def line(step):
    """Both points of a step."""
    reason = f"  explained: {step.reason}" if step.reason else ""
    if step.growth is None:
        return f"{step.after.label}: not measured: {step.after.why}{reason}"
    before, after = (f"{point.us:.1f} us, floor {point.floor:.1f}, {point.kernels}"
                     for point in (step.before, step.after))
    return f"{step.before.label} > {step.after.label}: x {step.growth:.2f} ({before} > {after}){reason}"


def document(made, found, both, left):
    """As it is written to a file."""
    def as_dict(point):
        return {key: value for key, value in vars(point).items() if value not in (None, "")}

    return {"read_tbps": both[0], "matrix_tflops": both[1], "not_measured": left,
            "sweeps": [{"name": sweep.name, "points": [as_dict(point) for point in sweep.points]} for sweep in made],
            "steps": [{"sweep": step.sweep, "before": step.before.label, "after": step.after.label,
                       "growth": step.growth, "reason": step.reason} for step in found]}
