# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libattn as an attention backend of SGLang: ``register()``, then ``--attention-backend libattn``.

A plan is made for each class of the model's layers when the model is loaded, and one schedule of it for each forward
batch; all layers of the class run by that. Queries and the pool of keys are viewed where they are. A line of SGLang's
log says what serves:

    libattn 0.1.0: cpu/flash-attn on cpu:0, 2 threads, kernels paged_decode_f32_avx512, ...: 2 layers of 'heads=4 ...'

Where libattn cannot serve a model or a batch, SGLang stops with libattn's reasons; no other backend is ever taken.
`ATTN_BACKEND` chooses libattn's backend as everywhere. Importing this module raises ImportError if SGLang's interface
moved.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, NoReturn

import torch
from torch import Tensor

import libattn
from libattn._engine import LayerClass, open_backend, readable_sinks, stream_of, type_name

try:
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS, register_attention_backend
    from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
    from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
    from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
    from sglang.srt.model_executor.forward_batch_info import ForwardMode
    from sglang.srt.runtime_context import get_parallel
    from sglang.srt.server_args import add_attention_backend_choices
except ImportError as error:
    raise ImportError(f"libattn serves SGLang 0.5.23; of the SGLang that is installed something is missing: {error}. "
                      "Install a SGLang or a libattn that fits") from error

__all__ = ["LibattnAttnBackend", "register"]

logger = logging.getLogger(__name__)

# Versions of SGLang that were tried; others get a warning.
SUPPORTED = ("0.5.23",)

# The first plan is for so many sequences, and so many queries of a batch; larger batches make larger ones.
_SEQUENCES, _ROWS = 64, 512

# Attributes of a layer that change its result and are not served, with the values that stand for their absence.
_ABSENT: dict[str, tuple[Any, ...]] = {
    "is_cross_attention": (False,), "pos_encoding_mode": ("NONE",), "logit_capping_method": ("tanh",),
    "xai_temperature_len": (-1, 0, None), "use_irope": (False, None)}

_MODES = (ForwardMode.EXTEND, ForwardMode.MIXED, ForwardMode.DECODE, ForwardMode.IDLE)


def register(name: str = "libattn") -> None:
    """Makes `name` an attention backend of SGLang, and a choice of --attention-backend. May be called again.

    To be called before server arguments are made, in every process of SGLang. As an entry point of the group
    sglang.srt.plugins SGLang does that itself.
    """
    known = name in ATTENTION_BACKENDS
    register_attention_backend(name)(LibattnAttnBackend)
    if not known:
        add_attention_backend_choices([name])


@dataclass
class _Batch:
    """A forward batch in libattn's words. Its arrays stay until the next one."""

    tokens: int  # rows of queries that count
    most_queries: int  # of a sequence
    most_keys: int
    q_offsets: Tensor  # i32 [sequences + 1]
    kv_lens: Tensor  # i32 [sequences]
    rows: Tensor  # i64 [sequences]: of the pool's table
    prefixed: bool  # whether a sequence has keys of earlier batches
    stream: int
    tables: dict[tuple[int, bool], Tensor] = field(default_factory=dict)  # by tokens per page, and kind of the pool
    window_slots: Tensor | None = None  # where new keys go in the pool of layers with windows


class _Run:
    """A plan with the schedule of the current batch, shared by all layers of a class. Grows with its batches."""

    def __init__(self, backend: libattn.Backend, layer: LayerClass, block: int, windowed: bool, most_keys: int) -> None:
        """`block`: tokens of a page. `windowed`: keys are in the pool of layers with windows.

        Raises libattn.Error if the backend has no plan for the layers.
        """
        self.layer, self.block, self.windowed = layer, block, windowed
        self.problem = layer.problem(block, layer.cached)
        self._backend, self._prepared_for = backend, None
        self._plan((_SEQUENCES, _ROWS, most_keys, _ROWS))

    def _plan(self, limits: tuple[int, ...]) -> None:
        self._limits = limits
        seqs, q, kv, rows = limits
        self.plan = self._backend.plan(f"{self.problem} max_seqs={seqs} max_q={q} max_kv={kv} max_rows={rows}")
        self.step = self.plan.step()

    def _fit(self, needed: tuple[int, ...]) -> None:
        """Makes a larger plan, by powers of two, if a batch is beyond the limits."""
        if any(need > limit for need, limit in zip(needed, self._limits, strict=True)):
            self._plan(tuple(limit if need <= limit else 1 << (need - 1).bit_length()
                             for need, limit in zip(needed, self._limits, strict=True)))

    def prepare(self, batch: _Batch, backend: LibattnAttnBackend) -> None:
        """Makes the schedule of a batch, if it is not there yet."""
        if self._prepared_for is batch:
            return
        self._fit((len(batch.kv_lens), batch.most_queries, batch.most_keys, batch.tokens))
        keys = {"table": backend.table(batch, self.block, self.windowed)} if self.layer.cached else {
            "kv_offsets": batch.q_offsets}
        self.step.prepare(batch.q_offsets, batch.kv_lens, num_tokens=batch.tokens, max_q=batch.most_queries,
                          max_kv=batch.most_keys, stream=batch.stream, **keys)
        self._prepared_for = batch


