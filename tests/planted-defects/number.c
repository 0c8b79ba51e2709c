/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Elements and scales: every type that is served, to and from f32. */
#include "defect.h"
#include "fp8-int8.h"
#include "half.h"

bool is_served(uint32_t dtype, bool is_cached)
{
    if (dtype == ATTN_INT8 || dtype == ATTN_E4M3)
        return is_cached;
    return dtype == ATTN_F32 || dtype == ATTN_F16 || dtype == ATTN_BF16;
}

void load_vector(uint32_t dtype, float *to, const void *from, uint32_t count)
{
    const uint16_t *half = from;
    const uint8_t *code = from;

    if (dtype == ATTN_F32)
        memcpy(to, from, count * sizeof *to);
    for (uint32_t i = 0; dtype == ATTN_F16 && i < count; i++)
        to[i] = attn__f16_to_f32(half[i]);
    for (uint32_t i = 0; dtype == ATTN_BF16 && i < count; i++)
        to[i] = attn__bf16_to_f32(half[i]);
    for (uint32_t i = 0; size_of(dtype) == 1 && i < count; i++)
        to[i] = attn__codec8_decode(dtype, code[i]);
}

void store_vector(uint32_t dtype, void *to, const float *from, uint32_t count)
{
    uint16_t *half = to;
    uint8_t *code = to;

    if (dtype == ATTN_F32)
        memcpy(to, from, count * sizeof *from);
    for (uint32_t i = 0; dtype == ATTN_F16 && i < count; i++)
        half[i] = attn__f32_to_f16(from[i]);
    for (uint32_t i = 0; dtype == ATTN_BF16 && i < count; i++)
        half[i] = attn__f32_to_bf16(from[i]);
    for (uint32_t i = 0; size_of(dtype) == 1 && i < count; i++)
        code[i] = attn__codec8_encode(dtype, from[i]);
}

float scale_at(const struct attn_scale *scale, int64_t outer, int64_t token, int64_t head)
{
    if (scale->kind != ATTN_SCALE_HOST && scale->kind != ATTN_SCALE_DEVICE)
        return 1;
    return *(const float *)(const void *)(attn_util_at(&scale->buffer) + outer * scale->outer_stride +
                                          token * scale->token_stride + head * scale->head_stride);
}
