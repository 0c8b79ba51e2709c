#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes source files as an array of C strings, one a line: embed.py OUTPUT FILE..."""
import sys

lines = []
for name in sys.argv[2:]:
    with open(name, encoding="ascii") as file:
        lines += [line.replace("\\", "\\\\").replace('"', '\\"') for line in file.read().splitlines()]
with open(sys.argv[1], "w", encoding="ascii") as out:
    out.write('/* Generated from the files of kernels. */\n#include "opencl.h"\n\n')
    out.write("const char *const opencl_sources[] = {\n")
    out.writelines(f'    "{line}\\n",\n' for line in lines)
    out.write(f"}};\nconst uint32_t opencl_source_count = {len(lines)};\n")
