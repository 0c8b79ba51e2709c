/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of attention kernels, best row first: dispatch and capability query in one. */
#include "families.h"
#include "kernels/reference/instances.h"

/*
 * Matrix kernels, whose P is rounded: too much for results of 8 bits, each of which is held to half a step.
 * Scales of new 8-bit rows go by sequence, which they do not. Beside 8-bit values P is bf16.
 */
#define TILE_CACHED (GPU_FEATURES & ~(GPU_MLA | GPU_NEW | GPU_CACHE_NEW))
#define TILE_ROW(name_, phases_, q_, kv_, features_, numerics_)                                              \
    {                                                                                                        \
        .name = (name_), .family = &hip_tile, .phases = (phases_), .q_types = (q_), .kv_types = (kv_),       \
        .out_types = GPU_TYPE_F32 | GPU_TYPES_16, .dim_multiple = 1, .dim_max = 256,                         \
        .features = (features_), .graph_level = ATTN_GRAPH_ALWAYS, .numerics = (numerics_)                   \
    }
/* Both kernels of a type of queries, by their phase. */
#define TILE_ROWS(prefix, phases)                                                                            \
    TILE_ROW(prefix "_tile_f16", phases, GPU_TYPE_F16, GPU_TYPE_F16, GPU_FEATURES & ~GPU_MLA,                \
             ATTN_NUMERICS_P_F16),                                                                           \
        TILE_ROW(prefix "_tile_f16_kv8", phases, GPU_TYPE_F16, GPU_TYPES_8, TILE_CACHED,                     \
                 ATTN_NUMERICS_P_BF16),                                                                      \
        TILE_ROW(prefix "_tile_bf16", phases, GPU_TYPE_BF16, GPU_TYPE_BF16, GPU_FEATURES & ~GPU_MLA,         \
                 ATTN_NUMERICS_P_BF16),                                                                      \
        TILE_ROW(prefix "_tile_bf16_kv8", phases, GPU_TYPE_BF16, GPU_TYPES_8, TILE_CACHED,                   \
                 ATTN_NUMERICS_P_BF16)

const struct gpu_kernel gpu_kernels[] = {
#ifndef HIP_REFERENCE_ALONE /* a driver of tests that has no matrix kernels */
    TILE_ROWS("decode", GPU_FEW_ROWS),
    TILE_ROWS("prefill", GPU_MANY_ROWS),
#endif
    {.name = "attn_reference",
     .family = &gpu_reference_family,
     .phases = GPU_FEW_ROWS | GPU_MANY_ROWS,
     .q_types = GPU_TYPES_ALL,
     .kv_types = GPU_TYPES_ALL,
     .out_types = GPU_TYPES_ALL,
     .kv_mixed = 1,
     .dim_multiple = 1,
     .dim_max = REFERENCE_MAX_DIM,
     .features = GPU_FEATURES,
     .graph_level = ATTN_GRAPH_ALWAYS,
     .numerics = ATTN_NUMERICS_UNROUNDED},
};

const uint32_t gpu_kernel_count = sizeof gpu_kernels / sizeof gpu_kernels[0];
