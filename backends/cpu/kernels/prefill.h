/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Attention of many query rows (prefill, chunks, long drafts): blocks of query rows of one kv head against
 * tiles of keys, which are staged with their values once for all blocks.
 *
 * Products are in f32 or, of a level that has them, of bf16 in pairs or by tile instructions: prefill-f32.h,
 * prefill-bf16.h and prefill-tiles.h define the same functions. What a row is computed from, and in which
 * order, depends on the keys that it sees alone.
 *
 * Included by level.c behind the operations of a level.
 */
#ifndef ATTN_CPU_KERNELS_PREFILL_H
#define ATTN_CPU_KERNELS_PREFILL_H

#if defined(VEC_TILES)
#include "prefill-tiles.h"
#elif defined(VEC_BF16_ALONE)
#include "prefill-bf16.h"
#else
#include "prefill-f32.h"
#endif

/* What blocks have of their own. */
static void prefill_lay_out_block(struct prefill_block *w, const struct attn_problem *problem, float *scratch,
                                  size_t *used)
{
    w->dim = problem->head_dim;
    w->dim_vo = problem->head_dim_vo;
    products_lay_out(w, scratch, used);
    if (bias_has_values(problem)) {
        w->bias = take_objects(scratch, used, BLOCK_ROWS, sizeof *w->bias);
        w->values = take_floats(scratch, used, (size_t)(BLOCK_ROWS + 1) * VALUE_STRIDE);
    }
    if (problem->alibi != ATTN_ALIBI_NONE)
        w->alibi = take_objects(scratch, used, 1, sizeof *w->alibi);
}

/* The blocks' shape, and their arrays in `scratch`, which may be NULL. Returns the bytes of the arrays. */
static uint64_t prefill_lay_out(struct prefill_block *blocks, const struct attn_problem *problem,
                                float *scratch)
{
    size_t used = 0;
    for (uint32_t b = 0; b < BLOCKS; b++)
        prefill_lay_out_block(&blocks[b], problem, scratch, &used);
    products_lay_out_shared(blocks, scratch, &used);
    float *score = take_floats(scratch, &used, (size_t)CPU_TILE_KEYS * KEY_STRIDE);
    char *vector = NULL;
    if (problem->layout == ATTN_PAGED_X)
        vector = take_objects(scratch, &used, blocks->dim > blocks->dim_vo ? blocks->dim : blocks->dim_vo,
                              sizeof(float));
    for (uint32_t b = 0; b < BLOCKS; b++) {
        blocks[b].score = score;
        blocks[b].vector = vector;
    }
    return used * sizeof(float);
}

static uint64_t prefill_scratch(const struct attn_problem *problem)
{
    struct prefill_block blocks[BLOCKS];
    return prefill_lay_out(blocks, problem, NULL);
}

/* Adds the spans to the totals. */
static void prefill_close_span(struct prefill_block *w)
{
    products_flush(w);
    if (w->span_empty)
        return;
    if (w->total_empty) { /* the span is the total, and room for the next is where that was */
        float *total = w->products.span;
        w->products.span = w->products.total;
        w->products.total = total;
        memcpy(w->l_total, w->l, sizeof w->l);
    } else {
        products_close_span(w);
    }
    for (uint32_t r = 0; r < w->rows; r++) {
        w->m_total[r] = w->m[r];
        w->l[r] = 0;
    }
    w->span_empty = true;
    w->total_empty = false;
}

static void prefill_epilogue(const struct prefill_block *w)
{
    for (uint32_t r = 0; r < w->rows; r++) {
        const struct prefill_row row = prefill_row(w, r);
        cpu_epilogue(w->run, w->work, row.token, row.head, products_row(w, r),
                     row_lse(w->run, w->work, w->m_total[r], w->l_total[r],
                             w->bias_rules.distance ? w->alibi->base[r] : 0));
    }
}

/* Tiles that are staged together, and where the keys lie. */
struct prefill_tiles {
    uint32_t count, base;                  /* of the first */
    struct prefill_tile all[STAGED_TILES]; /* what the blocks need of each */
    struct cpu_keys keys[STAGED_TILES];
};

/* Finds the keys of the tiles from `base` on, up to key `end`, that some block may see. */
static void prefill_find(const struct prefill_block *blocks, uint32_t count, uint32_t base, uint32_t end,
                         struct prefill_tiles *tiles)
{
    const uint32_t most = products_staged_tiles(blocks);
    tiles->base = base;
    for (tiles->count = 0; tiles->count < most && base < end; base += CPU_TILE_KEYS) {
        struct prefill_tile *all = &tiles->all[tiles->count], one;
        *all = (struct prefill_tile){.base = base};
        for (uint32_t b = 0; b < count; b++) {
            prefill_open_range(&blocks[b], base, &one);
            prefill_widen(all, &one);
        }
        if (all->open)
            cpu_find_keys(blocks->run, blocks->work, base, all->to, &tiles->keys[tiles->count]);
        tiles->count++;
    }
}

