/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The small operations of models with biases and centred norms, on rows of floats. */
#ifndef GENERATE_DENSE_H
#define GENERATE_DENSE_H

#include <stdint.h>

#include "weights.h"

/* out[rows, outputs] = in[rows, inputs] * matrix + bias */
void dense_run(const struct dense *d, const float *in, uint32_t rows, float *out);

/* out = (in - mean) / deviation * scale + shift, row by row; out may be in. */
void norm_run(const struct norm *n, const float *in, uint32_t rows, uint32_t width, float epsilon,
              float *out);

/* x = x * Phi(x), with the exact distribution function. */
void gelu_run(float *x, uint64_t count);

#endif
