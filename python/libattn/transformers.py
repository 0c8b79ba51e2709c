# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of transformers on libattn: ``register()``, then ``attn_implementation="libattn"``.

Masks that are causal, windowed, padding on one side or packed sequences are never made: they travel to the attention
function as lengths and windows. Anything else becomes the mask that ``sdpa`` would get.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from transformers import masking_utils, modeling_flash_attention_utils
from transformers.masking_utils import (
    AttentionMaskInterface,
    bidirectional_mask_function,
    causal_mask_function,
    sdpa_mask,
)
from transformers.modeling_utils import AttentionInterface
from transformers.utils import logging
from transformers.utils.import_utils import is_tracing

from .torch import attention, varlen_attention

__all__ = ["SpanMask", "attention_forward", "attention_mask", "register"]

_logger = logging.get_logger(__name__)


def register(name: str = "libattn") -> None:
    """Makes attn_implementation=`name` known to transformers, and "`name`_flash" for continuous batching.

    transformers has continuous batching for "sdpa", "paged|eager", and names that contain "flash"; hence the second
    name. It computes the same as the first and may be used everywhere. Calling this again changes nothing.
    """
    for each in (name, f"{name}_flash"):
        AttentionInterface.register(each, attention_forward)
        AttentionMaskInterface.register(each, attention_mask)
    _provide_flash(f"{name}_flash")


def _provide_flash(name: str) -> None:
    """Answers transformers' search for the functions of a flash implementation; else it ends at the hub of kernels."""
    wrapped = getattr(modeling_flash_attention_utils, "_lazy_imports", None)
    if wrapped is None:
        raise RuntimeError(
            f"{name}: this version of transformers looks for flash attention by something else than _lazy_imports of "
            "modeling_flash_attention_utils; 5.19 is accepted"
        )
    known = getattr(wrapped, "libattn_names", None)
    if known is not None:
        known.add(name)
        return
    names = {name}

    def lazy_imports(implementation: str | None, *args: Any, **kwargs: Any) -> tuple:
        if implementation not in names:
            return wrapped(implementation, *args, **kwargs)
        utils = modeling_flash_attention_utils
        return _flash_attn_func, varlen_attention, None, utils._pad_input, utils._unpad_input

    lazy_imports.libattn_names = names
    modeling_flash_attention_utils._lazy_imports = lazy_imports


def _flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
) -> Tensor:
    """flash_attn_func on [batch, n, heads, dim], for code that asks transformers for the functions themselves."""
    if dropout_p != 0.0:
        raise NotImplementedError(f"dropout_p={dropout_p}: libattn is for inference and drops nothing; it accepts 0.0")
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    out = attention(q, k, v, causal=causal, scale=softmax_scale, window=window_size, softcap=softcap)
    return out.transpose(1, 2)


# ---------------------------------------------------------------- masks


class Pattern(NamedTuple):
    """Which keys a query sees by their distance alone: window (left, right) in keys beside its own, -1 for all."""

    causal: bool
    left: int = -1
    right: int = -1


class Spans(NamedTuple):
    """A mask in words: a pattern, and which columns of each sequence are keys.

    begin, end: the columns outside which no sequence has keys. starts and lens: i32 [batch] in host memory, the first
    of these columns that is no padding and how many follow; None where they are 0 and all for every sequence.
    align_start: whether the first query is lined up with column `begin`, not the last with the last key.
    """

    pattern: Pattern
    align_start: bool
    begin: int
    end: int
    starts: Tensor | None = None
    lens: Tensor | None = None


class Packed(NamedTuple):
    """A mask in words: rows of sequences one after the other, which see nothing of each other.

    offsets: i32, where each begins, counted through all rows, and where the last one ends. longest: tokens of the
    longest.
    """

    pattern: Pattern
    offsets: Tensor
    longest: int


