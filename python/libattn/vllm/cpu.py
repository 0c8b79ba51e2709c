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