def _refuse(what: str, accepted: str) -> NoReturn:
    """Raises NotImplementedError about `what`."""
    raise NotImplementedError(f"libattn in SGLang: {what}: accepted is {accepted}")


def _refuse_layer(layer: RadixAttention) -> None:
    """Raises NotImplementedError for features of a layer that would otherwise be left out silently."""
    for name, absent in _ABSENT.items():
        if getattr(layer, name, absent[0]) not in absent:
            _refuse(f"{name}={getattr(layer, name)} of layer {layer.layer_id}", str(absent[0]))
    if layer.attn_type not in (AttentionType.DECODER, AttentionType.ENCODER_ONLY):
        _refuse(f"attn_type={layer.attn_type.value} of layer {layer.layer_id}", "decoder and encoder_only")
    if layer.attn_type == AttentionType.ENCODER_ONLY and layer.sliding_window_size > -1:
        _refuse(f"sliding_window_size={layer.sliding_window_size} of an encoder's layer {layer.layer_id}", "-1")


def _refuse_batch(batch: Any) -> None:
    """Raises NotImplementedError for kinds and parts of a forward batch that libattn is not told of."""
    if batch.forward_mode not in _MODES:
        _refuse(f"forward_mode={batch.forward_mode.name}", ", ".join(mode.name for mode in _MODES))
    for name in ("spec_info", "encoder_lens", "multi_item_delimiter_indices"):
        if getattr(batch, name, None) is not None:
            _refuse(f"{name} of a forward batch is given", "None")


def _class_of(layer: RadixAttention, sinks: bool, q: torch.dtype, kv: torch.dtype) -> LayerClass:
    """The class of a layer. SGLang counts the keys before the query's own as its window, LayerClass that key too."""
    _refuse_layer(layer)
    encoder = layer.attn_type == AttentionType.ENCODER_ONLY
    return LayerClass(
        heads=layer.tp_q_head_num, kv_heads=layer.tp_k_head_num, head_dim=layer.qk_head_dim,
        head_dim_v=layer.v_head_dim, q=type_name(q), kv=type_name(q if encoder else kv),
        attn_type="encoder_only" if encoder else "decoder",
        window=layer.sliding_window_size + 1 if layer.sliding_window_size > -1 else None,
        softcap=layer.logit_cap or 0.0, sinks=sinks)


def _batch_of(forward_batch: Any, stream: int) -> _Batch:
    """A forward batch of SGLang in libattn's words."""
    lens = forward_batch.seq_lens
    if forward_batch.forward_mode.is_decode():
        offsets = torch.arange(len(lens) + 1, dtype=torch.int32, device=lens.device)
        tokens, most_queries, prefixed = len(lens), 1, True
    else:
        new = forward_batch.extend_seq_lens
        offsets = torch.zeros(len(lens) + 1, dtype=torch.int32, device=lens.device)
        torch.cumsum(new, 0, dtype=torch.int32, out=offsets[1:])
        counts = forward_batch.extend_seq_lens_cpu
        counts = [int(count) for count in (new.tolist() if counts is None else counts)]
        before = forward_batch.extend_prefix_lens_cpu
        before = forward_batch.extend_prefix_lens.tolist() if before is None else before
        tokens, most_queries, prefixed = sum(counts), max(counts, default=0), any(int(count) for count in before)
    on_host = lens if forward_batch.seq_lens_cpu is None else forward_batch.seq_lens_cpu
    most_keys = int(on_host.max()) if len(lens) else 0
    return _Batch(tokens, most_queries, most_keys, offsets, lens.to(torch.int32), forward_batch.req_pool_indices.long(),
                  prefixed, stream)


