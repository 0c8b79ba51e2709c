#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what ptxas says of spills with the allowance: spills.py ALLOWED REPORT...

A line of ALLOWED is "kernel bytes": stores and loads that may go through local memory, on every architecture.
No kernel may wait for each product of a warp group, which ptxas makes it do where it does not see that
accumulators are waited for, nor of 16-bit values for a product that only closes a group of others.
"""
import re
import sys


def read_allowed(path):
    allowed = {}
    for line in open(path, encoding="utf-8"):
        words = line.split("#")[0].split()
        if words:
            allowed[words[0]] = int(words[1])
    return allowed


def main():
    allowed = read_allowed(sys.argv[1])
    seen, bad, kernels = {}, 0, 0
    for path in sys.argv[2:]:
        kernel = None
        for line in open(path, encoding="utf-8"):
            entry = re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line)
            spill = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
            serialized = re.search(r"instructions are serialized due to (.*) in the function '(\w+)'", line)
            if serialized:
                bad += 1
                print(f"{serialized[2]} waits for each product: {serialized[1]}")
            closing = re.search(r"warpgroup.arrive is injected .* in function '(mma_\w+)'", line)
            if closing and "_kv8_" not in closing[1]:
                bad += 1
                print(f"{closing[1]} closes a group of products by one that waits for them")
            if entry:
                kernel, arch = entry.groups()
            elif spill and kernel:
                kernels += 1
                most = max(int(spill[1]), int(spill[2]))
                seen[kernel] = max(seen.get(kernel, 0), most)
                if most > allowed.get(kernel, 0):
                    bad += 1
                    print(f"{kernel} for {arch} spills {most} bytes, {allowed.get(kernel, 0)} are allowed")
                kernel = None
    for name in sorted(set(allowed) - set(seen)):
        bad += 1
        print(f"{name} is allowed to spill, but there is no such kernel")
    print(f"{kernels} kernels looked at")
    return 1 if bad or kernels == 0 else 0


sys.exit(main())
