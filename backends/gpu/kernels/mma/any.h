/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Keys and values of any type without scales beside them, and queries of f32 and 16 bits, as f32, exactly,
 * for the products of tf32.h: they are converted when they are loaded, so that a cache in blocks is read as
 * it is.
 */
#ifndef ATTN_GPU_MMA_ANY_H
#define ATTN_GPU_MMA_ANY_H

#include "addresses.h"
#include "blocks.h"

/* How a vector is read, for code of its own: what the types of a kind do differently costs no branch. */
enum mma_any_kind { MMA_ANY_Q8_0, MMA_ANY_NIBBLES, MMA_ANY_ELEMENTS };

/* Four elements as they lie in memory: nothing is computed from them before all loads have begun. */
struct mma_any_read {
    uint32_t word[5];
};

/* Elements d to d + 3 of a vector in blocks, d a multiple of four: codes, scale, least, bits above them. */
template <mma_any_kind kind>
GPU_INLINE struct mma_any_read mma_any_read_blocks(uint32_t dtype, uint64_t vector, uint32_t d)
{
    const uint32_t half = ATTN_BLOCK_ELEMENTS / 2, i = d % ATTN_BLOCK_ELEMENTS,
                   bytes = kind == MMA_ANY_Q8_0 ? gpu_block_bytes(ATTN_Q8_0) : gpu_block_bytes(dtype);
    const uint64_t block = vector + d / ATTN_BLOCK_ELEMENTS * bytes;
    const uint64_t codes = kind == MMA_ANY_Q8_0 ? block + 2 + i : block + bytes - half + i % half;
    struct mma_any_read out;

    out.word[0] = GPU_GLOBAL(const uint16_t, codes)[0];
    out.word[1] = GPU_GLOBAL(const uint16_t, codes)[1];
    out.word[2] = *GPU_GLOBAL(const uint16_t, block);
    out.word[3] = out.word[4] = 0;
    if (kind == MMA_ANY_NIBBLES) {
        out.word[3] = GPU_GLOBAL(const uint16_t, block)[gpu_block_adds(dtype) ? 1 : 0];
        out.word[4] = *GPU_U8(gpu_block_bits(dtype) == 5 ? block + bytes - half - 4 + i / 8 : block);
    }
    return out;
}

/* The same of elements without blocks; zeros behind the last one. */
GPU_INLINE struct mma_any_read mma_any_read_elements(const struct gpu_cache *cache, uint64_t vector,
                                                     uint32_t d)
{
    const uint32_t size = cache->size;
    const uint64_t at = vector + d * size;
    struct mma_any_read out = {{0, 0, 0, 0, 0}};

    if (cache->x_stride == 0 && d + 4 <= cache->dim && (at & (4 * size - 1)) == 0) {
        const uint64_t two = GPU_GLOBAL(const uint64_t, at)[0],
                       rest = size == 4 ? GPU_GLOBAL(const uint64_t, at)[1] : 0;
        out.word[0] = (uint32_t)two;
        out.word[1] = (uint32_t)(two >> 32);
        out.word[2] = (uint32_t)rest;
        out.word[3] = (uint32_t)(rest >> 32);
        return out;
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        if (d + i >= cache->dim)
            break;
        const uint64_t from = vector + (uint64_t)gpu_column(cache, d + i);
        if (size == 4)
            out.word[i] = *GPU_GLOBAL(const uint32_t, from);
        else
            out.word[i / 2] |= (uint32_t)*GPU_GLOBAL(const uint16_t, from) << i % 2 * 16;
    }
    return out;
}

