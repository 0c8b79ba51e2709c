# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention on torch tensors: a drop-in for scaled_dot_product_attention, packed sequences, and torch.compile.

Nothing here has a backward: tensors that require gradients are refused while gradients are recorded.

Plain tensors go straight to the native function. While torch.compile or another tracer looks on, the same calls become
the operators ``libattn::attention`` and ``libattn::varlen_attention``, whose shapes are known without running them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.compiler import is_compiling, is_dynamo_compiling
from torch.nn.attention.bias import CausalBias, CausalVariant

from . import _native

__all__ = ["attention", "scaled_dot_product_attention", "varlen_attention"]

_MASK_TYPES = (torch.bool, torch.float32, torch.float16, torch.bfloat16)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What torch.nn.functional.scaled_dot_product_attention computes, by libattn.

    query is [batch, heads, n, dim] or [heads, n, dim]; key [..., kv_heads, m, dim]; value [..., kv_heads, m, dim_v];
    f32, f16 or bf16, all on one device, with any strides. attn_mask broadcasts to [batch, heads, n, m]: bool, where
    True takes part, or f32, f16 or bf16 that is added to the scores; torch's causal_upper_left and causal_lower_right
    are taken as they are. is_causal lines the queries up with the first keys, as in torch. scale is 1/sqrt(dim) if not
    given. With enable_gqa, kv_heads may be a divisor of heads.

    Returns a new tensor [..., heads, n, dim_v], in memory [batch, n, heads, dim_v], or as query is if several sequences
    of that lie in memory as [batch, heads, n, dim]. A row that sees no key is 0.

    Raises ValueError for arguments that do not go together, NotImplementedError for what needs a backward or dropout,
    and libattn.Error if no backend serves the problem.
    """
    if attn_mask is None and dropout_p == 0.0 and not is_dynamo_compiling():
        try:  # most calls are so simple, and a microsecond counts in them
            out = _native.torch_attention(query, key, value, enable_gqa, None, is_causal, is_causal, scale)
            if out is not None:
                return out
        except (RuntimeError, BufferError):
            pass  # below it is mended, or refused in torch's words
    if dropout_p != 0.0:
        raise NotImplementedError(f"dropout_p={dropout_p}: libattn is for inference and drops nothing; it accepts 0.0")
    align_start = True
    if attn_mask is not None:
        if is_causal:
            raise ValueError("is_causal=True and attn_mask: one of the two is accepted, not both")
        if isinstance(attn_mask, CausalBias):
            align_start = attn_mask.variant == CausalVariant.UPPER_LEFT
            attn_mask, is_causal = None, True
    if query.dim() == 3:
        three = (None if x is None else x.unsqueeze(0) for x in (query, key, value))
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(0)
        return _sdpa(*three, attn_mask, is_causal, align_start, scale, enable_gqa).squeeze(0)
    return _sdpa(query, key, value, attn_mask, is_causal, align_start, scale, enable_gqa)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    align_start: bool = False,
    scale: float | None = None,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    kv_starts: Tensor | None = None,
    kv_lens: Tensor | None = None,
) -> Tensor:
    """Attention with everything that libattn has for dense keys.

    Shapes as in scaled_dot_product_attention, four dimensions. mask has four dimensions too, each 1 or the full size;
    it counts in addition to causal and window. causal and window line the last query up with the last key of its
    sequence, or with align_start the first query with the first key. window is (left, right): the keys seen before and
    after the query's own, -1 for all. softcap c makes a score s into c*tanh(s/c); 0 is none. sinks [heads], f32 or
    bf16, are added to the softmax denominator. alibi_slopes [heads], f32: slope * (position of the key - position of
    the query) is added to the scores.

    kv_starts and kv_lens, i32 [batch] in host memory, say which keys of a sequence count: those from its start on, as
    many as its length. Either may be left out (0, and all keys up to the last). With kv_starts, a mask is refused.

    Returns a new tensor as scaled_dot_product_attention does, and raises as it does.
    """
    if kv_starts is None and not is_dynamo_compiling():
        try:
            out = _native.torch_attention(
                query, key, value, True, mask, causal, align_start, scale, window[0], window[1], softcap, sinks,
                alibi_slopes, kv_lens,
            )  # fmt: skip
            if out is not None:
                return out
        except (RuntimeError, BufferError):
            pass
    query, key, value = _autocast(query, key, value)
    if is_compiling() or _is_traced(query):
        return torch.ops.libattn.attention(
            query, key, value, mask, causal, align_start, scale, window[0], window[1], softcap, sinks, alibi_slopes,
            kv_starts, kv_lens,
        )  # fmt: skip
    if torch.is_grad_enabled():
        _refuse_gradients(query, key, value, mask, sinks)
    return _attention(
        query, key, value, mask, causal, align_start, scale, window[0], window[1], softcap, sinks, alibi_slopes,
        kv_starts, kv_lens,
    )  # fmt: skip


def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of sequences packed one after the other, called as flash_attn_varlen_func is.

    q is [tokens, heads, dim], k [keys, kv_heads, dim], v [keys, kv_heads, dim_v], with any token and head strides.
    cu_seqlens_q and cu_seqlens_k, i32 [sequences + 1], are where the tokens and the keys of each sequence begin, and
    where the last one ends, in host memory or on the device of q. max_seqlen_q and max_seqlen_k are no less than the
    longest sequence. causal and window_size (left, right; -1 for all) line the last query up with the last key.
    alibi_slopes f32 [heads]: slope * |position of the query - position of the key| is taken from the scores, as in
    flash_attn_varlen_func. sinks, f32 or bf16 [heads], are as in attention().

    Returns a new tensor [tokens, heads, dim_v]; rows beyond the last sequence hold anything. Raises
    as scaled_dot_product_attention does.
    """
    if dropout_p != 0.0:
        raise NotImplementedError(f"dropout_p={dropout_p}: libattn is for inference and drops nothing; it accepts 0.0")
    left, right = window_size
    if not is_dynamo_compiling():
        try:
            out = _native.torch_varlen_attention(
                q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale, left, right,
                softcap, sinks, alibi_slopes,
            )  # fmt: skip
            if out is not None:
                return out
        except (RuntimeError, BufferError, TypeError):
            pass  # below offsets of other types are converted, too
    q, k, v = _autocast(q, k, v)
    if is_compiling() or _is_traced(q):
        return torch.ops.libattn.varlen_attention(
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale, left, right,
            softcap, sinks, alibi_slopes,
        )  # fmt: skip
    if torch.is_grad_enabled():
        _refuse_gradients(q, k, v, sinks, alibi_slopes)
    return _varlen_attention(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale, left, right, softcap,
        sinks, alibi_slopes,
    )  # fmt: skip


