/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads and writes elements of a vector, which is that of one token and head, in a cache or in a tensor. */
#ifndef ATTN_GPU_KV_VECTOR_H
#define ATTN_GPU_KV_VECTOR_H

#include "kv-place.h"

struct gpu_kv_vector {
    uint64_t at;   /* element 0 */
    uint64_t rest; /* elements from `split` on, or 0 */
    int64_t x_stride;
    uint32_t x_shift;
    uint32_t split;
    uint32_t size;
    uint32_t dtype;
};

GPU_INLINE struct gpu_kv_vector gpu_kv_vector_of(const struct gpu_kv_side *side, int64_t page, int64_t token,
                                                 uint32_t head)
{
    const struct gpu_cache *cache = &side->cache;
    struct gpu_kv_vector vector;

    vector.at = cache->base + (uint64_t)(page * cache->page_stride + token * cache->token_stride +
                                         (int64_t)head * cache->head_stride);
    vector.rest = 0;
    vector.x_stride = cache->x_stride;
    vector.x_shift = side->x_shift;
    vector.split = 0;
    vector.size = cache->size;
    vector.dtype = cache->dtype;
    return vector;
}

GPU_INLINE struct gpu_kv_vector gpu_kv_vector_in(const struct gpu_tensor *tensor, uint32_t dtype,
                                                 uint32_t row, uint32_t head)
{
    struct gpu_kv_vector vector;

    vector.at =
        tensor->base + (uint64_t)((int64_t)row * tensor->token_stride + (int64_t)head * tensor->head_stride);
    vector.rest = 0;
    vector.x_stride = 0;
    vector.x_shift = 31;
    vector.split = 0;
    vector.size = GPU_SIZE(dtype);
    vector.dtype = dtype;
    return vector;
}

GPU_INLINE uint64_t gpu_kv_element(const struct gpu_kv_vector *vector, uint32_t d)
{
    const uint32_t byte = d * vector->size;

    if (vector->rest != 0 && d >= vector->split)
        return vector->rest + (d - vector->split) * vector->size;
    return vector->at + (uint64_t)((int64_t)(byte >> vector->x_shift) * vector->x_stride) +
           (byte & ((1u << vector->x_shift) - 1));
}

/* Loads `wide` (1 or 4) elements from d on without conversion, one a word; 4 are contiguous and aligned. */
GPU_INLINE void gpu_kv_load_raw(const struct gpu_kv_vector *vector, uint32_t d, uint32_t wide,
                                uint32_t raw[4])
{
    const uint64_t at = gpu_kv_element(vector, d);

    if (wide == 1) {
        raw[0] = vector->size == 4   ? gpu_at<const uint32_t>(at, 0)
                 : vector->size == 2 ? gpu_at<const uint16_t>(at, 0)
                                     : gpu_at<const uint8_t>(at, 0);
    } else if (vector->size == 4) {
        const struct gpu_u128 all = gpu_load_global_u128(at);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            raw[i] = all.x[i];
    } else if (vector->size == 2) {
        const uint64_t all = gpu_at<const uint64_t>(at, 0);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            raw[i] = (uint32_t)(all >> 16 * i) & 0xffffu;
    } else {
        const uint32_t all = gpu_at<const uint32_t>(at, 0);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            raw[i] = all >> 8 * i & 0xffu;
    }
}

GPU_INLINE void gpu_kv_store_raw(const struct gpu_kv_vector *vector, uint32_t d, uint32_t wide,
                                 const uint32_t raw[4])
{
    const uint64_t at = gpu_kv_element(vector, d);

    if (wide == 1) {
        if (vector->size == 4)
            gpu_at<uint32_t>(at, 0) = raw[0];
        else if (vector->size == 2)
            gpu_at<uint16_t>(at, 0) = (uint16_t)raw[0];
        else
            gpu_at<uint8_t>(at, 0) = (uint8_t)raw[0];
    } else if (vector->size == 4) {
        struct gpu_u128 all;
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            all.x[i] = raw[i];
        gpu_store_global_u128(at, all);
    } else if (vector->size == 2) {
        gpu_at<uint64_t>(at, 0) = (uint64_t)(raw[2] | raw[3] << 16) << 32 | (raw[0] | raw[1] << 16);
    } else {
        gpu_at<uint32_t>(at, 0) = raw[0] | raw[1] << 8 | raw[2] << 16 | raw[3] << 24;
    }
}

GPU_INLINE float gpu_kv_decode(uint32_t dtype, uint32_t raw)
{
    switch (dtype) {
    case ATTN_F32:
        return gpu_f32_of_bits(raw);
    case ATTN_F16:
        return gpu_f16_to_f32((uint16_t)raw);
    case ATTN_BF16:
        return gpu_bf16_to_f32((uint16_t)raw);
    default:
        return gpu_decode8(dtype, raw);
    }
}

GPU_INLINE uint32_t gpu_kv_encode(uint32_t dtype, float value)
{
    switch (dtype) {
    case ATTN_F32:
        return gpu_f32_bits(value);
    case ATTN_F16:
        return gpu_f32_to_f16(value);
    case ATTN_BF16:
        return gpu_f32_to_bf16(value);
    default:
        return gpu_encode8(dtype, value);
    }
}

