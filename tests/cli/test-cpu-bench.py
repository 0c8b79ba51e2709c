# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/cpu-bench on programs that stand in for attn-bench and for peers, its oracle, and the page of what it wrote.

usage: test-cpu-bench.py CPU-BENCH RESULTS-PAGE [ATTN-BENCH]

With attn-bench one case is measured in earnest, without peers.
"""

import array
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import xml.etree.ElementTree as xml
import zipfile

BENCH, PAGE = sys.argv[1:3]
ATTN_BENCH = sys.argv[3] if len(sys.argv) > 3 else None
sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(BENCH).parent / "cpu"), str(pathlib.Path(BENCH).parent)]

import cases as known  # noqa: E402
import cpu_page  # noqa: E402
import ggml_library as ggml  # noqa: E402
import ggml_peer  # noqa: E402
import libraries  # noqa: E402
import machine  # noqa: E402
import measure  # noqa: E402
import oracle  # noqa: E402
import peers  # noqa: E402
import timing  # noqa: E402
from page import Malformed  # noqa: E402

ONE = ["--cases", "^decode-d64-1x4k-f16$", "--threads", "1"]
lines = failures = 0

# Prints what attn-bench would: us of a repetition and error are arguments.
STAND_IN = """#!{python}
import json, os, sys
with open({log!r}, "a") as log:
    log.write("libattn " + " ".join(sys.argv[1:]) + "\\n")
us, error = {us}, {error}
row = {{"name": "decode", "mode": "decode", "kernel": "paged_decode_f16_stand_in", "problem": "heads=32", "rounds": 3,
       "us": {{"min": us, "median": us, "max": us}}, "gbps": 5.0, "tflops": 0.02, "ceiling_gbps": 10.0,
       "ceiling_tflops": 1.0, "roof_ratio": 0.5, "error": error}}
machine = {{"processor": "some <CPU>", "cpus": 1, "caches": []}}
print(json.dumps({{"schema_version": 1, "libattn": "0.1", "machine": machine, "rows": [row]}}))
"""
# Stands in for the Python of peers: torch is right, slow at first and there; vllm is what `vllm` says.
PYTHON = """#!{python}
import json, os, sys, time
kind, vllm = sys.argv[2], {vllm!r}
settings = json.loads(sys.argv[3])
assert os.environ["OMP_NUM_THREADS"] == str(settings["threads"]) and sys.argv[1].endswith("peer.py")
def answer(document):
    print(json.dumps(document), flush=True)
if kind == "vllm" and vllm == "absent":
    answer({{"missing": "not & there"}})
    sys.exit()
answer({{"about": {{"version": "7 <peer>"}}}})
for line in sys.stdin:
    request = json.loads(line)
    with open({log!r}, "a") as log:
        log.write(kind + " " + request["do"] + "\\n")
    if kind == "vllm" and request["do"] == "sample" and vllm == "dies":
        print("about to end", file=sys.stderr)
        os._exit(3)
    if request["do"] == "open":
        error = 0.5 if kind == "vllm" and vllm == "wrong" else 1e-4
        answer({{"error": error, "sets": 1, "calls": 1, "reads": "a <cache>"}})
    elif request["do"] == "sample":
        answer({{"us": [30.0, 40.0, 50.0] if kind == "torch" else [80.0]}})
    else:
        answer({{}})
