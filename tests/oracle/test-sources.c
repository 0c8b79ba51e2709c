/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests where the oracle takes keys from: new tensors, layouts, MLA keys, ranks, companions. */
#include <criterion/criterion.h>
#include <math.h>

#include "scene.h"

enum { KEYS = PAGES * BLOCK };

static float rows_k[KEYS][DIM], rows_v[KEYS][DIM];

static void use_rows(int first, int skipped, int count)
{
    for (int n = 0; n < count; n++) {
        memcpy(rows_k[first + n], key(skipped + n), sizeof rows_k[0]);
        memcpy(rows_v[first + n], value(skipped + n), sizeof rows_v[0]);
    }
    scene.tensors.k_new = (struct attn_tensor){.buffer = {rows_k, 0}, .token_stride = sizeof rows_k[0]};
    scene.tensors.v_new = (struct attn_tensor){.buffer = {rows_v, 0}, .token_stride = sizeof rows_v[0]};
}

Test(sources, new_and_cached_keys)
{
    int32_t offsets[] = {3, 14};

    start(4, 11);
    compute();
    keep();
    use_rows(3, 0, 11);
    scene.problem.kv_source = ATTN_KV_NEW;
    scene.batch.kv_offsets.data = offsets;
    compute();
    expect_kept();
    scene.batch.kv_lens.data = NULL;
    scene.batch.table.data = NULL; /* not read */
    compute();
    expect_kept();

    start(4, 11);
    use_rows(0, 7, 4);
    scene.problem.kv_source = ATTN_KV_CACHE_NEW;
    for (int j = 7; j < 11; j++)
        key(j)[0] = value(j)[0] = NAN; /* not read */
    compute();
    expect_kept();
    scene.table[2] = -1; /* keys 8 to 10 are new ones: no hole */
    compute();
    expect_kept();

    start(5, 5);
    compute();
    keep();
    use_rows(0, 0, 5);
    scene.problem.type = ATTN_ENCODER_ONLY; /* reads new keys, as many as queries */
    scene.batch.kv_lens.data = NULL;
    compute();
    expect_kept();
}

Test(sources, paged_x_holds_the_same)
{
    static float line_k[PAGES][BLOCK][4], column_v[PAGES][DIM][BLOCK];

    start(4, 13);
    compute();
    keep();
    for (int page = 0; page < PAGES; page++)
        for (int token = 0; token < BLOCK; token++)
            for (int d = 0; d < DIM; d++) {
                line_k[page][token][d] = scene.k[page][token][d];
                column_v[page][d][token] = scene.v[page][token][d];
            }
    scene.problem.layout = scene.kv.layout = ATTN_PAGED_X;
    scene.kv.k.data = line_k;
    scene.kv.v.data = column_v;
    scene.kv.k_page_stride = sizeof line_k[0];
    scene.kv.v_page_stride = sizeof column_v[0];
    scene.kv.k_token_stride = scene.kv.v_token_stride = 0;
    compute();
    expect_kept();
}

Test(sources, mla_keys_hold_the_values)
{
    static float latent[ROWS][HEADS][2], rope[ROWS][HEADS];

    start(3, 9);
    scene.problem.head_dim_vo = 2;
    scene.kv.v = scene.kv.k;
    compute();
    keep();
    scene.problem.mla = 1;
    scene.kv.v.data = NULL;
    compute();
    expect_kept();
    for (int i = 0; i < ROWS; i++)
        for (int head = 0; head < HEADS; head++) {
            memcpy(latent[i][head], scene.q[i][head], sizeof latent[0][0]);
            rope[i][head] = scene.q[i][head][2];
        }
    scene.tensors.q = (struct attn_tensor){
        .buffer = {latent, 0}, .token_stride = sizeof latent[0], .head_stride = sizeof latent[0][0]};
    scene.tensors.q_rope = (struct attn_tensor){
        .buffer = {rope, 0}, .token_stride = sizeof rope[0], .head_stride = sizeof rope[0][0]};
    compute();
    expect_kept();
}

