/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The steps of a replay. */
#define _GNU_SOURCE
#include "serve.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const serve_part_names[SERVE_PARTS] = {"admit", "schedule", "input",  "builder",
                                                   "state", "layers",   "commit", "total"};

/* ---------------------------------------------------------------- making */

static int make_scheduler(struct serve *serve, struct failure *err)
{
    const struct serve_options *o = &serve->options;
    struct scheduler_options options = {.block = o->shape.problem.block,
                                        .groups = 1,
                                        .host_blocks = o->shape.host_blocks,
                                        .max_seqs = o->seqs,
                                        .chunk = o->chunk,
                                        .requests = 2 * o->seqs,
                                        .tokens = o->trace->longest,
                                        .reuse = o->reuse};

    options.group[0].blocks = o->shape.blocks;
    return scheduler_create(&options, &serve->scheduler, err);
}

int serve_init(struct serve *serve, const struct serve_options *options, struct failure *err)
{
    const uint32_t block = options->shape.problem.block;

    *serve = (struct serve){.options = *options, .hash = UINT64_C(0xcbf29ce484222325)};
    serve->all = calloc(1, sizeof *serve->all);
    serve->full = calloc(1, sizeof *serve->full);
    serve->tokens = malloc((size_t)options->trace->longest * sizeof *serve->tokens);
    serve->sampled = malloc(options->seqs * sizeof *serve->sampled);
    if (serve->all == NULL || serve->full == NULL || serve->tokens == NULL || serve->sampled == NULL)
        return failure_set(err, "no memory for a prompt of %" PRIu32 " tokens", options->trace->longest);
    if (make_scheduler(serve, err) < 0 ||
        serve_rows_init(&serve->rows, options->seqs, (options->trace->longest - 1) / block + 1, err) < 0 ||
        serve_model_init(&serve->model, &options->shape, err) < 0)
        return -1;
    serve->began = times_now();
    return 0;
}

void serve_finish(struct serve *serve)
{
    scheduler_destroy(serve->scheduler);
    serve_rows_finish(&serve->rows);
    serve_model_finish(&serve->model);
    free(serve->tokens);
    free(serve->sampled);
    free(serve->all);
    free(serve->full);
}

/* ---------------------------------------------------------------- requests */

static uint64_t arrival_of(const struct serve *serve, uint32_t request)
{
    const double speed = serve->options.speed;

    return serve->began +
           (speed > 0 ? (uint64_t)(1e9 * serve->options.trace->requests[request].arrival / speed) : 0);
}

