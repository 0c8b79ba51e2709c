/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests the oracle's rules of visibility and bias: masks, ALiBi, sinks; by hand and against each other. */
#include <criterion/criterion.h>
#include <math.h>

#include "scene.h"

enum { COLUMNS = 16 };

static uint8_t bits[HEADS][ROWS][COLUMNS / 8];
static unsigned char additive[HEADS][ROWS][COLUMNS][4];
static float slopes[HEADS] = {0.25f, 0.5f};

static void use_bits(uint32_t span)
{
    scene.problem.mask = ATTN_MASK_BITS;
    scene.problem.span = span;
    scene.tensors.mask.data = bits;
    scene.tensors.mask_row_stride = sizeof bits[0][0];
    scene.tensors.mask_head_stride = sizeof bits[0];
}

static void set_bit(int head, int i, int column)
{
    bits[head][i][column / 8] |= (uint8_t)(1 << column % 8);
}

/* Uneven bits for each head. */
static void fill_bits(void)
{
    for (int head = 0; head < HEADS; head++)
        for (int i = 0; i < ROWS; i++)
            for (int c = 0; c < COLUMNS; c++)
                if ((c * 7 + i * 3 + head * 5) % 4 != 0)
                    set_bit(head, i, c);
}

/* The same as the bits: 0 where one stands, else `masking`. */
static void use_additive(uint32_t mask, uint32_t dtype, double masking)
{
    for (int head = 0; head < HEADS; head++)
        for (int i = 0; i < ROWS; i++)
            for (uint32_t c = 0; c < COLUMNS; c++)
                oracle_store(dtype, bits[head][i][c / 8] >> c % 8 & 1 ? 0 : masking,
                             &additive[head][i][0][0] + c * oracle_size(dtype));
    scene.problem.mask = mask;
    scene.tensors.mask.data = additive;
    scene.tensors.mask_row_stride = sizeof additive[0][0];
    scene.tensors.mask_head_stride = sizeof additive[0];
}

Test(rules, window_is_a_mask)
{
    start(5, 12);
    scene.problem.causal = ATTN_CAUSAL_NO;
    scene.problem.given = ATTN_GIVEN_WINDOW_LEFT | ATTN_GIVEN_WINDOW_RIGHT;
    scene.problem.window_left = 3;
    scene.problem.window_right = 1;
    compute();
    keep();
    cr_expect(kept_seen[0][0] == 5 && kept_seen[4][0] == 4);
    scene.problem.given = 0;
    for (int head = 0; head < HEADS; head++)
        for (int i = 0; i < 5; i++)
            for (int j = 0; j < 12; j++)
                if (j >= i + 7 - 3 && j <= i + 7 + 1)
                    set_bit(head, i, j);
    use_bits(ATTN_SPAN_FULL);
    compute();
    expect_kept();
}

static void additive_is_bits(uint32_t span)
{
    start(4, 10);
    fill_bits();
    use_bits(span);
    compute();
    keep();
    cr_expect(kept_seen[3][0] > 0 && kept_seen[3][0] < 10); /* ten without a mask */
    use_additive(ATTN_MASK_F32, ATTN_F32, -(double)INFINITY);
    compute();
    expect_kept();
    scene.problem.alibi = ATTN_ALIBI_MASK; /* masks whatever the slope */
    const float turned[HEADS] = {-1, 0};
    scene.tensors.alibi_slopes.data = (void *)turned;
    compute();
    expect_kept();
    scene.problem.alibi = ATTN_ALIBI_NONE;
    use_additive(ATTN_MASK_F32, ATTN_F32, -0x1.fffffep127);
    compute();
    expect_kept();
    use_additive(ATTN_MASK_F16, ATTN_F16, -65504);
    compute();
    expect_kept();
    use_additive(ATTN_MASK_BF16, ATTN_BF16, -0x1.fep127);
    compute();
    expect_kept();
}

Test(rules, additive_mask_is_a_bit_mask)
{
    additive_is_bits(ATTN_SPAN_FULL);
    memset(bits, 0, sizeof bits);
    additive_is_bits(ATTN_SPAN_SQUARE);
}

