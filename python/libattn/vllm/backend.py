# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libattn as an attention backend of vLLM: the backend, its builder of metadata, and the layers' implementation.

A builder makes, for each class of its layers, one plan when the model is loaded, and prepares one schedule of it for
each batch; all layers of the class run by that. Arrays of vLLM (lengths, block tables, slots, queries, the cache) are
viewed where they are. Importing this module raises ImportError if vLLM's interface moved.
"""
from dataclasses import dataclass, replace
from typing import Any

import torch

import libattn
from libattn._engine import CACHELESS, LayerClass, open_backend, readable_sinks, refusals, stream_of, type_name
from libattn.vllm.interface import check

_WARNING = check()  # before anything that may have moved is imported

from vllm import envs  # noqa: E402
from vllm.config import VllmConfig, get_layers_from_vllm_config  # noqa: E402
from vllm.logger import init_logger  # noqa: E402
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.v1.attention.backend import (  # noqa: E402
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheLayout  # noqa: E402

# vLLM's handlers are those of the logger "vllm" and what is below it.
logger = init_logger("vllm.libattn")
if _WARNING:
    logger.warning(_WARNING)

# Element types of the cache by vLLM's --kv-cache-dtype; "" is that of the queries.
CACHE_TYPES = {"auto": "", "float16": "float16", "bfloat16": "bfloat16", "fp8": "float8_e4m3fn",
               "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}

# Pages of a multiple of 16 tokens suit every kernel; others would be served too.
_BLOCK = 16

# Stands for any window, any number of heads and any head dimension where vLLM asks whether there may be one at all.
_SOME_WINDOW, _SOME_HEADS, _SOME_DIM = 128, 1, 64


def _refusals(layer: LayerClass, block: int = _BLOCK, causal: bool = True) -> tuple[str, ...]:
    """Why libattn does not serve such layers on vLLM's device; empty if it does."""
    return refusals(layer.problem(block, causal), current_platform.device_type)


def _some_layer(dtype: torch.dtype = torch.float32, **features: Any) -> LayerClass:
    """A layer with the given features and nothing else, for questions about one of them."""
    name = type_name(dtype)
    plain = LayerClass(_SOME_HEADS, _SOME_HEADS, _SOME_DIM, _SOME_DIM, name, name)
    return replace(plain, **features)


class LibattnBackend(AttentionBackend):
    """What vLLM asks before it takes a backend. All that depends on kernels is answered by libattn's own selection."""

    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        """The member of vLLM's list of backends that stands for one from outside."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type["LibattnImpl"]:
        return LibattnImpl

    @staticmethod
    def get_builder_cls() -> type["LibattnMetadataBuilder"]:
        return LibattnMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(_BLOCK)]

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        """All of them, for a cache may have any strides; first vLLM's usual one, in which a page is one run."""
        return tuple(sorted(KVCacheLayout, key=lambda layout: layout is not KVCacheLayout.LBNHC))

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return not _refusals(_some_layer(head_dim=head_size, head_dim_v=head_size))

    @classmethod
    def supports_dtype(cls, dtype: torch.dtype) -> bool:
        return dtype.is_floating_point and not _refusals(_some_layer(dtype))

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype: str | None) -> bool:
        """Whether there are words for the type; together with the queries' type libattn is asked below."""
        return kv_cache_dtype is None or kv_cache_dtype in CACHE_TYPES

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        attn_type = AttentionType(attn_type).value
        return not _refusals(_some_layer(attn_type=attn_type), causal=attn_type == "decoder")

    @classmethod
    def supports_sink(cls) -> bool:
        return not _refusals(_some_layer(sinks=True))

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return not _refusals(_some_layer(window=_SOME_WINDOW))

    @classmethod
    def supports_non_causal(cls) -> bool:
        return not _refusals(_some_layer(), causal=False)

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return not _refusals(_some_layer(det=True))

    @staticmethod
    def layer_of(**features: Any) -> LayerClass:
        """The class of layers that vLLM's configuration names by these features."""
        return LayerClass(**features)

    @classmethod
    def validate_configuration(cls, **config: Any) -> list[str]:
        """Why layers of this configuration are not served, a sentence each; empty if they are.

        vLLM's own questions come first, one feature at a time, and then libattn's answer about all of them together.
        The numbers of heads are not known here: each layer asks again with its own when it is made.
        """
        reasons = super().validate_configuration(**config)
        cache = config["kv_cache_dtype"] or "auto"
        if cache not in CACHE_TYPES:
            return reasons + [f"kv_cache_dtype={cache}: accepted are {', '.join(CACHE_TYPES)}"]
        attn_type = AttentionType(config["attn_type"]).value
        q = type_name(config["dtype"])
        layer = cls.layer_of(
            heads=_SOME_HEADS, kv_heads=_SOME_HEADS, head_dim=config["head_size"], head_dim_v=config["head_size"],
            q=q, kv=CACHE_TYPES[cache] or q, attn_type=attn_type, sinks=config["has_sink"],
            window=_SOME_WINDOW if config.get("has_sliding_window") else None,
            det=bool(config.get("use_batch_invariant")))
        causal = attn_type == "decoder" and not config.get("use_non_causal")
        return reasons + list(_refusals(layer, config["block_size"] or _BLOCK, causal))


