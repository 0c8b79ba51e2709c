/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Matrix products through BLAS where it was found, else in portable vectors. */
#include "matmul.h"

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
