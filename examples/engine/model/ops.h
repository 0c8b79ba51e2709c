/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The operations of layers beside attention, on rows of floats. */
#ifndef ENGINE_OPS_H
#define ENGINE_OPS_H

#include <stdint.h>

#include "weights.h"

/* out = in / rms(in) * weight, row by row. */
void ops_norm(const float *in, const float *weight, uint32_t rows, uint32_t width, float epsilon, float *out);

/* Cosines and sines for positions first, first + 1, ...: table is [rows, head_dim / 2, 2]. */
void ops_rope_table(uint32_t first, uint32_t rows, uint32_t head_dim, double base, float *table);

/* Rotates neighbouring elements of every head; x is [rows, heads, head_dim]. */
void ops_rope(float *x, const float *table, uint32_t rows, uint32_t heads, uint32_t head_dim);

/* gate = silu(gate) * up */
void ops_swiglu(float *gate, const float *up, uint64_t count);

/* x += y */
void ops_add(float *x, const float *y, uint64_t count);

/* out[rows, outputs] = in[rows, inputs] times the transpose of weights[outputs, inputs]; all contiguous. */
void matmul(const float *in, const float *weights, uint32_t rows, uint32_t inputs, uint32_t outputs,
            float *out);

/* Sets the threads of OpenBLAS; other libraries, and the portable product, ignore it. */
void matmul_set_threads(uint32_t threads);

/* out[rows, outputs] = in[rows, inputs] * matrix + bias */
void dense_run(const struct dense *d, const float *in, uint32_t rows, float *out);

/* out = (in - mean) / deviation * scale + shift, row by row; out may be in. */
void norm_run(const struct norm *n, const float *in, uint32_t rows, uint32_t width, float epsilon,
              float *out);

/* x = x * Phi(x), with the exact distribution function. */
void gelu_run(float *x, uint64_t count);

#endif