@dataclass
class LibattnMetadata:
    """What layers read of a batch. Valid until its builder builds again."""

    runs: dict[str, "_Run"]  # of each layer, by its name
    num_reqs: int  # sequences
    num_actual_tokens: int  # rows of queries that count; rows behind them are not touched
    slot_mapping: torch.Tensor  # i64 [tokens]; vLLM's cross-attention puts its own here
    stream: int


class _Run:
    """A plan with the schedule of the current batch, shared by all layers of a class. Grows with its batches."""

    def __init__(self, backend: libattn.Backend, problem: str, cached: bool, limits: tuple[int, int, int, int]) -> None:
        """`cached`: keys are in a paged cache. `limits`: most sequences, queries and keys of one, and all queries.

        Raises libattn.Error if the backend has no plan for the problem.
        """
        self._backend, self._problem, self._cached = backend, problem, cached
        self._plan(limits)

    def _plan(self, limits: tuple[int, int, int, int]) -> None:
        seqs, q, kv, rows = self._limits = limits
        self.plan = self._backend.plan(
            f"{self._problem} max_seqs={seqs} max_q={q} max_kv={kv} max_rows={rows}")
        self.step = self.plan.step()

    def fit(self, needed: tuple[int, int, int, int]) -> None:
        """Makes a larger plan if a batch is beyond the limits, as vLLM's virtual sequences of chunked attention are."""
        if any(need > limit for need, limit in zip(needed, self._limits, strict=True)):
            self._plan(tuple(map(max, needed, self._limits)))  # type: ignore[arg-type]

    def prepare(self, batch: CommonAttentionMetadata, tokens: int, seq_causal: torch.Tensor | None,
                stream: int) -> None:
        """Makes the schedule of a batch of `tokens` queries. `seq_causal`: u8 [sequences], or None."""
        self.fit((batch.num_reqs, batch.max_query_len, batch.max_seq_len, tokens))
        keys = {"table": batch.block_table_tensor} if self._cached else {"kv_offsets": batch.query_start_loc}
        self.step.prepare(batch.query_start_loc, batch.seq_lens, num_tokens=tokens, max_q=batch.max_query_len,
                          max_kv=batch.max_seq_len, seq_causal=seq_causal, stream=stream, **keys)


def _libattn_layers(config: VllmConfig, names: list[str] | None = None) -> dict[str, Any]:
    """The model's layers that libattn serves, of all or of the given names."""
    layers = get_layers_from_vllm_config(config, AttentionLayerBase, names)
    return {name: layer for name, layer in layers.items() if isinstance(getattr(layer, "impl", None), Served)}