class LibattnAttnBackend(AttentionBackend):
    """What SGLang's model runner and its attention layers call."""

    def __init__(self, model_runner: Any) -> None:
        """Opens the backend that serves the whole model, and says in the log what serves it.

        Raises ValueError if no libattn backend serves all layers, with every reason, and NotImplementedError for
        layers and pools that libattn is not told of.
        """
        super().__init__()
        self.device = torch.device(model_runner.device)
        self.req_to_token_pool = model_runner.req_to_token_pool
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        self.page_size = model_runner.page_size or 1
        self._windowed_pool = isinstance(self.token_to_kv_pool, SWAKVPool) and self.token_to_kv_pool.swa_layer_nums > 0
        self._batch: _Batch | None = None
        self._runs: dict[tuple[LayerClass, int, bool], _Run] = {}
        self._of_layers: dict[tuple[RadixAttention, bool, torch.dtype], _Run] = {}
        self._kvs: dict[RadixAttention, tuple[tuple[Any, ...], libattn.KV]] = {}
        if get_parallel().attn_dcp_size > 1:
            _refuse(f"attn_dcp_size={get_parallel().attn_dcp_size}", "1")
        if model_runner.use_mla_backend:
            _refuse("MLA's latent cache", "a cache of keys and values")
        if isinstance(self.token_to_kv_pool, BaseSWAKVPool) and not isinstance(self.token_to_kv_pool, SWAKVPool):
            _refuse(f"a pool of type {type(self.token_to_kv_pool).__name__}", "SWAKVPool, or one without windows")
        if version("sglang") not in SUPPORTED:
            logger.warning("SGLang %s was not tried with this libattn (tried: %s)", version("sglang"),
                           ", ".join(SUPPORTED))
        self._open(model_runner.model, model_runner.dtype)

    def _open(self, model: torch.nn.Module, q: torch.dtype) -> None:
        """Opens the backend for all layers of a model whose queries have type `q`, and makes their plans."""
        parameters = {name for name, _ in model.named_parameters()}
        layers = [(layer, f"{name.rpartition('.')[0]}.sinks".lstrip(".") in parameters)
                  for name, layer in model.named_modules() if isinstance(layer, RadixAttention)]
        keys = [self._key(layer, sinks, q) for layer, sinks in layers]
        self.backend = open_backend([one.problem(block, one.cached) for one, block, _ in keys], self.device)
        for (layer, sinks), key in zip(layers, keys, strict=True):
            self._of_layers[layer, sinks, q] = self._run(key)
        for key in dict.fromkeys(keys):
            self._announce(self._runs[key], keys.count(key))

    def _key(self, layer: RadixAttention, sinks: bool, q: torch.dtype) -> tuple[LayerClass, int, bool]:
        """The class of a layer, tokens of a page, and whether its keys are in the pool of layers with windows.

        Slots of a request come in whole pages, but for the other pool, in which each has a slot of its own.
        """
        windowed = self._windowed_pool and self.token_to_kv_pool.layers_mapping[layer.layer_id][1]
        return _class_of(layer, sinks, q, self.token_to_kv_pool.dtype), 1 if windowed else self.page_size, windowed

    def _run(self, key: tuple[LayerClass, int, bool]) -> _Run:
        """The run of a class; made on its first use."""
        if key not in self._runs:
            self._runs[key] = _Run(self.backend, *key, self.req_to_token_pool.req_to_token.shape[1])
        return self._runs[key]

    def _announce(self, run: _Run, layers: int) -> None:
        """A line of the log about a class of layers: who serves it, and by which kernels."""
        threads = f", {torch.get_num_threads()} threads" if self.device.type == "cpu" else ""
        logger.info("libattn %s: %s on %s%s, kernels %s: %d layers of '%s'", libattn.__version__, self.backend.name,
                    self.backend.device, threads, ", ".join(run.plan.kernels), layers, run.problem)

    def support_triton(self) -> bool:
        """Whether SGLang may use Triton beside this backend."""
        return self.device.type != "cpu"

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Takes a batch, whose schedules are made by the first layer of each class.

        Raises NotImplementedError for what libattn is not told of.
        """
        _refuse_batch(forward_batch)
        self._batch = None if forward_batch.forward_mode.is_idle() else _batch_of(forward_batch, stream_of(self.device))

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """As `init_forward_metadata`. Raises NotImplementedError in the capture of a graph."""
        if in_capture:
            self.init_cuda_graph_state(0, 0)
        self.init_forward_metadata(forward_batch)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Raises NotImplementedError."""
        _refuse("the capture of a graph", "disable_cuda_graph=True (--disable-cuda-graph)")

    def init_cpu_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Raises NotImplementedError."""
        _refuse("a graph of torch.compile", "enable_torch_compile=False (no --enable-torch-compile)")

    def table(self, batch: _Batch, block: int, windowed: bool) -> Tensor:
        """Pages of `block` tokens of each sequence, i32 [sequences, width]; made once for a batch."""
        key = block, windowed
        if key not in batch.tables:
            slots = self.req_to_token_pool.req_to_token[batch.rows, :batch.most_keys:block]
            if windowed:  # keys that left the window have no slot any more, and are not read
                slots = self.token_to_kv_pool.translate_loc_from_full_to_swa(slots).clamp_(min=0)
            batch.tables[key] = (slots if block == 1 else slots // block).to(torch.int32)
        return batch.tables[key]

    def forward_extend(self, q: Tensor, k: Tensor | None, v: Tensor | None, layer: RadixAttention, forward_batch: Any,
                       save_kv_cache: bool = True, sinks: Tensor | None = None, **others: Any) -> Tensor:
        """Attention of queries [rows, heads * head_dim] to all keys of their sequences: [rows, heads * v_head_dim].

        New keys and values [rows, kv_heads, dim] are written to the pool with `save_kv_cache`; None if they are there.
        `sinks`: [heads]. Rows of queries beyond the batch's tokens are padding, and 0 in the result.

        Raises NotImplementedError for arguments that libattn is not told of.
        """
        given = [name for name, value in others.items() if value is not None and value is not False]
        if given:
            _refuse(f"{', '.join(given)} of layer {layer.layer_id} is given", "None")
        if save_kv_cache and k is not None:
            self._write(k, v, layer, forward_batch)
        batch, run = self._batch, self._run_of(layer, sinks is not None, q.dtype)
        q = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = q.new_empty(len(q), layer.tp_q_head_num, layer.v_head_dim)
        if len(q) > batch.tokens:
            out[batch.tokens:] = 0
        keys = {"kv": self._kv_of(layer, run)} if run.layer.cached else self._new_keys(k, v, layer, batch)
        run.prepare(batch, self)
        run.plan.run(run.step, q, out, scale=float(layer.scaling), sinks=readable_sinks(sinks), stream=batch.stream,
                     **keys)
        return out.flatten(1)

    forward_decode = forward_extend

    def _run_of(self, layer: RadixAttention, sinks: bool, q: torch.dtype) -> _Run:
        """The run of a layer; found once."""
        key = layer, sinks, q
        if key not in self._of_layers:
            self._of_layers[key] = self._run(self._key(*key))
        return self._of_layers[key]

    def _new_keys(self, k: Tensor | None, v: Tensor | None, layer: RadixAttention, batch: _Batch) -> dict[str, Tensor]:
        """Keys of an encoder's layer, which are all in the call. Raises NotImplementedError if some are not."""
        if k is None or batch.prefixed:
            _refuse(f"an encoder's layer {layer.layer_id} with cached keys",
                    "disable_radix_cache=True and chunked_prefill_size=-1")
        return {"k": k, "v": v}

    def _write(self, k: Tensor, v: Tensor, layer: RadixAttention, forward_batch: Any) -> None:
        """Has the pool store keys and values of the batch."""
        batch, pool = self._batch, self.token_to_kv_pool
        if self._windowed_pool and batch.window_slots is None:
            batch.window_slots = pool.translate_loc_from_full_to_swa(forward_batch.out_cache_loc)
        where = KVWriteLoc.for_batch(forward_batch, swa_loc=batch.window_slots)
        if pool.dtype.itemsize == 1:  # the pool divides in place
            pool.set_kv_buffer(layer, where, k.clone(), v.clone(), layer.k_scale_float, layer.v_scale_float)
        else:
            pool.set_kv_buffer(layer, where, k, v)

    def _kv_of(self, layer: RadixAttention, run: _Run) -> libattn.KV:
        """libattn's description of the layer's part of the pool; made again if that is elsewhere or scales are others.

        Raises NotImplementedError for a pool that is not [slots, kv_heads, dim].
        """
        k, v = self.token_to_kv_pool.get_kv_buffer(layer.layer_id)
        scales = {}
        if run.layer.kv.startswith("float8"):
            scales = {"k_scale": layer.k_scale_float or 1.0, "v_scale": layer.v_scale_float or 1.0}
        known = k.data_ptr(), v.data_ptr(), run.block, *scales.values()
        if layer not in self._kvs or self._kvs[layer][0] != known:
            kv = self.backend.kv(_pages(k, layer, run.block), _pages(v, layer, run.block), **scales)
            self._kvs[layer] = known, kv
        return self._kvs[layer][1]


def _pages(slots: Tensor, layer: RadixAttention, block: int) -> Tensor:
    """The pool's [slots, kv_heads, dim] as pages [pages, block, kv_heads, dim]."""
    if slots.dim() != 3 or slots.shape[1] != layer.tp_k_head_num:
        _refuse(f"a pool of keys of {list(slots.shape)} for layer {layer.layer_id}",
                f"[slots, {layer.tp_k_head_num}, dim]")
    return slots[:len(slots) // block * block].unflatten(0, (-1, block))
