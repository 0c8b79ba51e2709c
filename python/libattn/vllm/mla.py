# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""MLA layers of vLLM on a CPU: all tokens attend to the latent cache, as vLLM has it for tokens that are decoded.

vLLM's layer multiplies queries and results with the two halves of its up-projection itself, around `forward_mqa`. So
prompts need no second way of computing, and chunks of them and cached prefixes no case of their own.
"""
from typing import Any

import torch
from vllm.v1.attention.backend import AttentionType, CommonAttentionMetadata, MLAAttentionImpl

import libattn
from libattn._engine import LayerClass, stream_of
from libattn.vllm.backend import (
    LibattnBackend,
    LibattnMetadata,
    LibattnMetadataBuilder,
    Served,
    class_of_layer,
    refuse_others,
)

# RoPE columns of a key, of which vLLM's question gives the size alone; a layer asks again with its own.
_USUAL_ROPE = 64


class LibattnMlaBackend(LibattnBackend):
    """What vLLM asks before it takes a backend for MLA."""

    @staticmethod
    def get_impl_cls() -> type["LibattnMlaImpl"]:
        return LibattnMlaImpl

    @staticmethod
    def get_builder_cls() -> type["LibattnMlaMetadataBuilder"]:
        return LibattnMlaMetadataBuilder

    @classmethod
    def is_mla(cls) -> bool:
        return True

    @staticmethod
    def layer_of(**features: Any) -> LayerClass:
        features["head_dim_v"] = max(features["head_dim"] - _USUAL_ROPE, 1)
        return LayerClass(mla=True, **features)


class LibattnMlaMetadata(LibattnMetadata):
    """As vLLM's MLA layers read it: every sequence is one that is decoded, with any number of tokens."""

    num_prefills = 0
    prefill = None

    @property
    def num_decodes(self) -> int:
        return self.num_reqs

    @property
    def num_decode_tokens(self) -> int:
        return self.num_actual_tokens

    @property
    def decode(self) -> "LibattnMlaMetadata":
        return self


class LibattnMlaMetadataBuilder(LibattnMetadataBuilder):
    """As that of other layers."""

    def build(self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata,
              fast_build: bool = False) -> LibattnMlaMetadata:
        return LibattnMlaMetadata(**vars(super().build(common_prefix_len, common_attn_metadata, fast_build)))


class LibattnMlaImpl(Served, MLAAttentionImpl[LibattnMlaMetadata]):
    """One MLA layer: writes latents and RoPE columns of new keys to its cache, and runs its class's plan."""

    supports_pcp = False

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int = 1,
                 alibi_slopes: list[float] | None = None, sliding_window: int | None = None,
                 kv_cache_dtype: str = "auto", logits_soft_cap: float | None = None,
                 attn_type: str = AttentionType.DECODER, kv_sharing_target_layer_name: str | None = None, *,
                 kv_lora_rank: int, q_lora_rank: int | None = None, qk_nope_head_dim: int = 0,
                 qk_rope_head_dim: int = 0, qk_head_dim: int = 0, v_head_dim: int = 0, kv_b_proj: Any = None,
                 **others: Any) -> None:
        """`head_size`: of a key, kv_lora_rank + qk_rope_head_dim. What is before `others` and not named here is the
        layer's own matter.

        Raises ValueError if libattn does not serve such a layer, with every reason.
        """
        refuse_others(dict(others, alibi_slopes=alibi_slopes, logits_soft_cap=logits_soft_cap or None,
                           kv_sharing_target_layer_name=kv_sharing_target_layer_name))
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.kv_lora_rank = kv_lora_rank
        self.become(class_of_layer(num_heads, 1, head_size, kv_lora_rank, kv_cache_dtype, sliding_window, mla=True,
                                   attn_type=AttentionType(attn_type).value))

    def arrays(self, cache: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Keys of a cache [blocks, block, head_size], which contain the values."""
        return cache.unsqueeze(2), None

    def _kv_of(self, cache: torch.Tensor, k_scale: torch.Tensor) -> libattn.KV:
        """libattn's description of the cache. `k_scale`: one number, which counts for 8 bits."""
        return self.kv_of(cache, float(k_scale)) if self.eight_bits else self.kv_of(cache)

    def do_kv_cache_update(self, kv_c_normed: torch.Tensor, k_pe: torch.Tensor, kv_cache: torch.Tensor,
                           slot_mapping: torch.Tensor, kv_cache_dtype: str, k_scale: torch.Tensor) -> None:
        """Writes latents [tokens, kv_lora_rank] and k_pe [tokens, 1, rope] to slots i64; negative ones are left out."""
        slots = slot_mapping.flatten()
        tokens = slots.shape[0]
        if tokens == 0 or kv_cache.numel() == 0:
            return
        self.backend.kv_write(self._kv_of(kv_cache, k_scale), kv_c_normed[:tokens].unsqueeze(1), None, slots,
                              k_rope=k_pe[:tokens].view(tokens, 1, -1), stream=stream_of(kv_cache.device))

    def forward_mqa(self, q: torch.Tensor | tuple[torch.Tensor, torch.Tensor], kv_c_and_k_pe_cache: torch.Tensor,
                    attn_metadata: LibattnMlaMetadata, layer: Any) -> tuple[torch.Tensor, None]:
        """Attention of queries to the latents: [tokens, heads, kv_lora_rank].

        `q`: what is multiplied with latents [tokens, heads, kv_lora_rank] and with RoPE columns, apart or as one.
        """
        nope, rope = q if isinstance(q, tuple) else (q, None)
        run = attn_metadata.runs[layer.layer_name]
        out = nope.new_empty(nope.shape[0], self.num_heads, self.kv_lora_rank)
        run.plan.run(run.step, nope, out, q_rope=rope, scale=self.scale,
                     kv=self._kv_of(kv_c_and_k_pe_cache, layer._k_scale), stream=attn_metadata.stream)
        return out, None