class SpanMask(Tensor):
    """A bool mask [batch, 1, n, m] that is known by its words, and made only if an operation wants its elements."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(
        cls, spans: Spans | Packed, make: Callable[[], Tensor], shape: tuple[int, ...], device: torch.device | str
    ) -> SpanMask:
        return Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=device)

    def __init__(
        self, spans: Spans | Packed, make: Callable[[], Tensor], shape: tuple[int, ...], device: torch.device | str
    ) -> None:
        self._spans: Spans | Packed | None = spans
        self._make = make
        self._dense: Tensor | None = None

    @property
    def spans(self) -> Spans | Packed | None:
        """The words, or None once somebody may have written to the elements."""
        return self._spans

    def dense(self) -> Tensor:
        """The mask with its elements; the same tensor each time."""
        if self._dense is None:
            self._dense = self._make()
        return self._dense

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: tuple, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        shares_memory = any(result.alias_info is not None for result in func._schema.returns)

        def elements(mask: SpanMask) -> Tensor:
            if shares_memory:  # a view, through which the elements may be changed later
                mask._spans = None
            return mask.dense()

        args, kwargs = tree_map_only(SpanMask, elements, (args, kwargs or {}))
        return func(*args, **kwargs)

    def __repr__(self, **options: Any) -> str:
        return f"SpanMask({list(self.shape)}, {self._spans})"


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: Callable = causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> Tensor | None:
    """The mask function of transformers' AttentionMaskInterface; its arguments are those of sdpa_mask.

    Returns None where the attention function needs to know no more than whether it is causal, a SpanMask where lengths
    and a window say all, or offsets of packed sequences, and the bool mask of sdpa_mask otherwise: chunks, functions of
    the caller's own, padding between tokens, and while torch.compile or another tracer looks on.
    """
    arguments = dict(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        mask_function=mask_function, attention_mask=attention_mask, local_size=local_size, use_vmap=use_vmap,
        device=device, **kwargs,
    )  # fmt: skip

    def make() -> Tensor:
        return sdpa_mask(**arguments, allow_is_causal_skip=False, allow_is_bidirectional_skip=False)

    if is_tracing(attention_mask):
        # sdpa skips the mask of a prompt in a static cache too; here a missing mask lines up the last keys.
        same = q_length == kv_length or q_length == 1
        return sdpa_mask(
            **arguments,
            allow_is_causal_skip=allow_is_causal_skip and same,
            allow_is_bidirectional_skip=allow_is_bidirectional_skip,
        )
    spans: Spans | Packed | None = None
    pattern = _pattern_of(mask_function)
    if pattern is not None:
        spans = _spans_of(pattern, q_length, kv_length, int(q_offset), int(kv_offset), attention_mask)
    elif attention_mask is None and q_length == kv_length and int(q_offset) == int(kv_offset) == 0:
        spans = _packed_of(mask_function)
    if spans is None:
        return make()
    if isinstance(spans, Packed):
        return SpanMask(spans, make, (batch_size, 1, q_length, kv_length), device)
    may_skip = allow_is_causal_skip if pattern.causal else allow_is_bidirectional_skip
    if may_skip and _says_nothing(spans, q_length, kv_length):
        return None
    return SpanMask(spans, make, (batch_size, 1, q_length, kv_length), device)


def _pattern_of(mask_function: Callable) -> Pattern | None:
    """The pattern of a mask function that transformers has made, or None if it is another."""
    if mask_function is causal_mask_function:
        return Pattern(causal=True)
    if mask_function is bidirectional_mask_function:
        return Pattern(causal=False)
    parts = _captured(mask_function, masking_utils.and_masks, "mask_functions")
    if not isinstance(parts, tuple) or len(parts) != 2:
        return None
    window, rest = parts
    width = _captured(window, masking_utils.sliding_window_overlay, "sliding_window")
    if isinstance(width, int) and rest is causal_mask_function:
        return Pattern(True, width - 1)  # the width counts the query's own key
    width = _captured(window, masking_utils.sliding_window_bidirectional_overlay, "sliding_window")
    if isinstance(width, int) and rest is bidirectional_mask_function:
        return Pattern(False, width, width)
    return None


def _packed_of(mask_function: Callable) -> Packed | None:
    """The words of a mask of packed sequences, or None if it is another."""
    parts = _captured(mask_function, masking_utils.and_masks, "mask_functions")
    if not isinstance(parts, tuple) or len(parts) != 2:
        return None
    pattern = _pattern_of(parts[0])
    sequence = _captured(parts[1], masking_utils.packed_sequence_mask_function, "packed_sequence_mask")
    if pattern is None or not isinstance(sequence, Tensor):
        return None
    first = torch.ones_like(sequence, dtype=torch.bool)  # tokens with which a sequence, or a row, begins
    first[:, 1:] = sequence[:, 1:] != sequence[:, :-1]
    if bool((sequence.diff(dim=1) < 0).any()):  # a number that comes again would be the same sequence
        return None
    begins = first.flatten().nonzero().flatten()
    offsets = torch.cat([begins, begins.new_tensor([first.numel()])]).to(torch.int32)
    return Packed(pattern, offsets, int(offsets.diff().max()))


def _captured(function: Any, maker: Callable, name: str) -> Any:
    """The variable that a function made by `maker` has captured, or None if something else made it."""
    if not isinstance(function, types.FunctionType) or function.__code__ not in maker.__code__.co_consts:
        return None
    names = function.__code__.co_freevars
    return function.__closure__[names.index(name)].cell_contents if name in names else None


def _spans_of(pattern: Pattern, n: int, m: int, q_offset: int, kv_offset: int, padding: Tensor | None) -> Spans | None:
    """The spans of a mask, or None if there are none that say the same.

    Query i is at position q_offset + i, column c at kv_offset + c; padding [batch, positions] is False for a key that
    nobody sees.
    """
    first = q_offset - kv_offset  # the column of the first query's own key
    columns = max(min(m, first + n), 0) if pattern.causal else m
    by_position = pattern.causal or pattern.left >= 0
    at_end, at_start = columns == first + n, first == 0
    if by_position and not at_end and not at_start:
        return None
    plain = Spans(pattern, by_position and not at_end, 0, columns)
    if padding is None:
        return plain
    if padding.dim() != 2:
        return None
    padding = masking_utils.prepare_padding_mask(padding, m, kv_offset)[:, kv_offset : kv_offset + columns]
    if padding.all():
        return plain
    starts, ends = _runs_of(padding.to("cpu"))
    if starts is None:
        return None
    if not by_position or at_end and bool((ends == columns).all()):
        return _trimmed(pattern, False, starts, ends)
    if at_start and bool((starts == 0).all()):
        return _trimmed(pattern, True, starts, ends)
    return None


def _runs_of(padding: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Where the keys of each sequence begin and end, i32 [batch]; None if there is padding between keys."""
    rows = padding.to(torch.int32)
    count = rows.sum(1, dtype=torch.int32)
    starts = rows.argmax(1).to(torch.int32)
    if not bool((rows.flip(1).argmax(1) + starts + count == rows.shape[1]).all()):
        return None, None
    return starts, starts + count


