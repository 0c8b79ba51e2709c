#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do README.md and the manual page quote examples/layers.c as it is?

Usage: quotes.py TREE. The quoted lines stand between the comments begin and end of the program.
"""
import pathlib
import sys
import textwrap


def block(text, start, end):
    """The lines between two lines that are exactly start and end."""
    lines = text.splitlines()
    first = lines.index(start) + 1
    return "\n".join(lines[first:lines.index(end, first)])


def main():
    tree = pathlib.Path(sys.argv[1])
    program = (tree / "examples/layers.c").read_text(encoding="utf-8")
    wanted = textwrap.dedent(block(program, "    /* begin */", "    /* end */"))
    bad = 0
    for page, fence in (("README.md", "```c"), ("tools/man/attn-layer.3.scd", "```")):
        text = (tree / page).read_text(encoding="utf-8").split("examples/layers.c", 1)
        found = block(text[1], fence, "```") if len(text) == 2 else ""
        if found != wanted:
            print(f"{page} does not quote examples/layers.c as it is; its lines between begin and end, without "
                  f"their indentation, are to stand in the block after that name", file=sys.stderr)
            bad = 1
    return bad


sys.exit(main())
