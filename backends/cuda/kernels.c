/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of attention kernels, best row first: dispatch and capability query in one. */
#include "families.h"
#include "mla/sizes.h"
#include "reference/instances.h"

/*
 * With 8-bit values P is f16, or bf16 if single values have scales or the type is FNUZ; the table has the
 * coarser one. 8-bit queries take the kernels that turn bf16 ones into f16, which holds all their codes.
 * Of f32 nothing is rounded: matrix instructions take numbers in parts (mma/tf32.h). Types that differ, and
 * those with blocks, become f32 (mma/any.h).
 */
#define MMA_FEATURES (ATTN__HAS_ALL & ~ATTN__HAS_MLA)
#define MMA_ANY      (ATTN__TYPE_F32 | ATTN__TYPES_16)
/* Of products in e4m3, for whose kernel the rules do nothing but hide keys. */
#define E4M3_FEATURES                                                                                        \
    (MMA_FEATURES &                                                                                          \
     ~(ATTN__HAS_ALIBI | ATTN__HAS_MASK | ATTN__HAS_SOFTCAP | ATTN__HAS_CACHE_NEW | ATTN__HAS_TOKEN_HEAD))

/* The largest number of columns of an mma kernel: a union is as large as its largest member. */
union mma_columns {
#define MMA(name, dk, dv, kv_size, rows) char name[dk];
#include "instances.def"
};
union mma_columns_f32 {
#define MMA(name, dk, dv, kv_size, rows) char name[kv_size == 4 ? dk : 1];
#include "instances.def"
};

#define MMA_ROW(name_, phases_, q_, kv_, numerics_)                                                          \
    {                                                                                                        \
        .caps.name = (name_), .family = &cuda_mma, .tensor_cores = true, .arch = CUDA_ARCH_MIN,              \
        .caps.phases = (phases_), .caps.q_types = (q_), .caps.kv_types = (kv_),                              \
        .caps.out_types = ATTN__TYPES_ALL, .caps.dim_multiple = 1,                                           \
        .caps.kv_mixed = ((kv_)&ATTN__TYPE_BLOCKS) != 0,                                                     \
        .caps.dim_max =                                                                                      \
            ((kv_)&ATTN__TYPE_F32) != 0 ? sizeof(union mma_columns_f32) : sizeof(union mma_columns),         \
        .caps.features = MMA_FEATURES, .caps.graph_level = ATTN_GRAPH_ALWAYS, .caps.numerics = (numerics_),  \
        .caps.speed = ATTN_SPEED_OPTIMISED                                                                   \
    }

/* For MLA caches of the type of the queries, or of 8 bits, which become that type. Not of layout paged-x,
 * whose rows are not contiguous. */
#define MLA_ROW(name_, q_, kv_, numerics_)                                                                   \
    {                                                                                                        \
        .caps.name = (name_), .family = &cuda_mla, .tensor_cores = true, .arch = CUDA_ARCH_MIN,              \
        .caps.phases = ATTN__DECODE | ATTN__PREFILL, .caps.q_types = (q_), .caps.kv_types = (kv_),           \
        .caps.out_types = ATTN__TYPE_F32 | ATTN__TYPES_16, .caps.dim_multiple = 1,                           \
        .caps.dim_max = MLA_QK_DIM, .caps.vo_max = MLA_VO_DIM,                                               \
        .caps.features = ATTN__HAS_ALL & ~ATTN__HAS_PAGED_X, .caps.needs = ATTN__HAS_MLA,                    \
        .caps.graph_level = ATTN_GRAPH_ALWAYS, .caps.numerics = (numerics_),                                 \
        .caps.speed = ATTN_SPEED_OPTIMISED                                                                   \
    }

