/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Continuous batching: takes steps from the scheduler, computes them, and hands the tokens back. */
#include "batch-impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool is_last(const struct scheduled_part *part)
{
    return part->first + part->count == part->sequence->count;
}

static struct forward_part part_of(const struct scheduled_part *p)
{
    const struct scheduled *s = p->sequence;
    struct forward_part part = {
        .place = {.past = p->first,
                  .count = p->count,
                  .held = s->held,
                  .batch_slot = s->batch_slot,
                  .unchanged = s->unchanged},
        .tokens = s->tokens + p->first,
        .logits_from = is_last(p) ? p->count - 1 : p->count,
    };
    for (uint32_t g = 0; g < SCHEDULER_GROUPS; g++)
        part.place.blocks[g] = s->blocks[g];
    return part;
}

/* Prompts first, then those that generate in the order of their batch slots: so each mostly keeps its row. */
static int by_row(const void *a, const void *b)
{
    const struct scheduled_part *x = a;
    const struct scheduled_part *y = b;
    bool decodes_x = x->count == 1 && x->first > 0;
    bool decodes_y = y->count == 1 && y->first > 0;
    if (decodes_x != decodes_y)
        return decodes_x ? 1 : -1;
    return x->sequence->batch_slot < y->sequence->batch_slot ? -1 : 1;
}

static void fill_parts(struct batch *b, const struct scheduler_step *step)
{
    memcpy(b->order, step->parts, step->part_count * sizeof *b->order);
    qsort(b->order, step->part_count, sizeof *b->order, by_row);
    for (uint32_t i = 0; i < step->part_count; i++) {
        b->members[i] = b->order[i].sequence->user;
        b->parts[i] = part_of(&b->order[i]);
    }
    if (step->part_count > b->result->most_at_once)
        b->result->most_at_once = step->part_count;
}

static int move_blocks(struct attention *attention, const struct scheduler_step *step, struct failure *err)
{
    if (attention_swap_out(attention, &step->out, err) < 0 ||
        attention_swap_in(attention, &step->in, err) < 0)
        return -1;
    return attention_copy(attention, &step->copies, err);
}

/* The first substep of a step, or one that follows it without the scheduler and the builder. */
static int run_substep(struct batch *b, const struct scheduler_step *step, uint32_t substep,
                       struct failure *err)
{
    struct engine *e = b->engine;
    uint32_t count = step->part_count;
    if (substep > 0)
        return forward_advance(e->forward, e->attention, b->parts, count, b->logits, err);
    if (move_blocks(e->attention, step, err) < 0)
        return -1;
    return forward_run(e->forward, e->attention, b->parts, count, b->logits, err);
}

static int run_second(struct batch *b, const struct scheduler_step *step, uint32_t substep,
                      struct failure *err)
{
    struct comparison *c = &b->result->comparison;
    if (!c->attention)
        return 0;
    if (substep == 0 && move_blocks(c->attention, step, err) < 0)
        return -1;
    return comparison_step(c, b->engine, b->parts, step->part_count, substep > 0, err);
}

/* How many substeps all sequences have blocks for; 1 if one of them is a prompt. */
static uint32_t count_substeps(const struct batch *b, uint32_t count)
{
    uint32_t substeps = b->steps;
    for (uint32_t i = 0; i < count; i++) {
        const struct scheduled_part *p = &b->order[i];
        uint32_t ahead = p->count == 1 ? p->sequence->ahead - p->first : 1;
        substeps = ahead < substeps ? ahead : substeps;
    }
    return substeps;
}

/* The tokens that were chosen become the next substep's. */
static void advance_parts(struct batch *b, uint32_t count, uint32_t substep)
{
    for (uint32_t i = 0; i < count; i++) {
        b->parts[i].place.past++;
        b->parts[i].tokens = &b->chosen[(size_t)i * b->steps + substep];
    }
}

/* Ends early when a text ends. Adds to *seconds the time of all but the comparison's second caches. */
static int run_substeps(struct batch *b, const struct scheduler_step *step, uint32_t *out_substeps,
                        double *seconds, struct failure *err)
{
    uint32_t substeps = count_substeps(b, step->part_count);
    bool ended = false;
    for (uint32_t substep = 0; substep < substeps && !ended; substep++) {
        double begin = now();
        if (substep > 0)
            advance_parts(b, step->part_count, substep - 1);
        if (run_substep(b, step, substep, err) < 0)
            return -1;
        double sample = now();
        *seconds += sample - begin;
        if (run_second(b, step, substep, err) < 0)
            return -1;
        sample = now();
        if (batch_choose(b, step->part_count, substep, &ended, err) < 0)
            return -1;
        sample = now() - sample;
        b->result->sample_seconds += sample;
        *seconds += sample;
        *out_substeps = substep + 1;
    }
    return 0;
}

