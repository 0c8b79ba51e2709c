/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How the MLA kernels divide a step into work tiles, for planners on the host and on the device.
 *
 * The rows of a sequence, tokens times heads, are divided into row tiles, and the keys that a row tile can
 * see into KV tiles. The work list is all of them: sequence after sequence, row tile after row tile. Every
 * CTA takes an equal stretch of the list, so the keys of a row tile are split where two stretches meet. With
 * det=1 the keys of a sequence with at most MLA_DET_ROWS rows are split at fixed places, those of others not
 * at all, and the list counts splits instead of KV tiles.
 *
 * The row tiles of about 64 tokens form a block: they take the same keys, so that the length of the list can
 * be found without computing the keys of every row tile. Where every sequence has an even number of them, two
 * CTAs take the same stretch, each for one of two row tiles, and the list counts these two as one: the second
 * CTA finds the keys in the L2 cache.
 *
 * A schedule holds, for each sequence, the length of the list before it (plan.h). With det=1 the high 32 bits
 * count the splits before it that need the split workspace. Behind the last sum stands how many KV tiles each
 * row tile takes, where that is the same number for all: stretches are whole row tiles then, unless CTAs
 * would wait longer for the last one than splits take to be combined.
 */
#ifndef ATTN_GPU_MLA_SCHEDULE_H
#define ATTN_GPU_MLA_SCHEDULE_H

#include "splits.h"

enum {
    /* det: rows of a sequence whose keys are split. */
    MLA_DET_ROWS = 128,
    /* Fewest KV tiles of a CTA: writing and reading a partial result costs as much as one of them. */
    MLA_MIN_TILES = 2,
    /* KV tiles that a CTA computes in the time that splits add to a step: two more row tiles to begin and to
     * store, and a kernel that combines them. */
    MLA_SPLIT_COST = 10
};

/* det=0: the most row tiles whose keys are split: of `ctas` CTAs, each begins the keys of one at most. */
static inline ATTN__DEVICE uint32_t mla_most_split(const struct attn_problem *problem, uint32_t rows,
                                                   uint32_t ctas)
{
    const uint64_t tiles =
        problem->max_seqs * (((uint64_t)problem->max_q * problem->heads + rows - 1) / rows);

    return tiles < ctas ? (uint32_t)tiles : ctas;
}

/* CTAs that combine the rows of a row tile: more if there are few of them, which have the more splits. */
static inline ATTN__DEVICE uint32_t mla_combine_ctas(const struct attn_problem *problem, uint32_t rows,
                                                     uint32_t ctas)
{
    return problem->det == 0 && mla_most_split(problem, rows, ctas) <= 8 ? 16 : 8;
}

struct mla_splits {
    struct gpu_split_rules keys;
    uint32_t rows;        /* of a row tile */
    uint32_t block_tiles; /* row tiles of a block; 0 = all of a sequence */
    uint32_t sharers;     /* CTAs that take the same stretch */
};

/* Row tiles that see the same KV tiles. */
struct mla_block {
    uint32_t count; /* row tiles; 0 = the sequence has no such block */
    uint32_t first; /* KV tiles [first, first + tiles) */
    uint32_t tiles;
    uint32_t units; /* what a row tile adds to the list: its KV tiles, or with det=1 its splits */
};

/* `keys` of all sequences, with the rows of a tile. */
static inline ATTN__DEVICE struct mla_splits mla_splits_of(const struct gpu_split_rules *keys)
{
    const uint32_t rows = keys->tile_rows;
    struct mla_splits splits;

    splits.keys = *keys;
    splits.rows = rows;
    splits.block_tiles = keys->monotonic ? (GPU_TILE * keys->group + rows - 1) / rows : 0;
    splits.sharers = !keys->det && keys->group % (2 * rows) == 0 ? 2 : 1;
    return splits;
}

/* det: whether the keys of a sequence are split. */
static inline ATTN__DEVICE bool mla_is_split(const struct mla_splits *splits, uint32_t q_len)
{
    return splits->keys.det && (uint64_t)q_len * splits->keys.group <= MLA_DET_ROWS;
}

static inline ATTN__DEVICE struct mla_block mla_block_of(const struct mla_splits *splits,
                                                         const struct attn_visible *visible, uint32_t q_len,
                                                         uint32_t kv_len, uint32_t number)
{
    const uint32_t group = splits->keys.group, all = (q_len * group + splits->rows - 1) / splits->rows;
    const uint32_t each = splits->block_tiles != 0 ? splits->block_tiles : all, from = number * each;
    struct mla_block block;

    block.count = block.first = block.tiles = 0;
    block.units = 1;
    if (from >= all)
        return block;
    block.count = all - from < each ? all - from : each;
    const uint32_t last = ((from + block.count) * splits->rows - 1) / group;
    block.tiles = gpu_key_tiles(&splits->keys, visible, from * splits->rows / group,
                                last < q_len ? last : q_len - 1, kv_len, &block.first);
    /* Rows without keys have to be stored too: by a work tile without keys. */
    block.units = block.tiles == 0 ? 1 : block.tiles;
    if (splits->keys.det) {
        const uint32_t size = gpu_split_tiles(kv_len, splits->keys.max_splits);
        block.units = 1;
        if (mla_is_split(splits, q_len) && block.tiles != 0)
            block.units = (block.first + block.tiles - 1) / size - block.first / size + 1;
    }
    return block;
}

/* Length of a sequence's part of the work list; with det=1 the high 32 bits count its splits alone. */
static inline ATTN__DEVICE uint64_t mla_tile_count(const struct mla_splits *splits,
                                                   const struct attn_visible *visible, uint32_t q_len,
                                                   uint32_t kv_len)
{
    uint64_t sum = 0;

    for (uint32_t number = 0;; number++) {
        const struct mla_block block = mla_block_of(splits, visible, q_len, kv_len, number);
        if (block.count == 0)
            return mla_is_split(splits, q_len) ? sum | sum << 32 : sum;
        sum += (uint64_t)(block.count / splits->sharers) * block.units;
    }
}

/* KV tiles of each row tile of a sequence that has query tokens, or 0 if some differ. */
static inline ATTN__DEVICE uint32_t mla_same_tiles(const struct mla_splits *splits,
                                                   const struct attn_visible *visible, uint32_t q_len,
                                                   uint32_t kv_len)
{
    const struct mla_block first = mla_block_of(splits, visible, q_len, kv_len, 0);

    return mla_block_of(splits, visible, q_len, kv_len, 1).count == 0 ? first.units : 0;
}

#endif