const struct gpu_kernel gpu_kernels[] = {
    MMA_ROW("decode_mma_f16", ATTN__DECODE, ATTN__TYPE_F16, ATTN__TYPE_F16, ATTN_NUMERICS_P_F16),
    MMA_ROW("decode_mma_f16_kv8", ATTN__DECODE, ATTN__TYPE_F16, ATTN__TYPES_8, ATTN_NUMERICS_P_BF16),
    MMA_ROW("decode_mma_bf16", ATTN__DECODE, ATTN__TYPE_BF16, ATTN__TYPE_BF16, ATTN_NUMERICS_P_BF16),
    MMA_ROW("decode_mma_bf16_kv8", ATTN__DECODE, ATTN__TYPE_BF16 | ATTN__TYPES_8, ATTN__TYPES_8,
            ATTN_NUMERICS_P_BF16),
    {.caps.name = "prefill_mma_e4m3",
     .family = &cuda_mma_e4m3,
     .tensor_cores = true,
     .arch = 90,
     .last_arch = 90,
     .caps.phases = ATTN__PREFILL,
     .caps.q_types = ATTN__TYPE_E4M3,
     .caps.kv_types = ATTN__TYPE_E4M3,
     .caps.out_types = ATTN__TYPE_F32 | ATTN__TYPES_16,
     .caps.dim_multiple = GPU_CONVERTED_COLUMNS,
     .caps.dim_max = GPU_E4M3_MAX_DIM,
     .caps.features = E4M3_FEATURES,
     .caps.graph_level = ATTN_GRAPH_ALWAYS,
     .caps.numerics = ATTN_NUMERICS_P_E4M3,
     .caps.speed = ATTN_SPEED_OPTIMISED},
    MMA_ROW("prefill_mma_f16", ATTN__PREFILL, ATTN__TYPE_F16, ATTN__TYPE_F16, ATTN_NUMERICS_P_F16),
    MMA_ROW("prefill_mma_f16_kv8", ATTN__PREFILL, ATTN__TYPE_F16, ATTN__TYPES_8, ATTN_NUMERICS_P_BF16),
    MMA_ROW("prefill_mma_bf16", ATTN__PREFILL, ATTN__TYPE_BF16, ATTN__TYPE_BF16, ATTN_NUMERICS_P_BF16),
    MMA_ROW("prefill_mma_bf16_kv8", ATTN__PREFILL, ATTN__TYPE_BF16 | ATTN__TYPES_8, ATTN__TYPES_8,
            ATTN_NUMERICS_P_BF16),
    MMA_ROW("decode_mma_f32", ATTN__DECODE, ATTN__TYPE_F32, ATTN__TYPE_F32, ATTN_NUMERICS_UNROUNDED),
    MMA_ROW("prefill_mma_f32", ATTN__PREFILL, ATTN__TYPE_F32, ATTN__TYPE_F32, ATTN_NUMERICS_UNROUNDED),
    {.caps.name = "prefill_mma_f16_blocks",
     .family = &cuda_mma_blocks,
     .tensor_cores = true,
     .arch = 90,
     .last_arch = 90,
     .caps.phases = ATTN__PREFILL,
     .caps.q_types = ATTN__TYPE_F16,
     .caps.kv_types = ATTN__TYPE_BLOCKS,
     .caps.kv_mixed = 1,
     .caps.out_types = ATTN__TYPES_ALL,
     .caps.dim_multiple = 1,
     .caps.dim_max = sizeof(union mma_columns_f32),
     .caps.features = MMA_FEATURES,
     .caps.graph_level = ATTN_GRAPH_ALWAYS,
     .caps.numerics = ATTN_NUMERICS_P_E4M3,
     .caps.speed = ATTN_SPEED_OPTIMISED},
    MMA_ROW("decode_mma_any", ATTN__DECODE, MMA_ANY, MMA_ANY | ATTN__TYPE_BLOCKS, ATTN_NUMERICS_UNROUNDED),
    MMA_ROW("prefill_mma_any", ATTN__PREFILL, MMA_ANY, MMA_ANY | ATTN__TYPE_BLOCKS, ATTN_NUMERICS_UNROUNDED),
    MLA_ROW("mla_mma_f16", ATTN__TYPE_F16, ATTN__TYPE_F16, ATTN_NUMERICS_P_F16),
    MLA_ROW("mla_mma_f16_kv8", ATTN__TYPE_F16, ATTN__TYPES_8, ATTN_NUMERICS_P_F16),
    MLA_ROW("mla_mma_bf16", ATTN__TYPE_BF16, ATTN__TYPE_BF16, ATTN_NUMERICS_P_BF16),
    MLA_ROW("mla_mma_bf16_kv8", ATTN__TYPE_BF16, ATTN__TYPES_8, ATTN_NUMERICS_P_BF16),
    {.caps.name = "attn_reference",
     .family = &gpu_reference_family,
     .arch = CUDA_ARCH_MIN,
     .caps.phases = ATTN__DECODE | ATTN__PREFILL,
     .caps.q_types = ATTN__TYPES_ALL,
     .caps.kv_types = ATTN__TYPES_ALL | ATTN__TYPE_BLOCKS,
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
