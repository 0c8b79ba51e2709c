/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ceilings of the architecture's baseline: 16-byte vectors, multiplication and addition apart. */
#define VECTOR_BYTES                    16
#define MULTIPLY_ADD(x, factor, addend) ((x) = (x) * (factor) + (addend))
#define TABLE                           ceiling_plain
#include "ceilings-body.h"
