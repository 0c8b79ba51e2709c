#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/gpu-bench on the driver that stands in, without torch, and the page of what it wrote.

test-gpu-bench.py GPU-BENCH RESULTS-PAGE BRIDGE DIRECTORY-OF-THE-PLUGIN FAKE-DRIVER
"""
import contextlib
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import zipfile
import xml.etree.ElementTree as xml

BENCH, PAGE, BRIDGE, PLUGIN, FAKE = sys.argv[1:6]
sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(BENCH).parent / "gpu"), str(pathlib.Path(BENCH).parent)]

import buffers  # noqa: E402
import cases as known  # noqa: E402
import cliffs  # noqa: E402
import gpu_page  # noqa: E402
import measure  # noqa: E402
import packages  # noqa: E402
from page import Malformed  # noqa: E402

SMALL = ["--problem", "heads=4 kv_heads=2 head_dim=64 q=bf16", "--rounds", "2"]
lines = failures = 0


def check(good, what, more=""):
    global lines, failures
    lines += 1
    print(f"{'' if good else 'not '}ok {lines} - {what}")
    if not good:
        failures += 1
        for line in str(more).splitlines()[:30]:
            print("# " + line)


def run(*arguments, library=FAKE, bridge=BRIDGE, plugin=PLUGIN):
    env = {n: v for n, v in os.environ.items() if not n.startswith("ATTN_") or n == "ATTN_CACHE_DIR"}
    # No torch here, whatever this machine has: its kernels need a device.
    env.update(ATTN_CUDA_LIBRARY=library, ATTN_LOG="warn", PYTHONPATH=str(EMPTY))
    return subprocess.run([sys.executable, BENCH, "--library", bridge, "--plugin", plugin, *arguments], env=env,
                          capture_output=True, text=True, check=False)


def refused(code, *arguments, says="", **more):
    result = run(*arguments, **more)
    check(result.returncode == code and says in result.stderr and "Traceback" not in result.stderr,
          f"{' '.join(arguments) or 'no argument'} ends with {code} and says \"{says[:40]}\"",
          f"{result.returncode} {result.stderr}")


def test_arguments():
    names = run("--list").stdout.split("\n")
    check(len(names) > 20 and any(line.startswith("decode-32-4k ") for line in names), "the cases are listed", names)
    check(len({case.name for case in known.build()}) == len(known.build()), "each name is there once")
    some = run("--list", "--cases", "^fp8").stdout.split("\n")[:-1]
    check(some and all(line.startswith("fp8") for line in some), "and chosen by an expression", some)
    quick = run("--list", "--quick").stdout.split("\n")[:-1]
    check(0 < len(quick) < len(names) - 1 and all("(bar)" in line for line in quick), "the quick ones have bars", quick)
    refused(2, "--cases", "(", says="no regular expression")
    refused(2, "--cases", "no such case", says="--list shows the names")
    refused(2, "--problem", "heads=4 head_dim=64 q=bf16", says="go together")
    refused(2, "--batch", "1x1/4", says="go together")
    refused(2, *SMALL, "--batch", "1x1/4", "--quick", says="leave out")
    refused(2, "--caches", says="--problem")
    rows = run("--rows", "--list").stdout.split("\n")[:-1]
    check(len(rows) > 40 and all("(bar)" in line for line in rows), "each of the rows has a bar", rows)
    check(len({case.name for case in known.build() + known.rows()}) == len(known.build()) + len(rows),
          "no row has the name of another case")
    swept = run("--cliffs", "--list", "--cases", "^group").stdout.split("\n")[:-1]
    check(len(swept) == 2 and swept[0].split()[-1] == "16", "sweeps are listed, and chosen by an expression", swept)
    refused(2, "--cliffs", "--cases", "no such sweep", says="--cliffs --list")
    refused(2, "--minutes", "1", says="of --cliffs")
    for more in (["--rows"], ["--quick"], [*SMALL, "--batch", "1x1/4"], ["--profile"]):
        refused(2, "--cliffs", *more, says="leave out")
    refused(2, "--rows", "--quick", says="leave out")
    refused(2, "--wheels", str(EMPTY), says="ends with .whl")
    refused(2, "--rounds", "0", says="whole number")
    refused(2, "--seed", "-1", says="argument")
    refused(2, "--seed=1e3", says="whole number")
    refused(2, "--case", "x", says="unrecognized")
    for batch, says in (("", "no run"), ("1x1", "no run"), ("1x1/4+", "no run"), ("0x1/4", "sequences"),
                        ("1x5/4", "query tokens"), ("1x0/4", "query tokens"), ("1x1/99999999", "up to"),
                        ("65536x1/4+1x1/4", "65537 sequences"), ("1x1/-4", "no run")):
        refused(2, *SMALL, "--batch", batch, says=says)


def test_surroundings():
    batch = ["--batch", "1x1/40"]
    refused(1, *SMALL, *batch, says="NO_DRIVER", library="/nonexistent/libcuda.so.1")
    refused(1, *SMALL, *batch, says="/nonexistent/bridge.so is not there", bridge="/nonexistent/bridge.so")
    refused(1, *SMALL, *batch, says="the bridge cannot be loaded", bridge=BENCH)
    refused(1, *SMALL, *batch, says="has no libattn-cuda.so", plugin="/nonexistent")
    refused(1, *SMALL, *batch, "--device", "9", says="cuda:9")
    refused(1, *SMALL, *batch, "--backend", "cuda/nothing", says="NO_SUCH_BACKEND")
    refused(1, *SMALL, *batch, "--json", "/nonexistent/out.json", says="/nonexistent/out.json")
    refused(1, "--cliffs", says="the driver has no events")
    result = run("--problem", "heads=4 kv_heads=3 head_dim=64 q=bf16", "--rounds", "1", *batch)
    check(result.returncode == 1 and "kv_heads" in result.stdout, "a problem that is none is a case that failed",
          result.stdout + result.stderr)


def test_measuring(directory):
    out = directory / "out.json"
    for name, more, kernels in (("decode", ["--batch", "2x1/70"], {"libattn"}),
                                ("prefill", ["--batch", "2x5/30"], {"libattn"}),
                                ("8 bits", ["--batch", "1x1/40", "--problem",
                                            "heads=4 kv_heads=2 head_dim=64 q=bf16 kv=e4m3 scales=token-head"], {"libattn"}),
                                ("caches", ["--caches", "--batch", "3x1/50+1x1/33"], set(measure.CACHE_CEILINGS))):
        result = run(*SMALL, *more, "--json", str(out))
        try:
            document = json.loads(out.read_text(encoding="utf-8"))
            runs = document["cases"][0]["runs"]
        except (OSError, ValueError, KeyError, IndexError):
            check(False, f"{name}: there is a document", result.stdout + result.stderr)
            continue
        measured = {key: value for key, value in runs.items() if "us" in value}
        check(result.returncode == 0 and set(measured) == kernels, f"{name}: all that can be timed is", runs)
        check(all(len(value["samples_us"]) == 2 and value["us"]["min"] <= value["us"]["median"] <= value["us"]["max"]
                  for value in measured.values()), f"{name}: two samples of each", runs)
        check(all(0 <= value["error"] <= measure.BOUND for value in measured.values() if value["error"] is not None)
              and (name == "caches" or measured["libattn"]["error"] > 0), f"{name}: each was compared", runs)
        check(all(value["missing"] for key, value in runs.items() if key not in kernels), f"{name}: the others say why",
              runs)
        page = subprocess.run([sys.executable, PAGE, str(out)], capture_output=True, text=True, check=False)
        check(page.returncode == 0 and "libattn" in page.stdout and as_xml(page.stdout), f"{name}: makes a page",
              page.stderr + page.stdout[:200])
    check(document["clock"] == "clock of the host" and document["seed"] == 1 and
          document["versions"]["why"] == "torch not found", "the document tells how it was made", document["versions"])
    check(all(case["timed"] == "calls in a graph" for case in [document["cases"][0]]) == (name != "caches"),
          "only operations on caches are timed one by one", document["cases"][0]["timed"])
    result = run("--problem", "heads=4 kv_heads=2 head_dim=64 q=bf16 out=e4m3 out_scale=unit", "--batch", "1x1/40",
                 "--rounds", "1")
    check(result.returncode == 0 and "error" not in result.stdout, "results of 8 bits have no error", result.stdout)
    result = run("--rows", "--cases", "^decode-1024-64$|^det-1", "--list", "--rounds", "1")
    check(result.returncode == 0 and result.stdout.count("\n") == 2, "rows are chosen by an expression", result.stdout)
    result = run(*SMALL, "--batch", "1x1/40", "--profile")
    check(result.returncode == 0 and "mma" in result.stdout, "a profiler gets one launch", result.stderr)


def as_xml(html):
    try:
        return xml.fromstring(html.replace("<!DOCTYPE html>\n", ""))
    except xml.ParseError as error:
        print(f"# {error}")
        return None


def kernel(us, **members):
    return {"us": {"median": us, "min": us, "max": us}, "samples_us": [us], "bytes": 1e6, "flops": 0.0,
            "tbps": 1 / us, "tflops": 0.0, "error": 2e-3, "ceiling": "read", "share": None, **members}


def test_judging():
    runs = {"libattn": kernel(10.0), "flash": kernel(9.0), "cudnn, heads first": kernel(8.0), "read": kernel(6.0),
            "cudnn": {"missing": "refused"}}
    least = measure.judge_bar(known.Bar("x", "peers", "libattn", "least", 0.8), runs)
    check(least["ratio"] == 0.8 and least["passed"] is True, "the fastest peer is held against libattn", least)
    most = measure.judge_bar(known.Bar("x", "libattn", "read", "most", 1.4), runs)
    check(math.isclose(most["ratio"], 10 / 6) and most["passed"] is False, "a ratio above its aim is a miss", most)
    none = measure.judge_bar(known.Bar("x", "cudnn", "libattn", "least", 1.0), runs)
    check(none["ratio"] is None and none["passed"] is None, "what was not measured is neither", none)
    figure = measure.judge_bar(known.Bar("x", "libattn", "us", "most", 10), runs)
    check(figure["ratio"] == 10.0 and figure["passed"] is True, "a bar can be a time", figure)
    runs["libattn"]["tflops"] = 300.0
    figure = measure.judge_bar(known.Bar("x", "libattn", "tflops", "least", 330), runs)
    check(figure["ratio"] == 300.0 and figure["passed"] is False, "or a rate", figure)
    runs["xqa"] = kernel(4.0)
    best = measure.judge_bar(known.Bar("x", "peers", "libattn", "least", 0.8), runs)
    check(best["ratio"] == 0.4, "every kernel of others is a peer", best)
    for error in (math.nan, math.inf, measure.BOUND * 1.01):
        measurement = measure.Measurement.__new__(measure.Measurement)
        measurement.runners, measurement.wrong = {}, {}
        measurement.add("flash", measure.Runner(None, 1, 0.0, 1.0, error))
        check("flash" in measurement.wrong and not measurement.runners, f"an error of {error:g} is not timed")
    shares = {"libattn": kernel(10.0), "gather": kernel(8.0), "read": kernel(5.0)}
    measure.add_shares(shares, {}, "read")
    check([shares[name]["share"] for name in ("libattn", "gather", "read")] == [0.5, 0.625, 1.0],
          "a share is of the ceiling's rate", shares)
    shares = {"gather": kernel(8.0), "plain copy": kernel(4.0)}
    measure.add_shares(shares, measure.CACHE_CEILINGS, "matmul")
    check(shares["gather"]["share"] == 0.5 and shares["gather"]["ceiling"] == "plain copy", "of its own one", shares)


def test_buffers():
    windowed = buffers.allocated([(1, 32768)] * 32, 16, 65536, False)
    check(windowed == 32 * 2048 * 65536, "a cache is as large as its pages, whatever is read of it", windowed)
    check(buffers.allocated([(1, 17), (1, 16)], 16, 10, False) == 30, "pages are whole")
    check(buffers.allocated([(1, 40), (1, 7)], 1, 10, True) == 800, "those of a dense cache as long as the longest")
    check(buffers.sets_for(4e6, 4e6, 140e9) == 150, "small caches have as many sets as L2 cannot hold")
    check(buffers.sets_for(1e3, 1e3, 140e9) == buffers.MOST_SETS, "within reason")
    check(buffers.sets_for(4.3e9, 4.3e9, 140e9) == 1, "a large one has one")
    check(buffers.sets_for(1e8, 1e8, 500e6) == 3, "there are fewer sets where memory is short")
    check(buffers.sets_for(1e8, 2e8, 700e6) == 2, "and where peers copy them")
    check(buffers.sets_for(1e8, 1e8, 1e6) == 1, "but one at least")
    check([buffers.calls_for(sets, 10.0) for sets in (1, 2, 3, 150)] == [4, 4, 6, 150], "a graph calls every set")
    check(buffers.calls_for(100, 1000.0) == 30 and buffers.calls_for(100, 10e3) == 4 and
          buffers.calls_for(100, 70e3) == 2, "but fewer where calls are long")


ON_THE_FAKE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import bridge, cliffs, measure
bench = measure.Bench(bridge.Bridge(*sys.argv[2:4], "cuda/flash-attn", 0), None, "", 0, 1, 1, pathlib.Path("none"))
cliffs.rates = lambda bench: (4.0, 700.0)
point = lambda label, kv: cliffs.Point(label, f"heads=4 kv_heads={kv} head_dim=64 q=bf16", "1x1/40")
made = [cliffs.Sweep("some", [point("1", 2), point("bad", 3)])]
cliffs.run(bench, made, 1, print)
good = made[0].points[0]
print(f"{good.kernels} {int(good.us > 0 and good.floor == cliffs.LAUNCH_US) + 1} points")
"""


