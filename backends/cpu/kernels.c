/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of attention kernels, best row first: dispatch and capability query in one. */
#include "kernels.h"

#define ALL_TYPES (CPU_TYPE_F32 | CPU_TYPE_F16 | CPU_TYPE_BF16)
#define DIM_MAX   65536u

#define ROW(kind_, upper_, type_name_, types_, name_)                                                        \
    {                                                                                                        \
        .name = "paged_" #kind_ "_" type_name_ "_" #name_, .run = cpu_##kind_##_##name_##_run,               \
        .scratch_bytes = cpu_##kind_##_##name_##_scratch, .level = CPU_LEVEL_##name_, .phases = (upper_),    \
        .q_types = ALL_TYPES, .kv_types = (types_), .kv_mixed = (types_) == ALL_TYPES, .dim_multiple = 1,    \
        .dim_max = DIM_MAX, .numerics = ATTN_NUMERICS_UNROUNDED                                              \
    }
#define ROWS(kind_, upper_, name_)                                                                           \
    ROW(kind_, upper_, "f32", CPU_TYPE_F32, name_), ROW(kind_, upper_, "f16", CPU_TYPE_F16, name_),          \
        ROW(kind_, upper_, "bf16", CPU_TYPE_BF16, name_), ROW(kind_, upper_, "mixed", ALL_TYPES, name_)
#define LEVEL_ROWS(name_) ROWS(decode, CPU_DECODE, name_), ROWS(prefill, CPU_PREFILL, name_),

const struct cpu_kernel cpu_kernels[] = {
#define CPU_LEVEL(architecture_, name_, ...) CPU_ON_##architecture_(LEVEL_ROWS(name_))
#include CPU_LEVELS
#undef CPU_LEVEL
    {.name = "paged_attention_c",
     .run = cpu_attention_c,
     .scratch_bytes = cpu_attention_c_scratch,
     .phases = CPU_DECODE | CPU_PREFILL,
     .q_types = ALL_TYPES | CPU_TYPE_8,
     .kv_types = ALL_TYPES | CPU_TYPE_8,
     .kv_mixed = 1,
     .dim_multiple = 1,
     .dim_max = DIM_MAX,
     .features = CPU_FEATURES,
     .numerics = ATTN_NUMERICS_UNROUNDED},
};

const uint32_t cpu_kernel_count = sizeof cpu_kernels / sizeof cpu_kernels[0];
