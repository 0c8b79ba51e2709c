/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests the work planner: every visible key of every query token is in one split, within bounds, in any
 * batch. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "planner.h"
#include "visible.h"

enum { MOST_SEQS = 6, MOST_ROWS = 2000 };

/* A batch with all its arrays. */
struct sample {
    struct attn_problem problem;
    struct attn_planner planner;
    struct attn_planner_batch batch;
    int32_t q_offsets[MOST_SEQS + 1];
    int32_t kv_lens[MOST_SEQS];
    uint8_t seq_causal[MOST_SEQS];
    int64_t positions[MOST_ROWS];
    struct attn_planner_bounds bounds;
    struct attn_planner_result result;
    struct attn_work_item *items;
};

static uint64_t state = 88172645463325252u;

static uint32_t draw(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static void draw_problem(struct attn_problem *problem)
{
    static const uint32_t groups[] = {1, 2, 3, 4, 8, 16, 17, 64, 80};

    ATTN_INIT(problem);
    problem->kv_heads = 1 + draw(5);
    problem->heads = problem->kv_heads * groups[draw(9)];
    problem->causal = draw(2) == 0 ? ATTN_CAUSAL_YES : ATTN_CAUSAL_NO;
    problem->align = draw(4) == 0 ? ATTN_ALIGN_START : ATTN_ALIGN_END;
    problem->window_left = -1;
    if (draw(2) == 0) {
        problem->given |= ATTN_GIVEN_WINDOW_LEFT;
        problem->window_left = (int32_t)draw(5000);
    }
}

static void draw_batch(struct sample *s)
{
    static const uint32_t q_lens[] = {0, 1, 1, 2, 3, 5, 16, 17, 33, 64, 130, 300};
    static const uint32_t kv_lens[] = {0, 1, 100, 511, 512, 513, 5000, 16384, 16385, 65536, 65537, 200000};

    s->batch.seqs = 1 + draw(MOST_SEQS);
    for (uint32_t n = 0; n < s->batch.seqs; n++) {
        s->q_offsets[n + 1] = s->q_offsets[n] + (int32_t)q_lens[draw(12)];
        s->kv_lens[n] = (int32_t)kv_lens[draw(10)];
        s->seq_causal[n] = draw(2) == 0;
    }
    s->batch.q_offsets = s->q_offsets;
    s->batch.kv_lens = s->kv_lens;
    s->batch.seq_causal = draw(3) == 0 ? s->seq_causal : NULL;
    if (draw(4) == 0) {
        for (uint32_t i = 0; i < MOST_ROWS; i++)
            s->positions[i] = (int64_t)draw(210000) - 5000;
        s->batch.positions = s->positions;
        s->batch.position_dtype = ATTN_INT64;
    }
}

static void plan(struct sample *s)
{
    s->problem.max_seqs = s->batch.seqs;
    s->problem.max_rows = 1;
    s->problem.max_q = s->problem.max_kv = 1;
    for (uint32_t n = 0; n < s->batch.seqs; n++) {
        uint32_t q_len = (uint32_t)(s->q_offsets[n + 1] - s->q_offsets[n]), kv_len = (uint32_t)s->kv_lens[n];
        s->problem.max_rows += q_len;
        s->problem.max_q = q_len > s->problem.max_q ? q_len : s->problem.max_q;
        s->problem.max_kv = kv_len > s->problem.max_kv ? kv_len : s->problem.max_kv;
    }
    s->planner = (struct attn_planner){&s->problem, 16, 64, s->planner.units};
    cr_assert(attn__planner_get_bounds(&s->planner, &s->bounds));
    s->items = malloc(((size_t)s->bounds.items + 1) * sizeof *s->items);
    memset(&s->items[s->bounds.items], 0x5a, sizeof *s->items);
    attn__planner_run(&s->planner, &s->batch, s->items, &s->result);
    cr_assert_leq(s->result.items, s->bounds.items);
    cr_assert_leq(s->result.counters, s->bounds.counters);
    cr_assert_leq(s->result.split_rows, s->bounds.split_rows);
    cr_assert_eq(s->items[s->bounds.items].seq, 0x5a5a5a5au, "the planner wrote beyond its bounds");
}

static void begin(struct sample *s, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    state = 88172645463325252u + seed * 1234567;
    for (uint32_t i = 0; i < 9; i++)
        draw(2);
    s->planner.units = 1 + draw(40);
    draw_problem(&s->problem);
    draw_batch(s);
    plan(s);
}

static void see(const struct sample *s, uint32_t seq, uint32_t row, uint32_t *lo, uint32_t *hi)
{
    uint32_t q_len = (uint32_t)(s->q_offsets[seq + 1] - s->q_offsets[seq]);
    uint32_t causal = s->batch.seq_causal != NULL ? s->seq_causal[seq] : s->problem.causal == ATTN_CAUSAL_YES;
    struct attn_visible visible;

    attn__visible_init(&visible, &s->problem, causal, q_len, (uint32_t)s->kv_lens[seq]);
    int64_t p = visible.shift + row - s->q_offsets[seq];
    if (s->batch.positions != NULL)
        p = s->positions[row];
    attn__visible_range(&visible, p, lo, hi);
}

/* For every (token, kv head), the visible keys of its work items add up to those that it sees. */
static void check_cover(const struct sample *s)
{
    uint32_t rows = (uint32_t)s->q_offsets[s->batch.seqs], kv_heads = s->problem.kv_heads;
    uint64_t *keys = calloc((size_t)rows * kv_heads + 1, sizeof *keys);
    uint32_t *splits = calloc((size_t)rows * kv_heads + 1, sizeof *splits);

    for (uint32_t i = 0; i < s->result.items; i++) {
        const struct attn_work_item *w = &s->items[i];
        cr_assert(w->key_begin <= w->key_end && w->key_end <= w->kv_len && w->split < w->splits);
        cr_assert(w->splits == 1 || w->key_begin < w->key_end, "an empty split");
        cr_assert(w->split == 0 || w->key_begin % ATTN_SPLIT_KEYS == 0, "a split at %u", w->key_begin);
        for (uint32_t t = 0; t < w->tokens; t++) {
            uint32_t lo, hi;
            see(s, w->seq, w->first_token + t, &lo, &hi);
            lo = lo > w->key_begin ? lo : w->key_begin;
            hi = hi < w->key_end ? hi : w->key_end;
            for (uint32_t g = w->kv_head; g < w->kv_head + w->kv_heads; g++) {
                keys[(w->first_token + t) * kv_heads + g] += hi > lo ? hi - lo : 0;
                splits[(w->first_token + t) * kv_heads + g] += 1u + (w->splits << 16);
            }
        }
    }
    for (uint32_t seq = 0; seq < s->batch.seqs; seq++) {
        for (uint32_t row = (uint32_t)s->q_offsets[seq]; row < (uint32_t)s->q_offsets[seq + 1]; row++) {
            uint32_t lo, hi;
            see(s, seq, row, &lo, &hi);
            for (uint32_t g = 0; g < kv_heads; g++) {
                uint32_t count = splits[row * kv_heads + g] & 0xffffu;
                cr_assert_eq(keys[row * kv_heads + g], hi - lo, "row %u head %u", row, g);
                cr_assert_eq(splits[row * kv_heads + g] >> 16, count * count, "row %u has lost a split", row);
                cr_assert(count > 0);
            }
        }
    }
    free(keys);
    free(splits);
}

/* Counters belong to one group each, and partial results of groups do not overlap. */
static void check_groups(const struct sample *s)
{
    uint32_t group = s->problem.heads / s->problem.kv_heads;
    uint32_t *seen = calloc((size_t)s->result.counters + 1, sizeof *seen);
    uint8_t *taken = calloc((size_t)s->result.split_rows + 1, 1);

    for (uint32_t i = 0; i < s->result.items; i++) {
        const struct attn_work_item *w = &s->items[i];
        uint32_t rows = w->tokens * w->kv_heads * group;
        if (w->splits == 1) {
            cr_assert(w->counter == 0 && w->split_row == 0);
            continue;
        }
        cr_assert(w->counter < s->result.counters);
        seen[w->counter] += 1u + (w->splits << 16);
        for (uint32_t r = 0; r < rows; r++)
            cr_assert_eq(taken[w->split_row + w->split * rows + r]++, 0, "two splits share a row");
    }
    for (uint32_t i = 0; i < s->result.counters; i++) {
        uint32_t count = seen[i] & 0xffffu;
        cr_assert(count >= 2 && count <= ATTN_SPLITS_MAX && seen[i] >> 16 == count * count);
    }
    free(seen);
    free(taken);
}

Test(planner, covers_every_key_once)
{
    struct sample s;
    uint32_t split = 0, whole = 0, several_heads = 0;

    for (uint64_t seed = 0; seed < 1500; seed++) {
        begin(&s, seed);
        check_cover(&s);
        check_groups(&s);
        for (uint32_t i = 0; i < s.result.items; i++) {
            split += s.items[i].splits > 1;
            whole += s.items[i].splits == 1;
            several_heads += s.items[i].kv_heads > 1;
        }
        free(s.items);
    }
    cr_assert(split > 1000 && whole > 1000 && several_heads > 1000, "the cases are one-sided");
}

/* What of a work item decides the bits of its rows. */
static bool same_task(const struct attn_work_item *a, const struct attn_work_item *b)
{
    return a->q_index == b->q_index && a->tokens == b->tokens && a->key_begin == b->key_begin &&
           a->key_end == b->key_end && a->split == b->split && a->splits == b->splits &&
           a->kernel == b->kernel;
}

/* A sequence gets the same work items in a batch as alone. */
Test(planner, does_not_look_at_companions)
{
    static struct sample all, alone;

    for (uint64_t seed = 0; seed < 300; seed++) {
        begin(&all, seed);
        for (uint32_t seq = 0; seq < all.batch.seqs && all.batch.positions == NULL; seq++) {
            alone = all;
            alone.planner.units = 1 + draw(100);
            alone.batch.seqs = 1;
            alone.q_offsets[1] = all.q_offsets[seq + 1] - all.q_offsets[seq];
            alone.kv_lens[0] = all.kv_lens[seq];
            alone.seq_causal[0] = all.seq_causal[seq];
            alone.batch.q_offsets = alone.q_offsets;
            alone.batch.kv_lens = alone.kv_lens;
            alone.batch.seq_causal = all.batch.seq_causal != NULL ? alone.seq_causal : NULL;
            plan(&alone);
            for (uint32_t i = 0; i < all.result.items; i++) {
                bool found = all.items[i].seq != seq;
                for (uint32_t k = 0; k < alone.result.items && !found; k++)
                    found = same_task(&all.items[i], &alone.items[k]);
                cr_assert(found, "seed %llu sequence %u", (unsigned long long)seed, seq);
            }
            free(alone.items);
        }
        free(all.items);
    }
}

Test(planner, puts_long_items_first)
{
    struct sample s;

    for (uint64_t seed = 0; seed < 300; seed++) {
        uint64_t before = UINT64_MAX / 3;
        begin(&s, seed);
        for (uint32_t i = 0; i < s.result.items; i++) {
            const struct attn_work_item *w = &s.items[i];
            uint64_t cost = (w->key_end - w->key_begin + 64ull) * w->tokens * w->kv_heads;
            cr_assert(2 * cost <= 3 * before, "work item %u of %u", i, s.result.items);
            before = cost < before ? cost : before;
        }
        free(s.items);
    }
}

/* A sequence adds at most one tile that is not full. */
Test(planner, reserves_no_more_than_a_tile_of_a_sequence)
{
    struct attn_problem problem;
    struct attn_planner planner = {&problem, 16, 64, 1};
    struct attn_planner_bounds bounds;

    ATTN_INIT(&problem);
    problem.heads = problem.kv_heads = 1;
    problem.max_seqs = 4;
    problem.max_rows = 1000;
    problem.max_q = 1000;
    problem.max_kv = 1;
    cr_assert(attn__planner_get_bounds(&planner, &bounds));
    cr_assert_eq(bounds.items, 1000 / planner.prefill_rows + 4, "%u", bounds.items);
    cr_assert_eq(bounds.counters, 0, "no keys are split");
}

Test(planner, refuses_what_does_not_fit)
{
    struct attn_problem problem;
    struct attn_planner planner = {&problem, 16, 64, 1};
    struct attn_planner_bounds bounds;

    ATTN_INIT(&problem);
    problem.heads = problem.kv_heads = 1u << 16;
    problem.max_seqs = problem.max_q = problem.max_rows = problem.max_kv = INT32_MAX;
    cr_assert_not(attn__planner_get_bounds(&planner, &bounds));
    problem.heads = problem.kv_heads = 8;
    problem.max_seqs = 256;
    problem.max_rows = 8192;
    cr_assert(attn__planner_get_bounds(&planner, &bounds));
}
