#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The OpenCL plugin on one platform, which it sees alone, and without any: results, text that a model generates, and
programs that are kept on disk.

test-platforms.py pocl|rusticl ATTN-INFO ATTN-CHECK ATTN-GENERATE|- OPENCL-PLUGIN DIRECTORY-OF-THE-CPU-PLUGIN [--all|--few]
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

import platforms
from platforms import report

PLATFORM = sys.argv[1]
INFO, CHECK = (os.path.abspath(p) for p in sys.argv[2:4])
GENERATE = None if sys.argv[4] == "-" else os.path.abspath(sys.argv[4])
PLUGIN, CPU = (os.path.abspath(p) for p in sys.argv[5:7])
# PoCL sets a variable, signal handlers and a signal stack where its devices are first listed: of the side effects
# (ATTN_P13) those are the driver's, and judged are the others.
KINDS = ("attention,write,query,axes,faults,distrust,long,nan,det,serving,streams,replay,graph,exhausted,abi").split(",")
# Done whole, for pairs that depend on each other are rare; with --few by PoCL alone.
OPERATIONS = "cache,merge"
# Left out on a platform, and why; what is a fault of the driver has a program that shows it.
LEFT_OUT = {
    "rusticl": {
        "exhausted": "its buffers are memory of the machine, all of which the check would take",
    },
}.get(PLATFORM, {})
# Rusticl compiles slowly, and its kernels run slowly: of kinds that have no share it does a few cases on one backend,
# but with --all. With --few PoCL does the same, and each does less of what the other does too.
LESS = "--few" in sys.argv
FEW = ["nan", "streams", "replay"] if LESS or (PLATFORM == "rusticl" and "--all" not in sys.argv) else []
FEW_CASES = {"pocl": "8", "rusticl": "4"}[PLATFORM]
SHARE, CASES = {"pocl": ("1/240", "8") if LESS else ("1/80", "24"), "rusticl": ("1/800", "3" if LESS else "8")}[PLATFORM]
# What a share of the cases of all problems may miss.
PROBLEMS = (
    ("attention", "heads=4 kv_heads=2 head_dim=64 q=f32 mask=f32 alibi=mask"),
    ("attention", "heads=4 kv_heads=2 head_dim=64 q=f16 mask=bits span=full window=9"),
    ("attention", "heads=4 kv_heads=2 head_dim=64 q=f32 cp=1 sinks=1 lse=1"),
    ("attention", "heads=4 kv_heads=1 head_dim=576/512 q=bf16 mla=1 lse=1"),
    ("attention", "heads=4 kv_heads=2 head_dim=192/128 q=f16 kv=e4m3 scales=head layout=paged-x"),
    ("write", "heads=4 kv_heads=2 head_dim=64 q=f32 kv=int8 scales=token-head"),
    ("write", "heads=4 kv_heads=2 head_dim=64 q=bf16 kv=e5m2fnuz scales=tensor layout=paged-x"),
)
# By decode's and by prefill's kernel: there is no maximum yet that exponents could count from.
LATE = "heads=1 head_dim=64 q=bf16 block=16 lse=1"


def run(*arguments, **more):
    env = {n: v for n, v in os.environ.items() if not n.startswith("ATTN_")}
    env.update(ATTN_PLUGIN_PATH=os.path.dirname(PLUGIN) + ":" + CPU, ATTN_LOG="error", ATTN_CACHE_DIR=work, **vendors)
    env.update(more)
    return subprocess.run(arguments, env=env, capture_output=True, text=True, check=False)


def check_no_platform():
    empty = os.path.join(work, "no-platform")
    os.mkdir(empty)
    result = run(INFO, "explain", "--json", "heads=8", "head_dim=128", "q=f32", OCL_ICD_VENDORS=empty)
    answer = json.loads(result.stdout)
    codes = [r["code"] for c in answer["candidates"] if c["name"] == "opencl/flash-attn" for r in c["reasons"]]
    report(result.returncode == 0 and answer["effective"].startswith("cpu/") and codes == ["NO_DRIVER"],
           "no platform: NO_DRIVER, and the CPU serves", result)
    report(result.stderr == "", "and nothing is printed about it", result)
    result = run(INFO, "devices", OCL_ICD_VENDORS=empty)
    report("the OpenCL loader has no platform" in result.stdout, "attn-info devices says why", result)
    result = run(CHECK, PLUGIN, "--kind", "abi", OCL_ICD_VENDORS=empty)
    report(" 0 failed" in result.stdout, "attn-check --kind abi passes without a platform", result)