class LibattnMetadataBuilder(AttentionMetadataBuilder[LibattnMetadata]):
    """Plans for the layers of one KV cache group, and a schedule for each batch."""

    _cudagraph_support = AttentionCGSupport.NEVER

    def __init__(self, kv_cache_spec: AttentionSpec, layer_names: list[str], vllm_config: VllmConfig,
                 device: torch.device) -> None:
        """Opens the backend that serves the whole model, and says in the log what serves this group.

        Raises ValueError if no libattn backend serves all layers, with every reason.
        """
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        everything = _libattn_layers(vllm_config).values()
        for layer in everything:
            layer.impl.know(layer)
        common_block = vllm_config.cache_config.block_size or _BLOCK
        self.backend = open_backend([layer.impl.problem(common_block) for layer in everything], device)
        self._classes: dict[str, LayerClass] = {}
        for name, layer in _libattn_layers(vllm_config, layer_names).items():
            layer.impl.backend = self.backend
            self._classes[name] = layer.impl.layer_class
        self._runs: dict[bool | None, dict[str, _Run]] = {}
        usual = self._runs_of(self._usual_causality())
        self._announce(usual)

    def _usual_causality(self) -> bool:
        """Whether the layers of this group are causal in the batches that vLLM usually makes for them."""
        return all(layer.attn_type == "decoder" for layer in self._classes.values())

    def _largest_batch(self) -> tuple[int, int, int, int]:
        """Most sequences, queries and keys of a sequence, and queries of a batch, by vLLM's configuration."""
        scheduler = self.vllm_config.scheduler_config
        rows = scheduler.max_num_batched_tokens
        keys = max(self.vllm_config.model_config.max_model_len, scheduler.max_num_encoder_input_tokens or 0)
        return scheduler.max_num_seqs, rows, keys, rows

    def _runs_of(self, causal: bool | None) -> dict[str, _Run]:
        """A run for each layer, one for all layers of a class. `causal`: None if each sequence has a flag."""
        if causal not in self._runs:
            limits, block = self._largest_batch(), self.kv_cache_spec.block_size
            made = {layer: _Run(self.backend, layer.problem(block, causal), layer.cached, limits)
                    for layer in dict.fromkeys(self._classes.values())}
            self._runs[causal] = {name: made[layer] for name, layer in self._classes.items()}
        return self._runs[causal]

    def _announce(self, runs: dict[str, _Run]) -> None:
        """A line of the log for each class of layers: who serves it, and by which kernels."""
        threads = f", {torch.get_num_threads()} threads" if self.device.type == "cpu" else ""
        for layer in dict.fromkeys(self._classes.values()):
            names = [name for name, other in self._classes.items() if other == layer]
            logger.info("libattn %s: %s on %s%s, kernels %s: %d layers of '%s'", libattn.__version__, self.backend.name,
                        self.backend.device, threads, ", ".join(runs[names[0]].plan.kernels), len(names),
                        layer.problem(self.kv_cache_spec.block_size, self._usual_causality()))

    def build(self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata,
              fast_build: bool = False) -> LibattnMetadata:
        """Prepares the schedules of a batch. The arrays of `common_attn_metadata` have to stay until its layers ran.

        Raises NotImplementedError for what libattn is not told of, and libattn.Error for a batch that is not valid.
        """
        batch = common_attn_metadata
        _refuse_batch(batch)
        each = isinstance(batch.causal, torch.Tensor)
        runs = self._runs_of(None if each else bool(batch.causal))
        stream = stream_of(self.device)
        tokens = int(batch.query_start_loc_cpu[batch.num_reqs])
        seq_causal = batch.causal.to(torch.uint8) if each else None
        for run in dict.fromkeys(runs.values()):
            run.prepare(batch, tokens, seq_causal, stream)
        return LibattnMetadata(runs, batch.num_reqs, tokens, batch.slot_mapping, stream)


def _refuse_batch(batch: CommonAttentionMetadata) -> None:
    """Raises NotImplementedError for parts of a batch that would otherwise be left out silently."""
    if batch.mm_req_doc_ranges is not None and any(batch.mm_req_doc_ranges.values()):
        raise NotImplementedError("libattn: mm_req_doc_ranges (spans of images) is given: accepted is None")
    for field in ("rswa_prefix_lens", "dcp_local_seq_lens"):
        if getattr(batch, field) is not None:
            raise NotImplementedError(f"libattn: {field} is given: accepted is None")


