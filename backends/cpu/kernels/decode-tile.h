/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What decode reads, and in which order: a tile of keys with what each token sees of it, and a cursor that
 * goes over the tile's keys or values in memory order, step by step, and knows what to prefetch meanwhile.
 */
#ifndef ATTN_CPU_KERNELS_DECODE_TILE_H
#define ATTN_CPU_KERNELS_DECODE_TILE_H

#include <string.h>

#include "bias.h"
#include "decode-micro.h"

/* How many steps the prefetch is ahead. */
#define STEPS_AHEAD(far) ((far) ? 8u : 2u)
/* Steps of a tile. */
#define TILE_STEPS (CPU_TILE_KEYS / STEP_KEYS)

/* What each token sees and adds: the same for all tiles of a KV loop. */
struct decode_rules {
    uint32_t lo[CPU_DECODE_ROWS], hi[CPU_DECODE_ROWS]; /* keys in range of a token */
    uint32_t step;                                     /* keys that are read together */
    struct bias_rules bias;
    struct cpu_bias row[CPU_DECODE_ROWS]; /* values of tokens, unless each head has its own */
};

/* One tile: entry i is key base + i. */
struct decode_tile {
    uint32_t base, count;
    bool same;                      /* all rows see the same keys */
    uint64_t any;                   /* keys that some row may see */
    uint64_t seen[CPU_DECODE_ROWS]; /* keys that a token sees; of values by head, all that it might see */
    bool zero[CPU_DECODE_ROWS];     /* nothing is added to the scores of a token */
    float *values;                  /* [token][CPU_TILE_KEYS], if tokens have values */
    bool apart; /* new keys of a head are not as far from the head before as cached ones */
    struct cpu_keys keys;
};

/*
 * A step is read as a whole. Its keys that no token sees are replaced by the first one that is seen: their
 * weight is 0, and all readers of the step see that key anyway, so that even a NaN in it changes nothing.
 */
INLINE void offsets_fill(int64_t *offsets, uint64_t mask, uint32_t step)
{
    const uint32_t all = (uint32_t)bits_between(0, step);
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i += step) {
        const uint32_t bits = (uint32_t)(mask >> i) & all;
        if (bits == 0 || bits == all)
            continue;
        const int64_t first = offsets[i + (uint32_t)__builtin_ctz(bits)];
        for (uint32_t j = 0; j < step; j++)
            offsets[i + j] = bits >> j & 1 ? offsets[i + j] : first;
    }
}

/* Opens the tile at `base`. */
static void tile_open(struct decode_tile *tile, const struct cpu_run *run, const struct attn_work_item *work,
                      uint32_t base, const struct decode_rules *rules)
{
    const uint32_t left = work->kv_len - base, count = left < CPU_TILE_KEYS ? left : CPU_TILE_KEYS;
    const bool values = rules->bias.values && !rules->bias.by_head;
    tile->base = base;
    tile->count = count;
    tile->any = 0;
    tile->same = !rules->bias.by_head;
    cpu_find_keys(run, work, base, count, &tile->keys);
    for (uint32_t t = 0; t < work->tokens; t++) {
        tile->zero[t] = true;
        tile->seen[t] = tile->keys.present & bits_of_keys(base, rules->lo[t], rules->hi[t]);
        if (values && tile->seen[t] != 0)
            tile->seen[t] &= bias_fill(&rules->bias, &rules->row[t], base, 0, count, work->kv_len,
                                       tile->values + (size_t)t * CPU_TILE_KEYS, &tile->zero[t]);
        tile->any |= tile->seen[t];
        tile->same = tile->same && tile->seen[t] == tile->seen[0];
    }
    tile->apart = tile->keys.first_new < count && (run->k.head_stride != run->k_new.head_stride ||
                                                   run->v.head_stride != run->v_new.head_stride);
    if (!tile->apart) {
        offsets_fill(tile->keys.k, tile->any, rules->step);
        offsets_fill(tile->keys.v, tile->any, rules->step);
    }
}

/* The offsets of one head where new keys are apart: so many bytes further than those of cached ones. */
static void offsets_of_head(const struct decode_tile *tile, const int64_t *from, int64_t further,
                            uint32_t step, int64_t *to)
{
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i++)
        to[i] = tile->any >> i & 1 ? from[i] + (i >= tile->keys.first_new ? further : 0) : 0;
    offsets_fill(to, tile->any, step);
}

/* Iterates over the steps of one cache for some kv heads, heads innermost. */
struct cursor {
    const char *base; /* of the first head */
    const int64_t *offsets;
    int64_t head_stride, token_stride;
    uint32_t heads;
    uint32_t count;            /* steps of a head */
    uint8_t first[TILE_STEPS]; /* their first keys */
};

/* `offsets` are filled for the mask, and those of new keys lead to the head. */
INLINE void cursor_init(struct cursor *cursor, const struct cpu_cache *cache, const int64_t *offsets,
                        uint64_t mask, uint32_t step, uint32_t head, uint32_t heads)
{
    cursor->base = cache->base + (int64_t)head * cache->head_stride;
    cursor->offsets = offsets;
    cursor->head_stride = cache->head_stride;
    cursor->token_stride = cache->token_stride;
    cursor->heads = heads;
    cursor->count = 0;
    for (uint32_t i = 0; i < CPU_TILE_KEYS; i += step)
        if (mask >> i & bits_between(0, step))
            cursor->first[cursor->count++] = (uint8_t)i;
}

INLINE void cursor_get(const struct cursor *cursor, uint32_t step, const char **out)
{
    const char *base = cursor->base + (int64_t)(step % cursor->heads) * cursor->head_stride;
    const int64_t *offsets = cursor->offsets + cursor->first[step / cursor->heads];
    for (uint32_t j = 0; j < STEP_KEYS; j++)
        out[j] = base + offsets[j];
}

/* A step of `cursor`, and for the prefetch the one STEPS_AHEAD further on, which may be of `next`. */
INLINE void cursor_step(const struct cursor *cursor, const struct cursor *next, uint32_t step, bool far,
                        struct step *out)
{
    const uint32_t steps = cursor->count * cursor->heads, ahead = step + STEPS_AHEAD(far);
    out->far = far;
    cursor_get(cursor, step, out->now);
    if (ahead < steps)
        cursor_get(cursor, ahead, out->next);
    else if (ahead - steps < next->count * next->heads)
        cursor_get(next, ahead - steps, out->next);
    else
        memcpy(out->next, out->now, sizeof out->next);
}

#endif
