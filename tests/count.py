#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts what meson test ran: TAP lines where a test prints them, one per program elsewhere.

Usage: count.py ALLOWED-SKIPS TESTLOG.json...
Prints every failure and every skip that the list does not allow, then "passed failed skipped". A log without
any test is a failure: a check that ran nothing must not pass.
"""
import fnmatch
import json
import re
import sys

TAP = re.compile(r"^(not ok|ok)\b\s*\d*\s*(?:-\s*)?(.*?)\s*(?:#\s*(SKIP|TODO)\b\s*(.*))?$", re.I)
NOTES = 6  # lines that a test said before a failure
PLAN_SKIP = re.compile(r"^1\.\.0\s*#\s*SKIP\s*(.*)$", re.I)


def read_test(record):
    """Yields (name, state, reason) of one record of meson's log."""
    name = record["name"]
    tap = []
    notes = []
    lines = record.get("stdout", "").splitlines()
    for line in lines:
        if line.startswith("#"):
            notes.append(line)
        plan = PLAN_SKIP.match(line)
        if plan:
            tap.append((name, "skip", plan.group(1)))
        match = TAP.match(line)
        if match:
            state = "fail" if match.group(1).lower() == "not ok" else "skip" if match.group(3) else "pass"
            text = "\n    ".join([""] + notes[-NOTES:]) if state == "fail" else match.group(4) or ""
            tap.append((name + " " + match.group(2), state, text))
            notes = []
    failed = record["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")
    if record["result"] == "SKIP" and not tap:
        text = [line for line in lines + record.get("stderr", "").splitlines() if line.strip()]
        yield name, "skip", text[-1] if text else "no reason given"
        return
    yield from tap
    if failed and not any(state == "fail" for _, state, _ in tap):
        yield name, "fail", "%s, exit code %s" % (record["result"], record["returncode"])
    elif not tap:
        yield name, "pass", ""


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        allowed = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    count = {"pass": 0, "fail": 0, "skip": 0}
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as file:
            records = [json.loads(line) for line in file if line.strip()]
        if not records:
            print("%s: no test ran" % path)
            count["fail"] += 1
        for record in records:
            for name, state, reason in read_test(record):
                if state == "skip" and not any(fnmatch.fnmatch(name + ": " + reason, glob) for glob in allowed):
                    print("skip that tests/allowed-skips does not list: %s: %s" % (name, reason))
                    state = "fail"
                elif state == "fail":
                    print("failed: %s %s" % (name, reason))
                count[state] += 1
    print("%(pass)d %(fail)d %(skip)d" % count)


main()
