/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How the matrix kernels divide a step into work tiles, for planners on the host and on the device.
 *
 * Decode: the work list is the KV tiles of all sequences, once for each KV head, and every CTA takes an equal
 * stretch of it, so the keys of a sequence are split where the stretches of two CTAs meet. Prefill: the query
 * rows of a sequence are divided into row tiles; where a step has fewer of them than CTAs that fit the
 * device, the keys of each are split evenly, and every split is a work tile. A schedule holds, for each
 * sequence, the sum of the tile counts before it (plan.h). Decode steps of few tiles are split evenly, and a
 * schedule counts splits instead of tiles. With det=1 decode splits the keys at fixed places, which do not
 * depend on the rest of the batch, and a schedule counts splits, too; short sequences have a kernel with
 * smaller row tiles of their own then, whatever the batch is, and prefill does not split.
 */
#ifndef ATTN_GPU_SPLITS_H
#define ATTN_GPU_SPLITS_H

#include "lengths.h"

/* Keys of a KV tile. */
#define GPU_TILE 64u
/* det: the most KV splits of a sequence with row tiles of 64 rows, and the fewest KV tiles of a split. */
#define GPU_MAX_SPLITS      8u
#define GPU_MIN_SPLIT_TILES 8u
/* det: rows that the split workspace has for each sequence and KV head. */
#define GPU_SPLIT_ROWS (GPU_MAX_SPLITS * 64u)
/*
 * Prefill: the fewest KV tiles of a split, and by how many the largest split of a row tile has to be smaller
 * than all of them: storing and combining partial results takes about as long as these.
 */
#define GPU_MIN_PREFILL_SPLIT_TILES 2u
#define GPU_MIN_PREFILL_SAVED_TILES 4u
/* Decode: the fewest and the most KV tiles of a split of a step that is split evenly. A second tile costs
 * less than to combine twice as many splits. */
#define GPU_MIN_EVEN_TILES 2u
#define GPU_MAX_EVEN_TILES 32u
/* Decode: so many splits of a sequence and KV head, and so many of its rows in them, that a kernel of its own
 * combines them. */
#define GPU_MANY_SPLITS   8u
#define GPU_MANY_PARTIALS 512u
/* Threads of a CTA that combines splits. */
#define GPU_COMBINE_THREADS 256u

/* What tiles and splits depend on beside the lengths of the sequences. */
struct gpu_split_rules {
    uint32_t group;
    uint32_t phase;     /* enum attn__phase, or GPU_ALL_PHASES */
    uint32_t tile_rows; /* prefill: query rows of a tile */
    uint32_t slots;    /* prefill: CTAs for each KV head that fit the device at once; 0: keys are not split */
    uint32_t min_rows; /* query rows of the sequences that are taken */
    uint32_t max_rows;
    uint32_t max_splits; /* det: of a sequence */
    uint32_t even_slots; /* decode: CTAs for each KV head, where splits may be even; 0: they are not */
    bool monotonic;      /* later tokens see later keys: no given positions, square masks or ranks */
    bool det;
};

static inline ATTN__DEVICE struct gpu_split_rules gpu_split_rules_of(const struct attn_problem *problem,
                                                                     uint32_t phase, uint32_t tile_rows)
{
    struct gpu_split_rules rules;

    rules.group = problem->heads / problem->kv_heads;
    rules.phase = phase;
    rules.tile_rows = tile_rows;
    rules.slots = 0;
    rules.min_rows = 1;
    rules.max_rows = UINT32_MAX;
    rules.max_splits = GPU_MAX_SPLITS;
    rules.even_slots = 0;
    rules.monotonic = problem->positions == 0 && problem->cp == 0 &&
                      (problem->mask == ATTN_MASK_NONE || problem->span == ATTN_SPAN_FULL);
    rules.det = problem->det != 0;
    return rules;
}

