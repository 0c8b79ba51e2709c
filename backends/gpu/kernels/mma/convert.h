/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * 8-bit keys and values as 16-bit numbers in shared memory, once for all warps of a CTA. A thread converts
 * the chunks that it has copied itself, so no barrier separates copies and conversion.
 */
#ifndef ATTN_GPU_MMA_CONVERT_H
#define ATTN_GPU_MMA_CONVERT_H

#include "load.h"

/* What a thread has copied of a raw stage, in registers. */
template <class C> struct mma_codes {
    uint64_t x[C::RAW_BYTES / (C::KEYS / C::GROUP_KEYS) / C::THREADS / 8];
};

/*
 * Which half of its chunks a thread takes first: an order that differs between threads, so that eight of them
 * write to different banks.
 */
GPU_INLINE uint32_t mma_first_half(uint32_t thread)
{
    return (thread / 4 ^ thread / 8) % 2;
}

/* Reads the codes of vectors of `bytes` bytes, all before the first is converted: a load would wait for the
 * stores before it, as both are to shared memory. */
template <class C>
GPU_INLINE void mma_read_codes(const unsigned char *raw, uint32_t bytes, mma_codes<C> *codes)
{
    const uint32_t thread = gpu_keep(gpu_thread()), first = mma_first_half(thread);
    const uint32_t chunks = C::GROUP_KEYS * bytes / 2048;

    raw += mma_chunk_of<C>(thread, bytes).offset;
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < chunks; i++)
            codes->x[h * chunks + i] = *(const uint64_t *)(const void *)(raw + (h ^ first) * 8 + i * 2048);
    }
}

/* Where a chunk of numbers lies, `rows` and `chunks` behind the first that a thread has of `bytes` codes. */
template <class C>
GPU_INLINE uint32_t mma_number_at(struct mma_chunk own, uint32_t rows, uint32_t chunks, uint32_t bytes)
{
    if constexpr (C::WGMMA)
        return mma_swizzled<C>(own.row + rows, own.column / 8 + chunks, bytes * 2);
    /* Without a swizzle, what is the same for all of a thread's chunks is a sum of its own. */
    return own.row * mma_row_pitch<C>(bytes * 2) + own.column * 2 +
           (rows * mma_row_pitch<C>(bytes * 2) + chunks * 16);
}

/* NaN, in either type, in place of the numbers whose FNUZ code is that of NaN: seldom one is. */
template <class C>
GPU_INLINE void mma_write_fnuz_nan(const mma_codes<C> *codes, const unsigned char *raw, uint32_t bytes,
                                   unsigned char *to)
{
    const uint32_t stride = mma_row_threads(bytes) * 16, each = bytes / stride;
    const struct mma_chunk own = mma_chunk_of<C>(gpu_thread(), bytes);
    uint32_t nan = 0;

    GPU_UNROLL
    for (uint32_t i = 0; i < C::GROUP_KEYS * bytes / C::THREADS / 8; i++)
        nan |= gpu_nonfinite8(ATTN_E4M3FNUZ, (uint32_t)codes->x[i]) |
               gpu_nonfinite8(ATTN_E4M3FNUZ, (uint32_t)(codes->x[i] >> 32));
    if (nan == 0)
        return;
    GPU_LOOP
    for (uint32_t i = 0; i < C::GROUP_KEYS * bytes / C::THREADS; i++) {
        const uint32_t chunk = i / 16;
        if (raw[gpu_thread() * 16 + chunk * 2048 + i % 16] == 0x80)
            *(uint16_t *)(void *)(to +
                                  mma_number_at<C>(own, chunk / each, chunk % each * stride / 8 + i % 16 / 8,
                                                   bytes) +
                                  i % 8 * 2) = 0x7fff;
    }
}

/* Writes them as f16, or as `bf16`. */
template <class C>
GPU_INLINE void mma_write_numbers(uint32_t dtype, bool bf16, const mma_codes<C> *codes,
                                  const unsigned char *raw, uint32_t bytes, unsigned char *to)
{
    /* Nothing of what follows from it stays in registers from one iteration to the next. */
    const uint32_t thread = gpu_keep(gpu_thread()), first = mma_first_half(thread);
    const uint32_t stride = mma_row_threads(bytes) * 16, each = bytes / stride; /* chunks of a row */
    const uint32_t chunks = C::GROUP_KEYS * bytes / 2048;
    const struct mma_chunk chunk = mma_chunk_of<C>(thread, bytes);
    /* As a constant it would be an operand of instructions, and their selectors would be moved to registers.
     */
    const uint32_t high = dtype == ATTN_INT8 && bf16 ? gpu_ballot(true) & 0x43434343u : 0;

    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        GPU_UNROLL
        for (uint32_t i = 0; i < chunks; i++) {
            struct gpu_u128 out;
            GPU_UNROLL
            for (uint32_t j = 0; j < 2; j++) {
                const uint32_t word = (uint32_t)(codes->x[h * chunks + i] >> 32 * j);
                if (gpu_is_fnuz(dtype)) {
                    gpu_quad8_fnuz(dtype, bf16, word, out.x + 2 * j);
                } else if (dtype == ATTN_INT8 && bf16) {
                    out.x[2 * j] = gpu_pair8_bf16(word, high, 0x4140);
                    out.x[2 * j + 1] = gpu_pair8_bf16(word, high, 0x4342);
                } else {
                    gpu_quad8_as(dtype, bf16, word, out.x + 2 * j);
                }
            }
            gpu_store_u128(to + mma_number_at<C>(chunk, i / each, i % each * stride / 8 + (h ^ first), bytes),
                           out);
        }
    }
    if (gpu_is_fnuz(dtype))
        mma_write_fnuz_nan<C>(codes, raw, bytes, to);
}

/* The same, by code for each type. `fnuz`: it may be one of those. */
template <class C>
GPU_INLINE void mma_convert_codes(uint32_t dtype, bool fnuz, bool bf16, const mma_codes<C> *codes,
                                  const unsigned char *raw, uint32_t bytes, unsigned char *to)
{
    if (dtype == ATTN_E4M3)
        mma_write_numbers<C>(ATTN_E4M3, bf16, codes, raw, bytes, to);
    else if (dtype == ATTN_E5M2)
        mma_write_numbers<C>(ATTN_E5M2, bf16, codes, raw, bytes, to);
    else if (fnuz && dtype == ATTN_E4M3FNUZ)
        mma_write_numbers<C>(ATTN_E4M3FNUZ, bf16, codes, raw, bytes, to);
    else if (fnuz && dtype == ATTN_E5M2FNUZ)
        mma_write_numbers<C>(ATTN_E5M2FNUZ, bf16, codes, raw, bytes, to);
    else
        mma_write_numbers<C>(ATTN_INT8, bf16, codes, raw, bytes, to);
}

/* Keys become f16. */
template <class C>
GPU_INLINE void mma_convert_keys(const struct gpu_run *run, const mma_codes<C> *codes,
                                 const unsigned char *raw, unsigned char *to)
{
    mma_convert_codes<C>(run->k.dtype, true, false, codes, raw, C::K_BYTES, to);
}

/* Values become what P is: bf16 if they are FNUZ. */
template <class C>
GPU_INLINE void mma_convert_values(const struct gpu_run *run, const mma_codes<C> *codes,
                                   const unsigned char *raw, unsigned char *to)
{
    if (mma_p_bf16<C>(run))
        mma_convert_codes<C>(run->v.dtype, true, true, codes, raw, C::V_BYTES, to);
    else
        mma_convert_codes<C>(run->v.dtype, false, false, codes, raw, C::V_BYTES, to);
}

#endif