def _trimmed(pattern: Pattern, align_start: bool, starts: Tensor, ends: Tensor) -> Spans:
    """Spans of keys from starts to ends, without the columns that are padding in all sequences."""
    begin, end = int(starts.min()), int(ends.max())
    lens = ends - starts
    if bool((lens == end - begin).all()):
        return Spans(pattern, align_start, begin, end)
    starts = starts - begin
    return Spans(pattern, align_start, begin, end, starts if bool(starts.any()) else None, lens)


def _says_nothing(spans: Spans, n: int, m: int) -> bool:
    """Whether causal or not is all: no key is left out, and no window ends before the last of them."""
    pattern = spans.pattern
    reach = max(n, m)
    return (
        spans.starts is None
        and spans.lens is None
        and (spans.begin, spans.end) == (0, m)
        and not spans.align_start
        and (pattern.left < 0 or pattern.left >= reach)
        and (pattern.causal or pattern.right < 0 or pattern.right >= reach)
    )


# ---------------------------------------------------------------- attention


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    cache: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function of transformers' AttentionInterface.

    query is [batch, heads, n, dim], key and value [batch, kv_heads, m, dim]. attention_mask is what the mask function
    above returned, a mask of four dimensions (bool, or added to scores), or of two, [batch, m], False for padding.
    Without one, module.is_causal decides, and the last query is lined up with the last key. sliding_window counts where
    the mask does not say the window itself. s_aux [heads] are sinks; position_bias [1 or batch, heads, n, m] is added
    to the scores. With a paged cache, or cumulative lengths in kwargs, the batch is one row of packed sequences.

    Returns [batch, n, heads, dim] and None. Raises NotImplementedError for dropout and for tensors that need gradients.
    """
    if dropout != 0.0:
        raise NotImplementedError(f"dropout={dropout}: libattn is for inference and drops nothing; call model.eval()")
    if kwargs.get("output_attentions", False):
        _logger.warning_once(
            'libattn returns no attention weights; for output_attentions=True, attn_implementation="eager" is accepted'
        )
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if cache is not None and hasattr(cache, "cache_allocators"):
        if kwargs.get("block_table") is not None:
            raise NotImplementedError(
                "block_table is given: max_blocks_per_request=0 is accepted in ContinuousBatchingConfig"
            )
        key, value = cache.update(key_states=key, value_states=value, layer_idx=module.layer_idx, kwargs=kwargs)
    common = dict(softcap=softcap or 0.0, sinks=_sinks(s_aux))
    spans = attention_mask.spans if isinstance(attention_mask, SpanMask) else None
    if position_bias is None and (attention_mask is None or spans is not None and not _has_padding(spans)):
        lengths = tuple(kwargs.get(x) for x in ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"))
        window = _window(causal, sliding_window, key.shape[2])
        if isinstance(spans, Packed) and any(x is None for x in lengths):
            lengths = (spans.offsets, spans.offsets, spans.longest, spans.longest)
            causal, window = spans.pattern.causal, (spans.pattern.left, spans.pattern.right)
        if all(x is not None for x in lengths):
            return _packed(
                query, key, value, lengths, causal=causal, softmax_scale=scaling, window_size=window, **common
            )
    if attention_mask is not None and attention_mask.dim() == 2:
        attention_mask = _from_padding(attention_mask, query.shape[2], key.shape[2], causal, sliding_window)
        spans = attention_mask.spans if isinstance(attention_mask, SpanMask) else None
    common["scale"] = scaling
    if isinstance(attention_mask, SpanMask) and not _goes_with(spans, position_bias):
        attention_mask, spans = attention_mask.dense(), None
    if spans is not None:
        out = _with_spans(query, key, value, spans, position_bias, common)
    else:
        if attention_mask is None:
            common["causal"] = causal
            common["window"] = _window(causal, sliding_window, key.shape[2])
        out = attention(query, key, value, mask=_dense(attention_mask, position_bias), **common)
    return out.transpose(1, 2), None


def _has_padding(spans: Spans | Packed) -> bool:
    return isinstance(spans, Spans) and (spans.begin != 0 or spans.starts is not None or spans.lens is not None)


def _goes_with(spans: Spans | Packed | None, position_bias: Tensor | None) -> bool:
    """Whether lengths can be given beside the bias; it has columns of all keys, not of those from a start on."""
    return isinstance(spans, Spans) and (position_bias is None or spans.starts is None)


def _with_spans(
    query: Tensor, key: Tensor, value: Tensor, spans: Spans, position_bias: Tensor | None, common: dict[str, Any]
) -> Tensor:
    """Attention under a mask that is known by its spans."""
    begin, end = spans.begin, spans.end
    if begin != 0 or end != key.shape[2]:
        key, value = key[:, :, begin:end], value[:, :, begin:end]
        if position_bias is not None:
            position_bias = position_bias[..., begin:end]
    pattern = spans.pattern
    return attention(
        query, key, value, mask=_dense(None, position_bias), causal=pattern.causal, align_start=spans.align_start,
        window=(pattern.left, pattern.right), kv_starts=spans.starts, kv_lens=spans.lens, **common,
    )  # fmt: skip


def _packed(query: Tensor, key: Tensor, value: Tensor, lengths: tuple, **options: Any) -> tuple[Tensor, None]:
    """Packed sequences, [batch, heads, tokens, dim], the rows one after the other."""
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    return varlen_attention(q, k, v, *lengths, **options).unflatten(0, (query.shape[0], query.shape[2])), None


def _window(causal: bool, sliding_window: int | None, m: int) -> tuple[int, int]:
    """The window of a layer that has no mask. Its width counts the query's own key, on both sides."""
    if sliding_window is None or m <= sliding_window:
        return -1, -1
    return sliding_window - 1, -1 if causal else sliding_window - 1