/* The KV tiles that query tokens [from, to] of a sequence can see are [*first, *first + result). */
static inline ATTN__DEVICE uint32_t gpu_key_tiles(const struct gpu_split_rules *rules,
                                                  const struct attn_visible *v, uint32_t from, uint32_t to,
                                                  uint32_t kv_len, uint32_t *first)
{
    uint32_t lo = 0, hi = kv_len;

    if (rules->monotonic) {
        struct attn_visible whole = *v;
        uint32_t low, high, last_low, last_high;
        whole.shard.world = 0; /* it is, which the compiler is told here */
        gpu_visible_find(&whole, v->shift + from, &low, &high);
        last_low = low;
        last_high = high;
        if (to != from)
            gpu_visible_find(&whole, v->shift + to, &last_low, &last_high);
        /* Tokens that see no key do not limit the range of the others. */
        if (low < high && last_low < last_high) {
            lo = low;
            hi = last_high;
        }
    }
    *first = lo / GPU_TILE;
    return (hi + GPU_TILE - 1) / GPU_TILE - *first;
}

/*
 * det: the most KV splits of a sequence in decode with row tiles of `rows` rows. Small ones have room for
 * more in the split workspace: as many as let a long sequence alone have all CTAs of the launch.
 */
static inline ATTN__DEVICE uint32_t gpu_max_splits(uint32_t rows, uint32_t ctas, uint32_t kv_heads)
{
    const uint32_t most = GPU_SPLIT_ROWS / rows, wanted = ctas / kv_heads;

    return wanted > most ? most : wanted > GPU_MAX_SPLITS ? wanted : GPU_MAX_SPLITS;
}

/* det: KV tiles of a split. */
static inline ATTN__DEVICE uint32_t gpu_split_tiles(uint32_t kv_len, uint32_t max_splits)
{
    const uint32_t even = ((kv_len + GPU_TILE - 1) / GPU_TILE + max_splits - 1) / max_splits;

    return even > GPU_MIN_SPLIT_TILES ? even : GPU_MIN_SPLIT_TILES;
}

/*
 * det: the same where `max_splits` is what has all CTAs of a launch. Shorter sequences have a half of that, a
 * quarter and so on, so that two of them, four and so on fill the launch as well, and none of its CTAs has
 * one split more than most.
 */
static inline ATTN__DEVICE uint32_t gpu_det_split_tiles(uint32_t kv_len, uint32_t max_splits)
{
    const uint32_t tiles = (kv_len + GPU_TILE - 1) / GPU_TILE;

    while (max_splits > 3 && max_splits * GPU_MIN_SPLIT_TILES > tiles)
        max_splits /= 2;
    return gpu_split_tiles(kv_len, max_splits);
}

/* Whether a sequence has query tokens, and as many rows of them as are taken. */
static inline ATTN__DEVICE bool gpu_takes_tokens(const struct gpu_split_rules *rules, uint32_t q_len)
{
    const uint64_t rows = (uint64_t)q_len * rules->group;

    return q_len > 0 && rows >= rules->min_rows && rows <= rules->max_rows;
}

/* Prefill: row tiles of a sequence. */
static inline ATTN__DEVICE uint32_t gpu_row_tiles(const struct gpu_split_rules *rules, uint32_t q_len)
{
    return (uint32_t)(((uint64_t)q_len * rules->group + rules->tile_rows - 1) / rules->tile_rows);
}

/* Prefill: what a step has to do for one KV head. */
struct gpu_prefill_work {
    uint64_t row_tiles;
    uint64_t tiles; /* row tiles times the KV tiles of their sequences */
};

static inline ATTN__DEVICE struct gpu_prefill_work gpu_prefill_work_of(const struct gpu_split_rules *rules,
                                                                       const struct attn_visible *v,
                                                                       uint32_t q_len, uint32_t kv_len)
{
    struct gpu_prefill_work work = {0, 0};
    uint32_t first;

    if (!gpu_takes_tokens(rules, q_len))
        return work;
    work.row_tiles = gpu_row_tiles(rules, q_len);
    work.tiles = work.row_tiles * gpu_key_tiles(rules, v, 0, q_len - 1, kv_len, &first);
    return work;
}