Test(rules, packed_bits_are_rows_of_bits)
{
    static uint8_t packed[HEADS][16];
    const uint32_t spans[] = {ATTN_SPAN_FULL, ATTN_SPAN_SQUARE};

    for (int s = 0; s < 2; s++) {
        int columns = s == 0 ? 11 : 5;
        memset(packed, 0, sizeof packed);
        start(5, 11);
        fill_bits();
        use_bits(spans[s]);
        compute();
        keep();
        for (int head = 0; head < HEADS; head++)
            for (int i = 0; i < 5; i++)
                for (int c = 0; c < columns; c++)
                    if (bits[head][i][c / 8] >> c % 8 & 1)
                        packed[head][(i * columns + c) / 8] |= (uint8_t)(1 << (i * columns + c) % 8);
        scene.tensors.mask.data = packed;
        scene.tensors.mask_packed = 1;
        scene.tensors.mask_head_stride = sizeof packed[0];
        compute();
        expect_kept();
    }
}

Test(rules, inside_the_square_the_mask_decides)
{
    start(3, 10);
    set_bit(0, 0, 2); /* row 0 of head 0 sees the last key, which lies after it, and not its own */
    use_bits(ATTN_SPAN_SQUARE);
    compute();
    cr_expect(scene.seen[0][0] == 8 && scene.seen[0][1] == 7 && scene.seen[2][0] == 7);
    scene.problem.given = ATTN_GIVEN_WINDOW_LEFT;
    scene.problem.window_left = 1; /* keys before the square follow the window */
    compute();
    cr_expect(scene.seen[0][0] == 2 && scene.seen[1][0] == 0 && scene.seen[0][1] == 1);
    scene.problem.span = ATTN_SPAN_FULL; /* and-ed: key 2 is out of reach */
    compute();
    cr_expect_eq(scene.seen[0][0], 0);
    set_bit(0, 0, 7);
    set_bit(0, 0, 8);
    compute();
    cr_expect_eq(scene.seen[0][0], 1);

    start(5, 3); /* columns 0 and 1 of the square are no keys */
    memset(bits, 0, sizeof bits);
    for (int c = 0; c < 3; c++)
        set_bit(0, 0, c);
    use_bits(ATTN_SPAN_SQUARE);
    compute();
    cr_expect(scene.seen[0][0] == 1 && scene.seen[4][0] == 0);
}

Test(rules, a_sequence_without_a_mask)
{
    int64_t starts[] = {-1};

    start(3, 10);
    compute();
    keep();
    use_bits(ATTN_SPAN_SQUARE);
    scene.tensors.mask_starts.data = starts;
    compute();
    expect_kept();
    starts[0] = 0;
    compute();
    cr_expect_eq(scene.seen[2][0], 7);
    set_bit(0, 0, 8); /* the second byte of the mask */
    starts[0] = 1;
    compute();
    cr_expect_eq(scene.seen[0][0], 8);
}

/* ln of the sum over keys of exp(bias), with queries of zero. */
static void start_flat(int q_len, int kv_len)
{
    start(q_len, kv_len);
    memset(scene.q, 0, sizeof scene.q);
    scene.tensors.alibi_slopes.data = slopes;
}

Test(rules, alibi_by_hand)
{
    const double h0 = 0.25, h1 = 0.5;
    start_flat(2, 3);
    scene.problem.causal = ATTN_CAUSAL_NO;
    scene.problem.alibi = ATTN_ALIBI_KEY; /* query 0 stands at 1 */
    compute();
    cr_expect(near(scene.lse[0][0], log(exp(-h0) + 1 + exp(h0))));
    cr_expect(near(scene.lse[1][1], log(exp(-2 * h1) + exp(-h1) + 1)));
    cr_expect(near(scene.largest, 1));
    scene.problem.alibi = ATTN_ALIBI_DISTANCE;
    scene.problem.softcap = 0.125f; /* the bias is not capped */
    compute();
    cr_expect(near(scene.lse[0][0], log(1 + 2 * exp(-h0))));
    cr_expect(near(scene.lse[1][1], log(exp(-2 * h1) + exp(-h1) + 1)));
    use_additive(ATTN_MASK_F32, ATTN_F32, 3);
    scene.problem.span = ATTN_SPAN_FULL;
    scene.problem.alibi = ATTN_ALIBI_MASK;
    compute();
    cr_expect(near(scene.lse[0][0], log(3) + 3 * h0));
    scene.problem.alibi = ATTN_ALIBI_KEY;
    compute();
    cr_expect(near(scene.lse[0][0], log(exp(-h0) + 1 + exp(h0)) + 3));
    scene.problem.span = ATTN_SPAN_SQUARE; /* key 0 gets no bias from the mask */
    compute();
    cr_expect(near(scene.lse[0][0], log(exp(-h0) + exp(3) + exp(h0 + 3))));
}

