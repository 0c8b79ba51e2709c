#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From driver.def a line for each function of the driver: SHIM(name, symbol, parameters, arguments, first, second).

make-shim.py driver.def OUT
"""
import re
import sys


def split(parameters):
    """The parameters, of which one may be a function with its own."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(parameters):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(parameters[last:i])
            last = i + 1
    return parts + [parameters[last:]]


def name_of(parameter):
    function = re.search(r"\(\*(\w+)\)", parameter)
    return function[1] if function else re.search(r"(\w+)\s*$", parameter)[1]


text = open(sys.argv[1], encoding="utf-8").read()
text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
text = re.sub(r"^#.*$", "", text, flags=re.M)
lines = []
for entry in text.split("GPU_ENTRY(")[1:]:
    match = re.match(r'\w+, (\w+), ("\w+"), \d,\s*\((.*)\)\)\s*$', entry, flags=re.S)
    parameters = " ".join(match[3].split())
    names = [name_of(p) for p in split(parameters)]
    lines.append(f"SHIM({match[1]}, {match[2]}, ({parameters}), ({', '.join(names)}), {names[0]}, "
                 f"{names[1] if len(names) > 1 else 0})\n")
with open(sys.argv[2], "w", encoding="utf-8") as out:
    out.writelines(lines)
