# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's words for an attention layer as libattn's problem strings, and libattn's answer to who serves them."""
from dataclasses import dataclass
from functools import lru_cache

import libattn

# Element types of the cache by vLLM's --kv-cache-dtype; "" is that of the queries.
CACHE_TYPES = {"auto": "", "float16": "float16", "bfloat16": "bfloat16", "fp8": "float8_e4m3fn",
               "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}

# Types of attention without a cache: all keys are in the call.
CACHELESS = ("encoder", "encoder_only")


@dataclass(frozen=True)
class LayerClass:
    """What layers have in common that one plan and one schedule serve. Types are torch's names: "float32"."""

    heads: int
    kv_heads: int
    head_dim: int
    head_dim_v: int
    q: str
    kv: str
    attn_type: str = "decoder"
    window: int | None = None  # as vLLM counts: the query's own key is one of them
    softcap: float = 0.0
    alibi: bool = False
    sinks: bool = False
    det: bool = False
    mla: bool = False  # keys have head_dim numbers, of which the first head_dim_v are the values

    @property
    def cached(self) -> bool:
        """Whether keys are read from a paged cache."""
        return self.attn_type not in CACHELESS

    def problem(self, block: int, causal: bool | None) -> str:
        """The problem string. `block`: tokens per page. `causal`: of all sequences, or None if each has a flag."""
        dim = str(self.head_dim) if self.head_dim == self.head_dim_v else f"{self.head_dim}/{self.head_dim_v}"
        keys = [f"heads={self.heads} kv_heads={self.kv_heads} head_dim={dim} type={self.attn_type}",
                f"q={self.q} kv={self.kv} causal={int(causal is not False)}"]
        if self.cached:
            keys.append(f"block={block}")
        if self.mla:
            keys.append("mla=1")
        if self.kv.startswith("float8"):
            keys.append("scales=tensor")
        if causal is None:
            keys.append("seq_causal=1")
        if self.window is not None:
            # One number: to the right a causal sequence sees none, any other as many as to the left, as in vLLM.
            keys.append(f"window={self.window - 1}")
        if self.softcap:
            keys.append(f"softcap={self.softcap}")
        if self.alibi:
            keys.append(f"alibi={'distance' if causal is False else 'key'}")
        if self.sinks:
            keys.append("sinks=1")
        if self.det:
            keys.append("det=1")
        return " ".join(keys)


@lru_cache(maxsize=None)
def refusals(problem: str, device: str) -> tuple[str, ...]:
    """Why no libattn backend serves `problem` on `device` ("cpu", "cuda:0"), a sentence each; empty if one does."""
    try:
        decision = libattn.context().select(problem, device=device)
    except libattn.Error as error:  # there are no such problems at all
        return (f"libattn: {error}",)
    if decision.effective is not None:
        return ()
    # The decision names the backend that came closest with its first reason; then all that is said of the device.
    told = [reason["text"] for candidate in decision.candidates if candidate["device"] is not None
            for reason in candidate["reasons"]]
    return tuple(dict.fromkeys([f"libattn: {decision.text}", *told]))
