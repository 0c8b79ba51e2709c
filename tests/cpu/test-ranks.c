/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Tests that the parts of all ranks, merged or rescaled and added up, are what one rank with all keys
 * computes. Every rank is a run of its own with a cache of its own keys.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "shape-fixture.h"

enum { SEQS = 4, ROWS = 25, HEADS = 4, KV_HEADS = 2, DIM = 16, BLOCK = 4, MOST_RANKS = 5, MOST_PAGES = 128 };

static const int32_t q_offsets[SEQS + 1] = {0, 5, 6, 23, 25};
static const int32_t all_keys[SEQS] = {77, 200, 17, 1};

/* What one run writes. */
struct part {
    float out[ROWS][HEADS][DIM];
    float lse[ROWS][HEADS];
};

/* Inputs that every rank has. */
struct scene {
    struct attn_problem problem;
    float q[ROWS][HEADS][DIM];
    float slopes[HEADS];
    float sinks[HEADS];
    uint8_t bits[ROWS][32];
    float numbers[ROWS][32];
    int32_t positions[ROWS];
    int64_t mask_starts[SEQS];
};

/* A number in (-1, 1) that depends on where it is alone. */
static float number(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xc2b2ae3d27d4eb4f) +
                 c * UINT64_C(0x165667b19e3779f9) + d * UINT64_C(0x27d4eb2f165667c5);

    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return (float)((double)(x & 0xffffff) / 0x800000 - 1);
}

static void scene_init(struct scene *scene, const char *keys, uint32_t cp)
{
    char text[256];

    memset(scene, 0, sizeof *scene);
    snprintf(text, sizeof text, "heads=%d kv_heads=%d head_dim=%d q=f32 block=%d lse=1 %s%s", HEADS, KV_HEADS,
             DIM, BLOCK, keys, cp != 0 ? " cp=1" : "");
    fixture_problem(text, &scene->problem);
    for (uint32_t h = 0; h < HEADS; h++) {
        scene->slopes[h] = 0.01f * (float)(h + 1);
        scene->sinks[h] = (float)h - 1.5f;
    }
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t d = 0; d < DIM; d++)
                scene->q[row][h][d] = 2 * number(1, row, h, d);
        for (uint32_t i = 0; i < 32; i++) {
            scene->bits[row][i] = (uint8_t)(127 * (number(2, row, i, 0) + 1));
            scene->numbers[row][i] = number(3, row, i, 0) < -0.7f ? -INFINITY : number(4, row, i, 0);
        }
        scene->positions[row] = (int32_t)(40 * (number(5, row, 0, 0) + 1));
    }
    for (uint32_t n = 0; n < SEQS; n++)
        scene->mask_starts[n] = q_offsets[n] * (int64_t)sizeof scene->numbers[0];
}

static void scene_tensors(struct scene *scene, struct part *part, struct attn_tensors *t)
{
    const struct attn_problem *p = &scene->problem;

    ATTN_INIT(t);
    t->softmax_scale = 0.5f;
    t->q = fixture_tensor(scene->q, sizeof scene->q[0], sizeof scene->q[0][0]);
    t->out = fixture_tensor(part->out, sizeof part->out[0], sizeof part->out[0][0]);
    t->lse = fixture_tensor(part->lse, sizeof part->lse[0], sizeof part->lse[0][0]);
    if (p->alibi != ATTN_ALIBI_NONE)
        t->alibi_slopes.data = scene->slopes;
    if (p->sinks != 0) {
        t->sinks.data = scene->sinks;
        t->sinks_dtype = ATTN_F32;
    }
    if (p->mask == ATTN_MASK_BITS) {
        t->mask.data = scene->bits;
        t->mask_row_stride = sizeof scene->bits[0]; /* the same rows for every sequence */
    } else if (p->mask == ATTN_MASK_F32) {
        t->mask.data = scene->numbers;
        t->mask_starts.data = scene->mask_starts;
        t->mask_row_stride = sizeof scene->numbers[0];
    }
}

