/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What layers compute beside attention: matrix products, through BLAS where it was found, norms and
 * activations. */
#include "ops.h"

#include <math.h>
#include <stddef.h>

/* ---------------------------------------------------------------- products */

#ifdef ATTN_HAVE_BLAS

#include <cblas.h>

/* Only OpenBLAS has it; other libraries take their own environment variables. */
extern void openblas_set_num_threads(int threads) __attribute__((weak));

void matmul_set_threads(uint32_t threads)
{
    if (openblas_set_num_threads && threads)
        openblas_set_num_threads((int)threads);
}

void matmul(const float *in, const float *weights, uint32_t rows, uint32_t inputs, uint32_t outputs,
            float *out)
{
    int n = (int)rows;
    int k = (int)inputs;
    int m = (int)outputs;
    if (rows == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, m, k, 1.0f, weights, k, in, 1, 0.0f, out, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, m, k, 1.0f, in, k, weights, k, 0.0f, out, m);
}

#else

#include <string.h>

enum { LANES = 8, ROWS = 4 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

void matmul_set_threads(uint32_t threads)
{
    (void)threads; /* the portable product runs on the caller's thread */
}

/* Products of one weight row with up to ROWS input rows, so that each weight is loaded once for all of them.
 */
static void dot_rows(const float *in, const float *weights, uint32_t rows, uint32_t inputs, float *out,
                     uint32_t outputs)
{
    lanes sums[ROWS] = {0};
    uint32_t k = 0;
    for (; k + LANES <= inputs; k += LANES) {
        lanes w;
        memcpy(&w, weights + k, sizeof w);
        for (uint32_t r = 0; r < rows; r++) {
            lanes x;
            memcpy(&x, in + (size_t)r * inputs + k, sizeof x);
            sums[r] += w * x;
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        float sum = 0;
        for (int lane = 0; lane < LANES; lane++)
            sum += sums[r][lane];
        for (uint32_t rest = k; rest < inputs; rest++)
            sum += weights[rest] * in[(size_t)r * inputs + rest];
        out[(size_t)r * outputs] = sum;
    }
}

void matmul(const float *in, const float *weights, uint32_t rows, uint32_t inputs, uint32_t outputs,
            float *out)
{
    for (uint32_t o = 0; o < outputs; o++) {
        const float *w = weights + (size_t)o * inputs;
        uint32_t r = 0;
        for (; r + ROWS <= rows; r += ROWS) /* a constant count lets the sums stay in registers */
            dot_rows(in + (size_t)r * inputs, w, ROWS, inputs, out + (size_t)r * outputs + o, outputs);
        for (; r < rows; r++)
            dot_rows(in + (size_t)r * inputs, w, 1, inputs, out + (size_t)r * outputs + o, outputs);
    }
}

#endif

/* ---------------------------------------------------------------- of Llama layers */

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

/* ---------------------------------------------------------------- of layers with biases and centred norms */

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