# ---------------------------------------------------------------- arguments


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the type that torch.autocast asks for, as torch's own attention takes them."""
    device = "cuda" if tensors[0].is_cuda else "cpu"
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(device)) for x in tensors)


def _empty_result(query: Tensor, value: Tensor) -> Tensor:
    """[batch, heads, n, dim_v] in memory as several sequences of query are, so that one run serves them, or
    [batch, n, heads, dim_v]."""
    batch, heads, n, _ = query.shape
    if batch > 1 and n > 1 and query.stride(0) == heads * query.stride(1):
        return query.new_empty((batch, heads, n, value.shape[-1]))
    return _result_by_token(query, value)


def _result_by_token(query: Tensor, value: Tensor) -> Tensor:
    """[batch, heads, n, dim_v] in memory [batch, n, heads, dim_v]."""
    batch, heads, n, _ = query.shape
    dim = value.shape[-1]
    row = heads * dim
    return query.new_empty_strided((batch, heads, n, dim), (n * row, dim, row, 1))


def _is_traced(query: Tensor) -> bool:
    """Whether somebody records what is called: fake tensors and other subclasses, dispatch modes, torch.jit.trace."""
    return (
        type(query) not in (Tensor, torch.nn.Parameter)
        or torch._C._len_torch_dispatch_stack() != 0
        or torch._C._get_tracing_state() is not None
    )


