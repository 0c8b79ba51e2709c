/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The matrix kernels of MMA_DK and MMA_DV columns, keys and values of MMA_EIGHT ? 8 : 16 bits: with queries
 * of bf16 and f16; for 8 rows, 16, 64, and 128 where a warp's registers hold the results of 32 of them. Their
 * names are mma, MMA_TAG, and what they are. Included once for each size; what it was given is undefined at
 * its end.
 */
#include "port.h"

#include "eight.h"
#include "mma.h"
#include "pieces.h"
#include "rules.h"

#define MMA_BF16  1
#define MMA_RB    1
#define MMA_MI    1
#define MMA_THIN  1
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r8_bf16)
#include "mma-body.h"
#undef MMA
#undef MMA_BF16

#define MMA_BF16  0
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r8_f16)
#include "mma-body.h"
#undef MMA
#undef MMA_THIN
#undef MMA_BF16

#define MMA_BF16  1
#define MMA_THIN  0
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r16_bf16)
#include "mma-body.h"
#undef MMA
#undef MMA_BF16

#define MMA_BF16  0
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r16_f16)
#include "mma-body.h"
#undef MMA
#undef MMA_RB
#undef MMA_BF16

#define MMA_BF16  1
#define MMA_RB    4
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r64_bf16)
#include "mma-body.h"
#undef MMA
#undef MMA_BF16

#define MMA_BF16  0
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r64_f16)
#include "mma-body.h"
#undef MMA
#undef MMA_MI
#undef MMA_BF16

#if MMA_DK <= 128
#define MMA_BF16  1
#define MMA_MI    2
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r128_bf16)
#include "mma-body.h"
#undef MMA
#undef MMA_BF16

#define MMA_BF16  0
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r128_f16)
#include "mma-body.h"
#undef MMA
#undef MMA_MI
#undef MMA_BF16
#endif

#undef MMA_RB
#undef MMA_THIN
#undef MMA_TAG
#undef MMA_EIGHT
#undef MMA_DV
#undef MMA_DK
