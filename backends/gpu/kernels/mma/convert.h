/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * 8-bit keys and values as 16-bit numbers in shared memory, once for all warps of a CTA. A thread converts
 * the chunks that it has copied itself, so no barrier separates copies and conversion.
 */
#ifndef ATTN_GPU_MMA_CONVERT_H
#define ATTN_GPU_MMA_CONVERT_H

#include "load.h"

/*
 * Converts a raw stage. The halves of a chunk are taken in an order that differs between threads, so that
 * eight of them write to different banks.
 */
template <class C>
GPU_INLINE void mma_convert_codes(uint32_t dtype, bool bf16, const unsigned char *raw, uint32_t bytes,
                                  unsigned char *to)
{
    /* Nothing of what follows from it stays in registers from one iteration to the next. */
    const uint32_t thread = gpu_keep(gpu_thread()), flip = (thread / 4 ^ thread / 8) % 2;
    const uint32_t stride = mma_row_threads(bytes) * 16, each = bytes / stride; /* chunks of a row */
    const struct mma_chunk first = mma_chunk_of<C>(thread, bytes);

    raw += first.offset;
    to += first.row * mma_row_pitch<C>(bytes * 2) + first.column * 2;
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t half = h ^ flip;
        GPU_UNROLL
        for (uint32_t i = 0; i < C::KEYS * bytes / 2048; i++) {
            const uint64_t codes = *(const uint64_t *)(const void *)(raw + half * 8 + i * 2048);
            struct gpu_u128 out;
            gpu_quad8_as(dtype, bf16, (uint32_t)codes, out.x);
            gpu_quad8_as(dtype, bf16, (uint32_t)(codes >> 32), out.x + 2);
            gpu_store_u128(to + half * 16 + i / each * mma_row_pitch<C>(bytes * 2) + i % each * stride * 2,
                           out);
        }
    }
}

/* The same, by code for each type. */
template <class C>
GPU_INLINE void mma_convert_stage(uint32_t dtype, bool bf16, const unsigned char *raw, uint32_t bytes,
                                  unsigned char *to)
{
    if (dtype == ATTN_E4M3)
        mma_convert_codes<C>(ATTN_E4M3, bf16, raw, bytes, to);
    else if (dtype == ATTN_E5M2)
        mma_convert_codes<C>(ATTN_E5M2, bf16, raw, bytes, to);
    else if (C::FNUZ && gpu_is_fnuz(dtype))
        mma_convert_codes<C>(dtype, bf16, raw, bytes, to);
    else
        mma_convert_codes<C>(ATTN_INT8, bf16, raw, bytes, to);
}

/* Keys become f16. */
template <class C>
GPU_INLINE void mma_convert_keys(const struct gpu_run *run, unsigned char *stages, uint32_t raw)
{
    mma_convert_stage<C>(run->k.dtype, false, mma_raw_stage<C>(stages, raw, false), C::K_BYTES, stages);
}

/* Values become what P is. */
template <class C>
GPU_INLINE void mma_convert_values(const struct gpu_run *run, unsigned char *stages, uint32_t raw)
{
    const unsigned char *from = mma_raw_stage<C>(stages, raw, true);
    unsigned char *to = stages + C::STAGE_BYTES;

    if (mma_p_bf16<C>(run))
        mma_convert_stage<C>(run->v.dtype, true, from, C::V_BYTES, to);
    else
        mma_convert_stage<C>(run->v.dtype, false, from, C::V_BYTES, to);
}

#endif
