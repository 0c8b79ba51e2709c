# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares libattn.torch with torch's own attention in double precision, eagerly and under torch.compile.

python test_torch.py [test_...]: all tests, or those named. python test_torch.py --bench: times beside torch's.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import libattn
import libattn.torch as attn
from tap import check, main

# rms of the error over rms of the result (docs/definition.md, "Error bounds")
BOUNDS = {torch.float32: 3e-6, torch.float16: 8e-4, torch.bfloat16: 5e-3}
reference_sdpa = torch.nn.functional.scaled_dot_product_attention


@contextmanager
def case(name: str) -> Any:
    """An exception that nobody expects fails the case, and the rest goes on."""
    try:
        yield
    except Exception as error:
        check(False, name, f"{type(error).__name__}: {error}".replace("\n", " ")[:300])


def close(out: torch.Tensor, reference: torch.Tensor, name: str, bound: float | None = None) -> None:
    bound = bound or BOUNDS[out.dtype]
    if out.shape != reference.shape:
        check(False, name, f"shape {list(out.shape)}, not {list(reference.shape)}")
        return
    error = (out.double() - reference).square().mean().sqrt().item()
    size = reference.square().mean().sqrt().item()
    check(error <= bound * max(size, 1e-30), name, f"error {error:.3g} of {size:.3g}, bound {bound:g}")


def refused(call: Callable[[], Any], name: str, *words: str) -> None:
    """That a call raises an error whose type and sentence have all words."""
    text = "no error"
    try:
        call()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    check(all(word in text for word in words), name, text)


