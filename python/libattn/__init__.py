# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention layer of language-model servers, on whatever hardware is there.

    import libattn
    out = libattn.attention(q, k, v, causal=True)  # arrays [batch, heads, tokens, dim] of numpy, torch, JAX, ...
    libattn.info()                                 # backends, their devices, and what was refused
    libattn.explain("heads=32 kv_heads=8 head_dim=128 q=bf16")

With a paged cache, mixed batches and memory of the program: `backend`, `Backend.plan`, `Plan.step`, `Plan.run`; with
sequences and their blocks in place of arrays: `Backend.builder`, `Backend.state`, `Backend.layer`; and steps that are
captured once and launched: `State.begin_capture`, `Backend.graph`.
`libattn.torch`, `libattn.transformers` and `libattn.vllm` put it under these packages. Which backend serves is chosen
by ATTN_BACKEND, as everywhere; see `attn-info` and the manual page attn-env(7).
"""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _native
from ._error import Error
from ._native import KV, Backend, Builder, Context, Decision, Graph, Layer, Metadata, Plan, State, Step
from ._table import Table

__all__ = ["KV", "Backend", "Builder", "Context", "Decision", "Error", "Graph", "Layer", "Metadata", "Plan", "Problem",
           "State", "Step", "Table", "attention", "backend", "context", "explain", "info", "select", "version"]
__version__ = version = _native.version()


class Problem(Mapping):
    """What a layer needs, as a problem string with names: `Problem("heads=32 head_dim=128", q="bf16")`.

    Keys and values are those of docs/problem.md; the names that vLLM, transformers and FlashInfer have for them are
    accepted. The string is canonical, so equal problems are equal. Raises Error that names key, value and what is
    accepted.
    """

    def __init__(self, text: str = "", **keys: Any) -> None:
        more = (f"{key}={int(value) if isinstance(value, bool) else value}" for key, value in keys.items())
        self._text = _native.problem_format(" ".join((str(text), *more)))
        self._given = dict(part.split("=", 1) for part in self._text.split())

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Problem({self._text!r})"

    def __getitem__(self, key: str) -> str:
        """The value of a key, as text: that of the string, or the default."""
        if key in self._given:
            return self._given[key]
        default = _native.problem_keys()[key][0]
        return default if default is not None else ""

    def __iter__(self):
        return iter(_native.problem_keys())

    def __len__(self) -> int:
        return len(_native.problem_keys())

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self._text == other._text


def context() -> Context:
    """The context of the process. It is made on first use, and reads the environment then."""
    return _native.context()


def select(problem: str | Problem | list[str | Problem], *, backend: str | None = None, device: str | None = None,
           strict: int = 0, ask_all: bool = False) -> Decision:
    """Chooses the backend that serves a problem, or all problems of a list; see `Context.select`."""
    return context().select(problem, backend=backend, device=device, strict=strict, ask_all=ask_all)


def backend(problem: str | Problem | list[str | Problem], *, backend: str | None = None, device: str | None = None,
            strict: int = 0, threads: int = 0) -> Backend:
    """Chooses a backend by the rules of `Context.select` and opens it.

    threads: of the CPU backend; 0 takes ATTN_THREADS, else one for each core. Raises Error (ATTN_E_NO_BACKEND) if none
    serves; `explain` shows every reason.
    """
    return select(problem, backend=backend, device=device, strict=strict).open(threads)


def explain(problem: str | Problem, *, backend: str | None = None, device: str | None = None) -> Table:
    """Which backend serves a problem, and why each other one does not, as a table of candidates."""
    decision = select(problem, backend=backend, device=device, ask_all=True)
    rows = []
    for one in decision.candidates:
        kernels = ", ".join(f"{kernel['name']}{' (generic)' if kernel['speed'] == 'generic' else ''}"
                            for kernel in one["kernels"]) if one["accepted"] else ""
        serves = "chosen" if one["accepted"] and (one["name"], one["device"]) == (decision.effective, decision.device) \
            else "serves" if one["accepted"] else "refuses"
        # Of a backend that serves, only what keeps faster kernels is of interest.
        told = one["reasons"] if not one["accepted"] or "(generic)" in kernels else ()
        reasons = "; ".join(dict.fromkeys(reason["text"] for reason in told))
        rows.append((one["name"], one["device"] or "", serves, kernels, reasons))
    return Table(("backend", "device", "", "kernels", "reasons"), rows, decision.text)


def info() -> Table:
    """Backends, their devices and the state of their plugins, as a table; files that were refused are in it too."""
    report = context().report()
    rows = [(one["name"], one["device"] or "", one["state"], one["device_text"] or "", one["text"])
            for one in report["backends"]]
    rows += [(os.path.basename(one["path"]), "", one["stage"], "", one["text"])
             for one in report["files"] if one["text"]]
    return Table(("backend", "device", "state", "", "says"), rows, f"libattn {version}")


def _window(window: int | tuple[int, int] | None) -> tuple[int | None, int | None]:
    if window is None or isinstance(window, int):
        return window, None
    if len(window) != 2:
        raise Error(f"window is {window!r}; a number of keys, or a pair (left, right), is accepted", "ATTN_E_INVALID",
                    field="window")
    return window[0], window[1]


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None,
              window: int | tuple[int, int] | None = None, softcap: float | None = None, sinks: Any = None,
              mask: Any = None, backend: str | None = None) -> Any:
    """softmax(q kᵀ · scale) v for arrays that lie on one device, on the backend that is chosen for it.

    q: [batch, heads, n, dim]; k: [batch, kv_heads, m, dim]; v: [batch, kv_heads, m, dim_vo]. numpy arrays, torch
        tensors, or anything else with `__dlpack__`; any strides with the last dimension contiguous. heads is a multiple
        of kv_heads. f32, f16, bf16.
    causal: query i sees keys 0 to m - n + i.
    scale: of the scores; None = 1 / sqrt(dim).
    window: keys that are seen before the query's own, or a pair (before, after); -1 = all.
    softcap: c, for c · tanh(score / c).
    sinks: [heads] f32 or bf16, a learned term in each denominator.
    mask: [1 or batch, 1 or heads, n, m]; bool (True: is seen), or f32, f16, bf16 that is added to scores.
    backend: a wanted list over ATTN_BACKEND, as "cpu".

    Returns an array [batch, heads, n, dim_vo] of q's library and type. Raises Error that names the argument, its
    value and what is accepted.
    """
    left, right = _window(window) if window is not None else (None, None)
    return _native.attention(q, k, v, None, causal=causal, scale=scale, window_left=left, window_right=right,
                             softcap=softcap or 0.0, sinks=sinks, mask=mask, backend=backend)


def _empty_like(q: Any, v: Any) -> Any:
    """A new array for the result, of q's library, whose batch and tokens (or heads) are one axis as those of q are."""
    shape = (*q.shape[:-1], v.shape[-1])
    if type(q).__module__.startswith("torch"):
        import torch  # it is there: q is of it
        if len(shape) == 4 and not q.is_contiguous():
            return torch.empty((shape[0], shape[2], shape[1], shape[3]), dtype=q.dtype, device=q.device).transpose(1, 2)
        return torch.empty(shape, dtype=q.dtype, device=q.device)
    import numpy
    if isinstance(q, numpy.ndarray):
        if len(shape) == 4 and not q.flags.c_contiguous:
            return numpy.empty((shape[0], shape[2], shape[1], shape[3]), q.dtype).transpose(0, 2, 1, 3)
        return numpy.empty(shape, q.dtype)
    space = q.__array_namespace__() if hasattr(q, "__array_namespace__") else None
    if space is None:
        raise Error(f"q is a {type(q).__name__}; arrays of numpy, torch, or with __array_namespace__ are accepted",
                    "ATTN_E_INVALID", field="q")
    return space.empty(shape, dtype=q.dtype, device=q.device)


def _forget() -> None:
    _native.forget_plans()
    _native.forget_context()


os.register_at_fork(after_in_child=_forget)  # a child of a fork needs handles of its own
