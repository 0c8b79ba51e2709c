/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The matrix kernels of MMA_DK and MMA_DV columns, keys and values of MMA_EIGHT ? 8 : 16 bits: with queries
 * of bf16 and f16, one block of rows and four. Their names are mma, MMA_TAG, and what they are. Included once
 * for each size; what it was given is undefined at its end.
 */
#include "port.h"

#include "eight.h"
#include "mma.h"
#include "pieces.h"
#include "rules.h"

/* CTAs that are to fit a multiprocessor. */
#define MMA_CTAS (MMA_DK + MMA_DV > 256 ? 1 : 2)

#define MMA_MI     1
#define MMA_STAGES GPU_MMA_STAGES(MMA_RB *MMA_MI * 16, MMA_DK, MMA_DV, MMA_EIGHT ? 1 : 2)

#define MMA_BF16  1
#define MMA_RB    1
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r1_bf16)
#include "mma-body.h"
#undef MMA
#undef MMA_RB
#undef MMA_BF16

#define MMA_BF16  1
#define MMA_RB    4
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r4_bf16)
#include "mma-body.h"
#undef MMA
#undef MMA_RB
#undef MMA_BF16

#define MMA_BF16  0
#define MMA_RB    1
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r1_f16)
#include "mma-body.h"
#undef MMA
#undef MMA_RB
#undef MMA_BF16

#define MMA_BF16  0
#define MMA_RB    4
#define MMA(name) GPU_MMA_NAME(name, MMA_TAG, _r4_f16)
#include "mma-body.h"
#undef MMA
#undef MMA_RB
#undef MMA_BF16

#undef MMA_STAGES
#undef MMA_MI
#undef MMA_CTAS
#undef MMA_TAG
#undef MMA_EIGHT
#undef MMA_DV
#undef MMA_DK
