#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The OpenCL plugin's kernels under Oclgrind: races between work-items, addresses outside of buffers, and arguments
that OpenCL forbids.

test-oclgrind.py ATTN-CHECK OPENCL-PLUGIN [--few]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import platforms
from platforms import report

CHECK, PLUGIN = (os.path.abspath(p) for p in sys.argv[1:3])
# Each kernel, by short and long queries; each type of cache, each way to a key, each rule.
CASES = (
    # The third case is large and takes half the time; the first two launch the same kernels.
    ("attention", 2 if "--few" in sys.argv else 3, "heads=4 kv_heads=1 head_dim=64 q=f16 lse=1"),
    ("attention", 2, "heads=4 kv_heads=2 head_dim=64 q=f32 addr=csr window=9 softcap=20"),
    ("attention", 2, "heads=2 kv_heads=2 head_dim=40 q=bf16 kv=e4m3 scales=token-head addr=dense sinks=1"),
    ("attention", 2, "heads=4 kv_heads=2 head_dim=32 q=f16 kv=int8 scales=head kv_source=cache+new"),
    ("attention", 2, "heads=2 kv_heads=1 head_dim=24 q=f32 mask=bits span=full alibi=key"),
    ("attention", 1, "heads=2 kv_heads=1 head_dim=64 q=f16 mask=f32 layout=paged-x det=1"),
    ("attention", 1, "heads=2 kv_heads=1 head_dim=72/64 q=bf16 mla=1 cp=1 lse=1"),
    ("attention", 1, "heads=4 kv_heads=2 head_dim=32 q=e5m2 q_scale=tensor kv=e5m2fnuz scales=tensor out=f16"),
    ("write", 2, "heads=2 kv_heads=2 head_dim=40 q=f16 kv=e4m3 scales=token-head"),
    ("write", 1, "heads=2 kv_heads=2 head_dim=64 q=f32 kv=int8 scales=token-head layout=paged-x"),
    # The smallest cases of operations: Oclgrind is slow.
    ("cache", 1, "copy_slots"),
    ("cache", 1, "gather"),
    ("cache", 1, "convert"),
    ("merge", 1, None),
)
SEED = "5"  # with which these are small


def offences(log):
    """What Oclgrind says, but for one thing: an index into a union it takes for one into the union's first member."""
    with open(log, encoding="utf-8") as file:
        blocks = re.split(r"\n(?=\S)", file.read())
    return "\n".join(b for b in blocks if b.strip() and not re.match(r"Index \(\d+\) exceeds static array size", b))


def run(kind, cases, problem):
    log = os.path.join(work, "log")
    with open(log, "w", encoding="utf-8"):
        pass
    env = {n: v for n, v in os.environ.items() if not n.startswith(("ATTN_", "OCLGRIND_"))}
    env.update(OCL_ICD_VENDORS=work, OCLGRIND_LOG=log, OCLGRIND_CHECK_API="1", OCLGRIND_DATA_RACES="1",
               OCLGRIND_MAX_ERRORS="1000000", ATTN_LOG="error", ATTN_CACHE_DIR=work)
    result = subprocess.run([CHECK, PLUGIN, "--backend", "opencl/flash-attn", "--kind", kind, "--cases", str(cases)] +
                            (["--filter", problem] if problem else []) + (["--seed", SEED] if kind == "cache" else []),
                            env=env, capture_output=True, text=True, check=False)
    said = offences(log)
    result.stdout += said
    closing = [line for line in result.stdout.splitlines() if " passed, 0 failed" in line]
    judged = result.returncode == 0 or f"offers no {kind}" in result.stdout
    report(judged and closing and said == "",
           f"{kind}: {problem or 'its smallest cases'}: {closing[0] if closing else 'no end'}", result)


tool = shutil.which("oclgrind")
driver = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(tool))), "lib/oclgrind/liboclgrind-rt-icd.so") if tool else ""
if not os.path.exists(driver):
    print("1..0 # SKIP Oclgrind is not installed")
    sys.exit(0)
with tempfile.TemporaryDirectory() as work:
    with open(work + "/one.icd", "w", encoding="utf-8") as vendor:
        vendor.write(driver + "\n")
    for case in CASES:
        run(*case)
sys.exit(platforms.end())
