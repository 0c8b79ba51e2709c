/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of attention kernels, best row first: dispatch and capability query in one. */
#include "kernels.h"

#define WIDE_TYPES (ATTN__TYPE_F32 | ATTN__TYPES_16)
#define DIM_MAX    65536u

/* Capabilities that all kernels have. */
#define CAPS(name_, speed_, phases_, kv_)                                                                    \
    {                                                                                                        \
        .name = (name_), .phases = (phases_), .q_types = ATTN__TYPES_ALL, .kv_types = (kv_),                 \
        .out_types = ATTN__TYPES_ALL, .kv_mixed = ((kv_)&WIDE_TYPES) == WIDE_TYPES, .dim_multiple = 1,       \
        .dim_max = DIM_MAX, .features = ATTN__HAS_ALL, .graph_level = ATTN_GRAPH_ALWAYS,                     \
        .numerics = ATTN_NUMERICS_UNROUNDED, .speed = (speed_)                                               \
    }

#define ROW(kind_, upper_, type_name_, types_, name_, rows_)                                                 \
    {                                                                                                        \
        .caps = CAPS("paged_" #kind_ "_" type_name_ "_" #name_, ATTN_SPEED_OPTIMISED, upper_, types_),       \
        .run = cpu_##kind_##_##name_##_run, .scratch_bytes = cpu_##kind_##_##name_##_scratch,                \
        .store = cpu_store_##name_, .level = CPU_LEVEL_##name_, .prefill_rows = (rows_)                      \
    }
#define ROWS(kind_, upper_, name_, rows_)                                                                    \
    ROW(kind_, upper_, "f32", ATTN__TYPE_F32, name_, rows_),                                                 \
        ROW(kind_, upper_, "f16", ATTN__TYPE_F16, name_, rows_),                                             \
        ROW(kind_, upper_, "bf16", ATTN__TYPE_BF16, name_, rows_),                                           \
        ROW(kind_, upper_, "int8", ATTN__TYPE_INT8, name_, rows_),                                           \
        ROW(kind_, upper_, "e4m3", ATTN__TYPE_E4M3, name_, rows_),                                           \
        ROW(kind_, upper_, "e5m2", ATTN__TYPE_E5M2, name_, rows_),                                           \
        ROW(kind_, upper_, "mixed", ATTN__TYPES_ALL | ATTN__TYPE_BLOCKS, name_, rows_)
/* Queries, keys and values are int8, and scores are sums of integers. */
#define INTEGER_ROW(name_)                                                                                   \
    {                                                                                                        \
        .caps = {.name = "paged_decode_int8_integer_" #name_,                                                \
                 .phases = ATTN__DECODE,                                                                     \
                 .q_types = ATTN__TYPE_INT8,                                                                 \
                 .kv_types = ATTN__TYPE_INT8,                                                                \
                 .out_types = ATTN__TYPES_ALL,                                                               \
                 .dim_multiple = 1,                                                                          \
                 .dim_max = DIM_MAX,                                                                         \
                 .features = ATTN__HAS_ALL,                                                                  \
                 .graph_level = ATTN_GRAPH_ALWAYS,                                                           \
                 .numerics = ATTN_NUMERICS_UNROUNDED,                                                        \
                 .speed = ATTN_SPEED_OPTIMISED},                                                             \
        .run = cpu_decode_##name_##_run, .scratch_bytes = cpu_decode_##name_##_scratch,                      \
        .store = cpu_store_##name_, .level = CPU_LEVEL_##name_, .prefill_rows = CPU_PREFILL_ROWS,            \
        .in_place = true                                                                                     \
    }
/* Weights are rounded to bf16 and added up rounded, where queries, keys, values and results are bf16. */
#define ROUNDED_ROW(name_, rows_)                                                                            \
    {                                                                                                        \
        .caps = {.name = "paged_prefill_bf16_rounded_" #name_,                                               \
                 .phases = ATTN__PREFILL,                                                                    \
                 .q_types = ATTN__TYPE_BF16,                                                                 \
                 .kv_types = ATTN__TYPE_BF16,                                                                \
                 .out_types = ATTN__TYPE_BF16,                                                               \
                 .dim_multiple = 1,                                                                          \
                 .dim_max = DIM_MAX,                                                                         \
                 .features = ATTN__HAS_ALL,                                                                  \
                 .graph_level = ATTN_GRAPH_ALWAYS,                                                           \
                 .numerics = ATTN_NUMERICS_SUM_BF16,                                                         \
                 .speed = ATTN_SPEED_OPTIMISED},                                                             \
        .run = cpu_prefill_##name_##_rounded_run, .scratch_bytes = cpu_prefill_##name_##_scratch,            \
        .store = cpu_store_##name_, .level = CPU_LEVEL_##name_, .prefill_rows = (rows_), .no_lse = true      \
    }
#define ROWS_vectors(name_)                                                                                  \
    ROWS(decode, ATTN__DECODE, name_, CPU_PREFILL_ROWS),                                                     \
        ROWS(prefill, ATTN__PREFILL, name_, CPU_PREFILL_ROWS),
#define ROWS_integers(name_) INTEGER_ROW(name_),
#define ROWS_rounded(name_)  ROUNDED_ROW(name_, CPU_PREFILL_ROWS),
#define ROWS_both(name_)     ROWS_integers(name_) ROWS_vectors(name_)
#define ROWS_tiles(name_)                                                                                    \
    INTEGER_ROW(name_), ROWS(decode, ATTN__DECODE, name_, CPU_PREFILL_TILES_ROWS),                           \
        ROUNDED_ROW(name_, CPU_PREFILL_TILES_ROWS),                                                          \
        ROWS(prefill, ATTN__PREFILL, name_, CPU_PREFILL_TILES_ROWS),

const struct cpu_kernel cpu_kernels[] = {
#define CPU_LEVEL(architecture_, name_, arguments_, products_, ...)                                          \
    CPU_ON_##architecture_(ROWS_##products_(name_))
#include CPU_LEVELS
    {.caps = CAPS("paged_attention_c", ATTN_SPEED_GENERIC, ATTN__DECODE | ATTN__PREFILL,
                  ATTN__TYPES_ALL | ATTN__TYPE_BLOCKS),
     .run = cpu_attention_c,
     .scratch_bytes = cpu_attention_c_scratch,
     .store = cpu_store,
     .prefill_rows = CPU_PREFILL_ROWS},
};

const uint32_t cpu_kernel_count = sizeof cpu_kernels / sizeof cpu_kernels[0];
