# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs models by vLLM in this process: `serve.py BACKEND OUT.json MODEL...`; BACKEND is CPU_ATTN or CUSTOM."""
import gc
import json
import random
import sys
import traceback
from typing import Any

LENGTHS = (5, 64, 131, 300)
TOKENS = 24


def prompts() -> list[dict[str, list[int]]]:
    """The same prompts in every process: the longest take several chunks and several pages."""
    source = random.Random(1)
    return [{"prompt_token_ids": [source.randrange(3, 1000) for _ in range(length)]} for length in LENGTHS]


def take_calls() -> dict[str, int]:
    """How often libattn was called since the last time; nothing if its backend was never even imported."""
    counted = sys.modules.get("counted")
    if counted is None:
        return {}
    taken = dict(counted.CALLS)
    counted.CALLS.clear()
    return taken


def serve(backend: str, model: str) -> dict[str, Any]:
    """Tokens and log probabilities of the prompts, of a second time that finds them cached, and calls of libattn."""
    from vllm import LLM, SamplingParams

    if backend == "CPU_ATTN" and "deepseek" in model:
        backend = "CPU_MLA"
    llm = LLM(model=model, skip_tokenizer_init=True, dtype="float32", max_model_len=1024, max_num_seqs=8,
              max_num_batched_tokens=64, enable_chunked_prefill=True, enable_prefix_caching=True, enforce_eager=True,
              kv_cache_memory_bytes=64 << 20, seed=0, attention_backend=backend)
    wanted = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False, logprobs=1)
    first = llm.generate(prompts(), wanted, use_tqdm=False)
    second = llm.generate(prompts(), wanted, use_tqdm=False)
    result = {
        "tokens": [list(answer.outputs[0].token_ids) for answer in first],
        "logprobs": [[next(iter(step.values())).logprob for step in answer.outputs[0].logprobs] for answer in first],
        "again": [list(answer.outputs[0].token_ids) for answer in second],
        "cached": [answer.num_cached_tokens for answer in second],
        "calls": take_calls(),
    }
    del llm
    gc.collect()
    return result


def main(backend: str, out: str, models: list[str]) -> None:
    """Serves one model after the other; one that fails has its error for a result."""
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    if backend == "CUSTOM":
        import counted

        counted.register()
    results: dict[str, Any] = {}
    for model in models:
        try:
            results[model] = serve(backend, model)
        except Exception as error:  # the test shows it
            traceback.print_exc()
            results[model] = {"error": f"{type(error).__name__}: {error}"}
        with open(out, "w") as file:
            json.dump(results, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