/* Rank r of two with pairs of keys in turn; its keys lie in pages of their own. */
static void start_rank(int r, int32_t *all)
{
    static float k[12][DIM], v[12][DIM];
    int32_t own = 0;

    *all = 11;
    for (int j = 0; j < *all; j++)
        if (j / 2 % 2 == r) {
            memcpy(k[own], key(j), sizeof k[0]);
            memcpy(v[own++], value(j), sizeof v[0]);
        }
    scene.problem.cp = 1;
    scene.batch.cp_world = scene.batch.cp_interleave = 2;
    scene.batch.cp_rank = (uint32_t)r;
    scene.batch.kv_global_lens.data = all;
    scene.kv_lens[0] = own;
    for (int b = 0; b < 3; b++)
        scene.table[b] = b;
    scene.kv.k.data = k;
    scene.kv.v.data = v;
}

static void start_with_everything(void)
{
    static float slopes[HEADS] = {0.25f, 0.5f}, sinks[HEADS] = {1, 0};
    static uint8_t mask[] = {0xef, 0xfd};

    start(4, 11);
    scene.problem.given = ATTN_GIVEN_WINDOW_LEFT;
    scene.problem.window_left = 6;
    scene.problem.alibi = ATTN_ALIBI_KEY;
    scene.tensors.alibi_slopes.data = slopes;
    scene.problem.sinks = 1;
    scene.tensors.sinks.data = sinks;
    scene.problem.mask = ATTN_MASK_BITS;
    scene.problem.span = ATTN_SPAN_FULL;
    scene.tensors.mask.data = mask;
}

Test(sources, merged_ranks_are_the_whole)
{
    double sums[ROWS][HEADS][DIM] = {{{0}}}, weights[ROWS][HEADS] = {{0}};
    uint32_t seen = 0, whole;
    int32_t all;

    start_with_everything();
    compute();
    keep();
    whole = scene.seen[3][1];
    for (int r = 0; r < 2; r++) {
        start_with_everything();
        start_rank(r, &all);
        compute();
        seen += scene.seen[3][1];
        for (int i = 0; i < 4; i++)
            for (int head = 0; head < HEADS; head++) {
                double weight = exp(scene.lse[i][head] - kept_lse[i][head]);
                weights[i][head] += weight;
                for (int d = 0; d < DIM; d++)
                    sums[i][head][d] += weight * scene.out[i][head][d];
            }
    }
    cr_expect_eq(seen, whole);
    for (int i = 0; i < 4; i++)
        for (int head = 0; head < HEADS; head++) {
            cr_expect(near(weights[i][head], 1));
            for (int d = 0; d < DIM; d++)
                cr_expect(near(sums[i][head][d], kept[i][head][d]));
        }
}

Test(sources, companions_and_order_do_not_matter)
{
    double alone[2][3][HEADS][DIM];
    int32_t table[5][WIDTH] = {{3, 1, 6, 4}, {0}, {5, 2, 0, 7}, {1, 1, 1, 1}, {0}};
    int32_t q_offsets[] = {0, 3, 3, 5, 5, 6}, kv_lens[] = {10, 7, 13, 0, 0};

    for (int which = 0; which < 2; which++) {
        int n = which == 0 ? 0 : 2;
        start(which == 0 ? 3 : 2, kv_lens[n]);
        memcpy(scene.table, table[n], sizeof scene.table);
        scene.tensors.q.buffer.byte_offset = (uint64_t)q_offsets[n] * sizeof scene.q[0];
        compute();
        memcpy(alone[which], scene.out, sizeof alone[0]);
    }
    /* An empty sequence between them, one without queries or keys, one with a query but no key. */
    start(6, 0);
    scene.batch.seqs = 5;
    scene.batch.q_offsets.data = q_offsets;
    scene.batch.kv_lens.data = kv_lens;
    scene.batch.table.data = table;
    compute();
    cr_expect_arr_eq(scene.out[0], alone[0], sizeof alone[0]);
    cr_expect_arr_eq(scene.out[3], alone[1], sizeof scene.out[0] * 2);
    cr_expect(scene.out[5][0][0] == 0 && scene.lse[5][0] == -INFINITY && scene.seen[5][0] == 0);

    float first[DIM]; /* heads change places */
    double swapped[DIM];
    start(1, 9);
    compute();
    memcpy(swapped, scene.out[0][1], sizeof swapped);
    memcpy(first, scene.q[0][0], sizeof first);
    memcpy(scene.q[0][0], scene.q[0][1], sizeof first);
    memcpy(scene.q[0][1], first, sizeof first);
    compute();
    cr_expect_arr_eq(scene.out[0][0], swapped, sizeof swapped);
}