/* Where key `local` of a rank is in all keys. Written out by steps of one, not by the formula. */
static int32_t find_global(uint32_t rank, uint32_t world, uint32_t share, uint32_t local)
{
    for (int32_t all = 0, own = 0;; all++) {
        if ((uint32_t)all / share % world != rank)
            continue;
        if ((uint32_t)own++ == local)
            return all;
    }
}

static void run_rank(const struct shape_fixture *fixture, struct scene *scene, uint32_t rank, uint32_t world,
                     uint32_t share, struct part *part)
{
    static float k[MOST_PAGES][BLOCK][KV_HEADS][DIM], v[MOST_PAGES][BLOCK][KV_HEADS][DIM];
    int32_t lens[SEQS] = {0}, table[SEQS][64], page = 0;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    struct attn_error err;

    memset(k, 0xff, sizeof k); /* NaN */
    memset(v, 0xff, sizeof v);
    memset(part, 0xff, sizeof *part);
    for (uint32_t n = 0; n < SEQS; n++) {
        for (uint32_t j = 0;; j++) {
            int32_t at = find_global(rank, world, share, j);
            if (at >= all_keys[n])
                break;
            if (j % BLOCK == 0)
                table[n][j / BLOCK] = page++;
            for (uint32_t i = 0; i < KV_HEADS * DIM; i++) {
                k[page - 1][j % BLOCK][i / DIM][i % DIM] = number(6, n, (uint32_t)at, i);
                v[page - 1][j % BLOCK][i / DIM][i % DIM] = number(7, n, (uint32_t)at, i);
            }
            lens[n]++;
        }
    }
    ATTN_INIT(&err);
    ATTN_INIT(&batch);
    batch.seqs = SEQS;
    batch.num_tokens = ROWS;
    batch.max_q = 17;
    batch.max_kv = 200;
    batch.q_offsets.data = (void *)(uintptr_t)q_offsets;
    batch.kv_lens.data = lens;
    batch.table.data = table;
    batch.table_width = 64;
    batch.table_stride = sizeof table[0];
    if (scene->problem.positions != 0)
        batch.q_positions.data = scene->positions;
    if (scene->problem.cp != 0) {
        batch.kv_global_lens.data = (void *)(uintptr_t)all_keys;
        batch.cp_rank = rank;
        batch.cp_world = world;
        batch.cp_interleave = share;
    }
    ATTN_INIT(&kv);
    kv.k_dtype = kv.v_dtype = ATTN_F32;
    kv.pages = MOST_PAGES;
    kv.block = BLOCK;
    kv.kv_heads = KV_HEADS;
    kv.head_dim = DIM;
    kv.k.data = k;
    kv.v.data = v;
    kv.k_page_stride = kv.v_page_stride = sizeof k[0];
    kv.k_token_stride = kv.v_token_stride = sizeof k[0][0];
    kv.k_head_stride = kv.v_head_stride = sizeof k[0][0][0];
    scene_tensors(scene, part, &tensors);
    tensors.kv_desc = &kv;
    cr_assert_eq(fixture_run(fixture, &scene->problem, &batch, &tensors, &err), ATTN_OK, "%s", err.message);
}

static bool is_near(float got, float wanted)
{
    return got == wanted || fabsf(got - wanted) <= 4e-6f * fmaxf(1, fabsf(wanted));
}

static void compare(const char *what, const float *got, const float *wanted, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        cr_assert(is_near(got[i], wanted[i]), "%s: element %u is %g, wanted %g", what, i, (double)got[i],
                  (double)wanted[i]);
}

static void check_merge(const struct shape_fixture *fixture, struct part *parts, uint32_t world,
                        const struct part *whole, const char *what)
{
    static struct part merged;
    struct attn_merge_part list[MOST_RANKS];
    struct attn_merge_args args;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&args);
    for (uint32_t r = 0; r < world; r++) {
        list[r].out = fixture_tensor(parts[r].out, sizeof whole->out[0], sizeof whole->out[0][0]);
        list[r].lse = fixture_tensor(parts[r].lse, sizeof whole->lse[0], sizeof whole->lse[0][0]);
    }
    args.count = world;
    args.parts = list;
    args.dtype = ATTN_F32;
    args.lse_base = ATTN_LSE_NATURAL;
    args.num_tokens = ROWS;
    args.heads = HEADS;
    args.head_dim = DIM;
    args.out = fixture_tensor(merged.out, sizeof whole->out[0], sizeof whole->out[0][0]);
    args.lse = fixture_tensor(merged.lse, sizeof whole->lse[0], sizeof whole->lse[0][0]);
    cr_assert_eq(attn_merge(fixture->backend, &args, NULL, &err), ATTN_OK, "%s", err.message);
    compare(what, (const float *)merged.out, (const float *)whole->out, ROWS * HEADS * DIM);
    compare(what, (const float *)merged.lse, (const float *)whole->lse, ROWS * HEADS);
}

