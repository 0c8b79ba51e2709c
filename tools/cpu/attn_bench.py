# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libattn through attn-bench, which checks its results and samples the ceilings beside each repetition."""

import json
import os
import subprocess

SECONDS = 600  # that one run may take
CHECK_REPS, LEAST_REPS, MOST_REPS = 3, 3, 30
BACKEND = "cpu"


class Failure(Exception):
    """What went wrong, in a line."""


class AttnBench:
    def __init__(self, program, cold_bytes):
        self.program, self.cold_mib = program, max(1, cold_bytes >> 20)
        self.document = None  # the last one: version and machine

    def run(self, arguments, threads, reps):
        """The row of one case."""
        own = [f"threads={threads}", f"reps={reps}", f"cold={self.cold_mib}", "--json"]
        command = [str(self.program), *arguments, *own]
        env = {**os.environ, "ATTN_BACKEND": BACKEND}
        try:
            out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise Failure(f"attn-bench took longer than {SECONDS} s") from None
        except OSError as error:
            raise Failure(f"{self.program}: {error.strerror}") from error
        if out.returncode != 0:
            lines = out.stderr.strip().splitlines() or [f"attn-bench ended with {out.returncode}"]
            raise Failure(lines[-1])
        try:
            self.document = json.loads(out.stdout)
            (row,) = self.document["rows"]
            if not row["us"]["median"] > 0:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise Failure("attn-bench printed no document with one row of times") from None
        return row

    def check(self, case, threads):
        return self.run(case.bench_arguments, threads, CHECK_REPS)

    def sample(self, case, threads, seconds, estimate_us):
        """A row whose repetitions take about so long together."""
        reps = min(MOST_REPS, max(LEAST_REPS, int(seconds * 1e6 / estimate_us)))
        return self.run(case.bench_arguments, threads, reps)
