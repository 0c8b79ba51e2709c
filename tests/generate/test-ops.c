/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Norm, rotary embedding, SwiGLU and matrix products against their formulas in double precision. */
#include "model/ops.h"
#include "rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void fill(float *at, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        at[i] = (float)(rng_unit(&seed) * 4 - 2);
}

Test(ops, multiplies_odd_shapes)
{
    static const uint32_t shapes[][3] = {{1, 1, 1},   {1, 37, 5},  {2, 8, 3},
                                         {4, 16, 16}, {7, 19, 11}, {9, 64, 33}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        uint32_t rows = shapes[s][0];
        uint32_t inputs = shapes[s][1];
        uint32_t outputs = shapes[s][2];
        float *x = malloc(rows * inputs * sizeof *x);
        float *w = malloc(outputs * inputs * sizeof *w);
        float *y = malloc(rows * outputs * sizeof *y);
        fill(x, rows * inputs, 1);
        fill(w, outputs * inputs, 2);
        matmul(x, w, rows, inputs, outputs, y);
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t o = 0; o < outputs; o++) {
                double want = 0;
                for (uint32_t k = 0; k < inputs; k++)
                    want += (double)x[r * inputs + k] * (double)w[o * inputs + k];
                cr_assert_float_eq((double)y[r * outputs + o], want, 1e-4, "%ux%ux%u at %u,%u", rows, inputs,
                                   outputs, r, o);
            }
        free(x);
        free(w);
        free(y);
    }
}

Test(ops, normalises_rows)
{
    float x[6] = {3, 4, 0, 1, 1, 1};
    float weight[3] = {1, 2, 3};
    float out[6];
    ops_norm(x, weight, 2, 3, 1e-5f, out);
    double scale = 1 / sqrt(25.0 / 3 + 1e-5);
    cr_assert_float_eq((double)out[0], 3 * scale, 1e-6);
    cr_assert_float_eq((double)out[1], 8 * scale, 1e-6);
    cr_assert_float_eq((double)out[5], 3 / sqrt(1 + 1e-5), 1e-6);
}

Test(ops, rotates_neighbours_by_position)
{
    enum { DIM = 8, HEADS = 2, ROWS = 3, FIRST = 5 };
    float x[ROWS * HEADS * DIM];
    float y[ROWS * HEADS * DIM];
    float table[ROWS * DIM];
    fill(x, ROWS * HEADS * DIM, 3);
    memcpy(y, x, sizeof x);
    ops_rope_table(FIRST, ROWS, DIM, 10000, table);
    ops_rope(y, table, ROWS, HEADS, DIM);
    for (int at = 0; at < ROWS * HEADS * DIM; at += 2) {
        int pair = at % DIM / 2;
        double angle = (FIRST + at / (HEADS * DIM)) * pow(10000, -2.0 * pair / DIM);
        double a = (double)x[at];
        double b = (double)x[at + 1];
        cr_assert_float_eq((double)y[at], a * cos(angle) - b * sin(angle), 1e-5);
        cr_assert_float_eq((double)y[at + 1], a * sin(angle) + b * cos(angle), 1e-5);
    }
}

Test(ops, gates)
{
    float gate[3] = {0, 1, -200};
    float up[3] = {5, 3, 2};
    ops_swiglu(gate, up, 3);
    cr_assert_eq(gate[0], 0.0f);
    cr_assert_float_eq((double)gate[1], 3 / (1 + exp(-1)), 1e-6);
    cr_assert_float_eq((double)gate[2], 0.0, 1e-6);
}
