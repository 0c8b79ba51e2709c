/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Product with bias, layer norm and GELU. */
#include "dense.h"

#include "matmul.h"

#include <math.h>

void dense_run(const struct dense *d, const float *in, uint32_t rows, float *out)
{
    matmul(in, d->matrix, rows, d->inputs, d->outputs, out);
    for (uint32_t r = 0; r < rows; r++, out += d->outputs)
        for (uint32_t i = 0; i < d->outputs; i++)
            out[i] += d->bias[i];
}

void norm_run(const struct norm *n, const float *in, uint32_t rows, uint32_t width, float epsilon, float *out)
{
    for (uint32_t r = 0; r < rows; r++, in += width, out += width) {
        double sum = 0;
        double squares = 0;
        for (uint32_t i = 0; i < width; i++)
            sum += (double)in[i];
        double mean = sum / width;
        for (uint32_t i = 0; i < width; i++)
            squares += ((double)in[i] - mean) * ((double)in[i] - mean);
        float scale = (float)(1.0 / sqrt(squares / width + (double)epsilon));
        for (uint32_t i = 0; i < width; i++)
            out[i] = (in[i] - (float)mean) * scale * n->scale[i] + n->shift[i];
    }
}

void gelu_run(float *x, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