def tensors(
    batch: int,
    heads: int,
    kv_heads: int,
    n: int,
    m: int,
    dim: int,
    dim_v: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q = torch.randn(batch, heads, n, dim).to(dtype)
    k = torch.randn(batch, kv_heads, m, dim).to(dtype)
    v = torch.randn(batch, kv_heads, m, dim_v or dim).to(dtype)
    return q, k, v


def in_double(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask.double()
    return reference_sdpa(q.double(), k.double(), v.double(), attn_mask=attn_mask, **options)


def same_as_torch(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> None:
    with case(name):
        close(attn.scaled_dot_product_attention(q, k, v, **options), in_double(q, k, v, **options), name)


# ---------------------------------------------------------------- dense keys


def test_shapes() -> None:
    for dtype in BOUNDS:
        for shape in (
            (1, 4, 4, 5, 5, 64),
            (2, 4, 4, 17, 17, 64),
            (1, 8, 8, 1, 100, 128),
            (3, 2, 2, 33, 70, 80),
            (2, 3, 3, 130, 257, 40),
            (1, 1, 1, 1, 1, 8),
            (2, 4, 4, 9, 12, 64, 32),
            (1, 2, 2, 300, 300, 96),
        ):
            for causal in (False, True):
                q, k, v = tensors(*shape, dtype=dtype)
                same_as_torch(f"{dtype} {shape} causal={causal}", q, k, v, is_causal=causal)
    for shape in ((1, 8, 2, 1, 200, 64), (2, 8, 2, 19, 19, 64), (2, 6, 3, 7, 30, 128), (4, 8, 1, 1, 65, 64)):
        q, k, v = tensors(*shape)
        for causal in (False, True):
            same_as_torch(f"grouped heads {shape} causal={causal}", q, k, v, is_causal=causal, enable_gqa=True)
    q, k, v = tensors(1, 4, 4, 6, 9, 32)
    same_as_torch("three dimensions", q[0], k[0], v[0])
    same_as_torch("three dimensions, causal", q[0], k[0], v[0], is_causal=True)
    same_as_torch("three dimensions, a mask of three", q[0], k[0], v[0], attn_mask=torch.rand(4, 6, 9) > 0.3)
    q, k, v = tensors(2, 4, 4, 6, 9, 32)
    for scale in (0.3, 1.0, -0.2, 0.0):
        same_as_torch(f"scale {scale}", q, k, v, scale=scale)
    same_as_torch("keys of one sequence for the batch", q, k[:1], v[:1])


def test_alignment() -> None:
    for n, m in ((5, 9), (9, 5), (1, 7), (40, 300), (300, 40)):
        q, k, v = tensors(2, 4, 4, n, m, 64)
        same_as_torch(f"causal from the start, {n} queries, {m} keys", q, k, v, is_causal=True)
        with case("causal_upper_left"):
            out = attn.scaled_dot_product_attention(q, k, v, attn_mask=causal_upper_left(n, m))
            close(out, in_double(q, k, v, is_causal=True), f"causal_upper_left({n}, {m})")
        with case("causal_lower_right"):
            out = attn.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(n, m))
            seen = torch.ones(n, m, dtype=torch.bool).tril(m - n)
            close(out, in_double(q, k, v, attn_mask=seen).nan_to_num(0), f"causal_lower_right({n}, {m})")


def test_masks() -> None:
    for batch, heads, kv_heads, n, m in ((2, 4, 4, 7, 13), (1, 4, 2, 33, 65), (3, 8, 8, 1, 40), (2, 2, 1, 16, 8)):
        q, k, v = tensors(batch, heads, kv_heads, n, m, 64)
        options = {"enable_gqa": heads != kv_heads}
        for shape in (
            (n, m),
            (1, m),
            (1, 1, n, m),
            (batch, 1, n, m),
            (batch, heads, n, m),
            (1, heads, n, m),
            (batch, 1, 1, m),
            (heads, n, m),
            (batch, 1, n, 1),
            (1, 1, 1, 1),
        ):
            seen = torch.rand(shape) > 0.3
            seen[..., 0] = True
            same_as_torch(f"bool mask {shape}", q, k, v, attn_mask=seen, **options)
            bias = torch.randn(shape)
            same_as_torch(f"f32 mask {shape}", q, k, v, attn_mask=bias, **options)
        for dtype in (torch.float16, torch.bfloat16):
            bias = (
                torch.randn(batch, heads, n, m).to(dtype).masked_fill(torch.rand(batch, heads, n, m) > 0.8, -torch.inf)
            )
            bias[..., 0] = 0
            name = f"{dtype} mask with -inf"
            with case(name):
                parts = (x.to(dtype) for x in (q, k, v))
                q2, k2, v2 = parts
                close(
                    attn.scaled_dot_product_attention(q2, k2, v2, attn_mask=bias, **options),
                    in_double(q2, k2, v2, attn_mask=bias, **options),
                    name,
                )
    q, k, v = tensors(2, 4, 4, 6, 10, 64)
    seen = torch.rand(2, 1, 10, 6).transpose(2, 3) > 0.4
    seen[..., 0] = True
    same_as_torch("bool mask, transposed", q, k, v, attn_mask=seen)
    same_as_torch("bool mask, expanded", q, k, v, attn_mask=(torch.arange(10) < 7).expand(2, 1, 6, 10))
    same_as_torch("f32 mask, expanded", q, k, v, attn_mask=torch.randn(1, 1, 1, 10).expand(2, 4, 6, 10))
    with case("rows that see nothing"):
        seen = torch.ones(6, 10, dtype=torch.bool)
        seen[2] = False
        out = attn.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        check(bool((out[:, :, 2] == 0).all()) and bool((out[:, :, 1] != 0).all()), "a row that sees nothing is 0")


def test_layouts() -> None:
    def transposed(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).contiguous().transpose(1, 2)

    def gaps(x: torch.Tensor) -> torch.Tensor:
        return torch.randn(x.shape[0] + 1, x.shape[1] + 2, x.shape[2] + 3, x.shape[3] + 8)[1:, 1:-1, 2:-1, 4:-4].copy_(
            x
        )

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(2, 3).contiguous().transpose(2, 3)

    def longer(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, torch.full_like(x, torch.nan)], 2)[:, :, : x.shape[2]]

    layouts = {"contiguous": lambda x: x, "transposed": transposed, "gaps": gaps, "inner": inner, "of a longer": longer}
    for batch in (1, 3):
        for n in (1, 11):
            q, k, v = tensors(batch, 4, 2, n, 23, 64)
            expected = in_double(q, k, v, is_causal=True, enable_gqa=True)
            for q_name, q_layout in layouts.items():
                for k_name, k_layout in layouts.items():
                    name = f"batch {batch}, {n} queries {q_name}, keys {k_name}"
                    with case(name):
                        out = attn.scaled_dot_product_attention(
                            q_layout(q), k_layout(k), k_layout(v), is_causal=True, enable_gqa=True
                        )
                        close(out, expected, name)
    fused = torch.randn(2, 9, 3, 4, 64)  # q, k, v of one projection
    q, k, v = fused.unbind(2)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    same_as_torch("views of one projection", q, k, v, is_causal=True)
    out = attn.scaled_dot_product_attention(q, k, v)
    check(out.transpose(1, 2).is_contiguous(), "the result is [batch, n, heads, dim] in memory")
    out = attn.scaled_dot_product_attention(q.contiguous(), k, v)
    check(out.is_contiguous(), "or as queries of several sequences are")


def test_options() -> None:
    """window, softcap, sinks, slopes and padding of attention(), against the formulas of docs/definition.md."""
    for batch, heads, kv_heads, n, m in ((1, 4, 4, 6, 6), (2, 4, 2, 5, 12), (3, 4, 1, 1, 30), (2, 2, 2, 40, 40)):
        q, k, v = tensors(batch, heads, kv_heads, n, m, 64)
        starts = torch.randint(0, m // 2, (batch,), dtype=torch.int32)
        lens = torch.stack([torch.randint(1, m - int(s) + 1, ()) for s in starts]).int()
        sinks, slopes = torch.randn(heads), torch.rand(heads)
        for name, options in {
            "window 3": dict(causal=True, window=(3, -1)),
            "window 2/4": dict(window=(2, 4)),
            "window 3 from the start": dict(causal=True, window=(3, -1), align_start=True),
            "softcap": dict(softcap=1.5),
            "sinks": dict(sinks=sinks, causal=True),
            "bf16 sinks": dict(sinks=sinks.bfloat16()),
            "slopes": dict(alibi_slopes=slopes, causal=True),
            "lens": dict(kv_lens=lens),
            "lens, causal": dict(kv_lens=lens, causal=True),
            "starts": dict(kv_starts=starts),
            "starts, causal": dict(kv_starts=starts, causal=True),
            "starts, lens, window, sinks, softcap": dict(
                kv_starts=starts,
                kv_lens=(m - starts - 1).clamp(min=0),
                causal=True,
                window=(4, -1),
                sinks=sinks,
                softcap=2.0,
            ),
        }.items():
            name = f"{name} {(batch, heads, kv_heads, n, m)}"
            with case(name):
                close(attn.attention(q, k, v, **options), definition(q, k, v, **options), name)
    q, k, v = tensors(3, 4, 2, 5, 16, 64)
    room = torch.full((2, 3, 2, 40, 64), torch.nan)  # a cache with room; what nobody has written is NaN
    room[0, :, :, :16], room[1, :, :, :16] = k, v
    starts = torch.tensor([0, 3, 9], dtype=torch.int32)
    with case("starts in a cache with room"):
        out = attn.attention(q, room[0, :, :, :16], room[1, :, :, :16], causal=True, kv_starts=starts)
        close(out, definition(q, k, v, causal=True, kv_starts=starts), "starts in a cache with room")
    with case("starts, contiguous queries of a batch, keys transposed"):
        out = attn.attention(
            q.contiguous(),
            k.transpose(1, 2).contiguous().transpose(1, 2),
            v.transpose(1, 2).contiguous().transpose(1, 2),
            causal=True,
            kv_starts=starts,
        )
        close(out, definition(q, k, v, causal=True, kv_starts=starts), "starts, keys transposed")
    with case("starts, keys and values in different layouts"):
        out = attn.attention(q, k, v.transpose(1, 2).contiguous().transpose(1, 2), causal=True, kv_starts=starts)
        close(out, definition(q, k, v, causal=True, kv_starts=starts), "starts, keys and values in different layouts")


def definition(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    align_start: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    kv_starts: torch.Tensor | None = None,
    kv_lens: torch.Tensor | None = None,
    scale: float | None = None,
    alibi: str = "key",
) -> torch.Tensor:
    """docs/definition.md, word for word, one sequence after the other."""
    results = []
    for i in range(q.shape[0]):
        begin = int(kv_starts[i]) if kv_starts is not None else 0
        end = begin + int(kv_lens[i]) if kv_lens is not None else k.shape[2]
        group = q.shape[1] // k.shape[1]
        keys, values = (x[i, :, begin:end].double().repeat_interleave(group, 0) for x in (k, v))
        n, m = q.shape[2], end - begin
        p = torch.arange(n)[:, None] + (0 if align_start else m - n)
        j = torch.arange(m)[None, :]
        seen = torch.ones(n, m, dtype=torch.bool)
        if causal:
            seen &= j <= p
        if window[0] >= 0:
            seen &= j >= p - window[0]
        if window[1] >= 0:
            seen &= j <= p + window[1]
        s = q[i].double() @ keys.transpose(1, 2) * (q.shape[3] ** -0.5 if scale is None else scale)
        if softcap:
            s = softcap * torch.tanh(s / softcap)
        if alibi_slopes is not None:
            s = s + alibi_slopes.double()[:, None, None] * (j - p if alibi == "key" else -(j - p).abs())
        weights = s.exp() * seen
        total = weights.sum(2, keepdim=True)
        if sinks is not None:
            total = total + sinks.double().exp()[:, None, None]
        results.append(torch.where(total > 0, weights @ values / total, 0.0))
    return torch.stack(results)


# ---------------------------------------------------------------- packed sequences


def test_varlen() -> None:
    for q_lens, k_lens in (((3, 1, 5), (3, 1, 5)), ((1, 1, 1), (10, 3, 70)), ((4, 0, 9), (8, 2, 9)), ((130,), (260,))):
        cu_q, cu_k = (torch.tensor((0, *x)).cumsum(0).int() for x in (q_lens, k_lens))
        q = torch.randn(int(cu_q[-1]), 4, 64)
        k, v = torch.randn(2, int(cu_k[-1]), 2, 64)
        sinks, slopes = torch.randn(4), torch.rand(4)
        for name, options in {
            "plain": {},
            "causal": dict(causal=True),
            "window": dict(causal=True, window_size=(2, -1)),
            "window on both sides": dict(window_size=(2, 1)),
            "softcap": dict(softcap=1.0),
            "scale": dict(softmax_scale=0.2),
            "negative scale": dict(softmax_scale=-0.2),
            "sinks": dict(sinks=sinks, causal=True),
            "slopes": dict(alibi_slopes=slopes, causal=True),
            "slopes on both sides": dict(alibi_slopes=slopes),
        }.items():
            name = f"packed {q_lens} {k_lens}: {name}"
            with case(name):
                out = attn.varlen_attention(q, k, v, cu_q, cu_k, max(q_lens), max(k_lens), **options)
                close(out, varlen_definition(q, k, v, cu_q, cu_k, **options), name)
    with case("packed, views of one projection, i64 offsets"):
        cu = torch.tensor([0, 4, 9])
        q, k, v = torch.randn(9, 3, 4, 64).unbind(1)
        out = attn.varlen_attention(q, k, v, cu, cu, 5, 5, causal=True)
        close(out, varlen_definition(q, k, v, cu, cu, causal=True), "packed, views of one projection, i64 offsets")


def varlen_definition(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
    softmax_scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    **options: Any,
) -> torch.Tensor:
    parts = []
    for i in range(len(cu_q) - 1):
        one = (x[int(cu[i]) : int(cu[i + 1])].transpose(0, 1)[None] for x, cu in ((q, cu_q), (k, cu_k), (v, cu_k)))
        out = definition(*one, scale=softmax_scale, window=window_size, alibi="distance", **options)
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)


# ---------------------------------------------------------------- errors


def test_errors() -> None:
    q, k, v = tensors(2, 4, 4, 5, 7, 64)
    sdpa = attn.scaled_dot_product_attention
    refused(lambda: sdpa(q, k, v, dropout_p=0.1), "dropout", "NotImplementedError", "dropout_p=0.1", "accepts 0.0")
    refused(
        lambda: sdpa(q.clone().requires_grad_(), k, v),
        "a gradient",
        "NotImplementedError",
        "requires_grad",
        "no backward",
        "no_grad",
    )
    refused(
        lambda: sdpa(q, k, v, attn_mask=torch.ones(5, 7).bool(), is_causal=True),
        "a mask and is_causal",
        "ValueError",
        "is_causal",
        "attn_mask",
    )
    refused(lambda: sdpa(q, k[:, :2], v[:, :2]), "heads without enable_gqa", "ValueError", "4", "2", "enable_gqa=True")
    refused(
        lambda: sdpa(q, k[:, :3], v[:, :3], enable_gqa=True), "heads no multiple", "ValueError", "4", "3", "multiple"
    )
    refused(
        lambda: sdpa(q, k, v, attn_mask=torch.ones(5, 6).bool()),
        "a mask too small",
        "ValueError",
        "[1, 1, 5, 6]",
        "[2, 4, 5, 7]",
    )
    refused(lambda: sdpa(q, k, v, attn_mask=torch.ones(5, 7).int()), "an int mask", "ValueError", "int32", "bool")
    refused(lambda: sdpa(q[0, 0], k[0, 0], v[0, 0]), "two dimensions", "ValueError", "3 or 4")
    refused(
        lambda: sdpa(q, k[:1].expand(3, -1, -1, -1), v[:1].expand(3, -1, -1, -1)), "batches", "ValueError", "2", "3"
    )
    refused(lambda: sdpa(q.double(), k.double(), v.double()), "double precision", "Error", "float64", "f32")
    refused(lambda: sdpa(q, k[..., :32], v), "dims that differ", "Error", "k ", "64")
    refused(lambda: sdpa(q, k, v[:, :, :6]), "fewer values than keys", "Error", "v ", "7")
    refused(
        lambda: attn.attention(q, k, v, mask=torch.ones(1, 1, 5, 7).bool(), kv_starts=torch.zeros(2).int()),
        "a mask and kv_starts",
        "ValueError",
        "kv_starts",
    )
    cu = torch.tensor([0, 10], dtype=torch.int32)
    packed = torch.randn(10, 4, 64)
    refused(
        lambda: attn.varlen_attention(packed, packed, packed, cu, cu, 10, 10, dropout_p=0.5), "dropout, packed", "0.5"
    )
    with case("requires_grad under no_grad"), torch.no_grad():
        out = sdpa(q.clone().requires_grad_(), k.clone().requires_grad_(), v)
        close(out, in_double(q, k, v), "requires_grad under no_grad")
    with case("inference mode"), torch.inference_mode():
        close(sdpa(q, k, v), in_double(q, k, v), "inference mode")
    with case("autocast"), torch.autocast("cpu", torch.bfloat16):
        out = sdpa(q, k, v.bfloat16())
        check(out.dtype == torch.bfloat16, "autocast: as torch, in the type that it asks for", str(out.dtype))
        with torch.autocast("cpu", enabled=False):
            close(out, in_double(q.bfloat16(), k.bfloat16(), v.bfloat16()), "autocast: result")
    refused(lambda: torch.vmap(sdpa)(q[None], k[None], v[None]), "vmap is refused", "Error")
    with case("no keys"):
        out = sdpa(q, k[:, :, :0], v[:, :, :0])
        check(out.shape == q.shape and bool((out == 0).all()), "no keys: zeros")
    with case("no queries"):
        check(sdpa(q[:, :, :0], k, v).shape == (2, 4, 0, 64), "no queries: nothing")
    with case("no sequences"):
        check(sdpa(q[:0], k[:0], v[:0]).shape == (0, 4, 5, 64), "no sequences: nothing")


# ---------------------------------------------------------------- what calls keep


def kept_calls() -> dict[str, Callable[[], torch.Tensor]]:
    """Calls that differ in one thing each, over the same memory where that can be."""
    memory = torch.randn(3, 4, 4096)
    lens, sinks = torch.tensor([3, 16], dtype=torch.int32), torch.randn(4)
    mask = torch.rand(1, 1, 16, 16) > 0.3
    mask[..., 0] = True

    def over(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Any:
        return (part.flatten().to(dtype).as_strided(shape, strides) for part in memory)

    shapes = {
        "contiguous": ((2, 4, 16, 64), (4096, 1024, 64, 1)),
        "tokens outside": ((2, 4, 16, 64), (4096, 64, 256, 1)),
        "gaps": ((2, 4, 16, 64), (4096, 1024, 128, 1)),
        "one sequence": ((1, 4, 16, 64), (4096, 1024, 64, 1)),
        "one sequence, tokens outside": ((1, 4, 16, 64), (4096, 64, 256, 1)),
        "fewer tokens": ((2, 4, 15, 64), (4096, 1024, 64, 1)),
        "one token": ((2, 4, 1, 64), (4096, 1024, 64, 1)),
        "one token of one sequence": ((1, 4, 1, 64), (4096, 64, 64, 1)),
        "fewer heads": ((2, 2, 16, 64), (4096, 1024, 64, 1)),
        "smaller heads": ((2, 4, 16, 32), (4096, 1024, 64, 1)),
    }
    calls = {}
    for name, layout in shapes.items():
        for dtype in BOUNDS:
            calls[f"{name}, {dtype}"] = lambda x=tuple(over(*layout, dtype)): attn.scaled_dot_product_attention(*x)
    q, k, v = over(*shapes["contiguous"])
    _, wide, _ = over(*shapes["tokens outside"])
    for name, options in {
        "causal": dict(causal=True),
        "from the start": dict(causal=True, align_start=True),
        "scale": dict(scale=0.3),
        "window": dict(window=(2, 3)),
        "softcap": dict(softcap=2.0),
        "sinks": dict(sinks=sinks),
        "slopes": dict(alibi_slopes=sinks.abs()),
        "lengths": dict(kv_lens=lens),
        "other lengths": dict(kv_lens=lens.flip(0)),
        "mask": dict(mask=mask),
    }.items():
        calls[name] = lambda options=options: attn.attention(q, k, v, **options)
    calls["keys with other strides"] = lambda: attn.attention(q, wide, v)
    calls["values with other strides"] = lambda: attn.attention(q, k, wide)
    calls["queries with other strides"] = lambda: attn.attention(wide, k, v)
    calls["narrow values"] = lambda: attn.attention(q, k, v[..., :32])
    packed = [x[0].transpose(0, 1) for x in (q, k, v)]
    for name, ends in (("packed", (0, 5, 16)), ("packed, other lengths", (0, 9, 16)), ("packed, three", (0, 5, 9, 16))):
        for dtype in (torch.int32, torch.int64):
            calls[f"{name}, {dtype}"] = lambda cu=torch.tensor(ends, dtype=dtype): attn.varlen_attention(
                *packed, cu, cu, 16, 16, causal=True
            )
    calls["packed, queries with other strides"] = lambda cu=torch.tensor((0, 16), dtype=torch.int32): (
        attn.varlen_attention(packed[0].contiguous(), *packed[1:], cu, cu, 16, 16)
    )
    calls["libattn.attention"] = lambda: libattn.attention(q, k, v)
    calls["libattn.attention, tokens outside"] = lambda: libattn.attention(wide, k, v)
    return calls


def test_kept() -> None:
    """Calls in any order and in several threads give, bit for bit, what each gives with nothing kept."""
    first, calls = {}, kept_calls()
    for name, call in calls.items():
        libattn._native.forget_plans()
        first[name] = call()
    wrong: list[str] = []

    def again(seed: int) -> None:
        for i in torch.randperm(len(calls) * 5, generator=torch.Generator().manual_seed(seed)).tolist():
            name = list(calls)[i % len(calls)]
            out = calls[name]()
            if out.stride() != first[name].stride() or not torch.equal(out, first[name]):
                wrong.append(name)

    again(0)
    check(not wrong, "calls in any order", sorted(set(wrong)))
    wrong.clear()
    threads = [threading.Thread(target=again, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not wrong, "calls of four threads", sorted(set(wrong)))
    q, k, v = tensors(1, 4, 4, 1, 9, 64)
    expected = in_double(q, k, v)
    for _ in range(50):  # tensors that are gone, others in their place
        out = attn.scaled_dot_product_attention(q.clone(), k.clone(), v.clone())
        if not torch.allclose(out.double(), expected, atol=1e-5):
            break
    close(out, expected, "tensors that were freed")
    q[:] = torch.randn_like(q)
    close(attn.scaled_dot_product_attention(q, k, v), in_double(q, k, v), "other numbers in the same memory")
    for m in range(1, 600):
        attn.attention(q, k[:, :, :1], v[:, :, :1], window=(m, -1))
    check(len(libattn._native.plans()) <= 256, "kept plans are bounded", str(len(libattn._native.plans())))


def test_result_layout() -> None:
    """The strides of a result are as the documents say, by whichever way it was made."""
    for batch, heads, n, dim_v in (
        (1, 4, 6, 64), (2, 4, 6, 64), (2, 4, 1, 64), (1, 1, 6, 64), (2, 1, 6, 64), (2, 4, 6, 32),
    ):  # fmt: skip
        q, k, v = tensors(batch, heads, heads, n, 9, 64, dim_v)
        for name, x in (("contiguous", q), ("tokens outside", q.transpose(1, 2).contiguous().transpose(1, 2)),
                        ("gaps", torch.cat([q, q], 3)[..., :64])):  # fmt: skip
            for out in (attn.scaled_dot_product_attention(x, k, v), attn.attention(x, k, v, softcap=30.0)):
                as_query = batch > 1 and n > 1 and x.stride(0) == heads * x.stride(1)
                there = out if as_query else out.transpose(1, 2)
                check(out.shape == (batch, heads, n, dim_v) and there.is_contiguous() and not out.requires_grad,
                      f"layout of a result, {name} {(batch, heads, n, dim_v)}", str(out.stride()))
            out = libattn.attention(x, k, v)
            there = out if x.is_contiguous() else out.transpose(1, 2)
            check(there.is_contiguous() and type(out) is torch.Tensor,
                  f"of libattn.attention, {name} {(batch, heads, n, dim_v)}", str(out.stride()))
    with case("inference tensors"), torch.inference_mode():
        check(attn.scaled_dot_product_attention(q, k, v).is_inference(), "a result in inference mode is of that mode")
    with case("parameters"):
        parameter = torch.nn.Parameter(q, requires_grad=False)
        out = attn.scaled_dot_product_attention(parameter, k, v)
        check(type(out) is torch.Tensor, "a parameter as query gives a tensor", str(type(out)))


def test_watched() -> None:
    """Tracers, modes, subclasses and gradients are noticed at every argument, also after a plain call."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    cu = torch.tensor((0, 3, 7), dtype=torch.int32)

    def varlen_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attn.varlen_attention(q[0, :, :7], k[0, :, :7], v[0, :, :7], cu, cu, 4, 4)

    q, k, v = tensors(2, 7, 7, 7, 7, 64)
    for call in (attn.scaled_dot_product_attention, attn.attention, varlen_attention):
        name = call.__name__
        operator = "libattn.varlen_attention.default" if call is varlen_attention else "libattn.attention.default"
        plain = call(q, k, v)
        for i, wanted in enumerate(("query", "key", "value")):
            given = [q, k, v]
            given[i] = given[i].clone().requires_grad_()
            refused(lambda: call(*given), f"{name}: a gradient for {wanted}", "NotImplementedError", "requires_grad")
            with case(f"{name}: {wanted} requires a gradient, no_grad"), torch.no_grad():
                check(torch.equal(call(*given), plain), f"{name}: {wanted} requires a gradient, under no_grad")
        seen: list[str] = []

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(str(function))
                return function(*args, **(kwargs or {}))

        with case(f"{name}: a dispatch mode"), Mode():
            call(q, k, v)
        check(operator in seen, f"{name}: a dispatch mode sees the operator", str(seen))
        with case(f"{name}: fake tensors"), FakeTensorMode(allow_non_fake_inputs=True) as mode:
            out = call(*(mode.from_tensor(x) for x in (q, k, v)))
            check(type(out) is not torch.Tensor and out.shape == plain.shape, f"{name}: fake tensors", str(type(out)))
        with case(f"{name}: autocast"), torch.autocast("cpu", torch.bfloat16):
            check(call(q, k, v).dtype == torch.bfloat16, f"{name}: autocast after a plain call")
        check(torch.equal(call(q, k, v), plain), f"{name}: a plain call after all these")
    refused(lambda: attn.attention(q, k, v, sinks=torch.randn(4).requires_grad_()), "a gradient for sinks",
            "NotImplementedError", "requires_grad")  # fmt: skip


# ---------------------------------------------------------------- operators


def test_operators() -> None:
    q, k, v = tensors(2, 4, 2, 5, 7, 64)
    bias, seen = torch.randn(2, 1, 5, 7), torch.ones(1, 1, 5, 7, dtype=torch.bool).tril()
    starts, lens = torch.tensor([0, 2], dtype=torch.int32), torch.tensor([7, 4], dtype=torch.int32)
    calls = {
        "plain": ((q, k, v), {}),
        "causal": ((q, k, v, None, True, True), {}),
        "bool mask": ((q, k, v, seen), {}),
        "f32 mask, scale": ((q, k, v, bias), dict(scale=0.2)),
        "starts": ((q, k, v), dict(kv_starts=starts, kv_lens=lens)),
        "window, softcap, sinks": ((q, k, v, None, True), dict(window_left=3, softcap=2.0, sinks=torch.randn(4))),
    }
    for name, (args, options) in calls.items():
        with case(f"opcheck: {name}"):
            result = torch.library.opcheck(torch.ops.libattn.attention.default, args, options)
            check(all(x == "SUCCESS" for x in result.values()), f"opcheck: {name}", str(result))
    cu = torch.tensor([0, 2, 5], dtype=torch.int32)
    packed = torch.randn(5, 4, 64)
    with case("opcheck: packed"):
        result = torch.library.opcheck(
            torch.ops.libattn.varlen_attention.default, (packed, packed, packed, cu, cu, 3, 3, True)
        )
        check(all(x == "SUCCESS" for x in result.values()), "opcheck: packed", str(result))
    with case("the operator has no backward"):
        out = torch.ops.libattn.attention(q.clone().requires_grad_(), k, v)
        refused(lambda: out.sum().backward(), "the operator has no backward", "no backward")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with case("fake tensors"), FakeTensorMode() as mode:
        out = attn.scaled_dot_product_attention(*(mode.from_tensor(x) for x in (q, k, v)), enable_gqa=True)
        real = attn.scaled_dot_product_attention
        check(
            out.shape == (2, 4, 5, 64) and out.stride() == (4 * 5 * 64, 5 * 64, 64, 1),
            "fake tensors have shape and strides",
        )
    from torch.fx.experimental.proxy_tensor import make_fx

    with case("make_fx"):
        graph = make_fx(lambda *x: real(*x, enable_gqa=True))(q, k, v)
        check("libattn.attention" in graph.code, "make_fx records the operator", graph.code)
    with case("torch.jit.trace"):
        traced = torch.jit.trace(lambda a, b, c: real(a, b, c, enable_gqa=True), (q, k, v), check_trace=False)
        close(traced(-q, k, v), in_double(-q, k, v, enable_gqa=True), "torch.jit.trace records the operator")


class Layer(torch.nn.Module):
    """A layer of attention as models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(64, 192)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        out = attn.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return out.transpose(1, 2).flatten(2)


def test_compile() -> None:
    backends = ["eager", "aot_eager"] + (["inductor"] if shutil.which("g++") or shutil.which("c++") else [])
    if "inductor" not in backends:
        check(True, "torch.compile, inductor # SKIP no C++ compiler")
    layer = Layer()
    x = torch.randn(2, 9, 64)
    for backend in backends:
        name = f"torch.compile, {backend}, fullgraph"
        torch._dynamo.reset()
        with case(name), torch.no_grad():
            compiled = torch.compile(layer, backend=backend, fullgraph=True)
            close(compiled(x), layer(x).double(), name, 1e-5)
            mask = torch.rand(2, 1, 9, 9) > 0.5
            mask[..., 0] = True
            close(compiled(x, mask), layer(x, mask).double(), f"{name}, with a mask", 1e-5)
            longer = torch.randn(3, 14, 64)
            close(compiled(longer), layer(longer).double(), f"{name}, dynamic shapes", 1e-5)
    torch._dynamo.reset()
    cu = torch.tensor([0, 2, 5], dtype=torch.int32)
    q = torch.randn(5, 4, 64)
    with case("torch.compile, packed"):
        compiled = torch.compile(
            lambda x: attn.varlen_attention(x, x, x, cu, cu, 3, 3, causal=True) * 2, backend="aot_eager", fullgraph=True
        )
        close(compiled(q), varlen_definition(q, q, q, cu, cu, causal=True) * 2, "torch.compile, packed, fullgraph")


def latent_attention(q: torch.Tensor, keys: torch.Tensor, dim_v: int, scale: float) -> torch.Tensor:
    """Causal MLA of one sequence in double precision: q [tokens, heads, dim], keys [keys, dim]."""
    q, keys = q.double(), keys.double()
    scores = torch.einsum("qhd,kd->hqk", q, keys) * scale
    hidden = torch.arange(len(keys)) > torch.arange(len(q))[:, None] + len(keys) - len(q)
    return torch.einsum("hqk,kd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), keys[:, :dim_v])


def test_steps() -> None:
    """A step over arrays that nobody else holds, of MLA, whose queries and keys come in one part and in two."""
    dim, dim_v, heads, block, count, tokens = 96, 64, 8, 16, 70, 20
    problem = f"heads={heads} kv_heads=1 head_dim={dim}/{dim_v} mla=1 q=f32 kv=f32 block={block}"
    backend = libattn.backend(problem, device="cpu")
    plan = backend.plan(f"{problem} max_seqs=4 max_q=64 max_kv=256 max_rows=128")
    step = plan.step()
    keys, q = torch.randn(count, 1, dim), torch.randn(tokens, heads, dim)
    step.prepare(torch.tensor([0, tokens], dtype=torch.int32), torch.tensor([count], dtype=torch.int32),
                 table=torch.arange(1, 6, dtype=torch.int32)[None], num_tokens=tokens, max_q=tokens, max_kv=count)
    taken = [torch.full((size,), -1, dtype=torch.int32) for size in (1, 2, 5) for _ in range(1000)]  # where they were
    right = latent_attention(q, keys[:, 0], dim_v, 0.1)
    for parts in (False, True):
        kv = backend.kv(torch.zeros(8, block, 1, dim), head_dim_vo=dim_v)
        k, k_rope = (keys[..., :dim_v], keys[..., dim_v:]) if parts else (keys, None)
        backend.kv_write(kv, k, None, torch.arange(block, block + count), k_rope=k_rope)
        queries, q_rope = (q[..., :dim_v], q[..., dim_v:]) if parts else (q, None)
        out = torch.empty(tokens, heads, dim_v)
        plan.run(step, queries, out, scale=0.1, kv=kv, q_rope=q_rope)
        close(out, right, f"a step of MLA in {1 + parts} parts")
        refused(lambda: plan.run(step, q, out, scale=0.1, kv=kv, q_rope=q), "queries and their rope", "q has 96",
                "64 is accepted")
        refused(lambda: backend.kv_write(kv, keys, None, torch.arange(count), k_rope=keys), "keys and their rope", "k")
    refused(lambda: backend.kv(torch.zeros(8, block, 1, dim), head_dim_vo=dim + 1), "too many values", "head_dim_vo")
    del taken


def test_threads() -> None:
    """Work on a CPU runs on torch's threads, however many it has, and starts none."""
    code = """
import os, sys, torch, libattn.torch as attn
torch.set_num_threads(int(sys.argv[1]))
torch.ones(1 << 22).exp()
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
q = torch.randn(1, 8, 512, 64)
out = attn.scaled_dot_product_attention(q, q, q)
error = (out - torch.nn.functional.scaled_dot_product_attention(q, q, q)).abs().max().item()
print(threads() - before, error < 1e-5)
"""
    for threads in (1, 2, 5):
        run = subprocess.run([sys.executable, "-c", code, str(threads)], capture_output=True, text=True)
        check(run.stdout.split() == ["0", "True"], f"no thread beside torch's {threads}", run.stdout + run.stderr)


def test_cuda() -> None:
    if not torch.cuda.is_available():
        check(True, "CUDA # SKIP no device")
        return
    for dtype in BOUNDS:
        q, k, v = tensors(2, 8, 2, 33, 33, 64, dtype=dtype)
        seen = torch.rand(2, 1, 33, 33) > 0.3
        seen[..., 0] = True
        for options in ({}, {"is_causal": True}, {"attn_mask": seen}):
            name = f"CUDA {dtype} {list(options)}"
            with case(name):
                there = {key: x.cuda() if isinstance(x, torch.Tensor) else x for key, x in options.items()}
                out = attn.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda(), enable_gqa=True, **there)
                close(out.cpu(), in_double(q, k, v, enable_gqa=True, **options), name)
        with case(f"CUDA {dtype} starts"):
            starts = torch.tensor([0, 9], dtype=torch.int32)
            out = attn.attention(q.cuda(), k.cuda(), v.cuda(), causal=True, kv_starts=starts)
            close(out.cpu(), definition(q, k, v, causal=True, kv_starts=starts), f"CUDA {dtype} starts")
    cu = torch.tensor([0, 10, 33], dtype=torch.int32)
    with case("CUDA packed"):
        x = torch.randn(33, 4, 64)
        out = attn.varlen_attention(x.cuda(), x.cuda(), x.cuda(), cu.cuda(), cu.cuda(), 23, 23, causal=True)
        close(out.cpu(), varlen_definition(x, x, x, cu, cu, causal=True), "CUDA packed")
    with case("CUDA lengths that grow"):
        # The device is far behind when lengths are written again: what it copies must still be there.
        q, k, v = tensors(2, 8, 2, 1, 200, 64)
        there = [x.cuda() for x in (q, k, v)]
        busy = torch.randn(4096, 4096, device="cuda")
        for _ in range(20):
            busy = busy @ busy * 1e-3
        outs = [attn.attention(there[0], there[1][:, :, :m], there[2][:, :, :m]) for m in range(1, 201)]
        worst = max((out.cpu() - definition(q, k[:, :, :m], v[:, :, :m])).abs().max().item()
                    for m, out in enumerate(outs, 1))  # fmt: skip
        check(worst < 1e-4, "CUDA lengths that grow, none of them waited for", str(worst))


# ---------------------------------------------------------------- times


def median(call: Callable[[], Any], seconds: float = 0.5) -> float:
    """Microseconds of a call."""
    for _ in range(5):
        call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2] * 1e6


def bench() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads of torch; medians in microseconds")
    print(f"{'':44} {'libattn':>9} {'SDPA':>9}")
    sizes = {
        "one key, one head of 8": (1, 1, 1, 1, 1, 8),
        "decode, 4096 keys, 32/8 heads of 128": (1, 32, 8, 1, 4096, 128),
        "prefill, 512 tokens": (1, 32, 8, 512, 512, 128),
        "prefill, 1024 tokens": (1, 32, 8, 1024, 1024, 128),
    }
    for name, shape in sizes.items():
        q, k, v = tensors(*shape)
        options = dict(is_causal=shape[3] > 1, enable_gqa=shape[1] != shape[2])
        with torch.no_grad():
            pair = [
                median(lambda: f(q, k, v, **options), 2.0 if shape[3] > 1 else 0.5)
                for f in (attn.scaled_dot_product_attention, reference_sdpa)
            ]
        print(f"{name:44} {pair[0]:9.1f} {pair[1]:9.1f}")
    overhead()


def plan_in_c(problem: str) -> Callable[[int], float]:
    """Microseconds of a run of the plan of a problem from C, by a library that is compiled here."""
    package = Path(libattn.__file__).parent
    include = next(package.rglob("attn/attn.h")).parents[1]
    libattn_so = next(package.rglob("libattn.so.0"))
    library = Path(tempfile.mkdtemp()) / "plan_run.so"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-D_POSIX_C_SOURCE=200809L", f"-I{include}",
         Path(__file__).with_name("plan_run.c"), libattn_so, f"-Wl,-rpath,{libattn_so.parent}", "-o", library],
        check=True,
    )  # fmt: skip
    functions = ctypes.CDLL(str(library))
    shutil.rmtree(library.parent)
    functions.plan_run.restype = ctypes.c_double
    if functions.plan_open(problem.encode()) != 0:
        raise RuntimeError(f"no plan for {problem}")
    return functions.plan_run


