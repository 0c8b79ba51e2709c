# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ggml's CPU library through ctypes: loading, which of several to take, types, tensors and their memory."""

import array
import ctypes
import struct

F32, F16, Q8_0, BF16 = 0, 1, 8, 30  # enum ggml_type
TYPES = {"f32": F32, "f16": F16, "bf16": BF16, "int8": Q8_0}
NAMES = {F32: "f32", F16: "f16", Q8_0: "q8_0", BF16: "bf16"}
BLOCK = 32  # numbers that share a scale in q8_0
FEATURES = ("avx2", "fma", "f16c", "avx_vnni", "avx512", "avx512_vbmi", "avx512_vnni", "avx512_bf16", "amx_int8",
            "neon", "dotprod", "matmul_int8", "sve")

POINTER, SIZE, INT, LONG, FLOAT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64, ctypes.c_float
FUNCTIONS = {  # name: (result, arguments)
    "ggml_version": (ctypes.c_char_p, []),
    "ggml_backend_cpu_init": (POINTER, []),
    "ggml_backend_cpu_set_n_threads": (None, [POINTER, INT]),
    "ggml_backend_free": (None, [POINTER]),
    "ggml_backend_graph_compute": (INT, [POINTER, POINTER]),
    "ggml_backend_alloc_ctx_tensors": (POINTER, [POINTER, POINTER]),
    "ggml_backend_buffer_free": (None, [POINTER]),
    "ggml_free": (None, [POINTER]),
    "ggml_tensor_overhead": (SIZE, []),
    "ggml_graph_overhead_custom": (SIZE, [SIZE, ctypes.c_bool]),
    "ggml_new_tensor_4d": (POINTER, [POINTER, INT, LONG, LONG, LONG, LONG]),
    "ggml_permute": (POINTER, [POINTER, POINTER, INT, INT, INT, INT]),
    "ggml_flash_attn_ext": (POINTER, [POINTER, POINTER, POINTER, POINTER, POINTER, FLOAT, FLOAT, FLOAT]),
    "ggml_new_graph_custom": (POINTER, [POINTER, SIZE, ctypes.c_bool]),
    "ggml_build_forward_expand": (None, [POINTER, POINTER]),
    "ggml_get_data": (POINTER, [POINTER]),
    "ggml_nbytes": (SIZE, [POINTER]),
    "ggml_row_size": (SIZE, [INT, LONG]),
    "ggml_fp32_to_fp16_row": (None, [POINTER, POINTER, LONG]),
    "ggml_fp32_to_bf16_row": (None, [POINTER, POINTER, LONG]),
    "ggml_quantize_chunk": (SIZE, [INT, POINTER, POINTER, LONG, LONG, LONG, POINTER]),
    "ggml_threadpool_params_init": (None, [POINTER, INT]),
    "ggml_threadpool_new": (POINTER, [POINTER]),
    "ggml_threadpool_pause": (None, [POINTER]),
    "ggml_threadpool_free": (None, [POINTER]),
    "ggml_backend_cpu_set_threadpool": (None, [POINTER, POINTER]),
}
OPTIONAL = {"ggml_version"}


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", SIZE), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool)]


def load(path):
    """The library, which brings the base library that it links; raises ValueError."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from error
    for name, (result, arguments) in [*FUNCTIONS.items(), ("ggml_init", (POINTER, [InitParams]))]:
        try:
            function = getattr(library, name)
        except AttributeError:
            if name in OPTIONAL:
                continue
            raise ValueError(f"{path} has no function {name}: it is no recent libggml-cpu") from None
        function.restype, function.argtypes = result, arguments
    return library


def describe(path):
    """Version, features, and ggml's own score of a library on this CPU: 0 where it cannot run, None where it has
    none."""
    library = load(path)
    score = library.ggml_backend_score() if hasattr(library, "ggml_backend_score") else None
    version = library.ggml_version().decode() if hasattr(library, "ggml_version") else "unknown"
    features = []
    if score != 0:
        features = [name for name in FEATURES
                    if hasattr(library, "ggml_cpu_has_" + name) and getattr(library, "ggml_cpu_has_" + name)()]
    return {"file": str(path), "version": version, "score": score, "features": features}


def encode(library, kind, floats, columns):
    """Rows of `columns` floats as bytes of a type."""
    rows = len(floats) // columns
    source = (ctypes.c_float * len(floats)).from_buffer(floats)
    out = ctypes.create_string_buffer(rows * library.ggml_row_size(kind, columns))
    if kind == F32:
        ctypes.memmove(out, source, len(out))
    elif kind == F16:
        library.ggml_fp32_to_fp16_row(source, out, len(floats))
    elif kind == BF16:
        library.ggml_fp32_to_bf16_row(source, out, len(floats))
    else:
        library.ggml_quantize_chunk(kind, source, out, 0, rows, columns, None)
    return out.raw


def decode(kind, data):
    """The numbers that bytes of a type stand for."""
    if kind == F32:
        return array.array("f", data).tolist()
    if kind == F16:
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    if kind == BF16:
        wide = array.array("I", (half << 16 for half in array.array("H", data)))
        return array.array("f", wide.tobytes()).tolist()
    numbers = []
    for scale, *codes in struct.iter_unpack(f"<e{BLOCK}b", data):
        numbers += [scale * code for code in codes]
    return numbers
