/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The kernels for latent caches: keys of up to 576 columns of 16 bits, of which the first ones, up to 512,
 * are the values too. Included with
 *
 *   LATENT_ROWS   rows of a CTA, tokens times heads: 16, 32, 64
 *
 * Eight warps. A tile of 64 keys lies in shared memory once, for scores and for values. For the scores the
 * warps are LATENT_ROWS / 16 groups of 16 rows each, whose queries stay in registers; the warps of a group
 * share the keys, and two and two the columns: each has half of a sum, gives the partner one half of its keys
 * and keeps the other. For the values each warp has 64 columns of all rows. P lies where the last 64 columns
 * of the tile were.
 *
 * Scores, sums and maxima are f32 in base 2; P is rounded to the queries' type for its product with the
 * values, the row sum is of P before.
 */
#ifndef ATTN_GPU_LATENT_BODY_H
#define ATTN_GPU_LATENT_BODY_H

#include "port.h"

#include "latent-pieces.h"
#include "latent-rows.h"
#include "latent.h"

#define LATENT_WARPS  8u
#define LATENT_BLOCKS (LATENT_ROWS / 16u)                         /* of 16 rows */
#define LATENT_SHARE  (64u / (LATENT_WARPS / 2u) * LATENT_BLOCKS) /* keys of a pair of warps */
/* 8-key columns of a product that are under way at once, what a warp keeps of them, and of all. */
#define LATENT_WAVE   (LATENT_ROWS > 32 ? 4u : 2u)
#define LATENT_HALF   (LATENT_WAVE / 2u)
#define LATENT_KEPT   (LATENT_SHARE / 16u)
#define LATENT_PITCH  1152u /* bytes of a key or query */
#define LATENT_FIXED  GPU_LATENT_FIXED(LATENT_ROWS)
#define LATENT_FLOATS 520u /* between rows of results, which take the place of tiles */
#define LATENT_LOG2E  1.4426950408889634f

/* Byte of a 16-byte chunk of a row; neighbouring rows begin in other banks. */
#define LATENT_AT(row, chunk)                                                                                \
    ((uint32_t)(row)*LATENT_PITCH + (((uint32_t)(chunk) ^ ((uint32_t)(row)&7u)) * 16u))

struct latent_shared {
    struct gpu_u128 exchange[LATENT_WARPS][LATENT_HALF][GPU_WARP]; /* scores on their way to the partner */
    struct gpu_sequence sequence;
    struct latent_piece piece;
    struct latent_place place;
    bool more;                                             /* there is a piece */
    bool whole;                                            /* keys lie on 16 bytes */
    uint32_t row_lo, row_hi;                               /* rows see all keys of [row_lo, row_hi) */
    uint64_t at[LATENT_WARPS][8];                          /* where the keys of the next tile are */
    uint64_t there[4];                                     /* of each tile in memory, a bit for every key */
    float most[LATENT_WARPS / LATENT_BLOCKS][LATENT_ROWS]; /* of the keys of a warp; at the end sums */
    float down[LATENT_ROWS]; /* what a new maximum makes of the results so far */
    float total[LATENT_ROWS];
    float peak[LATENT_ROWS];          /* the largest score so far, but for a slack */
    float next[LATENT_ROWS];          /* what becomes of it with this tile */
    float sum[2][GPU_LATENT_THREADS]; /* of this thread's P, for its two rows */
    struct gpu_row row[LATENT_ROWS];
};

static_assert(sizeof(struct latent_shared) <= LATENT_FIXED, "the host reserves less");
static_assert(LATENT_ROWS * LATENT_FLOATS * 4 <= 2 * GPU_LATENT_STAGE, "results do not fit");

/* What a warp has of a tile's scores. */
struct latent_warp {
    uint32_t block; /* of rows */
    uint32_t group; /* among the warps of these rows */
    uint32_t half;  /* of the columns */
    uint32_t key0;  /* first key of the pair */
};

GPU_INLINE struct latent_warp latent_warp(void)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, each = LATENT_WARPS / LATENT_BLOCKS;
    struct latent_warp w;

    w.block = warp / each;
    w.group = warp % each;
    w.half = warp % 2;
    w.key0 = w.group / 2 * LATENT_SHARE;
    return w;
}

/* Key of the tile that this lane has in place `n` of what it keeps, element `e`. */
GPU_INLINE uint32_t latent_key(const struct latent_warp *w, uint32_t n, uint32_t e)
{
    const uint32_t column = n / LATENT_HALF * LATENT_WAVE + w->half * LATENT_HALF + n % LATENT_HALF;

    return w->key0 + column * 8 + gpu_thread() % 4 * 2 + e % 2;
}

GPU_INLINE void latent_multiply(bool bf16, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    if (bf16)
        gpu_mma_bf16(d, a, b);
    else
        gpu_mma_f16(d, a, b);
}

