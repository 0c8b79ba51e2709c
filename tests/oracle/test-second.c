/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Compares the oracle with its second version on random cases over all keys. */
#include <criterion/criterion.h>
#include <math.h>

#include "second.h"

enum { CASES = 1000 };

static struct random_case c;
static struct second_result second;
static double out[MOST_ROWS * MOST_HEADS * MOST_DIM], lse[MOST_ROWS * MOST_HEADS];
static uint32_t seen[MOST_ROWS * MOST_HEADS];

static bool agree(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= 1e-11 * fmax(1, fabs(b));
}

/* What the cases had, so that a generator gone blind is noticed. */
static struct {
    uint32_t pairs, blind, nan, keys;
    uint32_t with[32];
} tally;

static void count_keys(void)
{
    const struct attn_problem *p = &c.problem;
    const bool with[] = {p->type == ATTN_DECODER,
                         p->kv_source == ATTN_KV_NEW,
                         p->kv_source == ATTN_KV_CACHE_NEW,
                         p->cp != 0 && c.batch.cp_world > 1,
                         p->addressing == ATTN_DENSE,
                         p->addressing == ATTN_CSR,
                         p->layout == ATTN_PAGED_X,
                         p->mla != 0,
                         c.tensors.q_rope.buffer.data != NULL,
                         p->q_dtype == ATTN_INT8,
                         p->k_dtype == ATTN_E4M3FNUZ,
                         p->v_dtype == ATTN_E5M2FNUZ,
                         p->q_scale == ATTN_SCALES_KV_HEAD,
                         p->k_scale == ATTN_SCALES_TOKEN_HEAD,
                         p->v_scale == ATTN_SCALES_HEAD,
                         p->seq_causal != 0,
                         p->align == ATTN_ALIGN_START,
                         p->positions != 0 && p->span == ATTN_SPAN_SQUARE && p->mask > ATTN_MASK_NONE,
                         p->given == (ATTN_GIVEN_WINDOW_LEFT | ATTN_GIVEN_WINDOW_RIGHT),
                         p->softcap > 0,
                         p->sinks != 0,
                         p->alibi == ATTN_ALIBI_KEY,
                         p->alibi == ATTN_ALIBI_DISTANCE,
                         p->alibi == ATTN_ALIBI_MASK,
                         p->mask == ATTN_MASK_BITS && c.tensors.mask_packed != 0,
                         p->mask == ATTN_MASK_BITS && c.tensors.mask_packed == 0,
                         p->mask == ATTN_MASK_F16,
                         p->mask == ATTN_MASK_BF16,
                         p->mask == ATTN_MASK_F32,
                         p->mask > ATTN_MASK_NONE && p->span == ATTN_SPAN_FULL,
                         c.tensors.mask_starts.data != NULL && p->mask > ATTN_MASK_NONE};

    tally.keys = sizeof with / sizeof with[0];
    for (uint32_t i = 0; i < tally.keys; i++)
        tally.with[i] += with[i];
}

static void compare(uint64_t seed)
{
    const struct attn_problem *p = &c.problem;

    for (uint32_t row = 0; row < c.batch.num_tokens; row++) {
        for (uint32_t head = 0; head < p->heads; head++) {
            uint32_t pair = row * p->heads + head;
            tally.pairs++;
            tally.blind += seen[pair] == 0;
            tally.nan += isnan(lse[pair]) != 0;
            cr_assert_eq(seen[pair], second.seen[row][head], "seed %lu row %u head %u: %u keys, not %u",
                         (unsigned long)seed, row, head, seen[pair], second.seen[row][head]);
            cr_assert(agree(lse[pair], second.lse[row][head]),
                      "seed %lu row %u head %u: lse %.17g, not %.17g", (unsigned long)seed, row, head,
                      lse[pair], second.lse[row][head]);
            for (uint32_t d = 0; d < p->head_dim_vo; d++)
                cr_assert(agree(out[pair * p->head_dim_vo + d], second.out[row][head][d]),
                          "seed %lu row %u head %u column %u: %.17g, not %.17g", (unsigned long)seed, row,
                          head, d, out[pair * p->head_dim_vo + d], second.out[row][head][d]);
        }
    }
}

Test(second, agrees_on_random_cases)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct oracle_result result = {out, lse, seen, 0, 0, NULL};
        random_case_init(&c, seed);
        cr_assert(oracle_attention(&c.problem, &c.batch, &c.tensors,
                                   c.problem.kv_source == ATTN_KV_NEW ? NULL : &c.kv, NULL, NULL, &result));
        second_attention(&c.problem, &c.batch, &c.tensors, &c.kv, &second);
        count_keys();
        compare(seed);
    }
    for (uint32_t i = 0; i < tally.keys; i++)
        cr_expect_geq(tally.with[i], 20, "feature %u stands in %u cases", i, tally.with[i]);
    cr_expect_geq(tally.pairs, 20000);
    cr_expect_geq(tally.blind, tally.pairs / 100);
    cr_expect_leq(tally.blind, tally.pairs / 3);
    cr_expect_geq(tally.nan, 100);
}
