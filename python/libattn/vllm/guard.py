# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stands for vLLM's CPU backend where its CPU platform was made without plugins, so that CUSTOM is not ignored."""
from typing import Any


def __getattr__(name: str) -> Any:
    """`CpuBackend`: vLLM's own backend. vLLM looks it up for each choice of a backend.

    Raises ValueError where the configuration asks for CUSTOM, which that platform would silently not serve.
    """
    if name != "CpuBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vllm.config import get_current_vllm_config
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    config = get_current_vllm_config().attention_config
    if AttentionBackendEnum.CUSTOM in (config.backend, *(config.backend_per_kind or {}).values()):
        raise ValueError(
            "attention backend CUSTOM: vLLM's CPU platform is in use as it is, and would serve by CPU_ATTN instead of "
            "libattn. Unset VLLM_TARGET_DEVICE and see that VLLM_PLUGINS, if set, names libattn"
        )
    return CPUAttentionBackend