/* One tile of one block; `next` is staged as well, or NULL. */
static void prefill_tile(struct prefill_block *w, uint32_t base, uint64_t present,
                         const struct staged *staged, const struct staged *next)
{
    struct prefill_tile tile, behind;
    prefill_open_range(w, base, &tile);
    prefill_open_tile(w, present, &tile);
    if (!tile.open)
        return;
    if (next != NULL) {
        prefill_open_range(w, base + CPU_TILE_KEYS, &behind);
        next = behind.open ? next : NULL;
    }
    products_tile(w, &tile, staged, next);
}

/* Queries of block b; those of the next come from memory while this one computes. */
static void prefill_queries(struct prefill_block *blocks, uint32_t count, uint32_t b)
{
    if (b + 1 < count)
        prefill_prefetch_queries(&blocks[b + 1]);
    products_queries(&blocks[b]);
    blocks[b].has_queries = true;
}

/* Some tiles for all blocks. */
static void prefill_some_tiles(struct prefill_block *blocks, uint32_t count, const struct prefill_tiles *now)
{
    struct staged staged[STAGED_TILES] = {0};
    for (uint32_t t = 0; t < now->count; t++) {
        if (t == 0 && now->all[t].open)
            prefill_prefetch(blocks, &now->all[t], &now->keys[t]);
        if (t + 1 < STAGED_TILES /* for gcc 13 */ && t + 1 < now->count && now->all[t + 1].open)
            prefill_prefetch(blocks, &now->all[t + 1], &now->keys[t + 1]);
        if (now->all[t].open)
            staged[t] = products_stage(blocks, &now->all[t], &now->keys[t], t);
    }
    for (uint32_t b = 0; b < count; b++) {
        if (!blocks[b].has_queries)
            prefill_queries(blocks, count, b);
        for (uint32_t t = 0; t < now->count; t++) {
            const uint32_t base = now->base + t * CPU_TILE_KEYS;
            if (base % products_span_keys(&blocks[b]) == 0)
                prefill_close_span(&blocks[b]);
            if (now->all[t].open)
                prefill_tile(&blocks[b], base, now->keys[t].present, &staged[t],
                             t + 1 < now->count && now->all[t + 1].open ? &staged[t + 1] : NULL);
        }
        products_flush(&blocks[b]);
    }
}

static void prefill_kv_loop(struct prefill_block *blocks, uint32_t count)
{
    uint32_t from = UINT32_MAX, to = 0;
    struct prefill_tiles tiles;
    prefill_prefetch_queries(&blocks[0]);
    for (uint32_t b = 0; b < count; b++) {
        prefill_begin(&blocks[b]);
        products_open(&blocks[b]);
        from = blocks[b].from < from ? blocks[b].from : from;
        to = blocks[b].to > to ? blocks[b].to : to;
    }
    for (uint32_t base = from - from % CPU_TILE_KEYS; base < to; base += tiles.count * CPU_TILE_KEYS) {
        prefill_find(blocks, count, base, to, &tiles);
        prefill_some_tiles(blocks, count, &tiles);
    }
    prefill_prefetch_out(&blocks[0]);
    for (uint32_t b = 0; b < count; b++) {
        if (b + 1 < count)
            prefill_prefetch_out(&blocks[b + 1]);
        prefill_close_span(&blocks[b]);
        prefill_epilogue(&blocks[b]);
    }
}

/* Weights may be rounded to bf16 if `rounds`. */
static void prefill_work(const struct cpu_run *run, const struct attn_work_item *work, void *scratch,
                         bool rounds)
{
    struct prefill_block blocks[BLOCKS];
    const uint32_t rows = work->tokens * run->group;
    prefill_lay_out(blocks, run->problem, scratch);
    products_begin();
    for (uint32_t b = 0; b < BLOCKS; b++) {
        blocks[b].run = run;
        blocks[b].work = work;
        blocks[b].rounds = rounds;
        blocks[b].k_type = vec_type_of(run->k.dtype);
        blocks[b].v_type = vec_type_of(run->v.dtype);
        blocks[b].cap = query_cap(run);
        blocks[b].bias_rules = bias_rules_of(run);
        blocks[b].value_rows = blocks[b].bias_rules.by_head ? 1 : run->group;
    }
    for (uint32_t h = 0; h < work->kv_heads; h++) {
        for (uint32_t first = 0, count; first < rows; first += count * BLOCK_ROWS) {
            for (count = 0; count < BLOCKS && first + count * BLOCK_ROWS < rows; count++) {
                struct prefill_block *w = &blocks[count];
                w->head = work->kv_head + h;
                w->first = first + count * BLOCK_ROWS;
                w->rows = rows - w->first < BLOCK_ROWS ? rows - w->first : BLOCK_ROWS;
                w->padded = (w->rows + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
            }
            prefill_kv_loop(blocks, count);
        }
    }
    products_end();
}

#endif
