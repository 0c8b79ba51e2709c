/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Eight elements of any type at once: what the kernels on caches convert from type to type. */
#ifndef ATTN_GPU_KV_ELEMENTS_H
#define ATTN_GPU_KV_ELEMENTS_H

#include "kv-place.h"

struct gpu_kv_elements {
    uint32_t x[8]; /* as in memory */
};

GPU_INLINE void gpu_kv_elements_load(uint64_t at, uint32_t size, struct gpu_kv_elements *out)
{
    if (size == 1) {
        const uint64_t all = gpu_at<const uint64_t>(at, 0);
        out->x[0] = (uint32_t)all;
        out->x[1] = (uint32_t)(all >> 32);
        return;
    }
    const struct gpu_u128 low = gpu_load_global_u128(at);
    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        out->x[i] = low.x[i];
    if (size == 4) {
        const struct gpu_u128 high = gpu_load_global_u128(at + 16);
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            out->x[4 + i] = high.x[i];
    }
}

GPU_INLINE void gpu_kv_elements_store(uint64_t at, uint32_t size, const struct gpu_kv_elements *all)
{
    struct gpu_u128 low, high;

    if (size == 1) {
        gpu_at<uint64_t>(at, 0) = (uint64_t)all->x[1] << 32 | all->x[0];
        return;
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        low.x[i] = all->x[i];
        high.x[i] = all->x[4 + i];
    }
    gpu_store_global_u128(at, low);
    if (size == 4)
        gpu_store_global_u128(at + 16, high);
}

GPU_INLINE void gpu_kv_elements_decode(uint32_t dtype, const struct gpu_kv_elements *all, float values[8])
{
    if (dtype == ATTN_BF16 || dtype == ATTN_F16) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            const uint16_t code = (uint16_t)(all->x[i / 2] >> 16 * (i % 2));
            values[i] = dtype == ATTN_BF16 ? gpu_bf16_to_f32(code) : gpu_f16_to_f32(code);
        }
    } else if (dtype == ATTN_F32) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            values[i] = gpu_f32_of_bits(all->x[i]);
    } else {
        GPU_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            values[i] = gpu_decode8(dtype, all->x[i / 4] >> 8 * (i % 4) & 0xffu);
    }
}

GPU_INLINE void gpu_kv_elements_encode(uint32_t dtype, const float values[8], struct gpu_kv_elements *out)
{
    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        out->x[i] = 0;
    if (dtype == ATTN_BF16 || dtype == ATTN_F16) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            out->x[i] = dtype == ATTN_BF16 ? gpu_pack_bf16(values[2 * i], values[2 * i + 1])
                                           : gpu_pack_f16(values[2 * i], values[2 * i + 1]);
    } else if (dtype == ATTN_F32) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            out->x[i] = gpu_f32_bits(values[i]);
    } else {
        GPU_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            out->x[i / 4] |= gpu_encode8(dtype, values[i]) << 8 * (i % 4);
    }
}

#endif
