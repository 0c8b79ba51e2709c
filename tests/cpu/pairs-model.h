/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Level avx512bf16 on machines without it: its operations over a model of the instructions. */
#ifndef ATTN_TEST_CPU_PAIRS_MODEL_H
#define ATTN_TEST_CPU_PAIRS_MODEL_H

#include "bf16-model.h"

#include "simd/avx512bf16.h"

#endif