def _from_padding(padding: Tensor, n: int, m: int, causal: bool, sliding_window: int | None) -> Tensor | None:
    """The mask of a padding mask [batch, m] that reached the attention function as it was."""
    function = causal_mask_function if causal else bidirectional_mask_function
    if sliding_window is not None and causal:
        function = masking_utils.sliding_window_causal_mask_function(sliding_window)
    elif sliding_window is not None:
        function = masking_utils.sliding_window_bidirectional_mask_function(sliding_window - 1)
    return attention_mask(
        padding.shape[0], n, m, m - n if causal else 0, 0, function, padding[:, -m:].bool(), device=padding.device
    )


def _dense(mask: Tensor | None, position_bias: Tensor | None) -> Tensor | None:
    """A mask of four dimensions and a bias as one mask, as attention() takes it."""
    if position_bias is not None:
        if mask is None:
            mask = position_bias
        elif mask.dtype == torch.bool:
            mask = torch.where(mask, position_bias, float("-inf"))
        else:
            mask = mask + position_bias
    if mask is not None and mask.dtype == torch.bool and mask.is_cuda:  # bits are packed on the host
        mask = torch.zeros(mask.shape, dtype=torch.float16, device=mask.device).masked_fill_(~mask, float("-inf"))
    return mask if mask is None or mask.stride(-1) == 1 or mask.shape[-1] == 1 else mask.contiguous()


def _sinks(s_aux: Tensor | None) -> Tensor | None:
    """Sinks as libattn takes them; they are parameters of the model, whose gradients nobody asks for here."""
    if s_aux is None:
        return None
    s_aux = s_aux.detach().flatten()
    return s_aux if s_aux.dtype in (torch.float32, torch.bfloat16) else s_aux.float()