/*
 * Prefill: KV tiles of a split in a step with this much work, so that splits fill the device once; 0: keys
 * are not split. There are at most `slots` splits of sequences whose keys are split.
 */
static inline ATTN__DEVICE uint64_t gpu_prefill_split_tiles(const struct gpu_split_rules *rules,
                                                            struct gpu_prefill_work work)
{
    if (work.row_tiles >= rules->slots)
        return 0;
    const uint64_t even = (work.tiles + rules->slots - 1) / rules->slots;

    return even > GPU_MIN_PREFILL_SPLIT_TILES ? even : GPU_MIN_PREFILL_SPLIT_TILES;
}

/* Prefill: the most work tiles for each KV head of a step that splits keys. */
static inline ATTN__DEVICE uint64_t gpu_prefill_split_limit(const struct gpu_split_rules *rules)
{
    return 2 * (uint64_t)rules->slots;
}

/* Prefill: KV splits of a row tile with so many KV tiles. */
static inline ATTN__DEVICE uint32_t gpu_prefill_splits(uint32_t tiles, uint64_t split_tiles)
{
    const uint32_t splits = split_tiles > 0 && tiles >= 2 * split_tiles ? (uint32_t)(tiles / split_tiles) : 1;

    return tiles - (tiles + splits - 1) / splits >= GPU_MIN_PREFILL_SAVED_TILES ? splits : 1;
}

/*
 * Decode: a step of few KV tiles, of which a CTA has up to GPU_MAX_EVEN_TILES, is split evenly: no CTA has
 * the end of one sequence or head and the beginning of the next, for which it would wait for memory twice. A
 * split has `size` KV tiles, about the fewest with which every split has a CTA; not many more than in equal
 * stretches of the work list.
 */
struct gpu_even_search {
    uint64_t size;  /* of the splits to count next; 0: tiles are counted. At the end the result, 0: none */
    uint64_t tiles; /* of the step */
};

/* Takes what was counted of the step, for whoever plans counts in a way of its own. False at the end. */
static inline ATTN__DEVICE int gpu_even_search_goes_on(struct gpu_even_search *search,
                                                       const struct gpu_split_rules *rules, uint64_t count)
{
    if (search->size == 0)
        search->tiles = count;
    else if (count <= rules->even_slots)
        return 0;
    const uint64_t share = (search->tiles + rules->even_slots - 1) / rules->even_slots;
    const uint64_t least = share > GPU_MIN_EVEN_TILES ? share : GPU_MIN_EVEN_TILES;
    const uint64_t step =
        least < 16 ? 1 : least / 8; /* every size that is tried costs a pass over the step */
    const uint64_t next = search->size == 0 ? least : search->size + step;

    search->size = next <= least + least / 4 && next <= GPU_MAX_EVEN_TILES ? next : 0;
    return search->size != 0;
}

/* Work tiles of a sequence, or splits where a schedule counts them. A sequence that sees no keys has one,
 * whose result is empty. `split_tiles`: what gpu_prefill_split_tiles or gpu_even_search found for the step.
 */
static inline ATTN__DEVICE uint32_t gpu_tile_count(const struct gpu_split_rules *rules,
                                                   const struct attn_visible *v, uint32_t q_len,
                                                   uint32_t kv_len, uint64_t split_tiles)
{
    uint32_t first;

    if (!gpu_takes_tokens(rules, q_len))
        return 0;
    const uint32_t tiles = gpu_key_tiles(rules, v, 0, q_len - 1, kv_len, &first);
    if (rules->phase == ATTN__PREFILL)
        return gpu_row_tiles(rules, q_len) * gpu_prefill_splits(tiles, split_tiles);
    if (tiles == 0)
        return 1;
    const uint32_t size = rules->det ? gpu_det_split_tiles(kv_len, rules->max_splits) : (uint32_t)split_tiles;
    return size == 0 ? tiles : (first + tiles - 1) / size - first / size + 1;
}

#endif