/* Loads them as f32. */
GPU_INLINE void gpu_kv_load(const struct gpu_kv_vector *vector, uint32_t d, uint32_t wide, float scale,
                            float values[4])
{
    uint32_t raw[4];

    gpu_kv_load_raw(vector, d, wide, raw);
    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if (i < wide)
            values[i] = gpu_kv_decode(vector->dtype, raw[i]) * scale;
}

GPU_INLINE void gpu_kv_store(const struct gpu_kv_vector *vector, uint32_t d, uint32_t wide,
                             const float values[4])
{
    uint32_t raw[4];

    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if (i < wide)
            raw[i] = gpu_kv_encode(vector->dtype, values[i]);
    gpu_kv_store_raw(vector, d, wide, raw);
}

/* ---------------------------------------------------------------- scales */

GPU_INLINE uint64_t gpu_kv_scale_place(const struct gpu_scale *scale, int64_t page, int64_t token,
                                       uint32_t head)
{
    return scale->base + (uint64_t)(page * scale->outer_stride + token * scale->token_stride +
                                    (int64_t)head * scale->head_stride);
}

GPU_INLINE float gpu_kv_scale(const struct gpu_kv_side *side, int64_t page, int64_t token, uint32_t head)
{
    if (side->by_head != 0)
        return side->values[head];
    if (side->cache.scale.base == 0)
        return side->cache.scale.value;
    return gpu_at<const float>(gpu_kv_scale_place(&side->cache.scale, page, token, head), 0);
}

/* ---------------------------------------------------------------- a vector by a warp */

/* Copies the elements without conversion. */
GPU_INLINE void gpu_kv_copy_vector(const struct gpu_kv_vector *from, const struct gpu_kv_vector *to,
                                   uint32_t dim, uint32_t wide)
{
    uint32_t raw[4];

    for (uint32_t d = gpu_thread() % GPU_WARP * wide; d < dim; d += GPU_WARP * wide) {
        gpu_kv_load_raw(from, d, wide, raw);
        gpu_kv_store_raw(to, d, wide, raw);
    }
}

/* Q of a token-head scale: the largest that a vector is scaled to. */
GPU_INLINE float gpu_kv_largest(uint32_t dtype)
{
    return dtype == ATTN_INT8 ? 127.0f : gpu_decode8(dtype, gpu_largest(dtype));
}

/* max|x| / Q from the bits of max|x|; NaN for a NaN or an infinity, and 1 if max|x| is too small for a scale.
 */
GPU_INLINE float gpu_kv_scale_of_largest(uint32_t max, uint32_t dtype)
{
    if (max >= 0x7f800000u)
        return gpu_f32_of_bits(0x7fc00000u);
    const float own = gpu_divide(gpu_f32_of_bits(max), gpu_kv_largest(dtype));
    return gpu_f32_bits(own) < 0x00800000u ? 1.0f : own;
}

/* The scale of a vector that has its own: max|x| / Q, NaN if there is a NaN or an infinity. */
GPU_INLINE float gpu_kv_own_scale(const struct gpu_kv_vector *from, uint32_t dim, uint32_t wide, float scale,
                                  uint32_t dtype)
{
    uint32_t max = 0; /* as integers, floats >= 0 keep their order, and NaN is above all */
    float values[4];

    for (uint32_t d = gpu_thread() % GPU_WARP * wide; d < dim; d += GPU_WARP * wide) {
        gpu_kv_load(from, d, wide, scale, values);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t bits = i < wide ? gpu_f32_bits(values[i]) & 0x7fffffffu : 0;
            max = bits > max ? bits : max;
        }
    }
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2) {
        const uint32_t other = gpu_shuffle_xor_u32(max, mask);
        max = other > max ? other : max;
    }
    return gpu_kv_scale_of_largest(max, dtype);
}

/*
 * Writes the values of a vector, times `scale`, with the target's scale, which is computed and kept if it is
 * the vector's own.
 */
GPU_INLINE void gpu_kv_write_vector(const struct gpu_kv_vector *from, float scale,
                                    const struct gpu_kv_side *side, int64_t page, int64_t token,
                                    uint32_t head, uint32_t wide)
{
    const struct gpu_kv_vector to = gpu_kv_vector_of(side, page, token, head);
    float divisor = 1, values[4];

    if (side->token_head != 0) {
        divisor = gpu_kv_own_scale(from, side->cache.dim, wide, scale, to.dtype);
        if (gpu_thread() % GPU_WARP == 0)
            gpu_at<float>(gpu_kv_scale_place(&side->cache.scale, page, token, head), 0) = divisor;
    } else if (to.size == 1) {
        divisor = gpu_kv_scale(side, page, token, head);
    }
    for (uint32_t d = gpu_thread() % GPU_WARP * wide; d < side->cache.dim; d += GPU_WARP * wide) {
        gpu_kv_load(from, d, wide, scale, values);
        if (divisor != 1) {
            GPU_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                if (i < wide)
                    values[i] = gpu_divide(values[i], divisor);
        }
        gpu_kv_store(&to, d, wide, values);
    }
}

#endif
