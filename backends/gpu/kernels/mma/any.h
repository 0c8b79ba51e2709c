/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Keys and values of any type without scales beside them, and queries of f32 and 16 bits, as f32, exactly,
 * for the products of tf32.h: they are converted when they are loaded, so that a cache in blocks is read as
 * it is.
 */
#ifndef ATTN_GPU_MMA_ANY_H
#define ATTN_GPU_MMA_ANY_H

#include "addresses.h"
#include "block-reads.h"

GPU_INLINE uint32_t mma_any_half(uint32_t dtype, uint16_t half)
{
    return gpu_f32_bits(dtype == ATTN_F16 ? gpu_f16_to_f32(half) : gpu_bf16_to_f32(half));
}

/* Elements d to d + 3 of a vector without blocks as f32, read one by one; zeros behind the last one. */
GPU_INLINE struct gpu_u128 mma_any_gather(const struct gpu_cache *cache, uint64_t vector, uint32_t d)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};

    GPU_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if (d + i < cache->dim)
            out.x[i] =
                gpu_f32_bits(gpu_load(cache->dtype, GPU_U8(vector + (uint64_t)gpu_column(cache, d + i))));
    return out;
}

/* Chunk d of a vector: what begins to load it, and what makes f32 of it. */
template <gpu_read_kind kind>
GPU_INLINE struct gpu_block_read mma_any_begin(uint32_t dtype, uint64_t vector, uint32_t d)
{
    if constexpr (kind == GPU_READ_HALVES) {
        const uint64_t four = *GPU_GLOBAL(const uint64_t, vector + d * 2u);
        const struct gpu_block_read out = {{(uint32_t)four, (uint32_t)(four >> 32), 0, 0, 0}};
        return out;
    } else {
        return gpu_block_read_four<kind>(dtype, vector, d);
    }
}
template <gpu_read_kind kind>
GPU_INLINE struct gpu_u128 mma_any_end(uint32_t dtype, const struct gpu_block_read *read, uint32_t d)
{
    if constexpr (kind == GPU_READ_HALVES) {
        struct gpu_u128 out;
        GPU_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            out.x[i] = mma_any_half(dtype, (uint16_t)(read->word[i / 2] >> i % 2 * 16));
        return out;
    } else {
        return gpu_block_convert_four<kind>(dtype, read, d);
    }
}

/* Where a group's vectors lie, and what they become: a stage of rows of `bytes` bytes of f32. */
struct mma_any_rows {
    const struct gpu_cache *cached, *uncached;
    const uint64_t *at;
    uint32_t first_new; /* of them, whose vector is uncached */
    uint32_t bytes;
    unsigned char *to;
};

/*
 * Fills a stage. Vectors that do not exist are left as they were; in place of one the first of the cache is
 * read, for all reads of a turn begin before the first is used.
 */
template <class C, gpu_read_kind kind> GPU_INLINE void mma_any_fill(const struct mma_any_rows *rows)
{
    constexpr uint32_t held = kind == GPU_READ_ELEMENTS ? 1 : C::GROUPS == 1 ? 4 : 8;
    const uint32_t chunks = rows->bytes / 16, threads = C::GROUP_THREADS, dtype = rows->cached->dtype;

    GPU_LOOP
    for (uint32_t first = gpu_thread() % threads; first < C::GROUP_KEYS * chunks; first += held * threads) {
        struct gpu_block_read read[held];
        bool exists[held];
        GPU_UNROLL
        for (uint32_t u = 0; u < held; u++) {
            const uint32_t row = (first + u * threads) / chunks, d = (first + u * threads) % chunks * 4;
            exists[u] = rows->at[row] != MMA_NO_ADDRESS && d < rows->cached->dim;
            if constexpr (kind != GPU_READ_ELEMENTS)
                read[u] = mma_any_begin<kind>(dtype, exists[u] ? rows->at[row] : rows->cached->base,
                                              exists[u] ? d : 0);
        }
        GPU_UNROLL
        for (uint32_t u = 0; u < held; u++) {
            const uint32_t row = (first + u * threads) / chunks, chunk = (first + u * threads) % chunks;
            unsigned char *to = rows->to + mma_swizzled<C>(row, chunk, rows->bytes);
            if (!exists[u])
                continue;
            if constexpr (kind == GPU_READ_ELEMENTS)
                gpu_store_u128(to, mma_any_gather(row >= rows->first_new ? rows->uncached : rows->cached,
                                                  rows->at[row], chunk * 4));
            else
                gpu_store_u128(to, mma_any_end<kind>(dtype, &read[u], chunk * 4));
        }
    }
}

/* Whether chunks of vectors of 16 bits are words of eight bytes. */
GPU_INLINE bool mma_any_is_aligned(const struct gpu_cache *cache)
{
    return cache->size == 2 && cache->x_stride == 0 && cache->dim % 4 == 0 &&
           ((cache->base | (uint64_t)cache->page_stride | (uint64_t)cache->token_stride |
             (uint64_t)cache->head_stride) &
            7) == 0;
}

template <class C> GPU_INLINE void mma_any_stage(const struct mma_any_rows *rows)
{
    const struct gpu_cache *cached = rows->cached, *uncached = rows->uncached;

    if (cached->dtype == ATTN_Q8_0)
        mma_any_fill<C, GPU_READ_Q8_0>(rows);
    else if (cached->dtype == ATTN_IQ4_NL)
        mma_any_fill<C, GPU_READ_IQ4_NL>(rows);
    else if (gpu_has_blocks(cached->dtype))
        mma_any_fill<C, GPU_READ_NIBBLES>(rows);
    else if (mma_any_is_aligned(cached) && (uncached->base == 0 || mma_any_is_aligned(uncached)))
        mma_any_fill<C, GPU_READ_HALVES>(rows);
    else
        mma_any_fill<C, GPU_READ_ELEMENTS>(rows);
}

/* Elements d to d + 3 of a query. */
GPU_INLINE struct gpu_u128 mma_any_query(const struct gpu_run *run, uint64_t q, uint32_t d)
{
    struct gpu_cache as;

    as.x_stride = 0;
    as.size = GPU_SIZE(run->problem.q_dtype);
    as.dim = run->problem.head_dim;
    as.dtype = run->problem.q_dtype;
    return mma_any_gather(&as, q, d);
}

#endif