/* In this order. */
#include "latent-load.h"

#include "latent-score.h"

#include "latent-value.h"

#include "latent-end.h"

/* Until at most the groups of `tiles` tiles are under way. */
GPU_INLINE void latent_wait(uint32_t tiles)
{
    if (tiles >= 2)
        GPU_COPY_WAIT(2);
    else if (tiles == 1)
        GPU_COPY_WAIT(1);
    else
        GPU_COPY_WAIT(0);
}

/* All tiles of a piece. */
GPU_INLINE void latent_attend(const struct gpu_run *run, struct latent_shared *shared, unsigned char *stages,
                              bool bf16)
{
    const struct latent_warp w = latent_warp();
    const struct latent_piece *p = &shared->piece;
    const uint32_t ring = LATENT_ROWS > 32 ? 2 : run->stages, first = p->first;
    unsigned char *const last = stages + (ring - 1) * GPU_LATENT_STAGE;
    uint32_t q[18][4], stage = 0;
    float o[LATENT_BLOCKS][8][4];

    latent_load_queries(run, &shared->sequence, last, p->row0);
    gpu_copy_commit();
    for (uint32_t i = 0; i < ring - 1; i++) {
        latent_locate(run, shared, first + i);
        if (first + i < p->end)
            latent_load(run, shared, stages, i);
        gpu_copy_commit();
    }
    latent_locate(run, shared, first + ring - 1);
    latent_load_rows(run, shared, p->row0);
    latent_wait(ring - 1);
    gpu_barrier();
    latent_take_queries(last, &w, q);
    latent_find_plain(run, shared);
    shared->sum[0][gpu_thread()] = shared->sum[1][gpu_thread()] = 0;
    if (gpu_thread() < LATENT_ROWS)
        shared->peak[gpu_thread()] = -GPU_INFINITY;
    GPU_UNROLL
    for (uint32_t m = 0; m < LATENT_BLOCKS; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < 8; n++)
        o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0;
    GPU_LOOP
    for (uint32_t tile = first; tile < p->end; tile++) {
        const uint32_t keys = stage * GPU_LATENT_STAGE;
        float s[LATENT_KEPT][4];
        latent_wait(ring - 2);
        gpu_barrier(); /* the tile is there, and the one before has been read */
        if (tile + ring - 1 < p->end)
            latent_load(run, shared, stages, stage == 0 ? ring - 1 : stage - 1);
        gpu_copy_commit();
        latent_locate(run, shared, tile + ring);
        latent_scores(shared, stages, keys, &w, bf16, q, s);
        const bool all = latent_apply_rules(run, shared, stage, &w, tile, s);
        latent_note_most(shared, &w, s);
        gpu_barrier(); /* and the last columns of the tile have been read */
        if (!all)
            latent_clean(stages + keys, bf16);
        latent_softmax(shared, stages + keys, &w, bf16, s);
        gpu_barrier();
        if (gpu_thread() < LATENT_ROWS)
            shared->peak[gpu_thread()] = shared->next[gpu_thread()];
        latent_values(shared, stages, keys, bf16, o);
        stage = stage + 1 == ring ? 0 : stage + 1;
    }
    GPU_COPY_WAIT(0);
    latent_join(shared, (float *)(void *)stages, &w, o);
}

/* The next piece of this CTA: of its part of the line of tiles, or with det=1 of its share of fixed parts. */
GPU_INLINE void latent_next(const struct gpu_run *run, struct latent_shared *shared, bool begins)
{
    const uint64_t all = latent_sum(run, run->batch.seqs);
    const uint32_t ctas = latent_ctas(run, all), cta = gpu_cta();
    const bool line = run->problem.det == 0;
    const uint64_t end = line ? latent_begin(all, cta + 1, ctas) : all;
    uint64_t at = shared->piece.next;

    if (begins) {
        at = line ? latent_begin(all, cta, ctas) : cta;
        shared->place.end = 0;
        shared->whole = run->whole != 0;
    }
    shared->more = cta < ctas && at < end;
    if (shared->more)
        shared->piece =
            latent_piece_at(run, LATENT_ROWS, all, at, end, ctas, &shared->place, &shared->sequence);
}

GPU_INLINE void latent_kernel(const struct gpu_run *run, bool bf16)
{
    unsigned char *memory = gpu_shared();
    struct latent_shared *shared = (struct latent_shared *)(void *)memory;
    unsigned char *stages = memory + LATENT_FIXED;
    const struct latent_piece *p = &shared->piece;

    for (bool begins = true;; begins = false) {
        gpu_barrier(); /* the piece before is done */
        if (gpu_thread() == 0)
            latent_next(run, shared, begins);
        gpu_barrier();
        if (!shared->more)
            return;
        latent_attend(run, shared, stages, bf16);
        latent_finish(run, shared, (const float *)(void *)stages, p);
    }
}

#endif
