/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Looks whether the masks of a step show each query token one range of keys and add nothing to their scores,
 * as causal masks, windows and padding do, and finds these ranges: a CTA for each token. Kernels that read no
 * mask can run then (struct gpu_mask_ranges).
 */
#ifndef ATTN_GPU_MASK_RANGES_H
#define ATTN_GPU_MASK_RANGES_H

#include "rules.h"

/* Columns that a thread looks at together; how many of these it loads before it looks at the first. */
constexpr uint32_t GPU_MASK_COLUMNS = 8, GPU_MASK_LOADS = 4;

/* What a thread, a warp or a CTA has found among its columns. */
struct gpu_mask_found {
    uint32_t lo, hi; /* the first column that is shown, and the one behind the last */
    uint32_t shown;
    uint32_t adds; /* 1: a column adds something to a score */
};

/* The columns of a row that are looked at, [begin, end). SIZE: bytes of a number, 0: bits. */
struct gpu_mask_columns {
    uint64_t at; /* of column 0 */
    uint64_t bit;
    uint32_t begin, end;
    bool aligned; /* whether the first of GPU_MASK_COLUMNS columns is aligned to 16 bytes */
};

/* GPU_MASK_COLUMNS columns as they lie in memory. */
template <uint32_t SIZE> struct gpu_mask_words {
    uint32_t x[SIZE == 0 ? 1 : GPU_MASK_COLUMNS * SIZE / 4];
};

/* Loads columns from `column` on; those from `end` on are zeros. */
template <uint32_t SIZE>
GPU_INLINE gpu_mask_words<SIZE> gpu_mask_load(const struct gpu_mask_columns *row, uint32_t column)
{
    gpu_mask_words<SIZE> out;

    GPU_UNROLL
    for (uint32_t i = 0; i < sizeof out / 4; i++)
        out.x[i] = 0;
    if constexpr (SIZE == 0) {
        const uint64_t bit = row->bit + column, last = row->bit + row->end - 1;
        if (column >= row->end)
            return out;
        out.x[0] = GPU_U8(row->at)[bit / 8];
        if (bit / 8 < last / 8)
            out.x[0] |= (uint32_t)GPU_U8(row->at)[bit / 8 + 1] << 8;
        out.x[0] >>= bit % 8;
    } else if (row->aligned && column + GPU_MASK_COLUMNS <= row->end) {
        GPU_UNROLL
        for (uint32_t i = 0; i < sizeof out / 16; i++) {
            const struct gpu_u128 words = gpu_load_global_u128(row->at + (uint64_t)column * SIZE + i * 16);
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                out.x[i * 4 + j] = words.x[j];
        }
    } else {
        GPU_UNROLL
        for (uint32_t i = 0; i < GPU_MASK_COLUMNS; i++) {
            const uint64_t at = row->at + (uint64_t)(column + i) * SIZE;
            if (column + i >= row->end)
                break;
            out.x[i * SIZE / 4] |= SIZE == 2 ? (uint32_t)*GPU_GLOBAL(const uint16_t, at) << i % 2 * 16
                                             : *GPU_GLOBAL(const uint32_t, at);
        }
    }
    return out;
}

/* Adds columns from `column` on to what has been found. */
template <uint32_t SIZE>
GPU_INLINE void gpu_mask_look(const struct gpu_mask_columns *row, uint32_t column, uint32_t dtype,
                              const gpu_mask_words<SIZE> *words, struct gpu_mask_found *found)
{
    GPU_UNROLL
    for (uint32_t i = 0; i < GPU_MASK_COLUMNS; i++) {
        const uint32_t at = column + i;
        bool shows = (words->x[0] >> i & 1) != 0;
        float number = 0;
        if constexpr (SIZE != 0) {
            const uint32_t bits = SIZE == 2 ? words->x[i / 2] >> i % 2 * 16 & 0xffff : words->x[i];
            number = gpu_load(dtype, (const unsigned char *)&bits);
            shows = !gpu_hides(dtype, number);
        }
        if (at < row->begin || at >= row->end || !shows)
            continue;
        found->lo = at < found->lo ? at : found->lo;
        found->hi = at + 1;
        found->shown++;
        found->adds |= number == 0 ? 0 : 1; /* NaN, too */
    }
}

/* What the CTA's threads find of a row. */
template <uint32_t SIZE>
GPU_INLINE void gpu_mask_scan(const struct gpu_mask_columns *row, uint32_t dtype,
                              struct gpu_mask_found *found)
{
    constexpr uint32_t step = GPU_MASK_THREADS * GPU_MASK_COLUMNS;
    const uint32_t own = row->begin / GPU_MASK_COLUMNS * GPU_MASK_COLUMNS + gpu_thread() * GPU_MASK_COLUMNS;