def _refuse_gradients(*tensors: Tensor | None) -> None:
    """Raises NotImplementedError if a gradient of the result would be wanted."""
    for tensor in tensors:
        if tensor is not None and tensor.requires_grad:
            raise NotImplementedError(
                "a tensor with requires_grad=True: libattn has no backward; call it under torch.no_grad() or "
                "torch.inference_mode(), or detach the tensors"
            )


def _sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    align_start: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """scaled_dot_product_attention of four dimensions, the mask still as the caller gave it."""
    q_shape, k_shape = query.shape, key.shape
    if len(q_shape) != 4 or len(k_shape) != 4 or value.dim() != 4:
        raise ValueError(
            f"query, key and value have {query.dim()}, {key.dim()} and {value.dim()} dimensions; 3 or 4 are accepted, "
            "the same number for all"
        )
    if q_shape[1] != k_shape[1]:
        _check_heads(q_shape[1], k_shape[1], enable_gqa)
    if q_shape[0] != k_shape[0]:
        key, value = _share_keys(q_shape[0], key, value)
    if mask is not None:
        mask = _full_mask(mask, query, k_shape[2])
    return attention(query, key, value, mask=mask, causal=causal, align_start=align_start, scale=scale)


def _check_heads(heads: int, kv_heads: int, enable_gqa: bool) -> None:
    if kv_heads != 1 and not enable_gqa:
        raise ValueError(f"query has {heads} heads, key {kv_heads}: enable_gqa=True is needed for different numbers")
    if heads % kv_heads != 0:
        raise ValueError(f"query has {heads} heads, key {kv_heads}: a multiple of the heads of key is accepted")


