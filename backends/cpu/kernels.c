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

#define ROW(kind_, upper_, type_name_, types_, name_)                                                        \
    {                                                                                                        \
        .caps = CAPS("paged_" #kind_ "_" type_name_ "_" #name_, ATTN_SPEED_OPTIMISED, upper_, types_),       \
        .run = cpu_##kind_##_##name_##_run, .scratch_bytes = cpu_##kind_##_##name_##_scratch,                \
        .store = cpu_store_##name_, .level = CPU_LEVEL_##name_                                               \
    }
#define ROWS(kind_, upper_, name_)                                                                           \
    ROW(kind_, upper_, "f32", ATTN__TYPE_F32, name_), ROW(kind_, upper_, "f16", ATTN__TYPE_F16, name_),      \
        ROW(kind_, upper_, "bf16", ATTN__TYPE_BF16, name_),                                                  \
        ROW(kind_, upper_, "int8", ATTN__TYPE_INT8, name_),                                                  \
        ROW(kind_, upper_, "e4m3", ATTN__TYPE_E4M3, name_),                                                  \
        ROW(kind_, upper_, "e5m2", ATTN__TYPE_E5M2, name_),                                                  \
        ROW(kind_, upper_, "mixed", ATTN__TYPES_ALL | ATTN__TYPE_BLOCKS, name_)
#define LEVEL_ROWS(name_) ROWS(decode, ATTN__DECODE, name_), ROWS(prefill, ATTN__PREFILL, name_),

const struct cpu_kernel cpu_kernels[] = {
#define CPU_LEVEL(architecture_, name_, ...) CPU_ON_##architecture_(LEVEL_ROWS(name_))
#include CPU_LEVELS
    {.caps = CAPS("paged_attention_c", ATTN_SPEED_GENERIC, ATTN__DECODE | ATTN__PREFILL,
                  ATTN__TYPES_ALL | ATTN__TYPE_BLOCKS),
     .run = cpu_attention_c,
     .scratch_bytes = cpu_attention_c_scratch,
     .store = cpu_store},
};

const uint32_t cpu_kernel_count = sizeof cpu_kernels / sizeof cpu_kernels[0];
