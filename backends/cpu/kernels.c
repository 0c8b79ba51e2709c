/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of attention kernels, best row first: dispatch and capability query in one. */
#include "kernels.h"

#define ALL_TYPES (CPU_TYPE_F32 | CPU_TYPE_F16 | CPU_TYPE_BF16)
#define DIM_MAX   65536u

#define VECTOR_ROW(name_, flags_, phase_, type_, run_)                                                       \
    {                                                                                                        \
        .name = (name_), .run = (run_), .scratch_bytes = run_##_scratch, .flags = (flags_),                  \
        .phases = (phase_), .q_types = ALL_TYPES, .kv_types = (type_), .kv_mixed = (type_) == ALL_TYPES,     \
        .dim_multiple = 1, .dim_max = DIM_MAX, .numerics = ATTN_NUMERICS_UNROUNDED                           \
    }

#define VECTOR_ROWS(isa_, flags_, decode_, prefill_)                                                         \
    VECTOR_ROW("paged_decode_f32_" isa_, flags_, CPU_FEW_ROWS, CPU_TYPE_F32, decode_),                       \
        VECTOR_ROW("paged_decode_f16_" isa_, flags_, CPU_FEW_ROWS, CPU_TYPE_F16, decode_),                   \
        VECTOR_ROW("paged_decode_bf16_" isa_, flags_, CPU_FEW_ROWS, CPU_TYPE_BF16, decode_),                 \
        VECTOR_ROW("paged_decode_mixed_" isa_, flags_, CPU_FEW_ROWS, ALL_TYPES, decode_),                    \
        VECTOR_ROW("paged_prefill_f32_" isa_, flags_, CPU_MANY_ROWS, CPU_TYPE_F32, prefill_),                \
        VECTOR_ROW("paged_prefill_f16_" isa_, flags_, CPU_MANY_ROWS, CPU_TYPE_F16, prefill_),                \
        VECTOR_ROW("paged_prefill_bf16_" isa_, flags_, CPU_MANY_ROWS, CPU_TYPE_BF16, prefill_),              \
        VECTOR_ROW("paged_prefill_mixed_" isa_, flags_, CPU_MANY_ROWS, ALL_TYPES, prefill_)

const struct cpu_kernel cpu_kernels[] = {
#if defined(__x86_64__)
    VECTOR_ROWS("avx2", CPU_AVX2 | CPU_F16C, cpu_decode_avx2, cpu_prefill_avx2),
#elif defined(__aarch64__)
    VECTOR_ROWS("neon", CPU_NEON, cpu_decode_neon, cpu_prefill_neon),
#endif
    {.name = "paged_attention_c",
     .run = cpu_attention_c,
     .scratch_bytes = cpu_attention_c_scratch,
     .phases = CPU_FEW_ROWS | CPU_MANY_ROWS,
     .q_types = ALL_TYPES | CPU_TYPE_8,
     .kv_types = ALL_TYPES | CPU_TYPE_8,
     .kv_mixed = 1,
     .dim_multiple = 1,
     .dim_max = DIM_MAX,
     .features = CPU_FEATURES,
     .numerics = ATTN_NUMERICS_UNROUNDED},
};

const uint32_t cpu_kernel_count = sizeof cpu_kernels / sizeof cpu_kernels[0];
