# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the engines that run on torch share: layers as problem strings, and the backend that serves a model."""
from dataclasses import dataclass
from functools import lru_cache

import torch

import libattn
from libattn import _native

# Types of attention without a cache: all keys are in the call.
CACHELESS = ("encoder", "encoder_only")


@dataclass(frozen=True)
class LayerClass:
    """What layers have in common that one plan and one schedule serve. Types are torch's names: "float32"."""

    heads: int
    kv_heads: int
    head_dim: int
    head_dim_v: int
    q: str
    kv: str
    attn_type: str = "decoder"
    window: int | None = None  # as vLLM counts: the query's own key is one of them
    softcap: float = 0.0
    alibi: bool = False
    sinks: bool = False
    det: bool = False
    mla: bool = False  # keys have head_dim numbers, of which the first head_dim_v are the values

    @property
    def cached(self) -> bool:
        """Whether keys are read from a paged cache."""
        return self.attn_type not in CACHELESS

    def problem(self, block: int, causal: bool | None) -> str:
        """The problem string. `block`: tokens per page. `causal`: of all sequences, or None if each has a flag."""
        dim = str(self.head_dim) if self.head_dim == self.head_dim_v else f"{self.head_dim}/{self.head_dim_v}"
        keys = [f"heads={self.heads} kv_heads={self.kv_heads} head_dim={dim} type={self.attn_type}",
                f"q={self.q} kv={self.kv} causal={int(causal is not False)}"]
        if self.cached:
            keys.append(f"block={block}")
        if self.mla:
            keys.append("mla=1")
        if self.kv.startswith("float8"):
            keys.append("scales=tensor")
        if causal is None:
            keys.append("seq_causal=1")
        if self.window is not None:
            # One number: to the right a causal sequence sees none, any other as many as to the left, as in vLLM.
            keys.append(f"window={self.window - 1}")
        if self.softcap:
            keys.append(f"softcap={self.softcap}")
        if self.alibi:
            keys.append(f"alibi={'distance' if causal is False else 'key'}")
        if self.sinks:
            keys.append("sinks=1")
        if self.det:
            keys.append("det=1")
        return " ".join(keys)


@lru_cache(maxsize=None)
def refusals(problem: str, device: str) -> tuple[str, ...]:
    """Why no libattn backend serves `problem` on `device` ("cpu", "cuda:0"), a sentence each; empty if one does."""
    try:
        decision = libattn.context().select(problem, device=device)
    except libattn.Error as error:  # there are no such problems at all
        return (f"libattn: {error}",)
    if decision.effective is not None:
        return ()
    # The decision names the backend that came closest with its first reason; then all that is said of the device.
    told = [reason["text"] for candidate in decision.candidates if candidate["device"] is not None
            for reason in candidate["reasons"]]
    return tuple(dict.fromkeys([f"libattn: {decision.text}", *told]))


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


def type_name(dtype: torch.dtype) -> str:
    """torch's name of a type without its module, which libattn takes: "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def readable_sinks(sinks: torch.Tensor | None) -> torch.Tensor | None:
    """The sinks of the heads in a type that libattn reads: f32 or bf16."""
    if sinks is None:
        return None
    sinks = sinks.detach()
    return sinks if sinks.dtype in (torch.float32, torch.bfloat16) else sinks.float()