    for (uint64_t column = own; column < row->end; column += (uint64_t)GPU_MASK_LOADS * step) {
        gpu_mask_words<SIZE> words[GPU_MASK_LOADS];
        GPU_UNROLL
        for (uint32_t i = 0; i < GPU_MASK_LOADS; i++)
            words[i] = gpu_mask_load<SIZE>(row, (uint32_t)column + i * step);
        GPU_UNROLL
        for (uint32_t i = 0; i < GPU_MASK_LOADS; i++)
            gpu_mask_look<SIZE>(row, (uint32_t)column + i * step, dtype, &words[i], found);
    }
}

GPU_INLINE void gpu_mask_join(struct gpu_mask_found *to, const struct gpu_mask_found *other)
{
    to->lo = other->lo < to->lo ? other->lo : to->lo;
    to->hi = other->hi > to->hi ? other->hi : to->hi;
    to->shown += other->shown;
    to->adds |= other->adds;
}

/* Joins what the threads of the CTA have found, in its first one. */
GPU_INLINE void gpu_mask_gather(struct gpu_mask_found *own, struct gpu_mask_found *warps)
{
    for (uint32_t mask = 1; mask < GPU_WARP; mask *= 2) {
        const struct gpu_mask_found other = {
            gpu_shuffle_xor_u32(own->lo, mask), gpu_shuffle_xor_u32(own->hi, mask),
            gpu_shuffle_xor_u32(own->shown, mask), gpu_shuffle_xor_u32(own->adds, mask)};
        gpu_mask_join(own, &other);
    }
    if (gpu_thread() % GPU_WARP == 0)
        warps[gpu_thread() / GPU_WARP] = *own;
    gpu_barrier();
    for (uint32_t w = 1; gpu_thread() == 0 && w < GPU_MASK_THREADS / GPU_WARP; w++)
        gpu_mask_join(own, &warps[w]);
}

/* The keys that the mask shows to query token i of a sequence, in the CTA's first thread; false: it is no
 * range, or adds to scores. Where the other rules show no key the mask is not read. */
GPU_INLINE bool gpu_mask_find(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t i,
                              struct gpu_mask_found *warps, struct gpu_key_range *out)
{
    const struct gpu_row row = gpu_row(run, s, i, 0);
    const uint32_t dtype = run->mask.dtype;
    const struct gpu_mask_columns columns = {row.mask, row.bit, row.lo, row.hi, (row.mask & 15) == 0};
    struct gpu_mask_found found = {UINT32_MAX, 0, 0, 0};

    *out = {0, UINT32_MAX};
    if (row.mask == 0)
        return true;
    if (dtype == 0)
        gpu_mask_scan<0>(&columns, dtype, &found);
    else if (dtype == ATTN_F32)
        gpu_mask_scan<4>(&columns, dtype, &found);
    else
        gpu_mask_scan<2>(&columns, dtype, &found);
    gpu_mask_gather(&found, warps);
    *out = found.shown > 0 ? gpu_key_range{found.lo, found.hi} : gpu_key_range{0, 0};
    return found.adds == 0 && found.shown == out->hi - out->lo;
}

GPU_KERNEL(gpu_mask_ranges, GPU_MASK_THREADS, 1)(GPU_ARGUMENT(struct gpu_run, argument))
{
    const struct gpu_run *run = (const struct gpu_run *)gpu_argument(&argument);
    GPU_SHARED struct gpu_mask_found warps[GPU_MASK_THREADS / GPU_WARP];
    uint32_t *counts = GPU_GLOBAL(uint32_t, run->masks.counts);
    const uint32_t token = gpu_cta();
    struct gpu_key_range range = {0, 0};
    bool is_range = true;

    if (token < (uint32_t)GPU_I32(run->batch.q_offsets)[run->batch.seqs]) {
        const struct gpu_sequence s = gpu_sequence(run, gpu_find_sequence(run, token));
        if (GPU_TAKES((uint32_t)ATTN__PREFILL, s.q_len, run->group))
            is_range = gpu_mask_find(run, &s, token - s.row, warps, &range);
    }
    if (gpu_thread() != 0)
        return;
    GPU_GLOBAL(struct gpu_key_range, run->masks.ranges)[token] = range;
    if (!is_range)
        gpu_atomic_or(&counts[1], 1);
    if (gpu_atomic_wrap(&counts[0], gpu_ctas() - 1) != gpu_ctas() - 1)
        return;
    *GPU_GLOBAL(uint32_t, run->masks.result) =
        gpu_atomic_or(&counts[1], 0) != 0 ? GPU_MASKS_OTHER : GPU_MASKS_RANGES;
    counts[1] = 0;
}

#endif
