#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The HIP plugin's code objects for one architecture, emulated: attn-check's cases by seed, chosen so that every
kernel of the plugin runs at least once, which is counted.

test-emulated.py ARCH ATTN-CHECK TEST-BUILDERS PLUGIN DIRECTORY-OF-THE-CPU-PLUGIN STAND-IN FAKE-DRIVER REPORT...

A REPORT is what backends/hip/code-object wrote of a module: its kernels.
"""
import os
import subprocess
import sys
import tempfile
import time

ARCH, CHECK, BUILDERS, PLUGIN, CPU, STAND_IN, FAKE = sys.argv[1:8]
POSE = {"gfx90a": "gfx90a:sramecc+:xnack-", "gfx942": "gfx942:sramecc+:xnack-", "gfx950": "gfx950:sramecc+:xnack-"}
lines = 0
failures = 0

# Kinds with a number of cases, and problems: each width of the reference kernels with each set of types.
KINDS = (("merge", 4), ("write", 8), ("cache", 4), ("graph", 1))
WIDTHS = ("head_dim=64", "head_dim=192/128", "head_dim=320")
TYPES = ("q=f32", "q=f16 out=e4m3 out_scale=tensor", "q=bf16 out=int8 out_scale=tensor",
         "q=e4m3 kv=e4m3 out=f16 q_scale=tensor scales=tensor", "q=f32 k=f16 v=bf16")
# Each width of the matrix kernels with each type and a cache of its own, or of 8 bits; and scales of the host.
TILES = [f"q={q}{kv} head_dim={width}" for width in ("64", "128", "192/128", "256") for q in ("f16", "bf16")
         for kv in ("", " kv=e4m3 scales=tensor")] + ["q=f16 kv=int8 scales=head head_dim=128"]
HEADS = "heads=4 kv_heads=2 "


def kernels_of(report):
    rows = open(report, encoding="utf-8").read().splitlines()
    return [row.split()[0] for row in rows[1:] if row.strip()]


def check(good, what, text=""):
    global lines, failures
    lines += 1
    print(f"{'' if good else 'not '}ok {lines} - {what}", flush=True)
    if not good:
        failures += 1
        for line in text.splitlines()[-25:]:
            print("# " + line[:300])


def environment(log):
    env = {n: v for n, v in os.environ.items() if not n.startswith(("ATTN_", "FAKE_"))}
    env.update(ATTN_HIP_LIBRARY=STAND_IN, FAKE_HIP_DRIVER=FAKE, FAKE_HIP="arch=" + POSE.get(ARCH, ARCH),
               FAKE_CUDA="strict", FAKE_EMULATED=log)
    return env


def run(log, what, *arguments):
    began = time.monotonic()
    result = subprocess.run([CHECK, PLUGIN, *arguments], env=environment(log), capture_output=True, text=True, check=False)
    closing = [line for line in result.stdout.splitlines() if " passed, " in line]
    good = result.returncode == 0 and closing and " 0 failed" in closing[-1] and not closing[-1].startswith("0 ")
    check(good, f"{ARCH} {what}: {closing[-1] if closing else 'nothing'}, {time.monotonic() - began:.1f} s",
          "\n".join(line for line in result.stdout.splitlines() if not line.startswith("ok")) + result.stderr)


def main():
    wanted = [k for report in sys.argv[8:] for k in kernels_of(report)]
    if not any(os.path.basename(report).startswith("tile") for report in sys.argv[8:]):
        wanted.remove("gpu_plan")  # schedules are those of matrix kernels
    with tempfile.TemporaryDirectory() as directory:
        log = directory + "/kernels"
        for kind, cases in KINDS:
            run(log, kind, "--kind", kind, "--cases", str(cases))
        for problem in TILES:
            run(log, problem, "--kind", "attention", "--cases", "3", "--filter", HEADS + problem)
        env = environment(log)
        env["ATTN_PLUGIN_PATH"] = os.path.dirname(PLUGIN) + ":" + CPU
        result = subprocess.run([BUILDERS, "12", "cpu/rocm-flash", "hip/rocm-flash"], env=env, capture_output=True,
                                text=True, check=False)
        check(result.returncode == 0 and result.stdout.count("\nok ") >= 1, f"{ARCH} builders, and steps that advance",
              result.stdout + result.stderr)
        run(log, "cascade", "--kind", "cascade", "--cases", "6", "--filter", HEADS + TILES[-1])
        for types in TYPES:
            for width in WIDTHS:
                run(log, f"{types} {width}", "--kind", "attention", "--cases", "1", "--filter",
                    HEADS + types + " " + width)
        ran = set(open(log, encoding="utf-8").read().split())
    check(len(wanted) > 20 and not set(wanted) - ran, f"{ARCH}: each of {len(wanted)} kernels ran",
          "these never ran: " + " ".join(sorted(set(wanted) - ran)))
    print(f"1..{lines}")
    return failures != 0


sys.exit(main())