def _share_keys(batch: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of one sequence, seen by each of the batch."""
    if key.shape[0] != 1 or value.shape[0] != 1:
        raise ValueError(f"query has a batch of {batch}, key of {key.shape[0]}: the same, or 1 for key, is accepted")
    return key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)


def _full_mask(mask: Tensor, query: Tensor, m: int) -> Tensor:
    """A mask as libattn takes it, [1 or batch, 1 or heads, 1 or n, m], columns contiguous; a copy only if needed."""
    if mask.dtype not in _MASK_TYPES:
        if mask.dtype != torch.float64:
            raise ValueError(f"attn_mask is {mask.dtype}: bool, float32, float16 and bfloat16 are accepted")
        mask = mask.float()
    if mask.dim() > 4:
        raise ValueError(f"attn_mask has {mask.dim()} dimensions: at most 4 are accepted")
    mask = mask[(None,) * (4 - mask.dim())]
    batch, heads, n, _ = query.shape
    for size, full in zip(mask.shape, (batch, heads, n, m)):
        if size != 1 and size != full:
            raise ValueError(
                f"attn_mask has the shape {list(mask.shape)}: [{batch}, {heads}, {n}, {m}] is accepted, or 1 in place "
                "of any of these"
            )
    if mask.dtype is torch.bool and query.is_cuda:  # bits are packed on the host
        mask = torch.zeros(mask.shape, dtype=query.dtype, device=query.device).masked_fill_(~mask, float("-inf"))
    if mask.shape[3] != m:
        mask = mask.expand(-1, -1, -1, m)
    return mask if mask.stride(3) == 1 or m == 1 else mask.contiguous()


# ---------------------------------------------------------------- dense keys


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    align_start: bool = False,
    scale: float | None = None,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    kv_starts: Tensor | None = None,
    kv_lens: Tensor | None = None,
) -> Tensor:
    """The native call. What it refuses is looked at again by _mend, so that the usual case costs no checks."""
    if kv_starts is not None:
        return _attention_from(
            query, key, value, mask, causal, align_start, scale, window_left, window_right, softcap, sinks,
            alibi_slopes, kv_starts, kv_lens,
        )  # fmt: skip
    out = _empty_result(query, value)
    try:
        _native.attention(
            query, key, value, out, causal=causal, align_start=align_start, scale=scale,
            window_left=None if window_left < 0 else window_left,
            window_right=None if window_right < 0 else window_right,
            softcap=softcap, sinks=sinks, mask=mask, alibi_slopes=alibi_slopes, kv_lens=kv_lens,
        )  # fmt: skip
    except (RuntimeError, BufferError) as error:
        if key.shape[2] == 0:
            return out.zero_()
        query, key, value, scale = _mend(error, query, key, value, scale)
        sinks = None if sinks is None else sinks.detach()
        return _attention(
            query, key, value, mask, causal, align_start, scale, window_left, window_right, softcap, sinks,
            alibi_slopes, None, kv_lens,
        )  # fmt: skip
    return out


def _mend(
    error: Exception, query: Tensor, key: Tensor, value: Tensor, scale: float | None
) -> tuple[Tensor, Tensor, Tensor, float | None]:
    """What the native function refuses and torch does not: scales that are not positive, gaps between elements.

    Raises `error` again if there is nothing of that.
    """
    tensors = [x.detach() if x.stride(-1) == 1 or x.shape[-1] == 1 else x.detach().contiguous()
               for x in (query, key, value)]  # fmt: skip
    mended = any(x.requires_grad or x.stride() != y.stride() for x, y in zip((query, key, value), tensors))
    if scale is not None and scale <= 0:
        tensors[0] = torch.zeros_like(query) if scale == 0 else -tensors[0]
        scale, mended = -scale or 1.0, True
    if not mended:
        raise error
    return tensors[0], tensors[1], tensors[2], scale


def _attention_from(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    align_start: bool,
    scale: float | None,
    window_left: int,
    window_right: int,
    softcap: float,
    sinks: Tensor | None,
    alibi_slopes: Tensor | None,
    kv_starts: Tensor,
    kv_lens: Tensor | None,
) -> Tensor:
    """Keys that begin somewhere in their row: the rows are one run of tokens, in which each sequence has its place."""
    if mask is not None:
        raise ValueError("mask and kv_starts: one of the two is accepted, not both")
    batch, heads, n, dim = query.shape
    m = key.shape[2]
    if kv_lens is None:
        kv_lens = m - kv_starts
    (k, step), (v, v_step) = _as_run(key), _as_run(value)
    if step != v_step:
        (k, step), (v, _) = _as_run(key.contiguous()), _as_run(value.contiguous())
    kv_offsets = torch.empty(batch + 1, dtype=torch.int32)
    torch.add(kv_starts, torch.arange(0, batch * step, step, dtype=torch.int32), out=kv_offsets[:batch])
    kv_offsets[batch] = k.shape[0]
    out = _varlen_call(
        query.transpose(1, 2).reshape(batch * n, heads, dim), k, v,
        torch.arange(0, batch * n + 1, max(n, 1), dtype=torch.int32), kv_offsets, kv_lens, n, m, causal, align_start,
        scale, window_left, window_right, softcap, sinks, alibi_slopes, "key",
    )  # fmt: skip
    return out.view(batch, n, heads, -1).transpose(1, 2)


def _as_run(x: Tensor) -> tuple[Tensor, int]:
    """[batch, heads, m, dim] as [tokens, heads, dim] in the same memory, and how many tokens lie between two sequences.

    The tokens between are those of other heads, where these are stored one after the other.
    """
    batch, heads, m, dim = x.shape
    over_batch, over_heads, over_tokens, inner = x.stride()
    if batch == 1:
        over_batch = m * over_tokens
    if inner != 1 or over_tokens <= 0 or over_batch % over_tokens != 0 or over_batch < m * over_tokens:
        return _as_run(x.contiguous())
    step = over_batch // over_tokens
    return x.as_strided(((batch - 1) * step + m, heads, dim), (over_tokens, over_heads, 1)), step


# ---------------------------------------------------------------- packed sequences


def _varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool = False,
    scale: float | None = None,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
) -> Tensor:
    return _varlen_call(
        q, k, v, cu_seqlens_q, cu_seqlens_k, cu_seqlens_k.diff(), max_seqlen_q, max_seqlen_k, causal, False, scale,
        window_left, window_right, softcap, sinks, alibi_slopes, "distance",
    )  # fmt: skip


def _varlen_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_offsets: Tensor,
    kv_offsets: Tensor,
    kv_lens: Tensor,
    max_q: int,
    max_kv: int,
    causal: bool,
    align_start: bool,
    scale: float | None,
    window_left: int,
    window_right: int,
    softcap: float,
    sinks: Tensor | None,
    alibi_slopes: Tensor | None,
    alibi: str,
) -> Tensor:
    """The native call for packed sequences; offsets and lengths go to the device of q as i32."""
    q, k, v = (x.detach() if x.stride(-1) == 1 or x.shape[-1] == 1 else x.detach().contiguous() for x in (q, k, v))
    if scale is not None and scale <= 0:
        q, scale = torch.zeros_like(q) if scale == 0 else -q, -scale or 1.0
    out = torch.empty((q.shape[0], q.shape[1], v.shape[2]), dtype=q.dtype, device=q.device)
    offsets = [x.to(device=q.device, dtype=torch.int32) for x in (q_offsets, kv_offsets, kv_lens)]
    _native.varlen_attention(
        q, k, v, out, *offsets, int(max_q), int(max_kv), causal=causal, align_start=align_start, scale=scale,
        window_left=None if window_left < 0 else window_left,
        window_right=None if window_right < 0 else window_right,
        softcap=softcap, sinks=None if sinks is None else sinks.detach(), alibi_slopes=alibi_slopes,
        alibi=alibi,
    )  # fmt: skip
    return out


# ---------------------------------------------------------------- operators

# A Library, not torch.library.custom_op: its calls cost a third, and nothing that custom_op adds is used here.
_library = torch.library.Library("libattn", "DEF")
_library.define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask=None, bool causal=False, bool align_start=False, "
    "float? scale=None, int window_left=-1, int window_right=-1, float softcap=0.0, Tensor? sinks=None, "
    "Tensor? alibi_slopes=None, Tensor? kv_starts=None, Tensor? kv_lens=None) -> Tensor",
    tags=(torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag),
)
_library.define(
    "varlen_attention(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, "
    "SymInt max_seqlen_k, bool causal=False, float? softmax_scale=None, int window_left=-1, int window_right=-1, "
    "float softcap=0.0, Tensor? sinks=None, Tensor? alibi_slopes=None) -> Tensor",
    tags=(torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag),
)
for _key in ("CPU", "CUDA"):
    _library.impl("attention", _attention, _key)
    _library.impl("varlen_attention", _varlen_attention, _key)


@torch.library.register_fake("libattn::attention", lib=_library)
def _attention_shape(query: Tensor, key: Tensor, value: Tensor, *options: object, **named: object) -> Tensor:
    starts = options[9] if len(options) > 9 else named.get("kv_starts")
    return _result_by_token(query, value) if starts is not None else _empty_result(query, value)


@torch.library.register_fake("libattn::varlen_attention", lib=_library)
def _varlen_shape(q: Tensor, k: Tensor, v: Tensor, *rest: object, **options: object) -> Tensor:
    return q.new_empty((q.shape[0], q.shape[1], v.shape[2]))


def _no_backward(context: object, *gradients: Tensor) -> None:
    raise NotImplementedError("libattn has no backward; call it under torch.no_grad() or torch.inference_mode()")


for _name in ("attention", "varlen_attention"):
    torch.library.register_autograd(f"libattn::{_name}", _no_backward, lib=_library)