Test(rules, alibi_takes_positions_of_tokens_in_the_square)
{
    int32_t positions[] = {5, 9};

    start_flat(2, 4);
    scene.problem.positions = 1;
    scene.batch.q_positions.data = positions;
    scene.problem.alibi = ATTN_ALIBI_KEY;
    compute(); /* keys stand at 0..3 */
    cr_expect(near(scene.lse[0][0], log(exp(-1.25) + exp(-1) + exp(-0.75) + exp(-0.5))));
    memset(bits, 0xff, sizeof bits);
    use_bits(ATTN_SPAN_SQUARE);
    compute(); /* keys 2 and 3 stand at 5 and 9 */
    cr_expect(near(scene.lse[0][0], log(exp(-1.25) + exp(-1) + 1 + exp(1))));
    scene.problem.span = ATTN_SPAN_FULL;
    compute();
    cr_expect(near(scene.lse[0][0], log(exp(-1.25) + exp(-1) + exp(-0.75) + exp(-0.5))));
}

Test(rules, sinks_by_hand)
{
    float sinks[HEADS] = {2, -INFINITY};
    uint16_t narrow[HEADS] = {0x4000, 0xff80}; /* the same in bf16 */

    start_flat(2, 3);
    compute();
    keep();
    scene.problem.sinks = 1;
    scene.problem.softcap = 0.5f; /* a sink is not capped */
    scene.tensors.sinks.data = sinks;
    scene.tensors.sinks_dtype = ATTN_F32;
    for (int pass = 0; pass < 2; pass++) {
        compute();
        cr_expect(near(scene.lse[1][0], log(3 + exp(2))));
        cr_expect(near(scene.lse[1][1], log(3)));
        for (int d = 0; d < DIM; d++) {
            cr_expect(near(scene.out[1][0][d], kept[1][0][d] * 3 / (3 + exp(2))));
            cr_expect(near(scene.out[1][1][d], kept[1][1][d]));
        }
        scene.tensors.sinks.data = narrow;
        scene.tensors.sinks_dtype = ATTN_BF16;
    }
    scene.kv_lens[0] = 1; /* row 0 sees nothing now */
    compute();
    cr_expect(scene.lse[0][0] == 2 && scene.lse[0][1] == -INFINITY);
    cr_expect(scene.out[0][0][1] == 0 && !signbit(scene.out[0][0][1]));
    key(0)[1] = NAN;
    compute();
    cr_expect(isnan(scene.lse[1][0]) && isnan(scene.out[1][0][0]) && scene.lse[0][0] == 2);
}

Test(rules, masked_keys_do_not_reach_a_result)
{
    start(2, 9);
    fill_bits();
    for (int i = 0; i < 2; i++)
        for (int head = 0; head < HEADS; head++)
            bits[head][i][0] &= (uint8_t)~4;
    use_bits(ATTN_SPAN_FULL);
    compute();
    keep();
    key(2)[0] = NAN;
    value(2)[1] = INFINITY;
    compute();
    expect_kept();
    use_additive(ATTN_MASK_F16, ATTN_F16, -(double)INFINITY);
    compute();
    expect_kept();
}

Test(rules, types_change_defaults_only)
{
    start(2, 7);
    scene.problem.causal = ATTN_CAUSAL_NO;
    compute();
    keep();
    cr_expect(kept_seen[0][0] == 7 && kept_seen[1][1] == 7);
    scene.problem.type = ATTN_ENCODER_DECODER;
    compute();
    expect_kept();
    scene.problem.type = ATTN_ENCODER;
    scene.problem.kv_source = ATTN_KV_CACHE;
    compute();
    expect_kept();
}
