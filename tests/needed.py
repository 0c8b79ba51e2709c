#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints what ninja must build before `meson test --no-rebuild` can run some suites, a file a line.

Usage: needed.py BUILD [--installed] [--suite SUITE | --no-suite SUITE]...
Suites are named as for meson test; suite slow only where it is named. --installed adds what `meson install` takes.
"""
import argparse
import json
import os


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("build", type=os.path.realpath)
    parser.add_argument("--installed", action="store_true")
    parser.add_argument("--suite", action="append", default=[])
    parser.add_argument("--no-suite", action="append", default=[])
    options = parser.parse_args()
    with open(f"{options.build}/meson-info/intro-tests.json", encoding="utf-8") as file:
        tests = json.load(file)
    with open(f"{options.build}/meson-info/intro-targets.json", encoding="utf-8") as file:
        targets = json.load(file)
    outputs = {target["id"]: target["filename"] for target in targets}
    with_them, without = set(options.suite), set(options.no_suite) | {"slow"} - set(options.suite)
    names = {name for target in targets if options.installed and target["installed"] for name in target["filename"]}
    for test in tests:
        suites = {suite.split(":")[-1] for suite in test["suite"]}
        if not suites & without and (not with_them or suites & with_them):
            names.update(name for target in test["depends"] for name in outputs[target])
    for name in sorted(names):
        print(os.path.relpath(name, options.build))


main()
