/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The reading order of the decode sweep: which keys of a tile each token sees, and the rows of a cache step
 * by step (eight keys of one kv head), in memory order, each with the rows that are to be prefetched
 * meanwhile.
 */
#ifndef ATTN_CPU_DECODE_ORDER_H
#define ATTN_CPU_DECODE_ORDER_H

#include <string.h>

#include "decode-micro.h"
#include "kernels.h"

/* How many steps ahead rows are prefetched. */
#define STEPS_AHEAD 2u

/* One tile: entry i is key base + i. */
struct tile {
    uint32_t base;
    bool alike;             /* all tokens see the same keys */
    uint64_t any;           /* keys that some token sees */
    uint64_t seen[CPU_FEW]; /* keys that a token sees */
    struct cpu_keys keys;
};

/* Bits [from, to) of a word. */
INLINE uint64_t bits_between(uint32_t from, uint32_t to)
{
    if (from >= to)
        return 0;
    return (to >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << to) - 1) & ~((UINT64_C(1) << from) - 1);
}

/*
 * Entries without a bit, in a step that has some bit, are replaced by the first that has one. Their weight
 * is zero, and whoever reads the step sees that one anyway, so even its NaN changes nothing.
 */
INLINE void offsets_fill(int64_t *offsets, uint64_t mask)
{
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i += STEP_KEYS) {
        const uint32_t bits = (uint32_t)(mask >> i) & 0xffu;
        if (bits == 0 || bits == 0xffu)
            continue;
        const int64_t first = offsets[i + (uint32_t)__builtin_ctz(bits)];
        for (uint32_t j = 0; j < STEP_KEYS; j++)
            offsets[i + j] = bits >> j & 1 ? offsets[i + j] : first;
    }
}

/* Opens the tile at `base` for tokens that see [lo[t], hi[t]). */
static void tile_open(struct tile *tile, const struct cpu_run *run, const struct attn_work *work,
                      uint32_t base, const uint32_t *lo, const uint32_t *hi)
{
    const uint32_t left = work->kv_len - base, count = left < CPU_TILE_KEYS ? left : CPU_TILE_KEYS;
    uint64_t present = bits_between(0, count);
    tile->base = base;
    tile->any = 0;
    tile->alike = true;
    cpu_walk(run, work->seq, base, count, &tile->keys);
    if (tile->keys.holes) {
        for (uint32_t i = 0; i < count; i++) {
            if (tile->keys.k[i] < 0)
                present &= ~(UINT64_C(1) << i);
        }
    }
    for (uint32_t t = 0; t < work->rows; t++) {
        const uint32_t from = lo[t] > base ? lo[t] - base : 0, to = hi[t] > base ? hi[t] - base : 0;
        tile->seen[t] = from < count ? present & bits_between(from, to) : 0;
        tile->any |= tile->seen[t];
        tile->alike = tile->alike && tile->seen[t] == tile->seen[0];
    }
    offsets_fill(tile->keys.k, tile->any);
    offsets_fill(tile->keys.v, tile->any);
}

/* The rows of one cache for some kv heads: every step of every head, heads innermost. */
struct leg {
    const char *base; /* of the first head */
    const int64_t *offsets;
    int64_t head_stride;
    uint32_t heads;
    uint32_t count; /* steps of a head */
    uint8_t at[8];  /* first keys of the steps */
};

INLINE void leg_init(struct leg *leg, const struct cpu_cache *cache, const int64_t *offsets, uint64_t mask,
                     uint32_t head, uint32_t heads)
{
    leg->base = cache->base + (int64_t)head * cache->head_stride;
    leg->offsets = offsets;
    leg->head_stride = cache->head_stride;
    leg->heads = heads;
    leg->count = 0;
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i += STEP_KEYS) {
        if (mask >> i & 0xffu)
            leg->at[leg->count++] = (uint8_t)i;
    }
}

INLINE void leg_rows(const struct leg *leg, uint32_t step, const char **rows)
{
    const char *base = leg->base + (int64_t)(step % leg->heads) * leg->head_stride;
    const int64_t *offsets = leg->offsets + leg->at[step / leg->heads];
    for (uint32_t j = 0; j < STEP_KEYS; j++)
        rows[j] = base + offsets[j];
}

/* Rows of a step of `leg`, and those STEPS_AHEAD further on, which may be in `next`. */
INLINE void leg_step(const struct leg *leg, const struct leg *next, uint32_t step, struct step_rows *rows)
{
    const uint32_t steps = leg->count * leg->heads, ahead = step + STEPS_AHEAD;
    leg_rows(leg, step, rows->now);
    if (ahead < steps)
        leg_rows(leg, ahead, rows->next);
    else if (ahead - steps < next->count * next->heads)
        leg_rows(next, ahead - steps, rows->next);
    else
        memcpy(rows->next, rows->now, sizeof rows->next);
}

#endif