def keys_and_values(cache: torch.Tensor, dim: int, dim_v: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where K [blocks, block, kv_heads, dim] and V [.., dim_v] are in a cache of vLLM [blocks, kv_heads, block, C].

    By vLLM's strides, K in front of V in each vector of C. On a CPU, whose caches nobody else reads, a page that is
    one run of memory has all its keys in front of all its values: memory gives that faster.
    """
    blocks, heads, block, _ = cache.shape
    page = (block, heads)
    if cache.device.type != "cpu" or cache[0].numel() != 1 + sum(
            (size - 1) * stride for size, stride in zip(cache.shape[1:], cache.stride()[1:], strict=True)):
        by_token = cache.transpose(1, 2)
        return by_token[..., :dim], by_token[..., dim:dim + dim_v]
    pages, split = cache.as_strided((blocks, cache[0].numel()), (cache.stride(0), 1)), block * heads * dim
    return (pages[:, :split].unflatten(1, (*page, dim)),
            pages[:, split:split + block * heads * dim_v].unflatten(1, (*page, dim_v)))


class Served:
    """What the implementations of layers have in common: their class, and where their cache is."""

    layer_class: LayerClass
    backend: libattn.Backend | None = None  # the builder's
    _kv: libattn.KV | None = None  # of the cache at the address and with the scales in _known
    _known: tuple[int, float, float] | None = None

    def become(self, layer_class: LayerClass) -> None:
        """Takes the class of the layer. Raises ValueError if libattn serves none such, with every reason."""
        self.layer_class = layer_class
        reasons = refusals(self.problem(_BLOCK), current_platform.device_type)
        if reasons:
            raise ValueError(f"libattn does not serve '{self.problem(_BLOCK)}': {'; '.join(reasons)}")

    def problem(self, block: int) -> str:
        """The problem string of this layer in its usual batches, with pages of `block` tokens."""
        return self.layer_class.problem(block, self.layer_class.attn_type == "decoder")

    def know(self, layer: Any) -> None:
        """Takes from the layer what vLLM does not pass to the constructor."""

    def arrays(self, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Keys [blocks, block, kv_heads, head_dim] and values in a cache of vLLM; None if keys contain them."""
        raise NotImplementedError

    @property
    def eight_bits(self) -> bool:
        """Whether the cache has scales."""
        return self.layer_class.kv.startswith("float8")

    def kv_of(self, cache: torch.Tensor, k_scale: float = 1.0, v_scale: float = 1.0) -> libattn.KV:
        """libattn's description of a cache; made again if cache or scales are others. The scales are of 8 bits."""
        known = (cache.data_ptr(), k_scale, v_scale)
        if known != self._known:
            k, v = self.arrays(cache.view(getattr(torch, self.layer_class.kv)))
            self._kv = self.backend.kv(
                k, v, k_scale=k_scale if self.eight_bits else None,
                v_scale=v_scale if self.eight_bits and v is not None else None,
                head_dim_vo=self.layer_class.head_dim_v)
            self._known = known
        return self._kv


def class_of_layer(num_heads: int, num_kv_heads: int, head_size: int, dim_v: int, kv_cache_dtype: str,
                   sliding_window: int | None, **features: Any) -> LayerClass:
    """The class of a layer by what vLLM passes to its constructor.

    Raises ValueError for a type of the cache that libattn has no word for.
    """
    if kv_cache_dtype not in CACHE_TYPES:
        raise ValueError(f"libattn: kv_cache_dtype={kv_cache_dtype}: accepted are {', '.join(CACHE_TYPES)}")
    q = type_name(torch.get_default_dtype())  # vLLM sets the model's type as default while it makes layers
    return LayerClass(
        heads=num_heads, kv_heads=num_kv_heads, head_dim=head_size, head_dim_v=dim_v, q=q,
        kv=CACHE_TYPES[kv_cache_dtype] or q, window=sliding_window if sliding_window and sliding_window > 0 else None,
        det=bool(envs.VLLM_BATCH_INVARIANT), **features)


def refuse_others(others: dict[str, Any]) -> None:
    """Raises ValueError for arguments of a layer's constructor that would otherwise be left out silently."""
    unknown = [f"{name}={value}" for name, value in others.items() if value not in (None, False)]
    if unknown:
        raise ValueError(f"libattn: {', '.join(unknown)} of an attention layer: accepted is None")


class LibattnImpl(Served, AttentionImpl[LibattnMetadata]):
    """One attention layer: writes new keys and values to its cache, and runs its class's plan."""

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int | None = None,
                 alibi_slopes: list[float] | None = None, sliding_window: int | None = None,
                 kv_cache_dtype: str = "auto", logits_soft_cap: float | None = None,
                 attn_type: str = AttentionType.DECODER, kv_sharing_target_layer_name: str | None = None,
                 sinks: torch.Tensor | None = None, **others: Any) -> None:
        """`sliding_window`: keys that a query sees, its own included. `sinks`: [num_heads], a parameter of the model.

        Raises ValueError if libattn does not serve such a layer, with every reason.
        """
        refuse_others(others)
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.sliding_window = sliding_window
        self.attn_type = attn_type
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.sinks = sinks
        self.alibi_slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)
        self.become(class_of_layer(
            num_heads, self.num_kv_heads, head_size, head_size, kv_cache_dtype, sliding_window,
            attn_type=AttentionType(attn_type).value, softcap=logits_soft_cap or 0.0, alibi=alibi_slopes is not None,
            sinks=sinks is not None))

    def know(self, layer: Any) -> None:
        """Takes the size of values, which vLLM does not pass to the constructor."""
        self.layer_class = replace(self.layer_class, head_dim_v=layer.head_size_v)

    def arrays(self, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of a cache [blocks, kv_heads, block, head_size + head_size_v]."""
        return keys_and_values(cache, self.head_size, self.layer_class.head_dim_v)

    def _kv_of(self, cache: torch.Tensor, layer: Any) -> libattn.KV:
        """libattn's description of the cache of this layer."""
        return self.kv_of(cache, layer._k_scale_float, layer._v_scale_float) if self.eight_bits else self.kv_of(cache)

    def do_kv_cache_update(self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
                           slot_mapping: torch.Tensor) -> None:
        """Writes `key` and `value` [tokens, kv_heads, dim] to slots i64 [tokens]; a negative slot is left out.

        Rows of `key` and `value` beyond the slots are padding. vLLM does not call this for a layer that reads the
        cache of another (kv_sharing_target_layer_name).
        """
        tokens = slot_mapping.shape[0]
        if self.attn_type in CACHELESS or tokens == 0 or kv_cache.numel() == 0:
            return
        self.backend.kv_write(self._kv_of(kv_cache, layer), key[:tokens], value[:tokens], slot_mapping,
                              stream=stream_of(kv_cache.device))

    def forward(self, layer: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                kv_cache: torch.Tensor, attn_metadata: LibattnMetadata | None, output: torch.Tensor,
                output_scale: torch.Tensor | None = None,
                output_block_scale: torch.Tensor | None = None) -> torch.Tensor:
        """Writes attention of `query` [rows, heads, head_size] to `output` [rows, heads, head_size_v], and returns it.

        Rows beyond the batch's tokens are padding and stay as they are. Without metadata, in a run for memory or
        compilation, the output is zero. Raises NotImplementedError for an 8-bit output.
        """
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("libattn: output_scale is given (a quantised output): accepted is None")
        if attn_metadata is None:
            return output.fill_(0)
        run = attn_metadata.runs[layer.layer_name]
        keys = {"kv": self._kv_of(kv_cache, layer)} if self.layer_class.cached else {"k": key, "v": value}
        run.plan.run(run.step, query, output, scale=self.scale, alibi_slopes=self.alibi_slopes,
                     sinks=readable_sinks(self.sinks), stream=attn_metadata.stream, **keys)
        return output
