# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that are processes of MPI: attn-check judges what they compute together, and the death of one ends the others.

usage: mpi.py MPIRUN ATTN-CHECK PLUGIN DEATH CASES KILLS; LD_LIBRARY_PATH has libattn and libattn-mpi
"""

import os
import re
import subprocess
import sys
import tempfile

MPIRUN, CHECK, PLUGIN, DEATH, CASES, KILLS = sys.argv[1:]
LIMIT = 0.4  # seconds that a rank waits for others
count = 0


def report(good, name, more=""):
    global count
    count += 1
    print(f"{'' if good else 'not '}ok {count} - {name}", flush=True)
    if not good:
        print("\n".join(f"# {line}" for line in str(more).splitlines()), flush=True)


def start(ranks, command, options=()):
    """(exit status, what was printed by each rank, what was said otherwise)"""
    with tempfile.TemporaryDirectory() as folder:
        # Open MPI runs nothing as root, and no more ranks than processors, unless it is told to.
        words = [MPIRUN, *(["--allow-run-as-root"] if os.getuid() == 0 else []), "--oversubscribe", *options, "-n", str(ranks),
                 "sh", "-c", f'"$@" > {folder}/$OMPI_COMM_WORLD_RANK 2>&1', "sh", *command]
        done = subprocess.run(words, encoding="utf-8", timeout=300, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        printed = []
        for rank in range(ranks):
            path = os.path.join(folder, str(rank))
            printed.append(open(path, encoding="utf-8").read() if os.path.exists(path) else "")
        return done.returncode, printed, done.stdout


if start(2, ["true"])[0] != 0:
    print("1..0 # SKIP mpirun starts no processes")  # as where it finds no network at all
    sys.exit(0)

for ranks in (1, 2, 4, 7):
    status, printed, said = start(ranks, [CHECK, PLUGIN, "--kind", "cp", "--transport", "mpi", "--cases", CASES])
    last = [text.splitlines()[-1] if text else "" for text in printed]
    good = status == 0 and all(re.fullmatch(r"[1-9]\d* passed, 0 failed, 0 skipped", line) for line in last)
    report(good, f"{ranks} processes compute what one does", said + "\n".join(printed))

for how, wanted in (("kill", r"rank \d of \d waited for others in all_gather for 0.4 s|.*MPI says.*"),
                    ("abort", r"rank \d of \d ended the connection: no more memory")):
    for n in range(int(KILLS) if how == "kill" else 3):
        ranks = 2 + n % 3
        status, printed, said = start(ranks, [DEATH, how, str(LIMIT)], ["--enable-recovery"])
        lines = [re.fullmatch(r"ATTN_E_PEER (\S+) (.*)", text.strip()) for text in printed[:-1]]
        good = all(line and re.fullmatch(wanted, line[2]) and float(line[1]) < 10 for line in lines)
        report(good, f"{how} of one of {ranks} ranks ends the others, time {n + 1}", f"{said}\n{printed}")

print(f"1..{count}")
