/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The small operations of a Llama layer, on rows of floats. */
#ifndef GENERATE_OPS_H
#define GENERATE_OPS_H

#include <stdint.h>

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

#endif
