/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Contents that the order of the keys matters for. Many of nearly the same small weight behind one that
 * outweighs them all, as language models have them: an accumulator that all of them are added to one after
 * the other rounds each to the same side. And scores that rise from key to key, with a jump that no f32 of
 * exponents holds: row maxima have to be raised again and again, with all that counts from them. And many of
 * nearly the same weight, of which an accumulator with few bits keeps the first alone.
 */
#include "conform.h"

#include <math.h>
#include <stdio.h>

/* A tail: one query, as many as are few, and a chunk, on the same keys. */
static const struct fixed_lengths tail_lengths = {
    .count = 3, .q_len = {1, 16, 17}, .kv_len = {32768, 32768, 32768}, .shared = true};
/* A chunk whose products may be those of e4m3. */
static const struct fixed_lengths even_lengths = {.count = 1, .q_len = {300}, .kv_len = {16384}};
/* Scores that rise: a decode, a draft, and a chunk that has row tiles. */
static const struct fixed_lengths rising_lengths = {
    .count = 3, .q_len = {1, 20, 300}, .kv_len = {1200, 1200, 1200}, .shared = true};

enum { SPAN = 512 };

/* The first key's weight is 2^27 times that of any other. */
static double first_score(void)
{
    return 27 * log(2);
}

static void put(const struct scaled_vector *vector, uint32_t d, double value)
{
    oracle_store(vector->dtype, value, (unsigned char *)vector->to + (size_t)d * oracle_size(vector->dtype));
}

static double unit_of(const struct conform_case *c, uint64_t what, uint64_t at, uint32_t d)
{
    return (double)(mix(mix(mix(c->seed, what), at), d) >> 40) * 0x1p-24;
}

/*
 * 64 values of a column add up to a whole number of last places of the sum, and a third to a half more, which
 * each addition loses. From span to span they differ by as much as makes a span's own rounding random; so do
 * the weights, of which a span has 32 last places of their sum. What bf16 has no value for is dithered.
 */
static void fill_tail_key(const struct conform_case *c, const struct scaled_vector *k,
                          const struct scaled_vector *v, int64_t slot)
{
    for (uint32_t d = 0; d < k->count; d++)
        put(k, d, slot == 0 ? 0 : 2 * unit_of(c, 80, (uint64_t)slot, d) - 1);
    const double first = sqrt(first_score() / (double)c->softmax_scale);
    const double change = (unit_of(c, 86, (uint64_t)slot / SPAN, 0) - 0.5) / 32;
    put(k, 0, slot == 0 ? first : change / (first * (double)c->softmax_scale));
    for (uint32_t d = 0; d < v->count; d++) {
        double step = 4 + floor(4 * unit_of(c, 81, 0, d));
        double value = (step + 0.3 + 0.15 * unit_of(c, 82, (uint64_t)slot / SPAN, d)) / 4;
        double dither = (unit_of(c, 85, (uint64_t)slot, d) - 0.5) / 128;
        put(v, d, slot == 0 ? -1.01 - 0.2 * unit_of(c, 83, 0, d) : value + dither);
    }
}

static void fill_tail_query(const struct conform_case *c, const struct scaled_vector *q, uint32_t row)
{
    for (uint32_t d = 0; d < q->count; d++)
        put(q, d, 0.02 * (2 * unit_of(c, 84, row, d) - 1));
    put(q, 0, sqrt(first_score() / (double)c->softmax_scale));
}

static const struct case_contents tail = {fill_tail_key, fill_tail_query};

/* Values of one sign, which add up to as much as weights do; the later keys have larger ones. */
static void fill_even_key(const struct conform_case *c, const struct scaled_vector *k,
                          const struct scaled_vector *v, int64_t slot)
{
    for (uint32_t d = 0; d < k->count; d++)
        put(k, d, 2 * unit_of(c, 90, (uint64_t)slot, d) - 1);
    for (uint32_t d = 0; d < v->count; d++)
        put(v, d, (slot < 8192 ? 1 : 2) + unit_of(c, 91, (uint64_t)slot, d) / 2);
}

