#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attn-info says of OpenCL loaders and platforms that are bad in some way, and each call of the plugin failing.

test-loader.py ATTN-INFO TEST-FAILURES OPENCL-PLUGIN DIRECTORY-OF-THE-CPU-PLUGIN STAND-IN functions.def [--few]
"""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import platforms  # noqa: E402
from platforms import report  # noqa: E402

INFO, FAILURES, PLUGIN, CPU, STAND_IN, FUNCTIONS = (os.path.abspath(p) for p in sys.argv[1:7])
PROBLEM = ["heads=8", "head_dim=128", "q=f32"]


def run(*arguments, directory=os.path.dirname(STAND_IN), pose="", **more):
    env = {n: v for n, v in os.environ.items() if not n.startswith("ATTN_")}
    env.update(ATTN_PLUGIN_PATH=os.path.dirname(PLUGIN) + ":" + CPU, ATTN_LOG="warn", ATTN_CACHE_DIR=work + "/cache",
               LD_LIBRARY_PATH=directory, STAND_IN_LOADER=LOADER, STAND_IN_POSE=pose, **vendors)
    env.update(more)
    return subprocess.run(arguments, env=env, capture_output=True, text=True, check=False, timeout=280)


def explain(**more):
    """The reasons of the backend's own, and the whole answer."""
    result = run(INFO, "explain", "--json", *PROBLEM, **more)
    if result.returncode != 0:
        return [], result
    answer = json.loads(result.stdout)
    mine = [c for c in answer["candidates"] if c["name"] == "opencl/flash-attn"]
    good = answer["effective"].startswith("cpu/") and result.stderr == "" and len(mine) == 1
    return [(r["code"], r["text"]) for r in mine[0]["reasons"]] if good else [("BAD", "")], result


def check_poses():
    reasons, result = explain()
    report(reasons == [], "the loader that stands in serves as the one behind it", result)
    for pose, code, words in (("no-platform", "NO_DRIVER", "CL_PLATFORM_NOT_FOUND_KHR (-1001)"),
                              ("no-device", "NO_DEVICE", "found no device"),
                              ("no-compiler", "DEVICE_ARCH", "one with a compiler"),
                              ("narrow", "DEVICE_ARCH", "little-endian one of 64 bits")):
        reasons, result = explain(pose=pose)
        report(len(reasons) == 1 and reasons[0][0] == code and words in reasons[0][1],
               f"{pose}: {code}, in words, and the CPU serves", result)
        result = run(INFO, "explain", *PROBLEM, pose=pose, ATTN_BACKEND="opencl")
        report(result.returncode == 1 and code in result.stdout, f"{pose}: by name there is no backend", result)
    for pose in "crashes", "hangs":
        reasons, result = explain(pose=pose, ATTN_DISABLE="opencl")
        report(result.returncode == 0 and json.loads(result.stdout)["effective"].startswith("cpu/"),
               f"a driver that {pose} harms nobody with ATTN_DISABLE=opencl", result)


def check_functions():
    """Each function in turn is not found, for its name in a copy of the file is another."""
    with open(FUNCTIONS, encoding="utf-8") as file:
        names = re.findall(r"^OPENCL_FUNCTION\((\w+)\)", file.read(), flags=re.M)
    with open(STAND_IN, "rb") as file:
        whole = file.read()
    bad = []
    answer = None
    for name in names:
        directory = os.path.join(work, name)
        os.mkdir(directory)
        symbol = b"\0" + name.encode() + b"\0"
        assert symbol in whole, name
        with open(directory + "/libOpenCL.so.1", "wb") as out:
            out.write(whole.replace(symbol, symbol[:-2] + b"_\0"))
        reasons, result = explain(directory=directory)
        if len(reasons) != 1 or reasons[0][0] != "NO_DRIVER" or f"has no function {name}" not in reasons[0][1]:
            bad.append(name)
            answer = result
    report(not bad and len(names) > 30, f"each of {len(names)} functions that lacks is named " + " ".join(bad),
           answer if answer is not None else result)
    with open(directory + "/libOpenCL.so.1", "wb") as out:
        out.write(b"no library")
    reasons, result = explain(directory=directory)
    report(len(reasons) == 1 and reasons[0][0] == "NO_DRIVER", "a loader that cannot be opened: NO_DRIVER", result)


def check_failures():
    os.mkdir(work + "/programs")
    result = run(FAILURES, PLUGIN, work + "/programs", *sys.argv[7:])
    for line in result.stdout.splitlines():
        match = re.match(r"(not )?ok \d+ - (.*)", line)
        if match:
            report(match[1] is None, match[2], result)
    report(result.returncode == 0, "a failure of every call: the test comes to its end", result)


LOADER = platforms.loader()
if LOADER is None or platforms.vendor_of("pocl") is None:
    print("1..0 # SKIP PoCL is not installed")
    sys.exit(0)
with tempfile.TemporaryDirectory() as work:
    vendors = platforms.alone("pocl", work)
    check_poses()
    check_functions()
    check_failures()
sys.exit(platforms.end())
