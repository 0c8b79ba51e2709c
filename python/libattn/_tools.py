# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Console scripts: the programs of libattn that the wheel has inside."""
import os
import sys
from pathlib import Path

BIN = Path(__file__).resolve().parent / "_prefix" / "bin"


def _run(name: str) -> None:
    program = BIN / name
    if not program.exists():
        sys.exit(f"{name} is not part of this build of the package; {BIN} has not got it")
    os.execv(program, [name, *sys.argv[1:]])


def info() -> None:
    """attn-info: backends, devices, capabilities, and why a backend was chosen."""
    _run("attn-info")


def bench() -> None:
    """attn-bench: speed beside ceilings of the machine."""
    _run("attn-bench")


def check() -> None:
    """attn-check: a plugin's results beside a double-precision oracle."""
    _run("attn-check")


def replay() -> None:
    """attn-replay: a recorded call on any backend, compared and judged."""
    _run("attn-replay")