"""


def check(good, what, more=""):
    global lines, failures
    lines += 1
    print(f"{'' if good else 'not '}ok {lines} - {what}")
    if not good:
        failures += 1
        for line in str(more).splitlines()[:30]:
            print("# " + line)


def run(*arguments, **environment):
    env = {name: value for name, value in os.environ.items() if not name.startswith("ATTN_")}
    return subprocess.run([sys.executable, BENCH, *map(str, arguments)], env={**env, **environment},
                          capture_output=True, text=True, check=False)


def refused(code, *arguments, says=""):
    result = run(*arguments)
    check(result.returncode == code and says in result.stderr and "Traceback" not in result.stderr,
          f"{' '.join(map(str, arguments))[-80:]} ends with {code} and says \"{says[:40]}\"",
          f"{result.returncode} {result.stderr}")


def program(path, text, **members):
    path.write_text(text.format(python=sys.executable, **members), encoding="utf-8")
    path.chmod(0o755)
    return path


def test_arguments(directory):
    names = run("--list").stdout.split("\n")[:-1]
    check(len(names) > 50 and any(line.startswith("decode-8x4k-bf16 ") for line in names), "cases are listed", names)
    check(len({case.name for case in known.build()}) == len(known.build()), "each name is there once")
    some = run("--list", "--cases", "^ggml-").stdout.split("\n")[:-1]
    check(len(some) == 5 and all("mask=f16" in line for line in some), "and chosen by an expression", some)
    quick = run("--list", "--quick").stdout.split("\n")[:-1]
    groups = {case.group for case in known.build() if case.quick}
    check(5 < len(quick) < len(names) / 2 and len(groups) == 4, "the quick ones are some of each kind", quick)
    refused(2, "--cases", "(", says="no regular expression")
    refused(2, "--cases", "no such case", says="--list shows the names")
    for threads, says in (("x", "list of whole numbers"), ("1,", "list of whole numbers"), ("0", "from 1 to"),
                          ("", "list of whole numbers"), ("4096", "this process may use"), ("5000", "from 1 to")):
        refused(2, "--threads", threads, says=says)
    refused(2, "--rounds", "0", says="whole number")
    refused(2, "--cold", "-1", says="argument")
    refused(2, "--seed=1e3", says="whole number")
    refused(2, "--case", "x", says="unrecognized")
    refused(2, "--wheels", directory, says="ends with .whl")
    refused(2, "--ggml", directory / "none", says="is not there")
    refused(2, "--python", directory / "none", says="no program")
    refused(2, "--no-peers", "--ggml", directory, says="leave out")
    refused(1, *ONE, "--no-peers", "--build", directory, says="build the tree")
    refused(1, *ONE, "--no-peers", "--program", BENCH, "--json", "/nonexistent/out.json", says="/nonexistent/out.json")


def test_failures(directory):
    """Whatever is wrong with attn-bench is told in a line, and the exit status is 1."""
    log = str(directory / "log")
    for name, text, says in (
            ("wrong", STAND_IN.format(python=sys.executable, log=log, us=10, error=0.5), "at most 0.008 is right"),
            ("unchecked", STAND_IN.format(python=sys.executable, log=log, us=10, error=None), "error unknown"),
            ("silent", "#!/bin/sh\n", "no document"),
            ("ending", "#!/bin/sh\necho why it ended >&2; exit 1\n", "why it ended"),
            ("no program", "nothing\n", "no-program")):
        path = directory / name.replace(" ", "-")
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        result = run(*ONE, "--no-peers", "--program", path, "--rounds", "1")
        told = result.stdout + result.stderr
        check(result.returncode == 1 and says in result.stdout and "not measured" in told and not result.stderr,
              f"attn-bench is {name}: the case has failed", told)


def test_measuring(directory):
    log, out = directory / "rounds", directory / "out.json"
    bench = program(directory / "attn-bench", STAND_IN, log=str(log), us=20.0, error=2e-4)
    python = program(directory / "python", PYTHON, log=str(log), vllm="absent")
    command = [*ONE, "--program", bench, "--python", python, "--rounds", "3", "--json", out, "--cold", "64"]
    result = run(*command, OMP_WAIT_POLICY="passive", ATTN_CPU_FLAGS="avx2", ATTN_PLUGIN_PATH="/some/where")
    made = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    runs = made["cases"][0]["runs"] if made.get("cases") else {}
    check(result.returncode == 0 and set(runs) == {"libattn", "torch"}, "what is there is measured", result)
    order = [line.split()[:2] for line in log.read_text(encoding="utf-8").splitlines()]
    kinds = [kind for kind, what in order if kind == "libattn" or what == "sample"]
    check(kinds == ["libattn", "libattn", "torch", "torch", "libattn", "libattn", "torch"],
          "a check, and rounds of which every other one is in reverse order", order)
    check(all(f"{key}=" in log.read_text(encoding="utf-8").splitlines()[0] for key in
              ("head_dim", "seqs", "ctx", "q_len", "threads", "reps", "cold")), "attn-bench gets what the case is")
    check(runs["torch"]["samples_us"] == [40.0] * 3 and runs["torch"]["us"]["min"] == 30.0 and
          len(runs["libattn"]["samples_us"]) == 3, "samples are medians of calls, and the shortest is kept", runs)
    bar = made["cases"][0]["bars"][0]
    check(bar["ratio"] == 2.0 and bar["ratio_min"] == 1.5 and bar["passed"] is True, "the bar is a ratio of times", bar)
    check(made["versions"]["torch"]["version"] == "7 <peer>" and made["missing"]["vllm"] == "not & there" and
          "no library of ggml's was given" in made["missing"]["ggml"], "peers and what keeps the others are told", made)
    given = {"ATTN_CPU_FLAGS": "avx2", "OMP_WAIT_POLICY": "passive", "ATTN_PLUGIN_PATH": "a path"}
    check(given.items() <= made["environment"].items() and "PATH" not in made["environment"] and
          made["cold_mib"] == 64 and {"flags", "load_before", "load_after", "processor"} <= set(made["machine"]),
          "so is how it was made", made)
    page = subprocess.run([sys.executable, PAGE, str(out)], capture_output=True, text=True, check=False)
    check(page.returncode == 0 and bars(page.stdout) == [2.0], "and makes a page", page.stderr + page.stdout[:200])
    for vllm, says in (("wrong", "error 0.5, at most 0.05 is right"), ("dies", "status 3: about to end")):
        program(python, PYTHON, log=str(log), vllm=vllm)
        result = run(*command)
        check(result.returncode == 0 and says in result.stdout and "pass: 2.000" in result.stdout,
              f"a peer that {vllm} is left out and says why", result.stdout + result.stderr)
    result = run(*ONE, "--program", bench, "--python", "/bin/false", "--ggml", BENCH, "--rounds", "1")
    check(result.returncode == 0 and "ended with status 1" in result.stdout and "cannot be loaded" in result.stdout and
          "not measured: -" in result.stdout, "without any peer there is no ratio", result.stdout + result.stderr)
    runner = measure.Runner(lambda: (1.0, 1.0, 1.0, 6.0))
    for _ in range(9):
        runner.sample()
    check(len(runner.samples) == measure.LEAST_SAMPLES, "a peer that takes long has fewer samples", runner.samples)


def test_earnest(directory):
    out = directory / "earnest.json"
    result = run(*ONE, "--no-peers", "--quick", "--cases", "^decode-1x4k-f16$", "--program", ATTN_BENCH,
                 "--rounds", "1", "--cold", "16", "--json", out)
    made = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"cases": [{"runs": {"libattn": {}}}]}
    ours = made["cases"][0]["runs"]["libattn"]
    check(result.returncode == 0 and ours.get("kernel") and 0 < ours["error"] < 1e-3 and ours["roof_ratio"] > 0,
          "attn-bench measures a case", result.stdout + result.stderr)
    for case in known.build():
        check(len(case.bench_arguments) > 6 and case.problem.count("=") >= 4, f"{case.name} has a problem")


def test_oracle():
    query, keys, values = [2.0, 0.0, 0.0, 0.0], [1.0, 0, 0, 0, 3.0, 0, 0, 0], [1.0, 2, 3, 4, 5, 6, 7, 8]
    weight = 1 / (1 + math.exp(-2))
    want = [weight * two + (1 - weight) * one for one, two in zip(values[:4], values[4:])]
    got = oracle.attention(query, keys, values)
    check(all(math.isclose(one, other) for one, other in zip(got, want)), "attention of one row", got)
    check(oracle.attention(query, keys, values, [0.0, -math.inf]) == values[:4], "a mask hides")
    check(oracle.distance([(want, want)]) == 0 and oracle.distance([([2.0], [1.0])]) == 1 and
          oracle.distance([([math.nan], [1.0])]) == math.inf, "a distance is relative")
    case = {"seqs": 3, "queries": 5, "keys": 9, "heads": 4, "causal": True}
    check([oracle.visible(case, token) for token in (0, 4)] == [5, 9], "the last query sees all keys")
    check(set(oracle.pairs(case, 1)) >= {(2, 4, 3), (0, 0, 0)}, "the last row is compared, and the first")


def test_ggml(directory):
    """What needs no library."""
    check(ggml.decode(ggml.BF16, array.array("H", [0x3f80, 0xc000]).tobytes()) == [1.0, -2.0], "bf16 is read")
    check(ggml.decode(ggml.F16, b"\x00\x3c\x00\xc0") == [1.0, -2.0], "f16 is read")
    block = b"\x00\x38" + bytes(range(31)) + b"\xff"
    check(ggml.decode(ggml.Q8_0, block * 2) == ([code / 2 for code in range(31)] + [-0.5]) * 2, "q8_0 is read")
    case = {"seqs": 1, "queries": 2, "keys": 4, "causal": True}
    check(ggml.decode(ggml.F16, ggml_peer.causal_mask(case)) == [0, 0, 0, -math.inf, 0, 0, 0, 0],
          "later keys are hidden")
    mask = ggml.decode(ggml.F16, ggml_peer.stock_mask({"queries": 512, "keys": 512}, 1))
    hidden = mask.count(-math.inf)
    check(len(mask) == 512 * 512 and 0 < hidden < len(mask) / 5 and mask.count(0.0) > 64,
          "the stock mask has blocks", hidden)
    check(-math.inf not in ggml.decode(ggml.F16, ggml_peer.stock_mask({"queries": 1, "keys": 4096}, 1)),
          "and of one query row none")
    place = directory / "wheels"
    place.mkdir()
    with zipfile.ZipFile(place / "some-1-py3-none-any.whl", "w") as archive:
        for name in ("lib/libggml-cpu.so", "lib/libggml-cpu.so.0", "lib/libggml-base.so", "more/libggml-cpu-x64.so",
                     "some.libs/libggml-cpu-670364.so.0.13.1", "lib/libggml-cpu.txt"):
            archive.writestr(name, "no library")
    unpacked = libraries.Unpacked(libraries.wheels_of(place))
    found = [path.name for path in libraries.candidates(unpacked.path)]
    check(sorted(found) == ["libggml-cpu-670364.so.0.13.1", "libggml-cpu-x64.so", "libggml-cpu.so"],
          "wheels are searched", found)
    told = {"a": (None, "0.25.9"), "b": (0, "0.26.0"), "c": (3, "0.26.0"), "d": (9, "0.26.0"), "e": (None, "0.26.0")}
    describe, candidates = libraries.describe, libraries.candidates
    libraries.candidates = lambda place: list(told)
    libraries.describe = lambda name: {"file": name, "version": told[name][1], "score": told[name][0], "features": []}
    best = libraries.find(directory, None)["file"]
    libraries.describe, libraries.candidates = describe, candidates
    check(best == "d", "the newest library that runs here, and of its variants the best", best)
    for given, wheels, says in ((None, None, "was given"), (directory / "empty", None, "has no file"),
                                (None, unpacked, "cannot be loaded")):
        (directory / "empty").mkdir(exist_ok=True)
        try:
            libraries.find(given, wheels)
            check(False, f"where there is none: {says}")
        except ValueError as error:
            check(says in str(error), f"where there is none: {says}", error)


def test_timing():
    check([timing.sets_for({"queries": queries}, size, 128) for queries, size in ((1, 10), (1, 200), (512, 10))] ==
          [13, 1, 1], "sets exceed the cold bytes together, and prefill has one")
    seen = []
    rotation = timing.Rotation(seen.append, 3, 2)
    times = rotation.sample(0.0)
    check(seen == [0, 1, 2, 0] and len(times) == timing.LEAST_CALLS, "sets are visited in turn", seen)
    rotation.once = lambda: 2e6
    check(rotation.sample(0.0) == [2e6], "a long call is made once")
    check(16 << 20 <= machine.cold_bytes() <= machine.MOST_COLD and machine.cpus() >= 1, "a cold set has a size")
    case = types.SimpleNamespace(aim=1.5)
    runs = {"libattn": {"us": {"median": 10, "min": 9}}, "torch": {"us": {"median": 14, "min": 13}},
            "ggml": {"us": {"median": 20, "min": 12}}, "vllm": {"missing": "x"}}
    bar = known.judge(case, runs)
    check(bar["ratio"] == 1.4 and bar["passed"] is False and math.isclose(bar["ratio_min"], 12 / 9),
          "the fastest peer is held against libattn", bar)
    check(known.judge(case, {"libattn": runs["libattn"]})["passed"] is None, "what was not measured is neither")
    check(set(peers.NAMES) == set(cpu_page.PEERS) == set(known.ALL_PEERS), "each peer has a name on the page")


def bars(page):
    """How long each bar is, relative to the line."""
    found = []
    for track in xml.fromstring(page.split("\n", 1)[1]).iter("span"):
        if track.get("class") == "track":
            most, width = float(track.get("style").split()[1]), float(track[0].get("style").split()[1][:-1])
            found.append(round(width / 100 * most, 3))
    return found


def timed(us, **members):
    return {"us": {"median": us, "min": us / 2, "max": 2 * us}, "samples_us": [us], "error": 1e-4, **members}


def document(runs=None, **members):
    more = {"gbps": 5.0, "tflops": 0.5, "ceiling_gbps": 10.0, "ceiling_tflops": 2.0, "roof_ratio": 0.5, "kernel": "k"}
    runs = runs or {"libattn": timed(10.0, **more), "torch": timed(20.0), "ggml": timed(16.0),
                    "vllm": {"wrong": "by & far"}}
    bar = {"text": "t", "ratio": 1.6, "ratio_min": 1.6, "aim": 1.5, "sense": "least", "passed": True}
    one = {"name": "one", "group": "decode", "threads": 2, "batch": "1x1/4", "runs": runs, "bars": [bar]}
    low = {**one, "name": "low", "bars": [{**bar, "ratio": 0.8, "passed": False}]}
    return {"schema_version": 1, "tool": "cpu-bench", "libattn": "0", "rounds": 5, "cold_mib": 128, "missing": {},
            "machine": {"processor": "A <CPU>", "cpus": 2, "load_before": [0.1, 0, 0], "load_after": None},
            "versions": {"python": "3", "torch": {"version": "2", "capability": "AVX512"}},
            "cases": [{**one, **members}, low]}


def test_page(directory):
    path = directory / "fixture.json"
    path.write_text(json.dumps(document(name="a<b")), encoding="utf-8")
    made = subprocess.run([sys.executable, PAGE, str(path)], capture_output=True, text=True, check=False)
    page = made.stdout
    check(made.returncode == 0 and bars(page) == [1.6, 0.8], "bars are as long as their ratios", made.stderr)
    check("A &lt;CPU&gt;" in page and "by &amp; far" in page and "a&lt;b" in page, "texts are escaped")
    check("torch 2 (AVX512)" in page and "load 0.10 before, not known after" in page, "what was measured is told")
    check("<td>10.0 µs</td>" in page and "5.00 of 10.0 GB/s" in page and "50 %" in page and "<td>miss</td>" in page and
          "beside ggml" in page and "longer is better" in page, "times, rates, shares and results are there", page)
    for outside in ("http", "src=", "<script", "<link", "@import", "url("):
        check(outside not in page, f"the page has nothing of {outside}")
    for wrong, what in ((document(runs=[3]), "runs"), (document(name=""), "name"), (document(threads=None), "threads"),
                        (document(bars=[]), "bars"), (document(bars=[{"aim": None}]), "aim"),
                        (document(runs={"libattn": {"us": {"median": 0}}}), "us.median"),
                        (document(runs={"libattn": timed(1.0, roof_ratio="x")}), "roof_ratio"),
                        ({**document(), "schema_version": 2}, "schema_version"),
                        ({**document(), "machine": 3}, "machine"),
                        ({**document(), "versions": {"torch": 3}}, "versions.torch")):
        try:
            cpu_page.page(wrong)
            check(False, f"a document with a wrong {what} is refused")
        except Malformed as error:
            check(what in str(error), f"a document with a wrong {what} is refused", error)


with tempfile.TemporaryDirectory() as temporary:
    FOLDER = pathlib.Path(temporary)
    test_arguments(FOLDER)
    test_failures(FOLDER)
    test_measuring(FOLDER)
    if ATTN_BENCH is not None:
        test_earnest(FOLDER)
    test_oracle()
    test_ggml(FOLDER)
    test_timing()
    test_page(FOLDER)
print(f"1..{lines}")
sys.exit(failures != 0)
