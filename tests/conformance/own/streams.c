/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Threads with streams of their own on one backend and one plan, by runs and by graphs, none of which waits.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "mirror.h"
#include "need.h"
#include "own.h"

enum { THREADS = 4, STEPS = 2 };

struct worker {
    pthread_t id;
    pthread_barrier_t *start;
    struct own own;
    struct own_step steps[STEPS];
    struct rng rng;
    uint32_t rounds;
    char why[512];
};

/* Of all rounds, one in four captures what it runs. */
static void play_round(struct worker *worker)
{
    struct own *own = &worker->own;
    const struct own_step *step = &worker->steps[rng_below(&worker->rng, STEPS)];
    const bool graph =
        own->problem.graph == ATTN_GRAPH_ALWAYS && own->stream != NULL && rng_chance(&worker->rng, 25);
    struct attn_graph *captured = NULL;
    struct attn_error err;
    uint64_t at = 0;

    ATTN_INIT(&err);
    int32_t status = graph ? own_capture(own, &captured, &err) : ATTN_OK;
    if (status == ATTN_OK)
        status = own_send(own, step, &err);
    if (status == ATTN_OK)
        status = graph ? attn_graph_launch(captured, own->stream, &err) : own_run(own, &err);
    if (status == ATTN_OK)
        status = own_take(own, &err);
    attn_graph_destroy(captured);
    if (status != ATTN_OK)
        snprintf(worker->why, sizeof worker->why, "%s: %s", attn_status_name(status), err.message);
    else if (!own_is_right(own, step, &at))
        snprintf(worker->why, sizeof worker->why, "byte %llu of out and lse is not that of a run alone",
                 (unsigned long long)at);
}

static void *work(void *arg)
{
    struct worker *worker = arg;

    pthread_barrier_wait(worker->start);
    for (uint32_t i = 0; i < worker->rounds && worker->why[0] == '\0'; i++)
        play_round(worker);
    return NULL;
}

/* Memory, a stream, and steps with what is expected of them. */
static int make_worker(struct worker *worker, const struct target *target, const char *problem,
                       uint32_t graph, const struct own *lender)
{
    struct attn_error err;
    int made = own_init(&worker->own, target, problem, graph, lender, worker->why, sizeof worker->why);

    ATTN_INIT(&err);
    for (int i = 0; i < STEPS && made == 1; i++) {
        own_step_init(&worker->own, &worker->steps[i], &worker->rng, OWN_SEQS, OWN_ROWS);
        if (own_expect(&worker->own, &worker->steps[i], &err) == ATTN_OK)
            continue;
        snprintf(worker->why, sizeof worker->why, "alone: %s", err.message);
        made = -1;
    }
    return made;
}

/* Graphs only where they are served. */
static uint32_t level_of(const struct target *target, const char *text)
{
    struct attn_problem problem;
    char why[64];

    if (attn_problem_parse(text, &problem, NULL) != ATTN_OK)
        return ATTN_GRAPH_NEVER;
    problem.graph = ATTN_GRAPH_ALWAYS;
    return target_accepts(target, &problem, NULL, why, sizeof why) ? ATTN_GRAPH_ALWAYS : ATTN_GRAPH_NEVER;
}

static void check_problem(const struct target *target, const char *problem, uint64_t seed, uint32_t rounds)
{
    const uint32_t graph = level_of(target, problem);
    struct worker *workers = need(calloc(THREADS, sizeof *workers));
    pthread_barrier_t start;
    char why[512] = "";
    int made = 1;

    tap_begin(target, "streams", problem, seed);
    for (uint32_t i = 0; i < THREADS && made == 1; i++) {
        workers[i].start = &start;
        workers[i].rounds = rounds;
        workers[i].rng.state = mix(seed, 93 + i);
        made = make_worker(&workers[i], target, problem, graph, i > 0 ? &workers[0].own : NULL);
        memcpy(why, workers[i].why, sizeof why);
    }
    pthread_barrier_init(&start, NULL, THREADS);
    for (uint32_t i = 0; i < THREADS && made == 1; i++)
        if (pthread_create(&workers[i].id, NULL, work, &workers[i]) != 0)
            need(NULL);
    for (uint32_t i = 0; i < THREADS && made == 1; i++) {
        pthread_join(workers[i].id, NULL);
        if (why[0] == '\0')
            memcpy(why, workers[i].why, sizeof why);
    }
    pthread_barrier_destroy(&start);
    for (uint32_t i = THREADS; i-- > 0;) { /* the lender of the plan last */
        for (int k = 0; k < STEPS; k++)
            own_step_finish(&workers[i].steps[k]);
        own_finish(&workers[i].own);
    }
    free(workers);
    if (made == 0)
        tap_skip(why);
    else if (why[0] != '\0')
        tap_fail("%s", why);
    else
        tap_pass();
}

void check_streams(struct target_list *list, const struct run_options *options)
{
    const uint32_t rounds = options_cases(options, 6, 400);

    mirror_suspend(true);
    for (uint32_t t = 0; t < list->count; t++) {
        for (uint32_t i = 0; i < own_problem_count; i++)
            if (options_wants(options, own_problems[i]))
                check_problem(&list->targets[t], own_problems[i], options->seed, rounds);
    }
    mirror_suspend(false);
}
