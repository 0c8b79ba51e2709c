# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The libattn backend of a process: opened once for a model, and run on torch's threads and streams."""
import torch

import libattn
from libattn import _native

_opened: dict[tuple[str, tuple[str, ...]], libattn.Backend] = {}


def device_name(device: torch.device) -> str:
    """libattn's name of a device of torch: "cpu", "cuda:1"."""
    if device.type == "cpu":
        return "cpu"
    index = device.index if device.index is not None else torch.accelerator.current_device_index()
    return f"{device.type}:{index}"


def stream_of(device: torch.device) -> int:
    """The stream that work goes to now, as libattn takes it; on a CPU the threads that torch computes with."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else _native.torch_threads()


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
