#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds the finished files against what the binary interface promises.

Usage: guard.py [--installed | --symbols FILE] HEADERS MAP LIBRARY PLUGIN... [-- PROGRAM...]
Prints TAP. HEADERS is the directory of the public headers, MAP the version script. With --installed no file may
carry a search path for libraries that is not relative to itself. With --symbols FILE the list of symbols of the Debian
package has the functions of the headers, those behind ATTN_EXPERIMENTAL with a dependency of their own.
"""
import os
import re
import subprocess
import sys

ENTRY = "attn_plugin_entry_v1"
OTHERS = {"mpi.h", "nccl.h"}  # headers of libraries that are installed beside libattn


def readelf(*arguments):
    return subprocess.run(("readelf", "-W") + arguments, check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def declared(directory):
    """Functions that the public headers declare, by header."""
    found = {}
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".h") or name in OTHERS:
            continue
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            text = file.read()
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", "", text, flags=re.M)
        text = text.replace('extern "C" {', "")
        while re.search(r"\{[^{}]*\}", text):
            text = re.sub(r"\{[^{}]*\}", ";", text)
        for part in text.split(";"):
            match = re.match(r"(?!typedef\b|static\b)[\w\s*]*?[\s*](attn_\w+)\s*\((?!\s*\*)", part.strip())
            if match:
                found[match.group(1)] = name
    return found


def experimental(directory):
    """Functions that the public headers declare behind ATTN_EXPERIMENTAL."""
    found = set()
    for name in os.listdir(directory):
        if name.endswith(".h") and name not in OTHERS:
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
            for part in re.findall(r"^#ifdef ATTN_EXPERIMENTAL$(.*?)^#endif$", text, flags=re.M | re.S):
                found |= set(re.findall(r"\b(attn_\w+)\(", part))
    return found


class Elf:
    """What readelf says of one file."""

    def __init__(self, path):
        self.path = path
        self.dynamic = re.findall(r"^\s*0x[0-9a-f]+\s+\((\w+)\)\s+(.*?)\s*$", readelf("-d", path), flags=re.M)
        self.headers = [(match[0], match[1].replace(" ", "")) for match in re.findall(
            r"^  ([A-Z_]+)\s+(?:0x[0-9a-f]+\s+){5}((?:[RWE ]){3})\s", readelf("-l", path), flags=re.M)]
        self.exports = {}
        for line in readelf("--dyn-syms", path).splitlines():
            cells = line.split()
            if len(cells) < 8 or not cells[0].endswith(":") or cells[6] in ("UND", "Ndx"):
                continue
            if cells[4] in ("GLOBAL", "WEAK", "UNIQUE") and cells[6] != "ABS":
                name, _, version = cells[7].partition("@")
                self.exports[name] = (version.lstrip("@"), cells[3], cells[4])

    def values(self, tag):
        return [value for name, value in self.dynamic if name == tag]


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = 0

    def tell(self, good, text, wrong=""):
        self.count += 1
        self.failed += not good
        print("%s %d - %s" % ("ok" if good else "not ok", self.count, text))
        if not good:
            print("# " + str(wrong).strip().replace("\n", "\n# "))


def check_common(tap, elf, installed):
    name = os.path.basename(elf.path)
    stacks = [flags for kind, flags in elf.headers if kind == "GNU_STACK"]
    tap.tell(len(stacks) == 1 and "E" not in stacks[0], name + ": stack is not executable", stacks)
    both = [flags for kind, flags in elf.headers if kind == "LOAD" and "W" in flags and "E" in flags]
    tap.tell(not both and any(kind == "LOAD" for kind, _ in elf.headers), name + ": no memory to write and execute", both)
    tap.tell(any(kind == "GNU_RELRO" for kind, _ in elf.headers), name + ": relocations become read-only", elf.headers)
    flags = " ".join(elf.values("FLAGS"))
    tap.tell(not elf.values("TEXTREL") and "TEXTREL" not in flags, name + ": no relocations in code", flags)
    if installed:
        paths = elf.values("RPATH") + elf.values("RUNPATH")
        parts = [part for path in paths for part in re.sub(r".*\[(.*)\]", r"\1", path).split(":")]
        tap.tell(all(part.startswith("$ORIGIN") for part in parts), name + ": no search path into a build tree", parts)


def check_shared(tap, elf):
    name = os.path.basename(elf.path)
    unique = [symbol for symbol, (_, _, binding) in elf.exports.items() if binding == "UNIQUE"]
    tap.tell(not unique, name + ": no unique symbols", unique)
    data = [symbol for symbol, (_, kind, _) in elf.exports.items() if kind != "FUNC"]
    tap.tell(not data, name + ": only functions are exported", data)
    flags = " ".join(elf.values("FLAGS") + elf.values("FLAGS_1"))
    tap.tell("NOW" in flags.split() or "BIND_NOW" in flags.split(), name + ": every symbol is bound at once", flags)
    tap.tell("STATIC_TLS" not in flags, name + ": no thread-local memory of the initial kind", flags)


def check_library(tap, elf, functions, versions):
    name = os.path.basename(elf.path)
    want, have = set(functions) - {ENTRY}, set(elf.exports)
    tap.tell(want and have == want, "%s: exports the %d functions of the headers" % (name, len(want)),
             "not exported: %s; in no header: %s" % (sorted(want - have), sorted(have - want)))
    odd = {symbol: version for symbol, (version, _, _) in elf.exports.items() if version not in versions}
    tap.tell(not odd, "%s: every export has the version %s" % (name, ", ".join(versions)), odd)
    soname = elf.values("SONAME")
    tap.tell(len(soname) == 1 and "[libattn.so.0]" in soname[0], name + ": soname libattn.so.0", soname)


def check_symbols(tap, path, functions, early):
    with open(path, encoding="utf-8") as file:
        listed = dict(re.findall(r"^ (attn_\w+)@ATTN_[\d.]+ [\d.]+( 1)?$", file.read(), flags=re.M))
    name, want = os.path.basename(path), set(functions) - {ENTRY}
    tap.tell(set(listed) == want, "%s: lists the functions of the headers" % name,
             "not listed: %s; in no header: %s" % (sorted(want - set(listed)), sorted(set(listed) - want)))
    marked = {symbol for symbol, mark in listed.items() if mark}
    tap.tell(early and marked == early, "%s: marks the %d experimental ones" % (name, len(early)),
             sorted(marked ^ early))


def check_plugin(tap, elf):
    name = os.path.basename(elf.path)
    tap.tell(list(elf.exports) == [ENTRY], name + ": exports its entry and nothing else", sorted(elf.exports))
    needs = [value for value in elf.values("NEEDED") if "libattn" in value]
    tap.tell(not needs, name + ": does not need libattn", needs)


def main():
    arguments = sys.argv[1:]
    installed = arguments[:1] == ["--installed"]
    arguments = arguments[installed:]
    symbols = arguments[1] if arguments[:1] == ["--symbols"] else None
    arguments = arguments[2 if symbols else 0:]
    programs = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, programs = arguments[:at], arguments[at + 1:]
    headers, script, library, *plugins = arguments
    with open(script, encoding="utf-8") as file:
        versions = re.findall(r"^(ATTN_[\d.]+)\s*\{", file.read(), flags=re.M)
    tap = Tap()
    functions = declared(headers)
    tap.tell(bool(versions) and ENTRY in functions, "headers and version script were read", (versions, functions))
    elf = Elf(library)
    check_common(tap, elf, installed)
    check_shared(tap, elf)
    check_library(tap, elf, functions, versions)
    if symbols:
        check_symbols(tap, symbols, functions, experimental(headers))
    for path in plugins:
        elf = Elf(path)
        check_common(tap, elf, installed)
        check_shared(tap, elf)
        check_plugin(tap, elf)
    for path in programs:
        check_common(tap, Elf(path), installed)
    print("1..%d" % tap.count)
    return tap.failed > 0


if __name__ == "__main__":
    sys.exit(main())
