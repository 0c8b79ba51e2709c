/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ceilings of AVX2 with FMA. */
#include <immintrin.h>

#define VECTOR_BYTES 32
#define MULTIPLY_ADD(x, factor, addend)                                                                      \
    ((x) = (lanes)_mm256_fmadd_ps((__m256)(x), (__m256)(factor), (__m256)(addend)))
#define TABLE ceiling_avx2
#include "ceilings-body.h"
