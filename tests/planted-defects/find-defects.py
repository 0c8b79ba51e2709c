#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs attn-check on the good plugin, which is to pass everything, and on every defective one: the cases that
are meant for its defect must find it.

find-defects.py ATTN_CHECK DIRECTORY [NAME...]: DIRECTORY holds libattn-defect-NAME.so. Beside the others the good
one takes a quarter of the cases; named alone, all of them.
"""
import concurrent.futures
import re
import subprocess
import sys

# What a failure says.
WRONG = r"row \d+ head \d+.*(wanted|at most|sees no key, but is)"
NAN = r"row \d+ head \d+.*nan, wanted"
OUT = r"of out was written|outside of out|next to out"
READ = r"forbidden access at or next to %s"

# Name: the kind of checks, a pattern of their cases' names, and the failure that is to be reported there.
DEFECTS = {
    "causal": ("attention", "*", WRONG),
    "window": ("attention", "*window=*", WRONG),
    "tail": ("attention", "*causal=0*", WRONG),
    "padding_row": ("attention", "*", OUT),
    "scale_ignored": ("attention", "*scale*", WRONG),
    "scale_twice": ("attention", "*scale*", WRONG),
    "offset32": ("huge", "*", WRONG + "|" + READ % ""),
    "split_batch": ("det", "*", r"without companions: .* has other bits"),
    "group": ("attention", "*", WRONG),
    "softcap_order": ("attention", "*softcap=*", WRONG),
    "sink": ("attention", "*sinks=1*", WRONG),
    "lse_base": ("attention", "*lse=1*", r"lse is"),
    "nan_leak": ("attention", "*", NAN),
    "hole": ("attention", "*", WRONG + "|" + READ % "" + "|process was ended"),  # that is a sanitizer
    "claims_dim": ("query", "*head_dim=576*", r"the query accepts, plan_create says ATTN_E_UNSUPPORTED"),
    "refuses_dim": ("axes", "*head_dim*", r"is refused and head_dim=\d+ is served|is on the axes, but refused"),
    "descriptor": ("side-effects", "*", r"descriptor|open after finish"),
    "prints": ("side-effects", "*", r"is printed"),
    "rounding": ("side-effects", "*floating-point*", r"changed in stage 'plan run'"),
    "thread": ("side-effects", "*", r"thread"),
    "host": ("side-effects", "*host*", r"died of signal|called after finish"),
    "beyond_out": ("attention", "*", OUT),
    "beyond_table": ("attention", "*", READ % "table"),
    "memory": ("exhausted", "*", r"an allocation of \d+ bytes answers ATTN_OK"),
    "shared": ("streams", "*", r"is not that of a run alone|signal"),
    "merge_order": ("det", "*", r"has other bits"),
    "positions": ("attention", "*positions=1*", WRONG),
}


def run_check(program, directory, name, *options):
    plugin = f"{directory}/libattn-defect-{name}.so"
    command = [program, plugin, "--level", "all", *options]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=500, check=False)


def last_line(run):
    """Of the report; of what was complained about, if there is none."""
    return ((run.stdout.strip() or run.stderr.strip()).splitlines() or [""])[-1]


def pass_good(program, directory, share):
    """Whether the plugin without a defect passes, and what is said about it."""
    run = run_check(program, directory, "none", "--share", share)
    failures = re.findall(r"^not ok \d+ - .*\n# .*", run.stdout, re.MULTILINE)
    good = run.returncode == 0 and re.match(r"[1-9]\d* passed, 0 failed, ", last_line(run)) is not None
    return good, " ".join([last_line(run), *failures[:5]]).replace("\n", " ")


def find_defect(program, directory, name):
    """Whether the first failure is the one that is meant, and what it is."""
    kind, pattern, meant = DEFECTS[name]
    run = run_check(program, directory, name, "--kind", kind, "--filter", pattern, "--fail-fast")
    failure = re.search(r"^not ok \d+ - (.*)\n# (.*)", run.stdout, re.MULTILINE)
    if failure is None:
        return False, "not found by its cases: " + last_line(run)
    return re.search(meant, failure[2]) is not None, f"{failure[1]}: {failure[2]}"


def main():
    program, directory = sys.argv[1:3]
    names = sys.argv[3:] or ["none", *DEFECTS]
    share = "1/1" if names == ["none"] else "1/4"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = []
        for name in names:
            find = (pass_good, share) if name == "none" else (find_defect, name)
            results.append(pool.submit(find[0], program, directory, find[1]))
        print(f"1..{len(names)}", flush=True)
        failed = 0
        for number, (name, result) in enumerate(zip(names, results), 1):
            good, text = result.result()
            failed += not good
            print(f"{'ok' if good else 'not ok'} {number} - {name}\n# {text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
