# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The libattn backend of a process: opened once for a model, with as many threads as torch has."""
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

import libattn

_opened: dict[tuple[str, tuple[str, ...]], libattn.Backend] = {}


def device_name(device: torch.device) -> str:
    """libattn's name of a device of torch: "cpu", "cuda:1"."""
    if device.type == "cpu":
        return "cpu"
    index = device.index if device.index is not None else torch.accelerator.current_device_index()
    return f"{device.type}:{index}"


def stream_of(device: torch.device) -> int:
    """The stream that work goes to now, as libattn takes it: 0 on a CPU, which stands for its own threads."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def open_backend(problems: list[str], device: torch.device) -> libattn.Backend:
    """The one backend that serves all `problems`, the layer classes of a model. Opened once, kept by the process.

    Raises ValueError with libattn's decision if none does.
    """
    key = (device_name(device), tuple(sorted(set(problems))))
    if key not in _opened:
        decision = libattn.context().select(list(key[1]), device=key[0])
        if decision.effective is None:
            raise ValueError(f"no libattn backend serves this model: {decision.text}")
        _opened[key] = decision.open(threads=torch.get_num_threads() if device.type == "cpu" else 0)
    return _opened[key]


def bound_processors() -> set[int]:
    """The processors to which vLLM bound this worker's OpenMP threads, as its environment says; empty if it did not."""
    environment = os.environ
    listed = environment.get("GOMP_CPU_AFFINITY", "")
    for variable, pattern in (("KMP_AFFINITY", r"proclist=\[([^]]*)\]"), ("OMP_PLACES", r"\{([\d,\s-]*)\}")):
        match = re.search(pattern, environment.get(variable, ""))
        listed = listed or (match.group(1) if match else "")
    processors: set[int] = set()
    for item in re.findall(r"\d+(?:-\d+)?", listed):
        first, _, last = item.partition("-")
        processors.update(range(int(first), int(last or first) + 1))
    return processors


@contextmanager
def on_bound_processors() -> Iterator[bool]:
    """Lets threads that are started meanwhile run wherever OpenMP's run, and puts this thread back at the end.

    OpenMP binds each of its threads to one processor, the calling one too, and a new thread inherits that: libattn's
    would all share one processor. Gives whether anything had to be done.
    """
    before, wanted = os.sched_getaffinity(0), bound_processors()
    if len(wanted) <= len(before):
        yield False
        return
    os.sched_setaffinity(0, wanted)
    try:
        yield True
    finally:
        os.sched_setaffinity(0, before)
