/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Level neondot: level neon with the products of int8 of ARMv8.2-A, for int8 alone. */
#ifndef ATTN_CPU_SIMD_NEONDOT_H
#define ATTN_CPU_SIMD_NEONDOT_H

#define VEC_INT8_ALONE
#include "neon.h"

#endif