def test_measurement():
    """The order of samples, and sets by what a probe says, on objects that stand in."""
    order = []
    bench = types.SimpleNamespace(stream=None, rounds=3, bridge=types.SimpleNamespace(synchronize=lambda stream: None),
                                  driver=types.SimpleNamespace(measure=lambda launch: launch() or 1.0, by_events=True))
    measurement = measure.Measurement.__new__(measure.Measurement)
    measurement.bench, measurement.graphs, clock = bench, True, measure.time
    measurement.runners = {name: measure.Runner(lambda _, name=name: order.append(name), 1, 0.0, 1.0) for name in "ab"}
    measure.time = types.SimpleNamespace(sleep=lambda seconds: order.append("."))
    many = measure.MOST_RESTED
    for computes, rounds, wanted in ((False, 3, "ab aabb bbaa aabb"), (True, 2, "ab .aa.bb .bb.aa"),
                                     (True, many + 1, "ab" + " aabb bbaa" * (many // 2) + " aabb")):
        measurement.case, bench.rounds = types.SimpleNamespace(computes=computes), rounds
        order.clear()
        measurement.run()
        check("".join(order) == wanted.replace(" ", ""), "every other round is in reverse order, the device "
              f"{'rests before each sample' if '.' in wanted else 'does not rest'}", order)
    measure.time = clock
    numbers = {"block": 16, "cache_bytes": 160, "pages": 2, "heads": 2, "head_dim_vo": 4, "out_bytes": 2}
    probe = types.SimpleNamespace(number=numbers.get, close=lambda: None)
    driver = types.SimpleNamespace(by_events=True, free_bytes=lambda: 1e9)
    bench, case = types.SimpleNamespace(driver=driver, bridge=None), buffers.libattn.Case
    buffers.libattn.Case = lambda *arguments: probe
    sets = [buffers.sets_of(bench, "heads=2", [(1, 16)] * 10 ** 6, copies) for copies in (0, 1, 8)]
    buffers.libattn.Case = case
    check(sets == [3, 2, 1], "buffers are as many as fit, results and copies included", sets)


def points(*figures, **more):
    return [cliffs.Point(str(index), "p", "b", us, floor, "k", **more) for index, (us, floor) in enumerate(figures)]


def test_cliffs():
    line = cliffs.Sweep("line", points((10, 5), (12, 5), (40, 10), (60, 20)))
    found = cliffs.steps(line)
    check([(step.before.label, step.after.label, step.growth) for step in found] == [("1", "2", 4 / 2.4)],
          "a step is where the time by the floor grows", found)
    check("12.0 us" in cliffs.line(found[0]) and "40.0 us" in cliffs.line(found[0]) and "k" in cliffs.line(found[0]),
          "both its points are told", cliffs.line(found[0]))
    star = cliffs.steps(cliffs.Sweep("star", points((10, 5), (20, 5), (22, 5)), star=True))
    check([step.before.label for step in star] == ["0", "0"], "in a star each is beside the first", star)
    check(not cliffs.steps(cliffs.Sweep("even", points((10, 5), (13, 5), (26, 10)))), "a growth of 1.3 is none")
    why = cliffs.steps(line, {("line", "2"): "because"})
    check(why[0].reason == "because" and "explained: because" in cliffs.line(why[0]), "what has a reason says it", why)
    check(not cliffs.steps(line, {("other", "2"): "because"})[0].reason, "a reason is of one sweep alone")
    gone = cliffs.Sweep("gone", points((10, 5), (None, None), (90, 5)))
    gone.points[1].why = "refused"
    check([step.growth for step in cliffs.steps(gone)] == [None] and "refused" in cliffs.line(cliffs.steps(gone)[0]),
          "what could not be measured is left over", cliffs.steps(gone))
    check(cliffs.floor_us(0, 1e3, 4.0, 700.0) == cliffs.LAUNCH_US and cliffs.floor_us(0, 4e8, 4.0, 700.0) == 100 and
          cliffs.floor_us(7e10, 4e6, 4.0, 700.0) == 100, "a floor is what is longest")
    names = [sweep.name for sweep in cliffs.sweeps()]
    check(len(set(names)) == len(names) and all(name in names for name, _ in cliffs.EXPLAINED), "reasons are of sweeps")
    for sweep in cliffs.sweeps():
        labels = [point.label for point in sweep.points]
        check(len(set(labels)) == len(labels) and all(known.parse_batch(point.batch) for point in sweep.points) and
              all(label in labels for name, label in cliffs.EXPLAINED if name == sweep.name),
              f"{sweep.name}: each point has a name")
    rates, measure_point = cliffs.rates, cliffs.measure_point

    def measured(bench, point, read, matrix):
        if point.label == "1":
            raise RuntimeError("refused\nfor long")
        point.us, point.floor = 10.0 * (1 + int(point.label)), 10.0

    cliffs.rates, cliffs.measure_point, told = lambda bench: (4.0, 700.0), measured, []
    made = [cliffs.Sweep("some", [cliffs.Point(str(index), "p", "b") for index in range(4)])]
    found, both, left = cliffs.run(None, made, 1, told.append)
    check([step.growth for step in found] == [4 / 3, None] and left == 0 and len(told) == 4,
          "sweeps are measured", told)
    text = json.dumps(cliffs.document(made, found, both, left))
    check('"growth": null' in text and '"why": "refused"' in text, "and can be written", text)
    check(cliffs.run(None, cliffs.sweeps(), -1, told.append)[2] == sum(len(sweep.points) for sweep in cliffs.sweeps()),
          "what there was no time for is counted")
    cliffs.rates, cliffs.measure_point = rates, measure_point
    command = [sys.executable, "-c", ON_THE_FAKE, str(pathlib.Path(BENCH).parent / "gpu"), BRIDGE, PLUGIN]
    result = subprocess.run(command, env={**os.environ, "ATTN_CUDA_LIBRARY": FAKE}, capture_output=True, text=True,
                            check=False)
    check(result.returncode == 0 and "1:" in result.stdout and "bad: not measured" in result.stdout and
          "mma" in result.stdout and result.stdout.endswith("2 points\n"), "a plugin's points are measured",
          result.stdout + result.stderr)


def test_packages(directory):
    wheels = directory / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "some_peer-1-py3-none-any.whl", "w") as archive:
        archive.writestr("some_peer.py", "value = 7\n")
        archive.writestr("bad_peer.py", "raise RuntimeError('no such symbol\\nat all')\n")
        archive.writestr("needy_peer.py", "import no_such_package\n")
    found = packages.Packages(packages.wheels_of(wheels))
    check(found.get("some_peer").value == 7, "a package is taken from a wheel")
    for name, says in (("bad_peer", "no such symbol"), ("needy_peer", "no_such_package is not there")):
        try:
            found.get(name)
            check(False, f"{name} is refused")
        except ValueError as error:
            check(says in str(error) and "at all" not in str(error), f"{name} is refused in a line", error)
    for what in ("compiling", "compiling again"):
        began = time.monotonic()
        try:
            with found.compiling("slow", 1):
                time.sleep(20)
            check(False, f"{what} ends")
        except ValueError as error:
            check("within 1 s" in str(error) and time.monotonic() - began < 10, f"{what} ends", error)
    (wheels / "broken.whl").write_text("none")
    result = run(*SMALL, "--batch", "1x1/40", "--wheels", str(wheels), "--rounds", "1")
    check(result.returncode == 0, "wheels are not looked at without torch", result.stderr)
    view = types.SimpleNamespace(table=1)
    check(list(measure.peers.of(view, True, found)) == list(measure.peers.NAMES) and
          "xqa" not in measure.peers.of(view, False, found), "decode has all peers")
    check(set(measure.peers.NAMES) == set(gpu_page.PEERS), "and each has a name on the page")
    check(measure.peers.copies("heads=32 kv_heads=8", True) == 1 and
          measure.peers.copies("heads=32, kv_heads=8", False) == 4, "the copies of peers are counted")


def document(**members):
    runs = {"libattn": kernel(10.0, share=0.5, problem="heads=1", kernels="a<b"), "read": kernel(5.0, share=1.0),
            "flash": kernel(20.0, share=0.25), "cudnn": {"missing": "it & they"}}
    bar = {"text": "a<b", "ratio": 2.0, "aim": 0.8, "sense": "least", "passed": True}
    case = {"name": "one", "group": "decode", "batch": "1x1/4", "runs": runs, "bars": [bar], **members}
    return {"schema_version": 1, "tool": "gpu-bench", "libattn": "0", "backend": "cuda/flash-attn", "seed": 1,
            "rounds": 7, "clock": "events", "versions": {"torch": "2", "cudnn": 9},
            "device": {"before": {"name": "A <GPU>"}, "after": {}}, "cases": [case]}


def test_page():
    page = gpu_page.page(document())
    tree = as_xml(page)
    spans = tree.iter("span") if tree is not None else []
    bars = [part.get("style") for part in spans if "bar" in part.get("class", "").split()]
    check(bars == ["width: 50.00%", "width: 25.00%"], "bars are as long as their shares", bars)
    check("A &lt;GPU&gt;" in page and "it &amp; they" in page and "pass" in page, "texts are escaped, results shown")
    check("<td>one</td><td>10.0 µs</td><td>20.0 µs</td><td>torch flash</td>" in page and "<td>2.00</td>" in page,
          "a peer's figure stands beside libattn's", page)
    for wrong, what in ((document(runs=[]), "runs"), (document(name=""), "name"),
                        (document(bars=[{"passed": 1, "sense": "least"}]), "passed"),
                        (document(runs={"libattn": {"us": {"median": 0}}}), "us.median"),
                        (document(runs={"libattn": kernel(1.0, share="x")}), "share"),
                        ({**document(), "schema_version": 2}, "schema_version"),
                        ({**document(), "device": 3}, "device")):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                gpu_page.page(wrong)
            check(False, f"a document with a wrong {what} is refused")
        except Malformed as error:
            check(what in str(error), f"a document with a wrong {what} is refused", error)


with tempfile.TemporaryDirectory() as temporary:
    EMPTY = pathlib.Path(temporary) / "empty"
    EMPTY.mkdir()
    (EMPTY / "torch.py").write_text("raise ImportError\n", encoding="utf-8")
    test_arguments()
    test_surroundings()
    test_measuring(pathlib.Path(temporary))
    test_judging()
    test_buffers()
    test_measurement()
    test_cliffs()
    test_packages(pathlib.Path(temporary))
    test_page()
print(f"1..{lines}")
sys.exit(failures != 0)
