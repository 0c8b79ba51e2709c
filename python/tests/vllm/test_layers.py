# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares layers of the vLLM backend with attention in double precision, and tries what the backend has to refuse.

Builder and implementation are called as vLLM's model runner calls them, without a model: with lengths, block tables,
slots, padding and caches of its layouts. Prints TAP; exit status 1 if anything failed, 0 with a skip without vLLM.
"""
import dataclasses
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import check, finish, installed  # noqa: E402

if not installed("vllm"):
    print("1..0 # SKIP vLLM is not installed")
    sys.exit(0)

import torch
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.attention.cross_attention import create_cross_attention_backend
from vllm.model_executor.layers.attention.encoder_only_attention import create_encoder_only_attention_backend
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.selector import AttentionSelectorConfig
from vllm.v1.kv_cache_interface import KVCacheLayout

import libattn
from libattn.vllm import guard, interface, platform, register
from libattn.vllm.backend import LibattnBackend
from libattn.vllm.mla import LibattnMlaBackend

BLOCK = 16
HEADS, KV_HEADS, DIM = 4, 2, 32
SEQUENCES = [(1, 37), (20, 20), (7, 133), (1, 1)]  # queries and keys: a decode, a prompt, a chunk, a first token
PADDING = 3  # rows of queries behind the batch
# The error's root mean square beside the result's: bounds of docs/definition.md.
CACHE_CODES = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
BOUNDS = {torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}


@dataclasses.dataclass
class Case:
    """A layer and its batch."""

    name: str
    dtype: torch.dtype = torch.float32
    dim: int = DIM
    dim_v: int = DIM
    window: int | None = None
    softcap: float | None = None
    alibi: bool = False
    sinks: bool = False
    causal: Any = True  # or a list of a flag for each sequence
    attn_type: str = "decoder"
    cache: str = "auto"  # vLLM's --kv-cache-dtype
    layout: KVCacheLayout = KVCacheLayout.LBHNC
    sequences: list[tuple[int, int]] = dataclasses.field(default_factory=lambda: list(SEQUENCES))
    most_sequences: int = 8


class FakeLayer(Attention):
    """What the backend looks at of an attention layer of vLLM."""

    def __init__(self, impl: Any, head_size_v: int) -> None:
        torch.nn.Module.__init__(self)
        self.impl, self.head_size_v = impl, head_size_v
        self.layer_name, self.kv_sharing_target_layer_name = "layer", None
        self._k_scale_float, self._v_scale_float = 0.25, 0.5
        self._k_scale = torch.tensor(0.25)


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    """vLLM makes layers with the model's type as torch's default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def make_layer(case: Case, backend: type, config: SimpleNamespace) -> FakeLayer:
    """A layer of the case, known to the configuration."""
    slopes = [2.0 ** -(head + 1) for head in range(HEADS)] if case.alibi else None
    extra = {"sinks": torch.nn.Parameter(torch.linspace(-1, 2, HEADS).to(case.dtype))} if case.sinks else {}
    with default_type(case.dtype):
        impl = backend.get_impl_cls()(HEADS, case.dim, case.dim**-0.5, KV_HEADS, slopes, case.window, case.cache,
                                      case.softcap, case.attn_type, None, **extra)
    layer = FakeLayer(impl, case.dim_v)
    config.compilation_config.static_forward_context["layer"] = layer
    return layer


def make_config(most_sequences: int) -> SimpleNamespace:
    """What the builder reads of vLLM's configuration."""
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(max_num_seqs=most_sequences, max_num_batched_tokens=64,
                                         max_num_encoder_input_tokens=0),
        model_config=SimpleNamespace(max_model_len=256), cache_config=SimpleNamespace(block_size=BLOCK),
        compilation_config=SimpleNamespace(static_forward_context={}))


