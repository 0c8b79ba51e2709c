/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests the oracle against closed forms, identities and the rules for NaN. */
#include <criterion/criterion.h>
#include <math.h>

#include "scene.h"

Test(oracle, equal_scores_give_the_mean)
{
    start(1, 10);
    memset(scene.q, 0, sizeof scene.q);
    compute();
    for (int d = 0; d < DIM; d++) {
        double mean = 0;
        for (int j = 0; j < 10; j++)
            mean += (double)value(j)[d] / 10;
        cr_expect(near(scene.out[0][0][d], mean));
    }
    cr_expect(near(scene.lse[0][1], log(10)));
    cr_expect_eq(scene.seen[0][0], 10);
}

Test(oracle, one_key_gives_its_value)
{
    start(1, 1);
    compute();
    double dot = 0;
    for (int d = 0; d < DIM; d++) {
        dot += (double)scene.q[0][1][d] * (double)key(0)[d];
        cr_expect(near(scene.out[0][1][d], (double)value(0)[d]));
    }
    cr_expect(near(scene.lse[0][1], 0.5 * dot));
    cr_expect(scene.largest >= fabs(0.5 * dot));
    cr_expect(near(scene.largest_uncapped, 0) && near(scene.slope[0][1], 0)); /* no cap */
}

Test(oracle, two_keys_and_a_soft_cap_by_hand)
{
    start(1, 2);
    scene.problem.softcap = 2;
    memset(scene.q, 0, sizeof scene.q);
    scene.q[0][0][0] = 2;
    key(0)[0] = 3;
    key(1)[0] = -1;
    compute();
    double a = 2 * tanh(1.5), b = 2 * tanh(-0.5);
    double weight = exp(a) / (exp(a) + exp(b));
    for (int d = 0; d < DIM; d++)
        cr_expect(
            near(scene.out[0][0][d], weight * (double)value(0)[d] + (1 - weight) * (double)value(1)[d]));
    cr_expect(near(scene.lse[0][0], log(exp(a) + exp(b))));
    cr_expect(near(scene.largest, a));
    cr_expect(near(scene.largest_uncapped, 3));
    cr_expect(near(scene.slope[0][0], weight * (1 - a * a / 4) + (1 - weight) * (1 - b * b / 4)));
    cr_expect(near(scene.slope[0][1], 1)); /* its products are 0 */
}

Test(oracle, causal_and_alignment)
{
    start(3, 10);
    compute();
    cr_expect_eq(scene.seen[0][0], 8);
    cr_expect_eq(scene.seen[2][0], 10);
    scene.problem.align = ATTN_ALIGN_START;
    compute();
    cr_expect_eq(scene.seen[0][0], 1);
    cr_expect_eq(scene.seen[2][0], 3);
    scene.problem.causal = ATTN_CAUSAL_NO;
    compute();
    cr_expect_eq(scene.seen[0][0], 10);
}

Test(oracle, start_equals_end_for_a_square)
{
    double end[ROWS][HEADS][DIM];

    start(6, 6);
    compute();
    memcpy(end, scene.out, sizeof end);
    scene.problem.align = ATTN_ALIGN_START;
    compute();
    cr_expect_arr_eq(end, scene.out, sizeof end);
}

Test(oracle, more_queries_than_keys)
{
    start(5, 3);
    compute();
    for (int i = 0; i < 5; i++)
        cr_expect_eq(scene.seen[i][0], i < 2 ? 0 : (uint32_t)i - 1);
    cr_expect_eq(scene.out[1][1][0], 0);
    cr_expect(!signbit(scene.out[1][1][0]));
    cr_expect_eq(scene.lse[1][1], -INFINITY);
}