def check_choice():
    """A CPU that OpenCL lists is never preferred to the CPU plugin; opencl/flashinfer is never the first."""
    result = run(INFO, "explain", "--json", "heads=8", "head_dim=128", "q=f32", ATTN_BACKEND="opencl")
    answer = json.loads(result.stdout)
    levels = {k["graph_level"] for c in answer["candidates"] if c["name"].startswith("opencl/") for k in c["kernels"]}
    report(answer["effective"] == "opencl/flash-attn" and levels == {"always"},
           "of OpenCL's backends flash-attn is the first, and both have graphs", result)
    result = run(INFO, "explain", "--json", "heads=8", "head_dim=128", "q=f32")
    effective = json.loads(result.stdout)["effective"]
    listed = run(INFO, "devices", "--json")
    report(effective.startswith("cpu/") or "portable-accelerator" in listed.stdout,
           "the CPU plugin wins over OpenCL on a CPU", result)


def check_results():
    for kind, why in LEFT_OUT.items():
        print(f"# {kind} is left out: {why}")
    result = run(CHECK, PLUGIN, "--kind", ",".join(k for k in KINDS if k not in LEFT_OUT and k not in FEW), "--share", SHARE)
    report(result.returncode == 0 and " 0 failed" in result.stdout, "attn-check passes", result)
    for line in result.stdout.splitlines()[-1:]:
        print("# " + line)
    if FEW:
        result = run(CHECK, PLUGIN, "--backend", "opencl/flash-attn", "--kind", ",".join(FEW), "--cases", FEW_CASES)
        report(result.returncode == 0 and " 0 failed, 0 skipped" in result.stdout, "a few cases of " + ", ".join(FEW), result)
    part = ["--share", "1/4"] if LESS and PLATFORM == "rusticl" else []
    result = run(CHECK, PLUGIN, "--backend", "opencl/flash-attn", "--kind", OPERATIONS, *part)
    report(result.returncode == 0 and " 0 failed, 0 skipped" in result.stdout, "operations on caches, and the merge",
           result)
    result = run(CHECK, PLUGIN, "--backend", "opencl/flash-attn", "--full", "--kind", "long", "--filter", LATE)
    report(result.returncode == 0 and " 0 failed, 0 skipped" in result.stdout, "first keys that weigh nothing", result)
    for kind, problem in PROBLEMS:
        if kind in LEFT_OUT:
            continue
        result = run(CHECK, PLUGIN, "--backend", "opencl/flash-attn", "--kind", kind, "--cases", CASES, "--filter", problem)
        report(result.returncode == 0 and " 0 failed, 0 skipped" in result.stdout, f"{kind}: {problem}", result)


def check_text():
    native = run(GENERATE, "--toy=test", "-p", "hello", "-n", "8")
    for what in "a program that is compiled", "one from disk", "one whose file is damaged":
        result = run(GENERATE, "--toy=test", "-p", "hello", "-n", "8", ATTN_BACKEND="opencl")
        report(result.returncode == 0 and result.stdout == native.stdout and result.stdout != "" and
               "backend: opencl/flash-attn" in result.stderr, f"attn-generate: the CPU's text, with {what}", result)
        files = glob.glob(os.path.join(work, "opencl-*.bin"))
        if what == "one from disk":
            for name in files:
                with open(name, "r+b") as file:
                    file.seek(64)
                    file.write(b"damaged")
    report(len(files) >= 2, "programs were kept", result)
    for name in "opencl/flash-attn", "opencl/flashinfer":
        result = run(GENERATE, "--toy=test", "-p", "hello", "-n", "8", "--graph", "on", ATTN_BACKEND=name)
        report(result.returncode == 0 and result.stdout == native.stdout and
               "7 of 8 steps replayed them" in result.stderr and "backend: " + name in result.stderr,
               f"attn-generate: the CPU's text by graphs of {name}", result)


if platforms.vendor_of(PLATFORM) is None:
    print(f"1..0 # SKIP {platforms.DRIVERS[PLATFORM]} is not installed")
    sys.exit(0)
with tempfile.TemporaryDirectory() as work:
    vendors = platforms.alone(PLATFORM, work)
    if PLATFORM == "pocl":
        check_no_platform()
    check_choice()
    check_results()
    if GENERATE:
        check_text()
sys.exit(platforms.end())
