/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Level sve256: eight f32 lanes with SVE. */
#ifndef ATTN_CPU_SIMD_SVE256_H
#define ATTN_CPU_SIMD_SVE256_H

#define VEC_LANES 8u
#include "sve.h"

#endif
