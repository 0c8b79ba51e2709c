# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CPU platform of vLLM with a choice of the attention backend: CUSTOM is libattn, all else is vLLM's."""
from typing import Any

from vllm.platforms import cpu_platform_plugin
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.attention.backends.registry import AttentionBackendEnum

# CpuPlatform, or the one for a maker's processors that vLLM would take here.
_Platform: Any = resolve_obj_by_qualname(cpu_platform_plugin() or "vllm.platforms.cpu.CpuPlatform")


class LibattnCpuPlatform(_Platform):
    """vLLM's CPU platform, except that it does what `--attention-backend CUSTOM` says."""

    chooses_libattn = True
    mla_backend = "libattn.vllm.mla.LibattnMlaBackend"

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """vLLM's settings for CPUs, without what its own MLA kernels need on processors without AMX.

        Those take blocks of 16 and whole prompts only, so that it turns chunks of prompts and cached prefixes off.
        """
        model, cache, scheduler = vllm_config.model_config, vllm_config.cache_config, vllm_config.scheduler_config
        kept = [(scheduler, "enable_chunked_prefill"), (scheduler, "max_num_batched_tokens"),
                (cache, "enable_prefix_caching")]
        if cache.user_specified_block_size:
            kept.append((cache, "block_size"))
        settings = [(config, name, getattr(config, name)) for config, name in kept]
        super().check_and_update_config(vllm_config)
        if vllm_config.attention_config.backend is AttentionBackendEnum.CUSTOM and model is not None and model.use_mla:
            for config, name, value in settings:
                setattr(config, name, value)

    @classmethod
    def get_attn_backend_cls(cls, selected_backend: Any, attn_selector_config: Any,
                             num_heads: int | None = None) -> str:
        """The class path of the backend of a layer.

        Raises ValueError if CUSTOM is asked for and does not serve the layer, with every reason.
        """
        if selected_backend is not AttentionBackendEnum.CUSTOM:
            return super().get_attn_backend_cls(selected_backend, attn_selector_config, num_heads)
        path = cls.mla_backend if attn_selector_config.use_mla else AttentionBackendEnum.CUSTOM.get_path()
        backend = resolve_obj_by_qualname(path)
        reasons = backend.validate_configuration(device_capability=None, **attn_selector_config._asdict())
        if reasons:
            raise ValueError(f"attention backend CUSTOM does not serve {attn_selector_config}: {'; '.join(reasons)}")
        return path