Test(oracle, windows_count_without_the_own_key)
{
    start(2, 10);
    scene.problem.window_left = 2; /* not given: does not count */
    compute();
    cr_expect_eq(scene.seen[0][0], 9);
    scene.problem.given = ATTN_GIVEN_WINDOW_LEFT;
    compute();
    cr_expect_eq(scene.seen[0][0], 3);
    scene.problem.causal = ATTN_CAUSAL_NO; /* right is left now */
    compute();
    cr_expect_eq(scene.seen[0][0], 4); /* 6..9 around 8 */
    scene.problem.given |= ATTN_GIVEN_WINDOW_RIGHT;
    scene.problem.window_right = 0;
    compute();
    cr_expect_eq(scene.seen[0][0], 3);
    scene.problem.window_right = -1;
    scene.problem.align = ATTN_ALIGN_START;
    compute();
    cr_expect_eq(scene.seen[1][0], 10);
    scene.problem.causal = ATTN_CAUSAL_YES; /* holds whatever the window allows */
    compute();
    cr_expect_eq(scene.seen[1][0], 2);
}

Test(oracle, positions_and_causality_of_a_sequence)
{
    int64_t positions[] = {0, 7, 4};
    uint8_t causal[] = {0};

    start(3, 10);
    scene.problem.positions = 1;
    scene.batch.q_positions.data = positions;
    scene.batch.position_dtype = ATTN_INT64;
    compute();
    cr_expect(scene.seen[0][0] == 1 && scene.seen[1][0] == 8 && scene.seen[2][0] == 5);
    scene.problem.given = ATTN_GIVEN_WINDOW_LEFT;
    scene.problem.window_left = 2;
    scene.problem.seq_causal = 1;
    scene.batch.seq_causal.data = causal;
    compute(); /* not causal: the right side of the window is the left one */
    cr_expect(scene.seen[0][0] == 3 && scene.seen[1][0] == 5 && scene.seen[2][0] == 5);
    causal[0] = 1;
    compute();
    cr_expect(scene.seen[0][0] == 1 && scene.seen[1][0] == 3 && scene.seen[2][0] == 3);
}

Test(oracle, neighbouring_heads_share_a_kv_head)
{
    start(1, 1);
    scene.problem.heads = 6; /* one row of six heads, kv head 1 lies a page before kv head 0 */
    scene.problem.kv_heads = 2;
    scene.kv.v_head_stride = -scene.kv.v_page_stride;
    compute();
    for (int head = 0; head < 6; head++)
        cr_expect(near((&scene.out[0][0][0])[head * DIM], (double)scene.v[head < 3 ? 7 : 6][0][0]));
}

Test(oracle, wide_window_is_none)
{
    double none[ROWS][HEADS][DIM];

    start(4, 9);
    compute();
    memcpy(none, scene.out, sizeof none);
    scene.problem.given = ATTN_GIVEN_WINDOW_LEFT;
    scene.problem.window_left = 100;
    compute();
    cr_expect_arr_eq(none, scene.out, sizeof none);
}

Test(oracle, page_numbers_do_not_matter)
{
    double before[ROWS][HEADS][DIM];
    float page[BLOCK][DIM];

    start(4, 13);
    compute();
    memcpy(before, scene.out, sizeof before);
    for (int which = 0; which < 2; which++) {
        void *base = which == 0 ? scene.k : scene.v;
        memcpy(page, (char *)base + sizeof page * 7, sizeof page);
        memcpy((char *)base + sizeof page * 2, page, sizeof page);
        memset((char *)base + sizeof page * 7, 0xff, sizeof page);
    }
    scene.table[0] = 2;
    compute();
    cr_expect_arr_eq(before, scene.out, sizeof before);
}

Test(oracle, holes_do_not_exist)
{
    start(1, 11);
    scene.table[1] = -1;
    compute();
    cr_expect_eq(scene.seen[0][0], 7);
    cr_expect(isfinite(scene.lse[0][0]));
}

Test(oracle, all_addressings_agree)
{
    double table[ROWS][HEADS][DIM];
    int32_t indptr[] = {0, 4};
    int64_t indices[4];
    int32_t offsets[] = {8, 20};

    start(4, 10);
    for (int b = 0; b < WIDTH; b++)
        indices[b] = scene.table[b] = 2 + b; /* consecutive: readable as dense from token 8 on */
    compute();
    memcpy(table, scene.out, sizeof table);
    scene.problem.addressing = ATTN_CSR;
    scene.problem.index_dtype = ATTN_INT64;
    scene.batch.csr_indptr.data = indptr;
    scene.batch.csr_indices.data = indices;
    compute();
    cr_expect_arr_eq(table, scene.out, sizeof table);
    scene.problem.addressing = ATTN_DENSE;
    scene.batch.kv_offsets.data = offsets;
    compute();
    cr_expect_arr_eq(table, scene.out, sizeof table);
    scene.batch.kv_offsets.data = NULL;
    scene.kv.k.byte_offset = scene.kv.v.byte_offset = 2 * sizeof scene.k[0];
    compute();
    cr_expect_arr_eq(table, scene.out, sizeof table);
}