static int run_step(struct batch *b, const struct scheduler_step *step, struct failure *err)
{
    struct batch_result *r = b->result;
    uint32_t count = step->part_count;
    uint32_t num_tokens = step->num_tokens;
    uint32_t prompt_tokens = step->prompt_tokens;
    uint32_t substeps = 0;
    double seconds = 0;
    fill_parts(b, step);
    if (run_substeps(b, step, &substeps, &seconds, err) < 0)
        return -1;
    double begin = now();
    scheduler_commit(b->scheduler);
    if (batch_settle(b, count, substeps, err) < 0)
        return -1;
    seconds += now() - begin;
    r->steps += substeps;
    r->prompt_tokens += prompt_tokens;
    r->prompt_seconds += seconds * prompt_tokens / num_tokens;
    r->made_seconds += seconds * (num_tokens - prompt_tokens) / num_tokens;
    return 0;
}

static void tell(const struct batch *b, uint32_t running)
{
    const struct batch_result *r = b->result;
    struct batch_progress p = {
        .running = running, .made_tokens = r->made_tokens, .seconds = r->prompt_seconds + r->made_seconds};
    if (!b->options->on_step)
        return;
    for (uint32_t i = 0; i < b->count; i++)
        p.done += b->sequences[i].end != END_NONE;
    p.running = p.running < b->count - p.done ? p.running : b->count - p.done;
    p.waiting = b->count - p.done - p.running;
    for (uint32_t g = 0; g < b->engine->shape.groups; g++) {
        p.blocks += b->attention.blocks[g];
        p.used += scheduler_used(b->scheduler, g);
    }
    b->options->on_step(b->options->user, &p);
}

static int run(struct batch *b, struct failure *err)
{
    for (;;) {
        batch_end_cancelled(b);
        if (scheduler_left(b->scheduler) == 0)
            return 0;
        const struct scheduler_step *step = scheduler_step(b->scheduler);
        uint32_t running = step->part_count;
        if (running == 0)
            return failure_set(err, "%" PRIu32 " sequences are left, and none can go on",
                               scheduler_left(b->scheduler));
        if (run_step(b, step, err) < 0) {
            bool stopped = b->options->stop && *b->options->stop;
            batch_end_cancelled(b); /* the step is given up */
            return stopped ? 0 : -1;
        }
        tell(b, running);
    }
}

/* When all sequences have ended, for whatever reason, no block may be in use. */
static int check_blocks(const struct batch *b, struct failure *err)
{
    for (uint32_t g = 0; g < b->engine->shape.groups; g++)
        if (scheduler_used(b->scheduler, g) != 0)
            return failure_set(err,
                               "%" PRIu32 " blocks of cache group %" PRIu32
                               " are still in use though all texts have ended",
                               scheduler_used(b->scheduler, g), g);
    return 0;
}

static int finish(struct batch *b, int status, struct failure *err)
{
    if (b->scheduler)
        b->result->counts = *scheduler_get_counts(b->scheduler);
    for (uint32_t i = 0; i < b->count; i++) {
        struct scheduled *scheduled = b->sequences[i].scheduled;
        if (scheduled)
            scheduler_end(b->scheduler, scheduled);
        scheduled_free(scheduled);
        b->sequences[i].scheduled = NULL;
    }
    if (status == 0 && b->scheduler)
        status = check_blocks(b, err);
    scheduler_destroy(b->scheduler);
    comparison_finish(&b->result->comparison);
    free(b->order);
    free(b->parts);
    free(b->members);
    free(b->chosen);
    free(b->logits);
    return status;
}

/* Called before each layer: on_layer may set *stop. */
static bool stops(void *user)
{
    const struct batch_options *o = user;
    if (o->on_layer)
        o->on_layer(o->user);
    return o->stop && *o->stop;
}

int batch_run(struct engine *e, struct sequence *sequences, uint32_t count,
              const struct batch_options *options, struct batch_result *out, struct failure *err)
{
    struct batch b = {.engine = e, .sequences = sequences, .count = count, .options = options, .result = out};
    struct batch_options own = *options; /* a copy, because the hook's argument is not const */
    *out = (struct batch_result){0};
    int status = batch_start(&b, err);
    if (status == 0 && out->refused < count) {
        forward_set_stop(e->forward, stops, &own);
        status = run(&b, err);
        forward_set_stop(e->forward, NULL, NULL);
    }
    return finish(&b, status, err);
}