def loops(call: Callable[[], Any], count: int = 1000) -> float:
    """Microseconds of a call: the best of ten loops."""
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        times.append(time.perf_counter() - begin)
    return min(times) / count * 1e6


def overhead() -> None:
    """What a call of one query token, key and head costs beside the same plan run from C."""
    q, k, v = tensors(1, 1, 1, 1, 1, 64)
    out, packed, cu = torch.empty_like(q), (q[0], k[0], v[0]), torch.tensor((0, 1), dtype=torch.int32)
    libattn._native.forget_plans()
    libattn.attention(q, k, v)
    run = plan_in_c(libattn._native.plans()[0]["problem"])
    calls = {
        "torch's scaled_dot_product_attention": lambda: reference_sdpa(q, k, v),
        "libattn.torch.scaled_dot_product_attention": lambda: attn.scaled_dot_product_attention(q, k, v),
        "libattn.torch.attention": lambda: attn.attention(q, k, v),
        "libattn.torch.varlen_attention": lambda: attn.varlen_attention(*packed, cu, cu, 1, 1),
        "libattn.attention": lambda: libattn.attention(q, k, v),
        "the native call into a tensor that is there": lambda: libattn._native.attention(q, k, v, out),
        "the operator": lambda: torch.ops.libattn.attention(q, k, v),
        "torch.empty_like": lambda: torch.empty_like(q),
    }
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    in_c = []
    with torch.no_grad():
        for _ in range(7):  # by turns, for other work on the machine comes and goes
            in_c.append(min(run(1000) for _ in range(10)))
            for name, call in calls.items():
                rounds[name].append(loops(call))
    middle = sorted(in_c)[3]
    print(f"\none query token, key and head of 64: medians of minima; the plan run from C takes {middle:.2f}")
    print(f"{'':44} {'call':>9} {'above C':>9}")
    for name, times in rounds.items():
        print(f"{name:44} {sorted(times)[3]:9.2f} {sorted(times)[3] - middle:9.2f}")


torch.manual_seed(0)
if __name__ == "__main__":
    if "--bench" in sys.argv[1:]:
        bench()
    else:
        main(sys.modules[__name__])