Test(oracle, nan_goes_where_the_rules_say)
{
    start(3, 10);
    key(9)[1] = NAN; /* the last row alone sees it */
    compute();
    cr_expect(isfinite(scene.out[1][0][0]));
    for (int d = 0; d < DIM; d++)
        cr_expect(isnan(scene.out[2][1][d]));
    cr_expect(isnan(scene.lse[2][1]));

    start(3, 10);
    scene.q[1][0][2] = NAN;
    compute();
    cr_expect(isnan(scene.out[1][0][0]) && isnan(scene.lse[1][0]));
    cr_expect(isfinite(scene.out[1][1][0]) && isfinite(scene.out[0][0][0]));

    start(3, 10);
    value(4)[1] = NAN;
    key(4)[0] = scene.q[0][0][0] > 0 ? -1e6f : 1e6f; /* its weight underflows in row 0, head 0 */
    compute();
    cr_expect(isnan(scene.out[0][0][1]));
    cr_expect(isfinite(scene.out[0][0][0]) && isfinite(scene.lse[0][0]));

    start(3, 10);
    key(10)[0] = value(11)[0] = NAN; /* tail slots */
    compute();
    cr_expect(isfinite(scene.out[2][0][0]));
}

/* The last 4 keys and the first 6 keys of a sequence, merged, are the sequence. */
static void merge_of_parts(uint32_t base)
{
    float out[3][HEADS][DIM], lse[3][HEADS];
    struct attn_merge_part parts[3];
    double merged[HEADS][DIM], total[HEADS];
    struct attn_merge_args args;

    start(1, 10);
    compute();
    double whole[HEADS][DIM], whole_lse[HEADS];
    memcpy(whole, scene.out[0], sizeof whole);
    memcpy(whole_lse, scene.lse[0], sizeof whole_lse);
    memset(parts, 0, sizeof parts);
    for (int k = 0; k < 3; k++) {
        scene.kv_lens[0] = k == 0 ? 6 : 10;
        scene.problem.given = k == 0 ? 0 : ATTN_GIVEN_WINDOW_LEFT;
        scene.problem.window_left = 3;
        compute();
        for (int h = 0; h < HEADS; h++) {
            double own = k == 2 ? -INFINITY : scene.lse[0][h];
            lse[k][h] = (float)(base == ATTN_LSE_BASE2 ? own / log(2) : own);
            for (int d = 0; d < DIM; d++)
                out[k][h][d] = k == 2 ? NAN : (float)scene.out[0][h][d];
        }
        parts[k].out = (struct attn_tensor){.buffer = {out[k], 0}, .head_stride = sizeof out[0][0]};
        parts[k].lse = (struct attn_tensor){.buffer = {lse[k], 0}, .head_stride = sizeof lse[0][0]};
    }
    ATTN_INIT(&args);
    args.count = 3;
    args.parts = parts;
    args.dtype = ATTN_F32;
    args.lse_base = base;
    args.num_tokens = 1;
    args.heads = HEADS;
    args.head_dim = DIM;
    const struct oracle_merged result = {.out = &merged[0][0], .lse = total};
    oracle_merge(&args, &result);
    for (int h = 0; h < HEADS; h++) {
        cr_expect(fabs(total[h] - whole_lse[h]) < 1e-6);
        for (int d = 0; d < DIM; d++)
            cr_expect(fabs(merged[h][d] - whole[h][d]) < 1e-6);
    }
}

Test(merge, parts_make_the_whole)
{
    merge_of_parts(ATTN_LSE_NATURAL);
    merge_of_parts(ATTN_LSE_BASE2);
}
