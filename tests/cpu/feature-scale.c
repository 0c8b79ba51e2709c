/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* 8-bit numbers and their scales, from the table of docs/definition.md. */
#include <math.h>

#include "feature-case.h"

double number_of_code(uint32_t dtype, uint8_t code)
{
    bool fnuz = dtype == ATTN_E4M3FNUZ || dtype == ATTN_E5M2FNUZ;
    int bits = dtype == ATTN_E4M3 || dtype == ATTN_E4M3FNUZ ? 3 : 2;
    int bias = (bits == 3 ? 7 : 15) + fnuz, rest = code % 128, exponent = rest >> bits;
    double sign = code >= 128 ? -1 : 1, fraction = rest % (1 << bits) / (double)(1 << bits);

    if (dtype == ATTN_INT8)
        return code >= 128 ? code - 256.0 : code;
    if (fnuz && code == 0x80)
        return (double)NAN;
    if (!fnuz && bits == 3 && rest == 0x7f)
        return (double)NAN;
    if (!fnuz && bits == 2 && rest >= 0x7c)
        return rest == 0x7c ? sign * (double)INFINITY : (double)NAN;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias);
    return sign * ldexp(1 + fraction, exponent - bias);
}

uint8_t case_draw_code(struct feature_case *c, uint32_t dtype)
{
    uint8_t code = (uint8_t)(1 + case_draw(c, 60));

    if (dtype == ATTN_INT8)
        return (uint8_t)case_draw(c, 256);
    return (uint8_t)(code | case_draw(c, 2) << 7);
}

struct attn_scale case_draw_scale(struct feature_case *c, uint32_t dtype, uint32_t granularity,
                                  uint32_t outer, uint32_t tokens, uint32_t heads)
{
    struct attn_scale scale = {.kind = ATTN_SCALE_UNIT, .granularity = granularity};
    float *values = case_memory(c, (uint64_t)outer * tokens * heads * sizeof *values);
    float unit = dtype == ATTN_INT8 ? 1.0f / 128 : 1;

    if (granularity == ATTN_SCALES_UNIT)
        return scale;
    for (uint32_t i = 0; i < outer * tokens * heads; i++)
        values[i] = (1 + (float)case_draw(c, 5)) * unit / 4;
    scale.kind = ATTN_SCALE_HOST + case_draw(c, 2);
    scale.buffer.data = values;
    if (granularity != ATTN_SCALES_TENSOR) {
        scale.head_stride = sizeof *values;
        scale.outer_stride = (int64_t)(tokens * heads * sizeof *values);
    }
    if (granularity == ATTN_SCALES_TOKEN_HEAD)
        scale.token_stride = (int64_t)(heads * sizeof *values);
    return scale;
}

double case_scale_at(const struct attn_scale *scale, int64_t outer, int64_t token, int64_t head)
{
    if (scale->kind < ATTN_SCALE_HOST)
        return 1;
    return (double)*(const float *)(const void *)((const char *)scale->buffer.data +
                                                  outer * scale->outer_stride + token * scale->token_stride +
                                                  head * scale->head_stride);
}
