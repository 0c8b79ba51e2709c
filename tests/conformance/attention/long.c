/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Many keys of nearly the same small weight behind one that outweighs them all, as language models have
 * them: an accumulator that all of them are added to one after the other rounds each to the same side.
 */
#include "conform.h"

#include <math.h>
#include <stdio.h>

/* One query, as many as are few, and a chunk, on the same keys. */
static const struct fixed_lengths lengths = {
    .count = 3, .q_len = {1, 16, 17}, .kv_len = {32768, 32768, 32768}, .shared = true};

/* The first is for every run; types of 16 bits behind results of 32 in full ones. */
static const char *const problems[] = {"heads=1 head_dim=64 q=f32 block=64 lse=1",
                                       "heads=1 head_dim=64 q=f16 out=f32 block=64 lse=1",
                                       "heads=1 head_dim=64 q=bf16 out=f32 block=64 lse=1"};

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
void long_fill_key(const struct conform_case *c, const struct scaled_vector *k, const struct scaled_vector *v,
                   int64_t slot)
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

void long_fill_query(const struct conform_case *c, const struct scaled_vector *q, uint32_t row)
{
    for (uint32_t d = 0; d < q->count; d++)
        put(q, d, 0.02 * (2 * unit_of(c, 84, row, d) - 1));
    put(q, 0, sqrt(first_score() / (double)c->softmax_scale));
}

static void check_problem(struct target_list *list, const char *text, const struct run_options *options)
{
    struct conform_case the_case;
    struct attn_problem problem;
    struct layout layout;
    struct step step;
    struct reference reference;

    if (attn_problem_parse(text, &problem, NULL) != ATTN_OK)
        return;
    case_init_fixed(&the_case, &problem, options->seed, &lengths);
    the_case.long_tail = true;
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
    for (size_t i = 0; i < (options->full ? sizeof problems / sizeof problems[0] : 1); i++)
        if (options_wants(options, problems[i]))
            check_problem(list, problems[i], options);
}
