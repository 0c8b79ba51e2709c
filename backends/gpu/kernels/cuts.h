/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How the matrix kernels share out a step, for planners on the host and on the device.
 *
 * A sequence with few query rows is cut along its keys: its tiles of keys, times kv heads, are one line on
 * which all such sequences follow one another, and every CTA takes an equal piece of the line. A sequence
 * with many rows is cut into tiles of rows, each with all of its keys. A schedule is the sums of what lies
 * before each sequence (plan.h). With det=1 the keys of a sequence are cut at fixed multiples instead,
 * and the cuts are what is counted.
 */
#ifndef ATTN_GPU_CUTS_H
#define ATTN_GPU_CUTS_H

#include "run.h"
#include "visible-range.h"

/* Keys of a tile. */
#define GPU_TILE 64u
/* det: a sequence has at most this many cuts, of at least so many tiles. */
#define GPU_CUTS      8u
#define GPU_CUT_TILES 8u

/* What decides beside the lengths. */
struct gpu_cuts {
    uint32_t group;
    uint32_t phase;     /* enum gpu_phase */
    uint32_t rows_tile; /* of a tile, where rows are cut */
    bool plain;         /* what tokens see grows with their number: no positions, explicit masks, ranks */
    bool det;
};

static inline ATTN__DEVICE struct gpu_cuts gpu_cuts_of(const struct attn_problem *problem, uint32_t phase,
                                                       uint32_t rows_tile)
{
    struct gpu_cuts cuts;

    cuts.group = problem->heads / problem->kv_heads;
    cuts.phase = phase;
    cuts.rows_tile = rows_tile;
    cuts.plain = problem->positions == 0 && problem->mask == ATTN_MASK_NONE && problem->cp == 0;
    cuts.det = problem->det != 0;
    return cuts;
}

/* Tiles of keys that query tokens [from, to] of a sequence can see: [*first, *first + result). */
static inline ATTN__DEVICE uint32_t gpu_key_tiles(const struct gpu_cuts *cuts, const struct attn_visible *v,
                                                  uint32_t from, uint32_t to, uint32_t kv_len,
                                                  uint32_t *first)
{
    uint32_t lo = 0, hi = kv_len;

    if (cuts->plain) {
        uint32_t low, high, last_low, last_high;
        attn__visible_find(v, v->shift + from, &low, &high);
        attn__visible_find(v, v->shift + to, &last_low, &last_high);
        if (low < high && last_low < last_high) { /* else one of them sees nothing: no short way */
            lo = low;
            hi = last_high;
        }
    }
    *first = lo / GPU_TILE;
    return (hi + GPU_TILE - 1) / GPU_TILE - *first;
}

/* det: tiles of a cut. */
static inline ATTN__DEVICE uint32_t gpu_cut_tiles(uint32_t kv_len)
{
    const uint32_t even = ((kv_len + GPU_TILE - 1) / GPU_TILE + GPU_CUTS - 1) / GPU_CUTS;

    return even > GPU_CUT_TILES ? even : GPU_CUT_TILES;
}

/* What a sequence adds to the sums. One without visible keys still has one tile, which finds nothing. */
static inline ATTN__DEVICE uint32_t gpu_share(const struct gpu_cuts *cuts, const struct attn_visible *v,
                                              uint32_t q_len, uint32_t kv_len)
{
    uint32_t first;

    if (q_len == 0 || !GPU_TAKES(cuts->phase, q_len, cuts->group))
        return 0;
    if (cuts->phase == GPU_MANY_ROWS)
        return (q_len * cuts->group + cuts->rows_tile - 1) / cuts->rows_tile;
    const uint32_t tiles = gpu_key_tiles(cuts, v, 0, q_len - 1, kv_len, &first);
    if (tiles == 0)
        return 1;
    if (!cuts->det)
        return tiles;
    return (first + tiles - 1) / gpu_cut_tiles(kv_len) - first / gpu_cut_tiles(kv_len) + 1;
}

#endif
