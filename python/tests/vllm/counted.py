# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libattn's backends of vLLM, with their calls counted and, where the test asks for it, with a fault in each layer."""
import os
from collections import Counter
from typing import Any

from libattn.vllm.backend import LibattnBackend, LibattnImpl, LibattnMetadataBuilder
from libattn.vllm.mla import LibattnMlaBackend, LibattnMlaImpl, LibattnMlaMetadataBuilder

CALLS: Counter[str] = Counter()


class CountedBuilder(LibattnMetadataBuilder):
    def build(self, *args: Any, **kwargs: Any) -> Any:
        CALLS["build"] += 1
        return super().build(*args, **kwargs)


class CountedImpl(LibattnImpl):
    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int, alibi_slopes: Any,
                 sliding_window: Any, kv_cache_dtype: str, logits_soft_cap: Any, *args: Any, **kwargs: Any) -> None:
        if os.environ.get("TEST_FAULT"):
            if alibi_slopes:
                alibi_slopes = [slope * 1.1 for slope in alibi_slopes]
            else:
                scale, sliding_window, logits_soft_cap = self._fault(scale, sliding_window, logits_soft_cap, kwargs)
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                         logits_soft_cap, *args, **kwargs)

    @staticmethod
    def _fault(scale: float, window: Any, softcap: Any, others: dict[str, Any]) -> tuple[float, Any, Any]:
        """Makes the rarest feature of a layer slightly wrong."""
        if others.get("sinks") is not None:
            others["sinks"] = None
        elif softcap:
            softcap *= 1.5
        elif window:
            window += 1
        else:
            scale *= 1.02
        return scale, window, softcap

    def do_kv_cache_update(self, *args: Any, **kwargs: Any) -> None:
        CALLS["update"] += 1
        super().do_kv_cache_update(*args, **kwargs)

    def forward(self, layer: Any, query: Any, key: Any, value: Any, kv_cache: Any, attn_metadata: Any, *args: Any,
                **kwargs: Any) -> Any:
        CALLS["forward" if attn_metadata is not None else "empty"] += 1
        return super().forward(layer, query, key, value, kv_cache, attn_metadata, *args, **kwargs)


class CountedBackend(LibattnBackend):
    @staticmethod
    def get_impl_cls() -> type[CountedImpl]:
        return CountedImpl

    @staticmethod
    def get_builder_cls() -> type[CountedBuilder]:
        return CountedBuilder


class CountedMlaBuilder(LibattnMlaMetadataBuilder):
    def build(self, *args: Any, **kwargs: Any) -> Any:
        CALLS["build"] += 1
        return super().build(*args, **kwargs)


class CountedMlaImpl(LibattnMlaImpl):
    def __init__(self, num_heads: int, head_size: int, scale: float, *args: Any, **kwargs: Any) -> None:
        super().__init__(num_heads, head_size, scale * 1.02 if os.environ.get("TEST_FAULT") else scale, *args, **kwargs)

    def do_kv_cache_update(self, *args: Any, **kwargs: Any) -> None:
        CALLS["update"] += 1
        super().do_kv_cache_update(*args, **kwargs)

    def forward_mqa(self, *args: Any, **kwargs: Any) -> Any:
        CALLS["forward"] += 1
        return super().forward_mqa(*args, **kwargs)


class CountedMlaBackend(LibattnMlaBackend):
    @staticmethod
    def get_impl_cls() -> type[CountedMlaImpl]:
        return CountedMlaImpl

    @staticmethod
    def get_builder_cls() -> type[CountedMlaBuilder]:
        return CountedMlaBuilder


def register() -> None:
    """Has vLLM take these for libattn's."""
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CUSTOM, "counted.CountedBackend")
    type(current_platform).mla_backend = "counted.CountedMlaBackend"
