# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What of vLLM's attention interface the backend builds on, and a check that the vLLM at hand still has it."""
import dataclasses
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from libattn.vllm import vllm_version

# Versions whose interface was read and whose tokens were compared. Others are served if the check finds nothing.
SUPPORTED = ("0.32",)

_BACKEND = "vllm.v1.attention.backend"

# Names that have to be there.
_NAMES = {
    _BACKEND: ("AttentionBackend", "AttentionImpl", "AttentionMetadataBuilder", "MLAAttentionImpl", "AttentionType",
               "AttentionCGSupport", "CommonAttentionMetadata", "MultipleOf"),
    "vllm.config": ("VllmConfig", "get_layers_from_vllm_config"),
    "vllm.logger": ("init_logger",),
    "vllm.model_executor.layers.attention_layer_base": ("AttentionLayerBase",),
    "vllm.platforms": ("current_platform",),
    "vllm.v1.kv_cache_interface": ("AttentionSpec", "KVCacheLayout"),
}

# Functions that are overridden or called: each parameter that is used has to be there, and none may be asked for that
# is not known here. (A parameter with a default may be new.)
_FUNCTIONS = {
    "AttentionBackend.validate_configuration": (
        "head_size", "dtype", "kv_cache_dtype", "block_size", "use_mla", "has_sink", "use_sparse", "use_mm_prefix",
        "use_per_head_quant_scales", "device_capability", "attn_type", "has_sliding_window", "use_non_causal",
        "use_batch_invariant"),
    "AttentionBackend.get_supported_kernel_block_sizes": ("kv_cache_spec",),
    "AttentionBackend.supported_kv_cache_layouts": (),
    "AttentionBackend.supports_head_size": ("head_size",),
    "AttentionBackend.supports_dtype": ("dtype",),
    "AttentionBackend.supports_kv_cache_dtype": ("kv_cache_dtype",),
    "AttentionBackend.supports_attn_type": ("attn_type",),
    "AttentionBackend.supports_sink": (),
    "AttentionBackend.supports_sliding_window": (),
    "AttentionBackend.supports_non_causal": (),
    "AttentionBackend.supports_batch_invariance": (),
    "AttentionMetadataBuilder.__init__": ("kv_cache_spec", "layer_names", "vllm_config", "device"),
    "AttentionMetadataBuilder.build": ("common_prefix_len", "common_attn_metadata", "fast_build"),
    "AttentionImpl.__init__": (
        "num_heads", "head_size", "scale", "num_kv_heads", "alibi_slopes", "sliding_window", "kv_cache_dtype",
        "logits_soft_cap", "attn_type", "kv_sharing_target_layer_name"),
    "MLAAttentionImpl.__init__": (
        "num_heads", "head_size", "scale", "num_kv_heads", "alibi_slopes", "sliding_window", "kv_cache_dtype",
        "logits_soft_cap", "attn_type", "kv_sharing_target_layer_name", "q_lora_rank", "kv_lora_rank",
        "qk_nope_head_dim", "qk_rope_head_dim", "qk_head_dim", "v_head_dim", "kv_b_proj", "indexer",
        "q_pad_num_heads"),
    "MLAAttentionImpl.forward_mqa": ("q", "kv_c_and_k_pe_cache", "attn_metadata", "layer"),
    "MLAAttentionImpl.do_kv_cache_update": (
        "kv_c_normed", "k_pe", "kv_cache", "slot_mapping", "kv_cache_dtype", "k_scale"),
    "AttentionImpl.forward": (
        "layer", "query", "key", "value", "kv_cache", "attn_metadata", "output", "output_scale", "output_block_scale"),
}

# Methods without a default that the backend defines; a newer vLLM may want others.
_ABSTRACT = {
    "AttentionBackend": {"get_name", "get_impl_cls", "get_builder_cls"},
    "AttentionMetadataBuilder": {"__init__", "build"},
    "AttentionImpl": {"__init__", "forward"},
    "MLAAttentionImpl": {"__init__", "forward_mqa"},
}

_FIELDS = ("query_start_loc", "query_start_loc_cpu", "seq_lens", "num_reqs", "num_actual_tokens", "max_query_len",
           "max_seq_len", "block_table_tensor", "slot_mapping", "causal", "dcp_local_seq_lens", "mm_req_doc_ranges",
           "rswa_prefix_lens")


def _missing_names() -> list[str]:
    """Sentences about modules and names that are not there."""
    found = []
    for module, names in _NAMES.items():
        try:
            loaded = import_module(module)
        except ImportError as error:
            found.append(f"module {module} is not there ({error})")
            continue
        found += [f"{module} has no {name}" for name in names if not hasattr(loaded, name)]
    return found


def _changed_parameters(name: str, function: Callable[..., Any], known: tuple[str, ...]) -> list[str]:
    """Sentences about parameters of `function` that are gone, and about those that it wants and nobody here gives."""
    parameters = inspect.signature(function).parameters
    gone = [f"{name} has no parameter {wanted}" for wanted in known if wanted not in parameters]
    new = [
        f"{name} wants a new parameter {parameter.name}"
        for parameter in parameters.values()
        if parameter.name not in (*known, "self", "cls")
        and parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return gone + new


def differences() -> list[str]:
    """What the installed vLLM has otherwise than the backend expects, a sentence each; empty if it can serve."""
    found = _missing_names()
    if found:
        return found
    backend = import_module(_BACKEND)
    for name, known in _FUNCTIONS.items():
        owner, method = name.split(".")
        function = getattr(getattr(backend, owner), method, None)
        found += [f"{name} is not there"] if function is None else _changed_parameters(name, function, known)
    for name, methods in _ABSTRACT.items():
        found += [f"{name} wants a method {method}"
                  for method in sorted(getattr(backend, name).__abstractmethods__ - methods)]
    fields = {field.name for field in dataclasses.fields(backend.CommonAttentionMetadata)}
    return found + [f"CommonAttentionMetadata has no field {field}" for field in _FIELDS if field not in fields]


def check() -> str | None:
    """Compares the installed vLLM with what the backend builds on.

    Returns a sentence of warning for a version that was not tried, or None. Raises ImportError that names everything
    that moved.
    """
    installed, supported = vllm_version(), ", ".join(SUPPORTED)
    found = differences()
    if found:
        raise ImportError(
            f"libattn serves vLLM {supported}; the attention interface of vLLM {installed} differs: "
            f"{'; '.join(found)}. "
            f"Install a vLLM or a libattn that fits, or leave out --attention-backend CUSTOM"
        )
    if not any(installed == version or installed.startswith(version + ".") for version in SUPPORTED):
        return f"vLLM {installed} was not tried with this libattn (tried: {supported}); its attention interface fits"
    return None
