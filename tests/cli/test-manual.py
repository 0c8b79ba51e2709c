# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options, commands and variables of the manual pages are those of the tools: all of them, and no others.

usage: test-manual.py MAN ATTN-INFO TOOL...
"""

import os
import pathlib
import re
import subprocess
import sys

MAN, INFO, TOOLS = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[2:]
count = failed = 0


def check(good, name, more=()):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {name}", flush=True)
    if not good:
        print("\n".join(f"# {line}" for line in more))


def say(tool, *arguments):
    return subprocess.run([tool, *arguments], capture_output=True, encoding="utf-8", check=True).stdout


def offered(tool):
    """{long name: (short name, whether it takes a value)} as --help prints them."""
    found = {}
    for short, name, value in re.findall(r"^ {2,6}(?:-(.), )?--([a-z-]+)(\[?=)?", say(tool, "--help"), re.M):
        found[name] = (short, bool(value))
    return found


def explained(page):
    """The same from the terms of a page: lines behind which an indented text begins."""
    found = {}
    for term in re.findall(r"^(\*-.*)\n\t", page, re.M):
        short = ""
        for letter, name, value in re.findall(r"\*-(?:([^-*])|-([a-z-]+))\*(\[?=)?", term):
            if letter:
                short = letter
                continue
            found[name] = (short, bool(value))
            short = ""
    return found


def section(page, name):
    return re.search(rf"^# {name}\n(.*?)(?=^# |\Z)", page, re.M | re.S)[1]


def difference(a, b, a_name, b_name):
    return [f"only in {a_name}: {x}" for x in sorted(a - b)] + [f"only in {b_name}: {x}" for x in sorted(b - a)]


def test_options():
    every = set()
    pages = {}
    for tool in TOOLS:
        name = os.path.basename(tool)
        pages[name] = (MAN / f"{name}.1.scd").read_text(encoding="utf-8")
        options, terms = offered(tool), explained(pages[name])
        every |= set(options)
        check(len(options) >= 4, f"{name} --help tells its options", options)
        wrong = difference(set(options.items()), set(terms.items()), "--help", "the page")
        check(not wrong, f"{name}(1) explains the options of {name}, and no others", wrong)
        repeated = re.findall(r"^ {2}(\w.*)\n(\w.*)$", say(tool, "--help"), re.M)
        check(not [b for _, b in repeated if len(b.split()) < 4], f"{name} --help breaks no line of a list", repeated)
    for path in sorted(MAN.glob("*.scd")):
        words = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*[a-z])", path.read_text(encoding="utf-8")))
        words -= {"variable", "cflags", "libs"}  # of pkg-config
        check(words <= every, f"{path.name} speaks of no option that does not exist", sorted(words - every))
    return pages


def test_commands(page):
    commands = set(say(INFO, "--complete", "--", "").split())
    terms = set(re.findall(r"^\*([a-z]+)\*", section(page, "COMMANDS"), re.M))
    wrong = difference(commands, terms, "attn-info", "the page")
    check(len(commands) >= 10 and not wrong, "attn-info(1) explains its commands, and no others", wrong)
    helped = set(re.findall(r"^ {2}([a-z]+) ", say(INFO, "--help").split("Commands:")[1], re.M))
    wrong = difference(commands, helped, "attn-info", "--help")
    check(not wrong, "attn-info --help has its commands, and no others", wrong)
    documents = set(re.findall(r"^\*([a-z]+)\*\n\t", section(page, "JSON"), re.M)) | {"rescan", "exists"}
    wrong = difference(commands, documents, "attn-info", "the page")
    check(not wrong, "attn-info(1) has the keys of every command", wrong)
    codes = re.findall(r"^\*(\d)\*$", section(page, "EXIT STATUS"), re.M)
    check(codes == ["0", "1", "2", "3"], "attn-info(1) has the exit codes 0 to 3", codes)


def test_modes(page):
    bench = next(tool for tool in TOOLS if os.path.basename(tool) == "attn-bench")
    modes = re.findall(r"^ {2}([a-z]+) ", say(bench, "--help").split("Modes:")[1], re.M)
    missing = [mode for mode in modes if f"\n*{mode}*" not in page]
    check(len(modes) >= 6 and not missing, "attn-bench(1) explains its modes", missing)


def test_variables():
    table = (MAN / "../../core/base/env.def").read_text(encoding="utf-8")
    known = set(re.findall(r"ATTN_VARIABLE\((\w+)", table))
    for header in (MAN / "../../core/include/attn").glob("*.h"):
        known |= set(re.findall(r"\bATTN_[A-Z_]*[A-Z]\b", header.read_text(encoding="utf-8")))
    for path in sorted(MAN.glob("*.scd")):
        words = set(re.findall(r"\bATTN_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8").replace("\\_", "_")))
        wrong = [
            word
            for word in words - known
            if not re.match(r"ATTN_(E_|OK$|PLUGIN_NOTE|MODEL$|HIP_LIBRARY|CUDA_LIBRARY|FLASHINFER_TENSOR_CORES|ABI_|VERSION)", word)
        ]
        check(not wrong, f"{path.name} speaks of no variable or constant that does not exist", sorted(wrong))


PAGES = test_options()
test_commands(PAGES["attn-info"])
test_modes(PAGES["attn-bench"])
test_variables()
print(f"1..{count}")
sys.exit(failed != 0)
