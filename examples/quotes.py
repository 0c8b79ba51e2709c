#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does README.md quote examples/simple.c as it is, the manual page examples/layers.c, plugins/README.md tests/own?

Usage: quotes.py TREE. The quoted lines are between the comments begin and end of the program, or begin NAME and end
NAME; in plugins/README.md "<!-- FILE: NAME -->" precedes them.
"""
import pathlib
import re
import sys
import textwrap


def block(text, start, end):
    """The lines between two lines that are exactly start and end."""
    lines = text.splitlines()
    first = lines.index(start) + 1
    return "\n".join(lines[first:lines.index(end, first)])


# Page, program, what opens the block after the first mention of the program, and where its lines begin.
QUOTES = (("README.md", "examples/simple.c", "```c", ""),
          ("tools/man/attn-layer.3.scd", "examples/layers.c", "```", "    "))
PLUGIN = {("tests/own/plugin.c", "borrowed"), ("tests/own/own.h", "metadata"), ("tests/own/builder.c", "builder"),
          ("tests/own/state.c", "state"), ("tests/own/state.c", "layer")}


def check_plugin(tree):
    """The quotes of plugins/README.md that are not what the file says, and those that are missing."""
    page = (tree / "plugins/README.md").read_text(encoding="utf-8")
    quotes = {(file, name): text for file, name, text in
              re.findall(r"^<!-- (\S+): (\w+) -->\n\n```c\n(.*?)\n```$", page, flags=re.M | re.S)}
    wrong = PLUGIN ^ set(quotes)
    for file, name in PLUGIN & set(quotes):
        text = (tree / file).read_text(encoding="utf-8")
        if quotes[file, name] != block(text, f"/* begin {name} */", f"/* end {name} */"):
            wrong.add((file, name))
    return sorted(wrong)


def main():
    tree = pathlib.Path(sys.argv[1])
    bad = 0
    for page, name, fence, indent in QUOTES:
        program = (tree / name).read_text(encoding="utf-8")
        wanted = textwrap.dedent(block(program, indent + "/* begin */", indent + "/* end */"))
        text = (tree / page).read_text(encoding="utf-8").split(name, 1)
        found = block(text[1], fence, "```") if len(text) == 2 else ""
        if found != wanted:
            print(f"{page} does not quote {name} as it is; its lines between begin and end, without their "
                  f"indentation, are to stand in the block after that name", file=sys.stderr)
            bad = 1
    for file, name in check_plugin(tree):
        print(f"plugins/README.md does not quote {name} of {file} as it is, or should not", file=sys.stderr)
        bad = 1
    return bad


sys.exit(main())