def make_builder(backend: type, config: SimpleNamespace) -> Any:
    """A builder of metadata for the layer of the configuration."""
    return backend.get_builder_cls()(SimpleNamespace(block_size=BLOCK), ["layer"], config, torch.device("cpu"))


def make_cache(case: Case, blocks: int) -> torch.Tensor:
    """The second of two layers' caches [blocks, kv_heads, block, K and V] in the case's layout, filled with NaN."""
    shape = (2, blocks, KV_HEADS, BLOCK, case.dim + case.dim_v)
    order = case.layout.stride_order
    codes = CACHE_CODES.get(case.cache)  # vLLM's caches of 8 bits are bytes
    storage = torch.full([shape[axis] for axis in order], float("nan"), dtype=codes or case.dtype)
    storage = storage.view(torch.uint8) if codes else storage
    return storage.permute([order.index(axis) for axis in range(5)])[1]


def as_cached(case: Case, x: torch.Tensor, scale: float) -> torch.Tensor:
    """What a cache of the case keeps of keys or values."""
    codes = CACHE_CODES.get(case.cache)
    return (x.float() / scale).to(codes).double() * scale if codes else x


def make_batch(case: Case) -> tuple[CommonAttentionMetadata, torch.Tensor]:
    """The batch as the model runner describes it, one empty sequence behind the others; and the slots of all keys."""
    queries, keys = zip(*case.sequences, (0, 0))
    offsets = torch.tensor([0, *queries], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    most = max(-(-count // BLOCK) for count in keys)
    table = torch.zeros(len(keys), most + 3, dtype=torch.int32)[:, : most + 2]  # wider than needed, rows further apart
    page, slots = 1, []
    for row, count in enumerate(keys):
        pages = -(-count // BLOCK)
        table[row, :pages] = torch.arange(page, page + pages).flip(0)
        page += pages
        places = torch.arange(count)
        slots.append(table[row].long()[places // BLOCK] * BLOCK + places % BLOCK)
    new = [places[count - number:] for places, number, count in zip(slots, queries, keys)]
    causal = torch.tensor([*case.causal, True]) if isinstance(case.causal, list) else case.causal
    batch = CommonAttentionMetadata(
        query_start_loc=offsets, query_start_loc_cpu=offsets, seq_lens=torch.tensor(keys, dtype=torch.int32),
        num_reqs=len(keys), num_actual_tokens=int(offsets[-1]) + PADDING, max_query_len=max(queries),
        max_seq_len=max(keys), block_table_tensor=table, slot_mapping=torch.cat([*new, torch.full((PADDING,), -1)]),
        causal=causal, seq_lens_cpu_upper_bound=torch.tensor(keys, dtype=torch.int32))
    return batch, torch.cat(slots)


def reference(case: Case, layer: FakeLayer, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
              causal: bool) -> torch.Tensor:
    """Attention of one sequence in double precision; q, k, v [tokens, heads, dim]."""
    group = HEADS // KV_HEADS
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * layer.impl.scale
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    query = torch.arange(len(q))[:, None] + len(k) - len(q)
    key = torch.arange(len(k))[None]
    if case.alibi:
        scores -= layer.impl.alibi_slopes.double()[:, None, None] * (query - key).abs()
    visible = key <= query if causal else torch.ones(len(q), len(k), dtype=torch.bool)
    if case.window:
        visible = visible & ((query - key).abs() < case.window)
    scores = scores.masked_fill(~visible, float("-inf"))
    if case.sinks:
        sinks = layer.impl.sinks.detach().double()[:, None, None].expand(-1, len(q), 1)
        scores = torch.cat([scores, sinks], -1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., : len(k)], v)


def expected(case: Case, layer: FakeLayer, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention of all sequences, whose keys lie one sequence after the other."""
    parts, first_q, first_k = [], 0, 0
    for row, (queries, keys) in enumerate(case.sequences):
        causal = case.causal[row] if isinstance(case.causal, list) else case.causal
        parts.append(reference(case, layer, q[first_q:first_q + queries], k[first_k:first_k + keys],
                               v[first_k:first_k + keys], causal))
        first_q, first_k = first_q + queries, first_k + keys
    return torch.cat(parts)


def judge(case: Case, out: torch.Tensor, right: torch.Tensor) -> None:
    """Checks a result [rows, heads, dim_v] that was 7 everywhere: right where there are tokens, untouched behind."""
    tokens = len(right)
    error = ((out[:tokens].double() - right).square().mean() / right.square().mean()).sqrt().item()
    check(error <= BOUNDS[case.dtype] and bool((out[tokens:] == 7).all()), f"{case.name}: error {error:.1e}",
          f"bound {BOUNDS[case.dtype]}; rows behind the batch {out[tokens:].unique()}")


def projected(rows: int, case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values as views of one projection, as models have them."""
    widths = (HEADS * case.dim, KV_HEADS * case.dim, KV_HEADS * case.dim_v)
    q, k, v = torch.randn(rows, sum(widths), dtype=torch.float32).to(case.dtype).split(widths, -1)
    return q.view(rows, HEADS, case.dim), k.view(rows, KV_HEADS, case.dim), v.view(rows, KV_HEADS, case.dim_v)


def run_decoder(case: Case) -> None:
    """Keys of earlier steps are in the cache, those of this step are written as a model writes them."""
    config = make_config(case.most_sequences)
    layer = make_layer(case, LibattnBackend, config)
    builder = make_builder(LibattnBackend, config)
    batch, slots = make_batch(case)
    cache = make_cache(case, int(batch.block_table_tensor.max()) + 1)
    q, _, _ = projected(batch.num_actual_tokens, case)
    _, k, v = projected(len(slots), case)
    is_new = torch.isin(slots, batch.slot_mapping)
    layer.impl.do_kv_cache_update(layer, k, v, cache, torch.where(is_new, -1, slots))
    layer.impl.do_kv_cache_update(layer, k[is_new], v[is_new], cache, batch.slot_mapping[batch.slot_mapping >= 0])
    out = torch.full((len(q), HEADS, case.dim_v), 7.0, dtype=case.dtype)
    layer.impl.forward(layer, q, k, v, cache, builder.build(0, batch), out)
    judge(case, out, expected(case, layer, q, as_cached(case, k, 0.25), as_cached(case, v, 0.5)))


def run_mla(case: Case) -> None:
    """MLA as vLLM's layer calls it: latents and RoPE columns apart, every token one that is decoded."""
    config = make_config(case.most_sequences)
    rope = case.dim - case.dim_v
    with default_type(case.dtype):
        impl = LibattnMlaBackend.get_impl_cls()(HEADS, case.dim, case.dim**-0.5, 1, None, case.window, case.cache, None,
                                                case.attn_type, None, kv_lora_rank=case.dim_v, q_lora_rank=None,
                                                qk_nope_head_dim=16, qk_rope_head_dim=rope, qk_head_dim=16 + rope,
                                                v_head_dim=16, kv_b_proj=None, indexer=None)
    layer = FakeLayer(impl, case.dim_v)
    config.compilation_config.static_forward_context["layer"] = layer
    builder = make_builder(LibattnMlaBackend, config)
    batch, slots = make_batch(case)
    codes = CACHE_CODES.get(case.cache)
    cache = torch.full((int(batch.block_table_tensor.max()) + 1, BLOCK, case.dim), float("nan"),
                       dtype=codes or case.dtype)
    keys = torch.randn(len(slots), case.dim, dtype=case.dtype)
    bytes_of_cache = cache.view(torch.uint8) if codes else cache
    impl.do_kv_cache_update(keys[:, :case.dim_v], keys[:, None, case.dim_v:], bytes_of_cache, slots, case.cache,
                            layer._k_scale)
    metadata = builder.build(0, batch)
    tokens = metadata.num_decode_tokens
    q = torch.randn(tokens, HEADS, case.dim, dtype=case.dtype)
    cached = as_cached(case, keys, 0.25)[:, None].expand(-1, KV_HEADS, -1)
    right = expected(case, layer, q, cached, cached[..., :case.dim_v])
    for name, queries in (("apart", (q[..., :case.dim_v], q[..., case.dim_v:])), ("as one", q)):
        out, lse = impl.forward_mqa(queries, cache, metadata, layer)
        judge(dataclasses.replace(case, name=f"{case.name}, queries {name}"), out, right)
    check(metadata.decode is metadata and metadata.num_prefills == 0 and lse is None, "all tokens are decoded")


def run_encoder(case: Case) -> None:
    """No cache: all keys are in the call."""
    backend = create_encoder_only_attention_backend(LibattnBackend)
    config = make_config(case.most_sequences)
    layer = make_layer(case, backend, config)
    builder = make_builder(backend, config)
    batch, _ = make_batch(case)
    q, k, v = projected(batch.num_actual_tokens, case)
    out = torch.full((len(q), HEADS, case.dim_v), 7.0, dtype=case.dtype)
    layer.impl.do_kv_cache_update(layer, k, v, torch.tensor([]), batch.slot_mapping)
    layer.impl.forward(layer, q, k, v, torch.tensor([]), builder.build(0, batch.replace(causal=True)), out)
    judge(case, out, expected(case, layer, q, k, v))


def run_cross(case: Case) -> None:
    """A first step that writes the encoder's keys, and a second that has queries alone."""
    backend = create_cross_attention_backend(LibattnBackend)
    config = make_config(case.most_sequences)
    layer = make_layer(case, backend, config)
    builder = make_builder(backend, config)
    batch, slots = make_batch(case)
    encoder = batch.seq_lens
    cache = make_cache(case, int(batch.block_table_tensor.max()) + 1)
    _, k, v = projected(len(slots), case)
    for step in ("first", "second"):
        computed = 0 if step == "first" else 5
        decoder = batch.naive_query_lens() + computed * (batch.naive_query_lens() > 0)
        now = batch.replace(seq_lens=decoder, seq_lens_cpu_upper_bound=decoder, encoder_seq_lens=encoder,
                            encoder_seq_lens_cpu=encoder.numpy(), causal=True)
        q, _, _ = projected(batch.num_actual_tokens, case)
        out = torch.full((len(q), HEADS, case.dim_v), 7.0, dtype=case.dtype)
        new = (k, v) if step == "first" else (None, None)
        layer.impl.forward(layer, q, *new, cache, builder.build(0, now), out)
        judge(dataclasses.replace(case, name=f"{case.name}, {step} step"), out, expected(case, layer, q, k, v))


DECODERS = [
    Case("f32"), Case("f16", torch.float16), Case("bf16", torch.bfloat16),
    Case("window", window=19), Case("window of one key", window=1), Case("soft cap", softcap=2.0),
    Case("ALiBi", alibi=True), Case("sinks", sinks=True), Case("sinks in f16", torch.float16, sinks=True),
    Case("window, soft cap, sinks", torch.bfloat16, window=19, softcap=3.0, sinks=True),
    Case("values of another dimension", dim=64, dim_v=32),
    Case("not causal", causal=False), Case("not causal, window", causal=False, window=19),
    Case("a causal flag for each sequence", causal=[True, False, False, True]),
    Case("more sequences than the configuration says", most_sequences=2),
    *(Case(f"cache in layout {layout.name}", layout=layout) for layout in KVCacheLayout),
    Case("e4m3 cache", cache="fp8"),
    Case("e5m2 cache, bf16, window and sinks", torch.bfloat16, cache="fp8_e5m2", window=20, sinks=True),
    Case("e4m3 cache by token", cache="fp8_e4m3", layout=KVCacheLayout.BHLNC),
]
_WHOLE = dict(causal=False, sequences=[(20, 20), (1, 1), (33, 33)])
ENCODERS = [
    Case("encoder-only", attn_type="encoder_only", **_WHOLE),
    Case("encoder-only, window, soft cap", attn_type="encoder_only", window=5, softcap=2.0, **_WHOLE),
    Case("encoder-only, ALiBi, bf16", torch.bfloat16, attn_type="encoder_only", alibi=True, **_WHOLE),
]
MLA = [Case("MLA", dim=96, dim_v=64), Case("MLA in bf16", torch.bfloat16, dim=576, dim_v=512),
       Case("MLA over e4m3", dim=96, dim_v=64, cache="fp8"), Case("MLA in a window", dim=96, dim_v=64, window=20)]
CROSS = [Case("cross-attention", attn_type="encoder_decoder", causal=False, sequences=[(4, 37), (1, 20), (6, 133)])]


def configuration(backend: type = LibattnBackend, **changes: Any) -> list[str]:
    """A backend's reasons against a configuration that it serves but for the changes."""
    plain = AttentionSelectorConfig(head_size=64, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=None)
    return backend.validate_configuration(device_capability=None, **plain._replace(**changes)._asdict())


def raises(error: type[Exception], words: str, call: Callable[[], Any]) -> None:
    """Checks that a call fails as it should, and that the text has all the words."""
    try:
        call()
    except error as found:
        check(all(word in str(found) for word in words.split()), f"refused: {str(found)[:100]}",
              f"{found}\nwanted: {words}")
        return
    except Exception:
        check(False, f"refused with {error.__name__}: {words}", traceback.format_exc())
        return
    check(False, f"refused: {words}", "nothing was raised")


def check_configurations() -> None:
    """What vLLM asks before it takes the backend."""
    served = [{}, dict(has_sink=True, has_sliding_window=True), dict(attn_type="encoder_only"),
              dict(dtype=torch.float32), dict(attn_type="encoder_decoder"), dict(use_non_causal=True),
              dict(block_size=128), dict(head_size=96), dict(use_batch_invariant=True), dict(kv_cache_dtype="fp8"),
              dict(kv_cache_dtype="fp8_e5m2", dtype=torch.float32)]
    for changes in served:
        check(configuration(**changes) == [], f"served: {changes or 'a plain decoder'}", f"{configuration(**changes)}")
    check(configuration(LibattnMlaBackend, use_mla=True, head_size=576) == [], "MLA: served by its own backend")
    refused = {"kv_cache_dtype=int8": dict(kv_cache_dtype="int8_per_token_head"), "MLA": dict(use_mla=True),
               "sparse": dict(use_sparse=True), "float64": dict(dtype=torch.float64),
               "multimodal": dict(use_mm_prefix=True),
               "R-SWA": dict(use_rswa=True), "block_size": dict(block_size=8), "DCP": dict(use_dcp=True)}
    for words, changes in refused.items():
        reasons = "; ".join(configuration(**changes))
        check(words in reasons, f"refused: {changes}", reasons)


def check_batches() -> None:
    """Parts of a batch that are not served must not be left out."""
    config = make_config(8)
    make_layer(DECODERS[0], LibattnBackend, config)
    builder = make_builder(LibattnBackend, config)
    batch, _ = make_batch(DECODERS[0])
    for field, value in (("mm_req_doc_ranges", {0: [(0, 3)]}), ("rswa_prefix_lens", batch.seq_lens),
                         ("dcp_local_seq_lens", batch.seq_lens)):
        raises(NotImplementedError, field, lambda: builder.build(0, batch.replace(**{field: value})))
    bad = batch.replace(seq_lens=batch.seq_lens - 1)
    raises(libattn.Error, "kv_lens", lambda: builder.build(0, bad))


def check_layers() -> None:
    """Layers that are not served, and the run without metadata."""
    make = LibattnBackend.get_impl_cls()
    plain = (HEADS, DIM, 1.0, KV_HEADS, None, None)
    raises(ValueError, "kv_cache_dtype=nvfp4 auto", lambda: make(*plain, "nvfp4"))
    raises(ValueError, "chunk_lookback=2", lambda: make(*plain, chunk_lookback=2))
    impl, out = make(*plain), torch.ones(3, HEADS, DIM)
    impl.forward(None, out, out, out, torch.tensor([]), None, out)
    check(not out.any(), "without metadata the output is zero")
    raises(NotImplementedError, "output_scale",
           lambda: impl.forward(None, out, out, out, torch.tensor([]), None, out, output_scale=out))


def check_interface() -> None:
    """A vLLM that moved is named by what moved."""
    check(interface.differences() == [], "the interface of this vLLM fits", f"{interface.differences()}")
    fields = [field for field in dataclasses.fields(CommonAttentionMetadata) if field.name != "slot_mapping"]
    with mock.patch("dataclasses.fields", lambda _: fields):
        raises(ImportError, "no field slot_mapping", interface.check)
    base = "vllm.v1.attention.backend"
    with mock.patch(f"{base}.AttentionImpl.forward", lambda self, layer, q, key, value, kv_cache: None):
        raises(ImportError, "no parameter query; wants a new parameter q.", interface.check)
    with mock.patch(f"{base}.AttentionBackend.__abstractmethods__", frozenset({"get_kv_cache_shape"})):
        raises(ImportError, "AttentionBackend wants a method get_kv_cache_shape", interface.check)
    with mock.patch("libattn.vllm.interface.vllm_version", lambda: "0.99.1"):
        check("0.99.1" in (interface.check() or ""), "another version whose interface fits is warned of")


def check_choice() -> None:
    """How libattn is turned on and off."""
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    with mock.patch.dict(os.environ, LIBATTN_VLLM="0"):
        check(platform() is None, "LIBATTN_VLLM=0: no platform")
    with mock.patch.dict(os.environ, LIBATTN_VLLM="2"):
        raises(ValueError, "LIBATTN_VLLM=2 0 1", register)
    check(platform() == "libattn.vllm.cpu.LibattnCpuPlatform", "a platform that can choose, on a CPU")
    register()
    check(AttentionBackendEnum.CUSTOM.get_class() is LibattnBackend, "CUSTOM is libattn")
    if not getattr(type(current_platform), "chooses_libattn", False):
        config = SimpleNamespace(attention_config=SimpleNamespace(backend=None, backend_per_kind=None))
        with mock.patch("vllm.config.get_current_vllm_config", lambda: config):
            own = AttentionBackendEnum.CPU_ATTN.get_class().__name__
            check(own == "CPUAttentionBackend", "vLLM's own without CUSTOM", own)
            config.attention_config.backend = AttentionBackendEnum.CUSTOM
            raises(ValueError, "CUSTOM VLLM_TARGET_DEVICE", lambda: guard.CpuBackend)


def check_threads() -> None:
    """A layer starts no threads of its own: it runs on those of torch."""
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    torch.ones(1 << 20).exp()
    before = threads()
    run_decoder(Case("many keys for all threads", sequences=[(64, 256)] * 8))
    check(threads() == before, f"a layer runs on torch's {torch.get_num_threads()} threads", f"{before}, {threads()}")


def main() -> None:
    torch.manual_seed(1)
    check_threads()  # the first, before anything else can have started threads
    for runner, cases in ((run_decoder, DECODERS), (run_encoder, ENCODERS), (run_cross, CROSS), (run_mla, MLA)):
        for case in cases:
            try:
                runner(case)
            except Exception:
                check(False, case.name, traceback.format_exc())
    for part in (check_configurations, check_batches, check_layers, check_interface, check_choice):
        try:
            part()
        except Exception:
            check(False, part.__name__, traceback.format_exc())
    finish()


if __name__ == "__main__":
    main()
