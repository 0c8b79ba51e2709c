/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of attention kernels, best row first: dispatch and capability query in one. */
#include "families.h"
#include "reference/instances.h"

/*
 * Matrix kernels round P, so that their results are not exact enough for 8-bit outputs, which have to be
 * within half a step. They do not handle scales by sequence, which new 8-bit keys and values have. With 8-bit
 * values P is bf16.
 */
#define TILE_CACHED (ATTN__HAS_ALL & ~(ATTN__HAS_MLA | ATTN__HAS_NEW | ATTN__HAS_CACHE_NEW))
#define TILE_ROW(name_, phases_, q_, kv_, features_, numerics_)                                              \
    {                                                                                                        \
        .caps.name = (name_), .family = &hip_tile, .tensor_cores = true, .caps.phases = (phases_),           \
        .caps.q_types = (q_), .caps.kv_types = (kv_), .caps.out_types = ATTN__TYPE_F32 | ATTN__TYPES_16,     \
        .caps.dim_multiple = 1, .caps.dim_max = 256, .caps.features = (features_),                           \
        .caps.graph_level = ATTN_GRAPH_ALWAYS, .caps.numerics = (numerics_),                                 \
        .caps.speed = ATTN_SPEED_OPTIMISED                                                                   \
    }
/* Both kernels of a type of queries, by their phase. */
#define TILE_ROWS(prefix, phases)                                                                            \
    TILE_ROW(prefix "_tile_f16", phases, ATTN__TYPE_F16, ATTN__TYPE_F16, ATTN__HAS_ALL & ~ATTN__HAS_MLA,     \
             ATTN_NUMERICS_P_F16),                                                                           \
        TILE_ROW(prefix "_tile_f16_kv8", phases, ATTN__TYPE_F16, ATTN__TYPES_8, TILE_CACHED,                 \
                 ATTN_NUMERICS_P_BF16),                                                                      \
        TILE_ROW(prefix "_tile_bf16", phases, ATTN__TYPE_BF16, ATTN__TYPE_BF16,                              \
                 ATTN__HAS_ALL & ~ATTN__HAS_MLA, ATTN_NUMERICS_P_BF16),                                      \
        TILE_ROW(prefix "_tile_bf16_kv8", phases, ATTN__TYPE_BF16, ATTN__TYPES_8, TILE_CACHED,               \
                 ATTN_NUMERICS_P_BF16)

const struct gpu_kernel gpu_kernels[] = {
#ifndef HIP_REFERENCE_ALONE /* set by tests/hip/plain, which has no matrix kernels */
    TILE_ROWS("decode", ATTN__DECODE),
    TILE_ROWS("prefill", ATTN__PREFILL),
#endif
    {.caps.name = "attn_reference",
     .family = &gpu_reference_family,
     .caps.phases = ATTN__DECODE | ATTN__PREFILL,
     .caps.q_types = ATTN__TYPES_ALL,
     .caps.kv_types = ATTN__TYPES_ALL,
     .caps.out_types = ATTN__TYPES_ALL,
     .caps.kv_mixed = 1,
     .caps.dim_multiple = 1,
     .caps.dim_max = REFERENCE_MAX_DIM,
     .caps.features = ATTN__HAS_ALL,
     .caps.graph_level = ATTN_GRAPH_ALWAYS,
     .caps.numerics = ATTN_NUMERICS_UNROUNDED,
     .caps.speed = ATTN_SPEED_GENERIC},
};

const uint32_t gpu_kernel_count = sizeof gpu_kernels / sizeof gpu_kernels[0];
