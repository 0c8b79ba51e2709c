/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests the range of visible keys against the rules of docs/definition.md, key by key. */
#include <criterion/criterion.h>

#include "visible.h"

static uint64_t state = 88172645463325252u;

static uint32_t draw(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

/* Whether a query at p sees key j; left and right negative = unlimited. */
static bool sees(bool causal, int64_t left, int64_t right, int64_t p, int64_t j)
{
    return (!causal || j <= p) && (left < 0 || j >= p - left) && (right < 0 || j <= p + right);
}

static void draw_problem(struct attn_problem *problem, int64_t *left, int64_t *right, bool causal)
{
    ATTN_INIT(problem);
    problem->align = draw(2) == 0 ? ATTN_ALIGN_END : ATTN_ALIGN_START;
    problem->window_left = problem->window_right = -1;
    *left = -1;
    if (draw(2) == 0) {
        problem->given |= ATTN_GIVEN_WINDOW_LEFT;
        problem->window_left = (int32_t)draw(12) - 1;
        *left = problem->window_left;
    }
    *right = causal ? 0 : *left;
    if (draw(2) == 0) {
        problem->given |= ATTN_GIVEN_WINDOW_RIGHT;
        problem->window_right = (int32_t)draw(12) - 1;
        *right = problem->window_right;
    }
}

Test(visible, equals_the_rules)
{
    uint32_t empty = 0, cut = 0;

    for (uint32_t n = 0; n < 200000; n++) {
        struct attn_problem problem;
        struct attn_visible visible;
        int64_t left, right;
        bool causal = draw(2) == 0;
        uint32_t q_len = 1 + draw(20), kv_len = draw(24), i = draw(q_len), lo, hi, count = 0;

        draw_problem(&problem, &left, &right, causal);
        attn__visible_init(&visible, &problem, causal, q_len, kv_len);
        int64_t p = problem.align == ATTN_ALIGN_START ? (int64_t)i : (int64_t)i + kv_len - q_len;
        cr_assert_eq(visible.shift + i, p);
        if (draw(4) == 0)
            p = (int64_t)draw(60) - 20;
        attn__visible_range(&visible, p, &lo, &hi);
        cr_assert(lo <= hi && hi <= kv_len);
        for (uint32_t j = 0; j < kv_len; j++) {
            bool wanted = sees(causal, left, right, p, j);
            count += wanted;
            cr_assert_eq(wanted, j >= lo && j < hi, "case %u: p %lld key %u, range %u to %u", n, (long long)p,
                         j, lo, hi);
        }
        cr_assert(count > 0 || (lo == 0 && hi == 0));
        empty += count == 0;
        cut += count > 0 && count < kv_len;
    }
    cr_assert(empty > 1000 && cut > 1000, "the cases are one-sided: %u empty, %u cut", empty, cut);
}

Test(visible, extremes_do_not_overflow)
{
    static const int64_t positions[] = {INT64_MIN, INT64_MIN + 1, -1, 0, INT64_MAX - 1, INT64_MAX};
    struct attn_problem problem;
    struct attn_visible visible;
    uint32_t lo, hi;

    ATTN_INIT(&problem);
    problem.given = ATTN_GIVEN_WINDOW_LEFT | ATTN_GIVEN_WINDOW_RIGHT;
    problem.window_left = problem.window_right = INT32_MAX;
    attn__visible_init(&visible, &problem, 0, 1, INT32_MAX);
    for (uint32_t i = 0; i < sizeof positions / sizeof positions[0]; i++) {
        attn__visible_range(&visible, positions[i], &lo, &hi);
        bool near = positions[i] == -1 || positions[i] == 0;
        cr_expect_eq(lo, 0);
        cr_expect_eq(hi, near ? (uint32_t)INT32_MAX : 0);
    }
    visible.left = visible.right = -1;
    visible.causal = 1;
    attn__visible_range(&visible, INT64_MAX, &lo, &hi);
    cr_expect(lo == 0 && hi == INT32_MAX);
    attn__visible_range(&visible, INT64_MIN, &lo, &hi);
    cr_expect(lo == 0 && hi == 0);
}
