/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Products with weight matrices. */
#ifndef GENERATE_MATMUL_H
#define GENERATE_MATMUL_H

#include <stdint.h>

/* out[rows, outputs] = in[rows, inputs] times the transpose of weights[outputs, inputs]; all contiguous. */
void matmul(const float *in, const float *weights, uint32_t rows, uint32_t inputs, uint32_t outputs,
            float *out);

/* Threads of the library behind it, where there is one that can be told. */
void matmul_set_threads(uint32_t threads);

#endif