static void fill_even_query(const struct conform_case *c, const struct scaled_vector *q, uint32_t row)
{
    for (uint32_t d = 0; d < q->count; d++)
        put(q, d, 2 * unit_of(c, 92, row, d) - 1);
}

static const struct case_contents even = {fill_even_key, fill_even_query};

/* The score of a key. In base 2 it rises by a fifth from one to the next, and by 150 at the middle. */
static double rising_score(int64_t slot)
{
    return log(2) * (0.2 * (double)slot + (slot >= 600 ? 150 : 0));
}

static double rising_query(const struct conform_case *c)
{
    return sqrt(rising_score(1200) / (double)c->softmax_scale);
}

static void fill_rising_key(const struct conform_case *c, const struct scaled_vector *k,
                            const struct scaled_vector *v, int64_t slot)
{
    for (uint32_t d = 0; d < k->count; d++)
        put(k, d, 2 * unit_of(c, 87, (uint64_t)slot, d) - 1);
    put(k, 0, rising_score(slot) / (rising_query(c) * (double)c->softmax_scale));
    for (uint32_t d = 0; d < v->count; d++)
        put(v, d, 2 * unit_of(c, 88, (uint64_t)slot, d) - 1);
}

static void fill_rising_query(const struct conform_case *c, const struct scaled_vector *q, uint32_t row)
{
    for (uint32_t d = 0; d < q->count; d++)
        put(q, d, 0.02 * (2 * unit_of(c, 89, row, d) - 1));
    put(q, 0, rising_query(c));
}

static const struct case_contents rising = {fill_rising_key, fill_rising_query};

/* The first keys weigh nothing, as if they were masked, and all others so little that an f32 of exp(score) is
 * 0: exponents have to count from a maximum that comes late. */
static void fill_late_key(const struct conform_case *c, const struct scaled_vector *k,
                          const struct scaled_vector *v, int64_t slot)
{
    fill_rising_key(c, k, v, slot);
    put(k, 0, slot < 200 ? -INFINITY : -rising_query(c));
}

static const struct case_contents late = {fill_late_key, fill_rising_query};

/* From the middle on scores are higher by as much as a weight of f32 can show, and no more: 127.5 in base 2.
 */
static void fill_leaping_key(const struct conform_case *c, const struct scaled_vector *k,
                             const struct scaled_vector *v, int64_t slot)
{
    fill_rising_key(c, k, v, slot);
    put(k, 0, slot < 600 ? 0 : log(2) * 127.5 / (rising_query(c) * (double)c->softmax_scale));
}

static const struct case_contents leaping = {fill_leaping_key, fill_rising_query};

/* Scores that climb, by 6 in base 2 over 128 keys, for the lower half of each 16 rows of the chunk, the rest
 * of which sees nearly the same score of all keys: a row's maximum is raised, and only its own. */
static void fill_climbing_key(const struct conform_case *c, const struct scaled_vector *k,
                              const struct scaled_vector *v, int64_t slot)
{
    fill_rising_key(c, k, v, slot);
    put(k, 0, log(2) * 0.05 * (double)slot / (rising_query(c) * (double)c->softmax_scale));
}

static void fill_climbing_query(const struct conform_case *c, const struct scaled_vector *q, uint32_t row)
{
    const uint32_t before = rising_lengths.q_len[0] + rising_lengths.q_len[1];

    fill_rising_query(c, q, row);
    if (row < before || (row - before) / 8 % 2 == 0)
        put(q, 0, rising_query(c) / 1024);
}

static const struct case_contents climbing = {fill_climbing_key, fill_climbing_query};

