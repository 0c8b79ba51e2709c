/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How the kernels for latent caches share out a step, for planners on the host and on the device.
 *
 * The rows of a sequence, tokens times heads, are cut into tiles of rows, and the keys that a tile of rows
 * can see into tiles of keys. All of them are one line: sequence after sequence, tile of rows after tile of
 * rows. Every CTA takes an equal piece of the line, and so the keys of a tile of rows are cut where pieces
 * meet. With det=1 the keys of a sequence of few rows are cut at fixed multiples, others not at all, and
 * these parts are what is counted.
 *
 * So that the line's length is found without asking every tile of rows, those of about 64 tokens have the
 * same keys: a block.
 *
 * A schedule is the sums of what lies before each sequence (plan.h); with det=1 the upper half counts the
 * parts that need a place in scratch.
 */
#ifndef ATTN_GPU_LATENT_CUTS_H
#define ATTN_GPU_LATENT_CUTS_H

#include "cuts.h"

/* det: rows of a sequence whose keys are cut. */
#define GPU_LATENT_DET_ROWS 128u
/* Fewest tiles of keys of a CTA: writing and reading a part costs as much as one of them. */
#define GPU_LATENT_LEAST 2u

struct latent_cuts {
    struct gpu_cuts keys;
    uint32_t rows;   /* of a tile of rows */
    uint32_t blocks; /* tiles of rows of a block; 0 = all of a sequence */
};

/* Tiles of rows that see the same tiles of keys. */
struct latent_block {
    uint32_t count; /* tiles of rows; 0 = the sequence has no such block */
    uint32_t first; /* tiles of keys [first, first + tiles) */
    uint32_t tiles;
    uint32_t units; /* what a tile of rows adds to the line: its tiles, or with det=1 its parts */
};

/* `keys` of all sequences, with the rows of a tile. */
static inline ATTN__DEVICE struct latent_cuts latent_cuts_of(const struct gpu_cuts *keys)
{
    const uint32_t rows = keys->rows_tile;
    struct latent_cuts cuts;

    cuts.keys = *keys;
    cuts.rows = rows;
    cuts.blocks = keys->plain ? (GPU_TILE * keys->group + rows - 1) / rows : 0;
    return cuts;
}

/* det: whether the keys of a sequence are cut. */
static inline ATTN__DEVICE bool latent_is_cut(const struct latent_cuts *cuts, uint32_t q_len)
{
    return cuts->keys.det && (uint64_t)q_len * cuts->keys.group <= GPU_LATENT_DET_ROWS;
}

static inline ATTN__DEVICE struct latent_block latent_block_of(const struct latent_cuts *cuts,
                                                               const struct attn_visible *visible,
                                                               uint32_t q_len, uint32_t kv_len,
                                                               uint32_t number)
{
    const uint32_t group = cuts->keys.group, all = (q_len * group + cuts->rows - 1) / cuts->rows;
    const uint32_t each = cuts->blocks != 0 ? cuts->blocks : all, from = number * each;
    struct latent_block block;

    block.count = block.first = block.tiles = 0;
    block.units = 1;
    if (from >= all)
        return block;
    block.count = all - from < each ? all - from : each;
    const uint32_t last = ((from + block.count) * cuts->rows - 1) / group;
    block.tiles = gpu_key_tiles(&cuts->keys, visible, from * cuts->rows / group,
                                last < q_len ? last : q_len - 1, kv_len, &block.first);
    /* Rows without keys still want their word: a tile that finds nothing. */
    block.units = block.tiles == 0 ? 1 : block.tiles;
    if (cuts->keys.det) {
        const uint32_t cut = gpu_cut_tiles(kv_len);
        block.units = 1;
        if (latent_is_cut(cuts, q_len) && block.tiles != 0)
            block.units = (block.first + block.tiles - 1) / cut - block.first / cut + 1;
    }
    return block;
}

/* What a sequence adds to the sums. */
static inline ATTN__DEVICE uint64_t latent_share(const struct latent_cuts *cuts,
                                                 const struct attn_visible *visible, uint32_t q_len,
                                                 uint32_t kv_len)
{
    uint64_t sum = 0;

    for (uint32_t number = 0;; number++) {
        const struct latent_block block = latent_block_of(cuts, visible, q_len, kv_len, number);
        if (block.count == 0)
            return latent_is_cut(cuts, q_len) ? sum | sum << 32 : sum;
        sum += (uint64_t)block.count * block.units;
    }
}

#endif
