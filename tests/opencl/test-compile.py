#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The OpenCL plugin's kernels compile for GPUs whose driver is not here, without a warning: clang has a target for each.

test-compile.py KERNEL-SOURCES.c [--few]: without the programs that PoCL compiles with the same options
"""
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile

import platforms
from platforms import report

TARGETS = {
    "nvptx64": ["--target=nvptx64-nvidia-nvcl"],
    "gfx90a": ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a"],
}


def compilers():
    names = [f"/usr/lib/llvm-{n}/bin/clang" for n in (22, 19, 16, 15)] + ["clang"]
    return [n for n in names if shutil.which(n)]


def compile_to(clang, target, options, output):
    return subprocess.run([clang, "-x", "cl", "-cl-std=CL1.2", *target, "-Xclang", "-finclude-default-header", "-nogpulib",
                           "-D__OPENCL_VERSION__=120", "-O1", "-Wall", "-Wno-unused-function", "-Wno-pass-failed",
                           *options, "-S", "-o", output,
                           work + "/kernels.cl"], capture_output=True, text=True, check=False)


# As plans compile them: which options, and which kernels there are then.
PROGRAMS = (
    ("caches", [], ["attn_write", "attn_slots", "attn_gather", "attn_convert"]),
    ("generic", ["-DK_DTYPE=0x0001080au", "-DV_DTYPE=0x0001080au", "-DHEAD_DIM=576", "-DHEAD_DIM_VO=512"], ["attn_attention"]),
    ("f16", ["-DK_DTYPE=0x00011002u", "-DV_DTYPE=0x00011002u", "-DHEAD_DIM=128", "-DHEAD_DIM_VO=128", "-DDECODE_ITEMS=128",
             "-DDECODE_ROWS=4", "-DDECODE_LANES=4", "-DPREFILL_MR=8", "-DPREFILL_SLICE=32", "-DNATIVE_EXP", "-DON_GPU"], ["attn_decode", "attn_combine", "attn_prefill"]),
    ("f32", ["-DK_DTYPE=0x00012002u", "-DV_DTYPE=0x00012002u", "-DHEAD_DIM=64", "-DHEAD_DIM_VO=64", "-DDECODE_ITEMS=64",
             "-DDECODE_ROWS=8", "-DDECODE_LANES=2", "-DPREFILL_MR=8", "-DPREFILL_SLICE=16", "-DPREFILL_EXACT"],
     ["attn_decode", "attn_combine", "attn_prefill"]),
)


def check(clang, name, target):
    for what, options, kernels in PROGRAMS[2:] if "--few" in sys.argv else PROGRAMS:
        output = work + "/out.s"
        result = compile_to(clang, target, options, output)
        text = ""
        if result.returncode == 0:
            with open(output, encoding="utf-8") as file:
                text = file.read()
        missing = [k for k in kernels if k not in text]
        # clang 22 takes a kernel's body for another function, which it warns of for AMD.
        warned = [line for line in result.stderr.splitlines()
                  if " warning: " in line and "local memory global used by non-kernel function" not in line]
        report(not missing and not warned, f"{name}: {what}: {' '.join(missing + warned) or 'compiles'}", result)


clang = next(iter(compilers()), None)
with tempfile.TemporaryDirectory() as work:
    with open(sys.argv[1], encoding="ascii") as generated, open(work + "/kernels.cl", "w", encoding="ascii") as out:
        out.writelines(ast.literal_eval(line) for line in re.findall(r'^    (".*"),$', generated.read(), flags=re.M))
    usable = clang and compile_to(clang, TARGETS["nvptx64"], ["-DNONE"], os.devnull).returncode in (0, 1)
    if not usable:
        print("1..0 # SKIP no clang that compiles OpenCL C")
        sys.exit(0)
    for name, target in TARGETS.items():
        check(clang, name, target)
sys.exit(platforms.end())
