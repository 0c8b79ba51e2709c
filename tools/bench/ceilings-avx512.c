/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ceilings of AVX-512. */
#include <immintrin.h>

#define VECTOR_BYTES 64
#define MULTIPLY_ADD(x, factor, addend)                                                                      \
    ((x) = (lanes)_mm512_fmadd_ps((__m512)(x), (__m512)(factor), (__m512)(addend)))
#define TABLE ceiling_avx512
#include "ceilings-body.h"
