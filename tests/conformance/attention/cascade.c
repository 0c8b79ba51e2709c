/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Steps whose sequences begin with the same pages: what may be computed once changes no result. */
#include "conform.h"

#include <stdio.h>

/* Bounds of the cases: query tokens, and keys of the prefix and of what follows it. */
enum { MOST_QUERIES = 40, MOST_PREFIX = 300, MOST_SUFFIX = 150 };

/* Most problems have nothing that keeps a plan from computing a prefix once; others ask for it in vain. Given
 * lengths are those of all ranks, and masks are of random ones. */
static void allow(struct attn_problem *problem, bool in_vain)
{
    problem->mask = ATTN_MASK_NONE;
    problem->span = ATTN_SPAN_SQUARE;
    problem->cp = 0;
    if (in_vain)
        return;
    if (problem->addressing == ATTN_DENSE || problem->kv_source == ATTN_KV_NEW) {
        problem->addressing = ATTN_TABLE;
        problem->kv_source = ATTN_KV_CACHE;
    }
    problem->given = 0;
    problem->window_left = problem->window_right = 0; /* not given */
    problem->align = ATTN_ALIGN_END;
    problem->alibi = ATTN_ALIBI_NONE;
    problem->positions = problem->det = 0;
}

/* A prefix, of which a sequence may have only a part, and keys of each sequence's own. */
static void pick_lengths(struct fixed_lengths *lengths, const struct attn_problem *problem, struct rng *rng)
{
    const bool decodes = rng_chance(rng, 50), shorter = rng_chance(rng, 15);

    memset(lengths, 0, sizeof *lengths);
    lengths->count = 1 + rng_below(rng, MAX_SEQS - 1);
    lengths->prefix = 1 + rng_below(rng, MOST_PREFIX / problem->block + 1);
    lengths->holes = rng_chance(rng, 15);
    for (uint32_t n = 0; n < lengths->count; n++) {
        const uint32_t q_len = decodes ? 1 : rng_below(rng, MOST_QUERIES);
        const uint32_t own = rng_chance(rng, 20) ? 0 : rng_below(rng, MOST_SUFFIX);
        lengths->q_len[n] = q_len;
        lengths->kv_len[n] = q_len + own + lengths->prefix * problem->block;
    }
    if (shorter)
        lengths->kv_len[rng_below(rng, lengths->count)] /= 2;
    for (uint32_t n = 0; n < lengths->count; n++) /* of new keys there are no more than keys */
        if (lengths->q_len[n] > lengths->kv_len[n])
            lengths->q_len[n] = lengths->kv_len[n];
}

static void check_target(struct target *target, struct step *step, const struct reference *reference,
                         uint64_t seed)
{
    struct rng rng = {mix(seed, 81)};
    struct attempt attempt = {.backend = target->backend,
                              .executor = (enum executor)rng_below(&rng, EXECUTORS)};
    const bool graph = step->problem.graph == ATTN_GRAPH_ALWAYS && !step->layout.host;
    char why[768] = "";

    attempt.prepare_executor = attempt.executor;
    attempt.slack = rng_chance(&rng, 50) ? 0 : rng_below(&rng, 70);
    attempt.detours = graph ? DETOUR_GRAPH : rng_below(&rng, 8);
    tap_begin(target, "cascade", step->the_case->text, seed);
    const int ran = step_run(step, target, &attempt, why, sizeof why);
    step_report(step, reference, ran, why, sizeof why);
}

static void check_case(struct target_list *list, const struct attn_problem *problem, uint64_t seed)
{
    struct rng rng = {mix(seed, 80)};
    struct fixed_lengths lengths;
    struct conform_case the_case;
    struct reference reference;
    struct layout layout;
    struct step step;

    pick_lengths(&lengths, problem, &rng);
    case_init_fixed(&the_case, problem, seed, &lengths);
    layout_init(&layout, &the_case, seed);
    targets_demand(list, problem, &layout);
    step_init(&step, &the_case, &layout, true);
    step_reference(&reference, &step, 4e6);
    for (uint32_t t = 0; t < list->count; t++)
        check_target(&list->targets[t], &step, &reference, seed);
    reference_finish(&reference);
    step_finish(&step);
    case_finish(&the_case);
}

void check_cascade(struct target_list *list, const struct run_options *options)
{
    const uint32_t cases = options_cases(options, 40, 600);

    for (uint32_t n = 0; n < cases; n++) {
        struct attn_problem problem, full;
        uint64_t seed;
        if (!options_mine(options, n) || !options_served(options, list, n, 400, &problem, &seed))
            continue;
        allow(&problem, n % 8 == 7);
        problem.cascade = MAX_SEQS * MOST_QUERIES;
        if (attn_problem_resolve(&problem, &full, NULL) != ATTN_OK)
            continue;
        problem_through_text(&full);
        check_case(list, &full, seed);
    }
}
