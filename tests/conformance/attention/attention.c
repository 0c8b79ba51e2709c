/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random steps on every target, judged by the oracle. */
#include "conform.h"

#include <math.h>
#include <stdio.h>

#include "pairs.h"

static const struct effort quick_effort = {2.5e7, 1200000, 13};
static const struct effort full_effort = {2e8, 6000000, 13};

/* A NaN in the reference that nobody planted would hide what it should show. */
static bool reference_is_clean(const struct step *step, const struct reference *reference)
{
    if (step->the_case->injection_count > 0)
        return true;
    for (uint32_t pair = 0; pair < reference->pairs; pair++) {
        uint32_t seen = reference->result.seen[pair];
        if (seen != ORACLE_SKIPPED && seen > 0 && !isfinite(reference->result.lse[pair]))
            return false;
    }
    return isfinite(reference->result.largest);
}

static void check_target(struct target *target, struct step *step, const struct reference *reference,
                         uint64_t seed)
{
    struct rng rng = {mix(seed, 9)};
    struct attempt attempt = {.backend = target->backend};
    char why[768] = "";

    /* Mostly the plugin's own pool; prepare and run need not come from the same threads. */
    attempt.executor = rng_chance(&rng, 60) ? EXECUTOR_POOL : (enum executor)rng_below(&rng, EXECUTORS);
    attempt.prepare_executor = rng_chance(&rng, 50) ? attempt.executor : EXECUTOR_POOL;
    attempt.slack = rng_chance(&rng, 50) ? 0 : rng_below(&rng, 70);
    attempt.detours = rng_chance(&rng, 50) ? 0 : rng_below(&rng, 8);
    tap_begin(target, "attention", step->the_case->text, seed);
    int ran = step_run(step, target, &attempt, why, sizeof why);
    if (ran != 0) {
        target->accepted++;
        pairs_judged(&step->the_case->problem);
    }
    step_report(step, reference, ran, why, sizeof why);
}

static void check_case(struct target_list *list, const struct attn_problem *problem, uint64_t seed,
                       const struct run_options *options)
{
    const struct effort *effort = options->full ? &full_effort : &quick_effort;
    struct conform_case the_case;
    struct layout layout;
    struct step step;
    struct reference reference;

    case_init(&the_case, problem, seed, effort, false);
    layout_init(&layout, &the_case, seed);
    targets_demand(list, problem, &layout);
    step_init(&step, &the_case, &layout, true);
    bool good =
        step_reference(&reference, &step, effort->products / 4) && reference_is_clean(&step, &reference);
    for (uint32_t t = 0; t < list->count; t++) {
        if (good) {
            check_target(&list->targets[t], &step, &reference, seed);
        } else {
            tap_begin(&list->targets[t], "attention", the_case.text, seed);
            tap_fail("the case itself is wrong: its reference has a NaN that was not planted");
        }
    }
    reference_finish(&reference);
    step_finish(&step);
    case_finish(&the_case);
}

struct run {
    struct target_list *list;
    const struct run_options *options;
    uint32_t cases;
};

static void run_pair(void *user, const struct attn_problem *problem, uint64_t seed)
{
    struct run *run = user;
    struct attn_problem sure = *problem;

    problem_through_text(&sure);
    if (!options_mine(run->options, run->cases++))
        pairs_judged(&sure); /* the process whose it is does */
    else
        check_case(run->list, &sure, seed, run->options);
}

void check_attention(struct target_list *list, const struct run_options *options)
{
    uint32_t cases = options_cases(options, 700, 3000);

    for (uint32_t n = 0; n < cases; n++) {
        struct attn_problem problem;
        uint64_t seed;
        if (!options_served(options, list, n, 0, &problem, &seed))
            continue;
        if (options_mine(options, n))
            check_case(list, &problem, seed, options);
        else if (pairs_served(list, &problem))
            pairs_judged(&problem);
    }
    if (options->filter != NULL)
        return;
    struct run run = {list, options, 0};
    pairs_complete(list, options->seed, options_cases(options, 300, UINT32_MAX), run_pair, &run);
    /* Refusing everything would pass every case. */
    for (uint32_t t = 0; t < list->count; t++) {
        tap_begin(&list->targets[t], "attention", "", options->seed);
        if (list->targets[t].accepted > 0)
            tap_pass();
        else
            tap_fail("not one of %u problems was accepted", cases);
    }
}
