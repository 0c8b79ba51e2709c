/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Activations in the type that attention is given. */
#ifndef ENGINE_ROUND_H
#define ENGINE_ROUND_H

#include <stdint.h>

/* The type is ATTN_F32, ATTN_F16 or ATTN_BF16; to the nearest, the even one of two, infinity beyond the
 * largest. */
void round_from_float(uint32_t dtype, const float *from, uint64_t count, void *to);
void round_to_float(uint32_t dtype, const void *from, uint64_t count, float *to);

#endif