static void check_rescale(const struct shape_fixture *fixture, struct part *parts, uint32_t world,
                          const struct part *whole, const char *what)
{
    static float sum[ROWS][HEADS][DIM];
    struct attn_tensor all[MOST_RANKS];
    struct attn_rescale_args args;
    struct attn_error err;

    ATTN_INIT(&err);
    memset(sum, 0, sizeof sum);
    for (uint32_t r = 0; r < world; r++)
        all[r] = fixture_tensor(parts[r].lse, sizeof whole->lse[0], sizeof whole->lse[0][0]);
    for (uint32_t r = 0; r < world; r++) {
        ATTN_INIT(&args);
        args.dtype = ATTN_F32;
        args.out = fixture_tensor(parts[r].out, sizeof whole->out[0], sizeof whole->out[0][0]);
        args.own = all[r];
        args.all = all;
        args.count = world;
        args.lse_base = ATTN_LSE_NATURAL;
        args.num_tokens = ROWS;
        args.heads = HEADS;
        args.head_dim = DIM;
        cr_assert_eq(attn_rescale(fixture->backend, &args, NULL, &err), ATTN_OK, "%s", err.message);
        for (uint32_t i = 0; i < ROWS * HEADS * DIM; i++)
            ((float *)sum)[i] += ((const float *)parts[r].out)[i];
    }
    compare(what, (const float *)sum, (const float *)whole->out, ROWS * HEADS * DIM);
}

static void check_scene(const struct shape_fixture *fixture, const char *keys)
{
    static struct scene alone, shared;
    static struct part whole, parts[MOST_RANKS];
    static const uint32_t worlds[] = {1, 2, 3, 5}, shares[] = {1, 2, 4};

    scene_init(&alone, keys, 0);
    scene_init(&shared, keys, 1);
    run_rank(fixture, &alone, 0, 1, 1, &whole);
    for (uint32_t i = 0; i < 12; i++) {
        char what[256];
        uint32_t world = worlds[i / 3], share = shares[i % 3];
        snprintf(what, sizeof what, "%s, %u ranks, %u keys at a time", keys, world, share);
        for (uint32_t r = 0; r < world; r++)
            run_rank(fixture, &shared, r, world, share, &parts[r]);
        check_merge(fixture, parts, world, &whole, what);
        check_rescale(fixture, parts, world, &whole, what);
    }
}

static void check_level(const char *flags)
{
    static const char *const keys[] = {"causal=1",
                                       "causal=0",
                                       "causal=1 align=start",
                                       "causal=1 window=9",
                                       "causal=0 window=0/0",
                                       "causal=0 window=3/6 softcap=5",
                                       "causal=1 positions=1",
                                       "causal=1 sinks=1",
                                       "causal=0 window=2/1 sinks=1",
                                       "causal=1 alibi=key",
                                       "causal=0 alibi=distance positions=1",
                                       "causal=1 mask=bits span=full",
                                       "causal=1 mask=bits window=20 sinks=1",
                                       "causal=0 mask=f32 span=square alibi=key",
                                       "causal=1 mask=f32 alibi=mask"};
    struct shape_fixture fixture;

    fixture_open(&fixture, flags);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        check_scene(&fixture, keys[i]);
    fixture_close(&fixture);
}

Test(ranks, parts_of_all_ranks_are_the_whole)
{
    check_level(NULL);
}

Test(ranks, parts_of_all_ranks_are_the_whole_in_plain_c)
{
    check_level("none");
}
