/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Graphs that are captured once and launched for many steps, each with other lengths, pages and queries. */
#include <stdio.h>

#include "mirror.h"
#include "own.h"
#include "tap.h"

enum { GRAPHS = 3 };

/* Sequences and query tokens of each graph. */
static const uint32_t seqs_of[GRAPHS] = {OWN_SEQS, 5, 1}, rows_of[GRAPHS] = {OWN_ROWS, 20, 1};

/* One step: run alone, then by the graph of its size, and now and then captured anew before. */
static bool play_step(struct own *own, struct attn_graph *graphs[GRAPHS], struct rng *rng, char *why,
                      size_t size)
{
    const uint32_t which = rng_below(rng, GRAPHS);
    struct own_step step;
    struct attn_error err;
    uint64_t at = 0;

    ATTN_INIT(&err);
    own->seqs = seqs_of[which];
    own->rows = rows_of[which];
    own_step_init(own, &step, rng, own->seqs, own->rows);
    int32_t status = own_expect(own, &step, &err);
    if (status == ATTN_OK && (graphs[which] == NULL || rng_chance(rng, 3))) {
        attn_graph_destroy(graphs[which]);
        graphs[which] = NULL;
        status = own_capture(own, &graphs[which], &err);
    }
    for (int launch = 0; launch < 2 && status == ATTN_OK && why[0] == '\0'; launch++) {
        status = own_send(own, &step, &err);
        if (status == ATTN_OK)
            status = attn_graph_launch(graphs[which], own->stream, &err);
        if (status == ATTN_OK)
            status = own_take(own, &err);
        if (status == ATTN_OK && !own_is_right(own, &step, &at))
            snprintf(why, size,
                     "graph of %u sequences, launch %d: byte %llu of out and lse is not that of a run",
                     own->seqs, launch + 1, (unsigned long long)at);
    }
    own_step_finish(&step);
    if (status != ATTN_OK)
        snprintf(why, size, "%s: %s", attn_status_name(status), err.message);
    return why[0] == '\0';
}

static void check_problem(const struct target *target, const char *problem, uint64_t seed, uint32_t steps)
{
    struct attn_graph *graphs[GRAPHS] = {NULL};
    struct rng rng = {mix(seed, 92)};
    struct own own;
    char why[512] = "", text[640];
    uint32_t step = 0;

    tap_begin(target, "replay", problem, seed);
    int made = own_init(&own, target, problem, ATTN_GRAPH_ALWAYS, NULL, why, sizeof why);
    if (made == 1 && own.stream == NULL) {
        made = 0;
        snprintf(why, sizeof why, "the backend has no streams to capture");
    }
    while (made == 1 && step < steps && play_step(&own, graphs, &rng, why, sizeof why)) {
        tap->beats++;
        step++;
    }
    for (int i = 0; i < GRAPHS; i++)
        attn_graph_destroy(graphs[i]);
    own_finish(&own);
    snprintf(text, sizeof text, "step %u: %s", step, why);
    if (made == 0)
        tap_skip(why);
    else if (why[0] != '\0')
        tap_fail("%s", text);
    else
        tap_pass();
}

void check_replays(struct target_list *list, const struct run_options *options)
{
    const uint32_t steps = options_cases(options, 20, 1000);

    mirror_suspend(true);
    for (uint32_t t = 0; t < list->count; t++) {
        for (uint32_t i = 0; i < own_problem_count; i++)
            if (options_wants(options, own_problems[i]))
                check_problem(&list->targets[t], own_problems[i], options->seed, steps);
    }
    mirror_suspend(false);
}