/* What was read of elements d to d + 3, as f32. */
template <mma_any_kind kind>
GPU_INLINE struct gpu_u128 mma_any_convert(uint32_t dtype, const struct mma_any_read *read, uint32_t d)
{
    const uint32_t codes = read->word[0] | read->word[1] << 16;
    const float scale = gpu_f16_to_f32((uint16_t)read->word[2]);
    const float least = gpu_block_adds(dtype) ? gpu_f16_to_f32((uint16_t)read->word[3]) : 0;
    const uint32_t nibbles = codes >> d / 16 % 2 * 4,
                   fifths = gpu_block_bits(dtype) == 5 ? read->word[4] >> d % 8 : 0;
    struct gpu_u128 out;

    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint16_t half = (uint16_t)(read->word[i / 2] >> i % 2 * 16);
        if (kind == MMA_ANY_Q8_0)
            out.x[i] = gpu_f32_bits(scale * (float)(int8_t)(codes >> 8 * i));
        else if (kind == MMA_ANY_NIBBLES)
            out.x[i] = gpu_f32_bits(gpu_block_number(
                dtype, gpu_block_code(dtype, nibbles >> 8 * i & 15, fifths >> i & 1), scale, least));
        else
            out.x[i] = dtype == ATTN_F32
                           ? read->word[i]
                           : gpu_f32_bits(dtype == ATTN_F16 ? gpu_f16_to_f32(half) : gpu_bf16_to_f32(half));
    }
    return out;
}

/* Fills a stage with a group's vectors of `bytes` bytes of f32. Vectors that do not exist are left as they
 * were. */
template <class C, mma_any_kind kind>
GPU_INLINE void mma_any_fill(const struct gpu_cache *cached, const struct gpu_cache *uncached,
                             const uint64_t *at, uint32_t first_new, uint32_t bytes, unsigned char *to)
{
    /* Chunks that a thread reads before it converts the first: of decode, which waits for memory, more. */
    constexpr uint32_t held = C::GROUPS == 1 ? 4 : 8;
    const uint32_t chunks = bytes / 16, threads = C::GROUP_THREADS, dim = cached->dim, dtype = cached->dtype;

    GPU_LOOP
    for (uint32_t first = gpu_thread() % threads; first < C::GROUP_KEYS * chunks; first += held * threads) {
        struct mma_any_read read[held];
        GPU_UNROLL
        for (uint32_t u = 0; u < held; u++) {
            const uint32_t row = (first + u * threads) / chunks, d = (first + u * threads) % chunks * 4;
            if (at[row] == MMA_NO_ADDRESS || d >= dim)
                continue;
            read[u] = kind == MMA_ANY_ELEMENTS
                          ? mma_any_read_elements(row >= first_new ? uncached : cached, at[row], d)
                          : mma_any_read_blocks<kind>(dtype, at[row], d);
        }
        GPU_UNROLL
        for (uint32_t u = 0; u < held; u++) {
            const uint32_t row = (first + u * threads) / chunks, chunk = (first + u * threads) % chunks;
            if (at[row] != MMA_NO_ADDRESS && chunk * 4 < dim)
                gpu_store_u128(to + mma_swizzled<C>(row, chunk, bytes),
                               mma_any_convert<kind>(dtype, &read[u], chunk * 4));
        }
    }
}

template <class C>
GPU_INLINE void mma_any_stage(const struct gpu_cache *cached, const struct gpu_cache *uncached,
                              const uint64_t *at, uint32_t first_new, uint32_t bytes, unsigned char *to)
{
    if (cached->dtype == ATTN_Q8_0)
        mma_any_fill<C, MMA_ANY_Q8_0>(cached, uncached, at, first_new, bytes, to);
    else if (gpu_has_blocks(cached->dtype))
        mma_any_fill<C, MMA_ANY_NIBBLES>(cached, uncached, at, first_new, bytes, to);
    else
        mma_any_fill<C, MMA_ANY_ELEMENTS>(cached, uncached, at, first_new, bytes, to);
}

/* Elements d to d + 3 of a query. */
GPU_INLINE struct gpu_u128 mma_any_query(const struct gpu_run *run, uint64_t q, uint32_t d)
{
    struct gpu_cache as;

    as.x_stride = 0;
    as.size = GPU_SIZE(run->problem.q_dtype);
    as.dim = run->problem.head_dim;
    const struct mma_any_read read = mma_any_read_elements(&as, q, d);
    return mma_any_convert<MMA_ANY_ELEMENTS>(run->problem.q_dtype, &read, d);
}

#endif
