/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Level sve512: sixteen f32 lanes with SVE. */
#ifndef ATTN_CPU_SIMD_SVE512_H
#define ATTN_CPU_SIMD_SVE512_H

#define VEC_LANES 16u
#include "sve.h"

#endif