/* Waits, if nobody is there, until somebody comes. */
static void await(const struct serve *serve)
{
    if (scheduler_left(serve->scheduler) > 0 || serve->options.speed <= 0)
        return;
    const uint64_t until = arrival_of(serve, serve->next);
    const struct timespec time = {.tv_sec = (time_t)(until / 1000000000),
                                  .tv_nsec = (long)(until % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0) {
    }
}

/* Hands over those that have arrived. Making a prompt up is not counted: a server gets it. */
static int admit(struct serve *serve, uint64_t *spent, struct failure *err)
{
    const struct serve_trace *trace = serve->options.trace;

    *spent = 0;
    while (serve->next < trace->count && scheduler_left(serve->scheduler) < 2 * serve->options.seqs &&
           (serve->options.speed <= 0 || arrival_of(serve, serve->next) <= times_now())) {
        const struct serve_request *request = &trace->requests[serve->next];
        serve_trace_tokens(trace, serve->next, 0, request->prompt, serve->tokens);
        const uint64_t began = times_now();
        struct serve_sequence *sequence = serve_rows_take(&serve->rows, serve->next);
        sequence->scheduled = scheduler_add(serve->scheduler, serve->tokens, request->prompt,
                                            request->prompt + request->answer, sequence, err);
        *spent += times_now() - began;
        if (sequence->scheduled == NULL)
            return -1;
        serve->next++;
    }
    return 0;
}

/* ---------------------------------------------------------------- steps */

static void hash_in(struct serve *serve, uint64_t value)
{
    serve->hash = (serve->hash ^ value) * UINT64_C(0x100000001b3);
    serve->hash ^= serve->hash >> 29;
}

static void hash_moves(struct serve *serve, const struct block_moves *moves)
{
    hash_in(serve, moves->count);
    for (uint32_t i = 0; i < moves->count; i++)
        hash_in(serve, (uint64_t)(uint32_t)moves->moves[i].from << 32 | (uint32_t)moves->moves[i].to);
}

/* Who runs, how many tokens, in which blocks: of their lists what was not in an earlier step. */
static void hash_step(struct serve *serve, const struct scheduler_step *step)
{
    hash_in(serve, step->part_count);
    for (uint32_t i = 0; i < step->part_count; i++) {
        const struct scheduled_part *part = &step->parts[i];
        const struct serve_sequence *sequence = part->sequence->user;
        hash_in(serve, (uint64_t)sequence->request << 32 | part->sequence->batch_slot);
        hash_in(serve, (uint64_t)part->first << 32 | part->count);
        for (uint32_t b = part->sequence->unchanged; b < part->sequence->held; b++)
            hash_in(serve, (uint32_t)part->sequence->blocks[0][b]);
    }
    hash_moves(serve, &step->out);
    hash_moves(serve, &step->in);
    hash_moves(serve, &step->copies);
}

/* What a sampler would have chosen: the next token of each part. */
static void sample(struct serve *serve, const struct scheduler_step *step)
{
    for (uint32_t i = 0; i < step->part_count; i++) {
        const struct serve_sequence *sequence = step->parts[i].sequence->user;
        serve_trace_tokens(serve->options.trace, sequence->request, step->parts[i].sequence->count, 1,
                           &serve->sampled[i]);
    }
}

/* Before the step is committed, so that those who end count. */
static void observe(struct serve *serve, const struct scheduler_step *step)
{
    const double use = (double)scheduler_used(serve->scheduler, 0) / serve->options.shape.blocks;

    hash_step(serve, step);
    sample(serve, step);
    serve->use += use;
    serve->most_use = use > serve->most_use ? use : serve->most_use;
}

/* The next token of a sequence whose tokens are all computed, or its end. */
static int go_on(struct serve *serve, struct scheduled *scheduled, const int32_t *token, struct failure *err)
{
    struct serve_sequence *sequence = scheduled->user;

    if (scheduled->computed < scheduled->count)
        return 0;
    if (scheduled->count < scheduled->most) {
        serve->answered++;
        if (scheduler_append(scheduled, token, 1, err) < 0)
            return -1;
    }
    if (scheduled->count < scheduled->most)
        return 0;
    scheduler_end(serve->scheduler, scheduled);
    scheduled_free(scheduled);
    serve_rows_give(&serve->rows, sequence);
    serve->finished++;
    return 0;
}

static int commit(struct serve *serve, const struct scheduler_step *step, struct failure *err)
{
    const uint32_t count = step->part_count;

    scheduler_commit(serve->scheduler);
    for (uint32_t i = 0; i < count; i++)
        if (go_on(serve, step->parts[i].sequence, &serve->sampled[i], err) < 0)
            return -1;
    return 0;
}

static void account(struct serve *serve, uint32_t parts, uint32_t rows, const uint64_t *spent)
{
    const bool full = parts == serve->options.seqs;

    for (unsigned i = 0; i < SERVE_PARTS; i++) {
        times_add(&serve->all->part[i], spent[i]);
        if (full)
            times_add(&serve->full->part[i], spent[i]);
    }
    serve->steps++;
    serve->tokens_run += rows;
}

/* What stands between two looks at the clock. */
static int run_part(struct serve *serve, enum serve_part part, const struct scheduler_step **step,
                    struct failure *err)
{
    switch (part) {
    case SERVE_SCHEDULE:
        *step = scheduler_step(serve->scheduler);
        return 0;
    case SERVE_INPUT:
        serve_rows_begin(&serve->rows, *step);
        return 0;
    case SERVE_BUILDER:
        return serve_model_build(&serve->model, serve->rows.adds, serve->rows.add_count, err);
    case SERVE_STATE:
        return serve_model_begin(&serve->model, err);
    case SERVE_LAYERS:
        return serve_model_move(&serve->model, *step, err) < 0 ? -1 : serve_model_run(&serve->model, err);
    default:
        return commit(serve, *step, err);
    }
}

int serve_step(struct serve *serve, bool *out_more, struct failure *err)
{
    uint64_t spent[SERVE_PARTS];
    const struct scheduler_step *step = NULL;

    *out_more = serve->next < serve->options.trace->count || scheduler_left(serve->scheduler) > 0;
    if (!*out_more)
        return 0;
    await(serve);
    if (admit(serve, &spent[SERVE_ADMIT], err) < 0)
        return -1;
    spent[SERVE_TOTAL] = spent[SERVE_ADMIT];
    const uint64_t steps = serve->steps;
    uint32_t parts = 0;
    for (unsigned part = SERVE_SCHEDULE; part < SERVE_TOTAL; part++) {
        if (part == SERVE_COMMIT)
            observe(serve, step);
        const uint64_t began = times_now();
        if (run_part(serve, part, &step, err) < 0)
            return -1;
        serve->ended = times_now();
        spent[part] = serve->ended - began;
        spent[SERVE_TOTAL] += spent[part];
        if (part == SERVE_SCHEDULE && step->part_count == 0)
            return scheduler_left(serve->scheduler) == 0
                       ? 0 /* woken before the time */
                       : failure_set(err, "step %" PRIu64 ": %" PRIu32 " sequences are left, none runs",
                                     steps, scheduler_left(serve->scheduler));
        if (part == SERVE_SCHEDULE)
            parts = step->part_count;
    }
    account(serve, parts, step->num_tokens, spent);
    return 0;
}

int serve_check(const struct serve *serve, struct failure *err)
{
    return scheduler_check_idle(serve->scheduler, err);
}
