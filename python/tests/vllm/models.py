# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes small models of several families whose tokens change when their attention is slightly wrong."""
import os

import torch
import transformers

_COMMON = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, head_dim=64, vocab_size=1000, max_position_embeddings=2048, bos_token_id=1,
               eos_token_id=2, pad_token_id=0)

# A fault in what is named here has to change tokens: see counted.py.
FAMILIES = {
    "llama": ("LlamaConfig", dict()),
    "mistral": ("MistralConfig", dict(sliding_window=64)),
    "gemma2": ("Gemma2Config", dict(sliding_window=64, attn_logit_softcapping=3.0, query_pre_attn_scalar=64)),
    "falcon": ("FalconConfig", dict(alibi=True, tie_word_embeddings=False, head_dim=None)),
    "deepseek-v2": ("DeepseekV2Config", dict(
        num_key_value_heads=4, head_dim=None, kv_lora_rank=512, q_lora_rank=None, qk_nope_head_dim=64,
        qk_rope_head_dim=64, v_head_dim=64, first_k_dense_replace=2, n_routed_experts=4, num_experts_per_tok=2,
        n_group=1, topk_group=1, moe_intermediate_size=128,
        # Of other kinds of RoPE vLLM 0.32 has a kernel for CPUs that takes heads for dense ones, which MLA's are not.
        rope_parameters=dict(rope_type="yarn", factor=2.0, original_max_position_embeddings=1024, beta_fast=32.0,
                             beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, rope_theta=10000.0))),
    "gpt-oss": ("GptOssConfig", dict(sliding_window=64, num_local_experts=4, num_experts_per_tok=2)),
}

# Sizes of weights by the end of their names, times 1/sqrt(inputs). Initial weights of a library make attention nearly
# uniform, and its result small beside the residual: any error would be lost.
_GAINS = {"query_key_value.weight": 1.5, "self_attention.dense.weight": 2.0, "q_proj.weight": 1.5, "k_proj.weight": 1.5,
          "v_proj.weight": 2.0, "o_proj.weight": 2.0, "lm_head.weight": 3.0}


def _fill(name: str, weight: torch.Tensor, embedding: float, generator: torch.Generator) -> None:
    """Gives one parameter its values; `embedding` is the size of those of a token."""
    if name.endswith("sinks"):
        weight.copy_(torch.randn(weight.shape, generator=generator) + 2.0)
    elif name.endswith(("embed_tokens.weight", "word_embeddings.weight")):
        weight.copy_(torch.randn(weight.shape, generator=generator) * embedding)
    elif weight.dim() >= 2:
        gain = next((gain for end, gain in _GAINS.items() if name.endswith(end)), 1.0)
        inputs = weight.shape[-1]
        weight.copy_(torch.randn(weight.shape, generator=generator) * gain / inputs**0.5)


def make(family: str, folder: str) -> str:
    """Writes a model of `family` (a key of FAMILIES) in f32 to a folder of that name in `folder`. Returns its path."""
    name, features = FAMILIES[family]
    settings = {key: value for key, value in {**_COMMON, **features}.items() if value is not None}
    config = getattr(transformers, name)(**settings)
    with torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        generator = torch.Generator().manual_seed(7)
        # Gemma multiplies embeddings by 16 here, and its logits are products with them: a token must not repeat itself.
        embedding = 0.02 if family == "gemma2" else 0.3
        for parameter, weight in model.named_parameters():
            _fill(parameter, weight, embedding, generator)
    path = os.path.join(folder, family)
    model.save_pretrained(path)
    return path
