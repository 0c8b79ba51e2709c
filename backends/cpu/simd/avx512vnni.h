/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Level avx512vnni: level avx512 with products of int8, for int8 alone. */
#ifndef ATTN_CPU_SIMD_AVX512VNNI_H
#define ATTN_CPU_SIMD_AVX512VNNI_H

#define VEC_INT8_ALONE
#include "avx512.h"

#endif
