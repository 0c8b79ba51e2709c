/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Graphs: what was captured is right for whatever the arrays hold at its launch, at the level that is
 * claimed. */
#include "conform.h"

#include <stdio.h>

/* From the most to the least that can be claimed. */
static const uint32_t levels[] = {ATTN_GRAPH_ALWAYS, ATTN_GRAPH_UNIFORM, ATTN_GRAPH_SINGLE};

static bool claims(const struct target_list *list, const struct attn_problem *problem)
{
    char why[256];

    for (uint32_t t = 0; t < list->count; t++)
        if (target_accepts(&list->targets[t], problem, NULL, why, sizeof why))
            return true;
    return false;
}

/* Single: one query token of every sequence. Uniform: equally many. */
static void make_case(struct conform_case *the_case, const struct attn_problem *problem, uint64_t seed)
{
    static const struct effort effort = {1e7, 1000000, 10};
    struct rng rng = {mix(seed, 70)};
    struct fixed_lengths lengths = {.count = 1 + rng_below(&rng, MAX_SEQS - 1)};

    if (problem->graph == ATTN_GRAPH_ALWAYS) {
        case_init(the_case, problem, seed, &effort, false);
        return;
    }
    uint32_t q_len = problem->graph == ATTN_GRAPH_SINGLE ? 1 : 2 + rng_below(&rng, 4);
    for (uint32_t n = 0; n < lengths.count; n++) {
        lengths.q_len[n] = q_len;
        lengths.kv_len[n] = q_len + rng_below(&rng, 200);
    }
    case_init_fixed(the_case, problem, seed, &lengths);
}

static void check_target(struct target *target, struct step *step, const struct reference *reference,
                         uint64_t seed)
{
    struct attempt attempt = {.backend = target->backend, .detours = DETOUR_GRAPH};
    char why[768] = "";

    tap_begin(target, "graph", step->the_case->text, seed);
    int ran = step_run(step, target, &attempt, why, sizeof why);
    step_report(step, reference, ran, why, sizeof why);
}

static void check_case(struct target_list *list, const struct attn_problem *problem, uint64_t seed)
{
    struct conform_case the_case;
    struct layout layout;
    struct step step;
    struct reference reference;

    make_case(&the_case, problem, seed);
    layout_init(&layout, &the_case, seed);
    layout.host = false; /* a capture plans on the device */
    targets_demand(list, problem, &layout);
    step_init(&step, &the_case, &layout, true);
    step_move_scales(&step);
    step_reference(&reference, &step, 2e6);
    for (uint32_t t = 0; t < list->count; t++)
        check_target(&list->targets[t], &step, &reference, seed);
    reference_finish(&reference);
    step_finish(&step);
    case_finish(&the_case);
}

void check_replay(struct target_list *list, const struct run_options *options)
{
    uint32_t cases = options_cases(options, 60, 600);

    for (uint32_t n = 0; n < cases; n++) {
        struct attn_problem problem;
        uint64_t seed;
        if (!options_mine(options, n) || !options_served(options, list, n, 300, &problem, &seed))
            continue;
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
            problem.graph = levels[l];
            problem_through_text(&problem);
            if (!claims(list, &problem))
                continue;
            check_case(list, &problem, seed);
            break;
        }
    }
}
