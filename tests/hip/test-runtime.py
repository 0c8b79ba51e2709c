#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The HIP plugin on AMD's own runtime where no AMD GPU is: it is loaded, says that there is none, and stays.

test-runtime.py ATTN-INFO ATTN-CHECK HIP-PLUGIN DIRECTORY-OF-THE-CPU-PLUGIN
"""
import ctypes
import json
import os
import subprocess
import sys

INFO, CHECK, PLUGIN, CPU = (os.path.abspath(p) for p in sys.argv[1:5])
NAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
lines = 0
failures = 0


def find():
    for name in NAMES:
        try:
            return ctypes.CDLL(name), name
        except OSError:
            continue
    return None, None


def check(good, what, result):
    global lines, failures
    lines += 1
    print(f"{'' if good else 'not '}ok {lines} - {what}")
    if not good:
        failures += 1
        for line in [f"exit status {result.returncode}"] + (result.stderr + result.stdout).splitlines()[:40]:
            print("# " + line)


def run(*arguments, **more):
    env = {n: v for n, v in os.environ.items() if not n.startswith(("ATTN_", "FAKE_")) or n == "ATTN_CACHE_DIR"}
    env.update(ATTN_PLUGIN_PATH=os.path.dirname(PLUGIN) + ":" + CPU, ATTN_LOG="warn", **more)
    return subprocess.run(arguments, env=env, capture_output=True, text=True, check=False)


runtime, found = find()
if runtime is None:
    print("1..0 # SKIP no libamdhip64")
    sys.exit(0)
count = ctypes.c_int(0)
runtime.hipInit(0)
runtime.hipGetDeviceCount(ctypes.byref(count))
if count.value > 0:
    print("1..0 # SKIP an AMD GPU is here, of which attn-check tells more")
    sys.exit(0)
for more in {}, {"ATTN_HIP_LIBRARY": found}:
    result = run(INFO, "explain", "--json", "heads=8", "head_dim=128", "q=f32", **more)
    answer = json.loads(result.stdout)
    hip = [c for c in answer["candidates"] if c["name"] == "hip/rocm-flash"]
    check(result.returncode == 0 and answer["effective"].startswith("cpu/") and not answer["fallback"] and
          len(hip) == 1 and hip[0]["device"] is None and
          [r["code"] for r in hip[0]["reasons"] if r["kernel"] is None] == ["NO_DEVICE"],
          f"{found} {'named' if more else 'found'}: NO_DEVICE, and the CPU serves", result)
    check(result.stderr == "", "and nothing is printed about it", result)
result = run(INFO, "devices", "--json")
check(result.returncode == 0 and "rocm:" not in result.stdout, "no device is listed", result)
result = run(CHECK, PLUGIN, "--kind", "abi")
check(result.returncode == 0 and " 0 failed" in result.stdout, "attn-check --kind abi passes", result)
print(f"1..{lines}")
sys.exit(failures != 0)
