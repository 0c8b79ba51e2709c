# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which tests run a line, found with the compiler's counters."""
import collections
import concurrent.futures
import json
import os
import shutil

from build import Build, output_of

# Kernels without optimization take minutes. Children that end without running exit handlers count too.
OPTIONS = ("-Dbuildtype=debug", "-Doptimization=1", "-Db_coverage=true")


def read_counters(build, data):
    """What gcov says of each file of code from the counters that a test left in a folder."""
    files = [f"{folder}/{name}" for folder, _, names in os.walk(data) for name in names if name.endswith(".gcda")]
    # A plugin with changed bytes (tests/malformed) may write its counters for a path that is none.
    files = [name for name in files if os.path.exists(name[len(data):-len("gcda")] + "gcno")]
    for name in files:
        os.symlink(name[len(data):-len("gcda")] + "gcno", name[:-len("gcda")] + "gcno")
    said = output_of("gcov", "--json-format", "--stdout", *files, cwd=build.folder) if files else ""
    shutil.rmtree(data, ignore_errors=True)
    return [file for document in said.splitlines() for file in json.loads(document)["files"]]


def find_reach(source, folder, suites, jobs):
    """{file: {"functions": [[first line, last line], ...], "lines": {line: [test, ...]}}}; takes some minutes."""
    os.makedirs(folder, exist_ok=True)
    exit_object = f"{folder}/exit.o"
    output_of("gcc", "-c", "-fPIC", "-o", exit_object, f"{source}/tests/coverage/exit.c")
    build = Build(source, folder, suites, *OPTIONS, f"-Dc_link_args=-Wl,--wrap=_exit {exit_object} -lgcov")
    reach = collections.defaultdict(lambda: {"functions": set(), "lines": collections.defaultdict(set)})

    def count(test):
        data = f"{folder}/counters/{test}"
        shutil.rmtree(data, ignore_errors=True)
        build.passes(test, GCOV_PREFIX=data)  # or not: some see the counters themselves (docs/coverage.md)
        return test, read_counters(build, data)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for test, files in pool.map(count, build.tests):
            for file in files:
                name = os.path.relpath(os.path.realpath(f"{folder}/{file['file']}"), os.path.realpath(source))
                if name.startswith(("core/", "backends/")):
                    add(reach[name], file, test)
    return {name: {"functions": sorted(its["functions"]),
                   "lines": {line: sorted(tests) for line, tests in its["lines"].items()}}
            for name, its in reach.items()}


def add(its, file, test):
    """Adds what one test runs of a file."""
    its["functions"].update((function["start_line"], function["end_line"]) for function in file["functions"])
    for line in file["lines"]:
        its["lines"][line["line_number"]].update([test] if line["count"] > 0 else [])


def tests_that_run(reach, name, line):
    """Tests that run a line or, of one without code of its own, its function; None: it is in no function."""
    its = reach.get(name, {"functions": [], "lines": {}})
    for place in [line] + [first for first, last in its["functions"] if first <= line <= last]:
        if str(place) in its["lines"]:
            return its["lines"][str(place)]
    return None
