#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of the OpenCL loader that stands in, from the plugin's list of functions and OpenCL's headers.

make-stand-in.py HEADERS-AFTER-THE-PREPROCESSOR functions.def OUT OUT.d
"""
import re
import sys

POSED = "clGetPlatformIDs", "clGetDeviceIDs", "clGetDeviceInfo"


def names_of(parameters):
    """The parameters' names; one may be a function with parameters of its own."""
    flat = re.sub(r"\(\s*\*\s*(\w+)\s*\)\s*\([^()]*\)", r" \1", parameters)
    return [re.search(r"(\w+)\s*$", part)[1] for part in flat.split(",")]


text = open(sys.argv[1], encoding="utf-8").read()
lines = []
for name in re.findall(r"^OPENCL_FUNCTION\((\w+)\)", open(sys.argv[2], encoding="utf-8").read(), flags=re.M):
    match = re.search(r"extern\s+([\w\s*]*?)\s*\b" + name + r"\(([^;]*?)\)\s*(?:__attribute__[^;]*)?;", text)
    assert match, f"{name} is in no header"
    result, parameters = (" ".join(part.split()) for part in match.groups())
    names = names_of(parameters)
    call = f"({', '.join(names)})"
    event = "event" if re.search(r"cl_event ?\* ?event\b", parameters) else "NULL"
    if result == "cl_int":
        posed = f"pose_{name}{call}" if name in POSED else "CL_SUCCESS"
        lines.append(f"FUNCTION({name}, ({parameters}), {call}, {names[0]}, {event}, {posed})\n")
    else:
        code = names[-1] if names[-1] == "errcode_ret" else "NULL"
        lines.append(f"MAKER({result}, {name}, ({parameters}), {call}, {event}, {code})\n")
with open(sys.argv[3], "w", encoding="utf-8") as out:
    out.writelines(lines)
with open(sys.argv[4], "w", encoding="utf-8") as out:
    out.write(f"{sys.argv[3]}: {sys.argv[2]}\n")