/* Those that are `full` are left out of short runs. */
static const struct {
    const char *problem;
    const struct fixed_lengths *lengths;
    const struct case_contents *contents;
    bool full;
} cases[] = {
    {"heads=1 head_dim=64 q=f32 block=64 lse=1", &tail_lengths, &tail, false},
    {"heads=1 head_dim=64 q=f16 out=f32 block=64 lse=1", &tail_lengths, &tail, true},
    {"heads=1 head_dim=64 q=bf16 out=f32 block=64 lse=1", &tail_lengths, &tail, true},
    {"heads=2 kv_heads=1 head_dim=64 q=bf16 block=16 lse=1", &rising_lengths, &rising, true},
    {"heads=1 head_dim=128 q=f16 block=16 window=500 lse=1", &rising_lengths, &rising, true},
    {"heads=1 head_dim=64 q=bf16 block=16 lse=1", &rising_lengths, &late, true},
    {"heads=1 head_dim=64 q=f16 block=16 lse=1", &rising_lengths, &leaping, true},
    {"heads=2 kv_heads=1 head_dim=128 q=bf16 block=16", &rising_lengths, &rising, true},
    {"heads=1 head_dim=64 q=bf16 block=16", &rising_lengths, &late, true},
    /* Where nothing is hidden, nobody looks for NaN of what a row does not see. */
    {"heads=1 head_dim=64 q=bf16 causal=0 block=16", &rising_lengths, &rising, true},
    {"heads=1 head_dim=256 q=bf16 block=16", &rising_lengths, &rising, true},
    {"heads=1 head_dim=128 q=e4m3 kv=e4m3 q_scale=unit scales=unit block=64 det=1", &even_lengths, &even,
     true},
    {"heads=1 head_dim=256 q=e4m3 kv=e4m3 q_scale=unit scales=unit block=64 det=1", &even_lengths, &even,
     true},
    {"heads=1 head_dim=128 q=e4m3 kv=e4m3 q_scale=unit scales=unit block=16", &rising_lengths, &rising, true},
    {"heads=1 head_dim=256 q=e4m3 kv=e4m3 q_scale=unit scales=unit block=16", &rising_lengths, &rising, true},
    {"heads=1 head_dim=128 q=e4m3 kv=e4m3 q_scale=unit scales=unit block=16", &rising_lengths, &climbing,
     true},
    {"heads=1 head_dim=256 q=e4m3 kv=e4m3 q_scale=unit scales=unit block=16", &rising_lengths, &climbing,
     true},
    {"heads=1 head_dim=128 q=bf16 block=16", &rising_lengths, &climbing, true},
};

static void check_case(struct target_list *list, size_t number, const struct run_options *options)
{
    const char *text = cases[number].problem;
    struct conform_case the_case;
    struct attn_problem problem;
    struct layout layout;
    struct step step;
    struct reference reference;

    if (attn_problem_parse(text, &problem, NULL) != ATTN_OK)
        return;
    case_init_fixed(&the_case, &problem, options->seed, cases[number].lengths);
    the_case.contents = cases[number].contents;
    layout_init(&layout, &the_case, options->seed);
    targets_demand(list, &problem, &layout);
    step_init(&step, &the_case, &layout, true);
    bool good = step_reference(&reference, &step, 1e9);
    for (uint32_t t = 0; t < list->count; t++) {
        struct attempt attempt = {.backend = list->targets[t].backend};
        char why[512] = "out of memory";
        tap_begin(&list->targets[t], "long", text, options->seed);
        int ran = good ? step_run(&step, &list->targets[t], &attempt, why, sizeof why) : -1;
        if (ran == 0)
            tap_skip(why);
        else if (ran < 0 || !step_judge(&step, &reference, why, sizeof why))
            tap_fail("%s", why);
        else
            tap_pass();
    }
    reference_finish(&reference);
    step_finish(&step);
    case_finish(&the_case);
}

void check_long(struct target_list *list, const struct run_options *options)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if ((options->full || !cases[i].full) && options_wants(options, cases[i].problem))
            check_case(list, i, options);
}
