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
import xml.etree.ElementTree as xml

BENCH, PAGE, BRIDGE, PLUGIN, FAKE = sys.argv[1:6]
sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(BENCH).parent / "gpu"), str(pathlib.Path(BENCH).parent)]

import cases as known  # noqa: E402
import gpu_page  # noqa: E402
import measure  # noqa: E402
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
    bars = [float(rect.get("width")) for rect in tree.iter("rect")] if tree is not None else []
    check(len(bars) == 2 and math.isclose(bars[0], 2 * bars[1], rel_tol=1e-3), "bars are as long as their shares", bars)
    check("A &lt;GPU&gt;" in page and "it &amp; they" in page and "pass" in page, "texts are escaped, results shown")
    line = [line for line in tree.iter("line") if line.get("class") == "roof"] if tree is not None else []
    check(len(line) == 1 and math.isclose(float(line[0].get("x1")) - gpu_page.LEFT - gpu_page.NAME, 2 * bars[0],
                                          abs_tol=0.02), "the ceiling's line is where a share of 1 ends")
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
    test_page()
print(f"1..{lines}")
sys.exit(failures != 0)
