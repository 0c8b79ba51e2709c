/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* RMS norm, rotary embedding, SwiGLU and addition. */
#include "ops.h"

#include <math.h>
#include <stddef.h>

void ops_norm(const float *in, const float *weight, uint32_t rows, uint32_t width, float epsilon, float *out)
{
    for (uint32_t r = 0; r < rows; r++, in += width, out += width) {
        double squares = 0;
        for (uint32_t i = 0; i < width; i++)
            squares += (double)in[i] * (double)in[i];
        float scale = (float)(1.0 / sqrt(squares / width + (double)epsilon));
        for (uint32_t i = 0; i < width; i++)
            out[i] = in[i] * scale * weight[i];
    }
}

void ops_rope_table(uint32_t first, uint32_t rows, uint32_t head_dim, double base, float *table)
{
    uint32_t pairs = head_dim / 2;
    for (uint32_t i = 0; i < pairs; i++) {
        double frequency = pow(base, -2.0 * i / head_dim);
        for (uint32_t r = 0; r < rows; r++) {
            double angle = frequency * (first + r);
            float *at = table + ((size_t)r * pairs + i) * 2;
            at[0] = (float)cos(angle);
            at[1] = (float)sin(angle);
        }
    }
}

void ops_rope(float *x, const float *table, uint32_t rows, uint32_t heads, uint32_t head_dim)
{
    for (uint32_t r = 0; r < rows; r++, table += head_dim)
        for (uint32_t h = 0; h < heads; h++, x += head_dim)
            for (uint32_t i = 0; i < head_dim; i += 2) {
                float a = x[i];
                float b = x[i + 1];
                x[i] = a * table[i] - b * table[i + 1];
                x[i + 1] = a * table[i + 1] + b * table[i];
            }
}

void ops_swiglu(float *gate, const float *up, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

void ops_add(float *x, const float *y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        x[i] += y[i];
}
