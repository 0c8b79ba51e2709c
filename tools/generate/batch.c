/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Continuous batching: takes steps from the scheduler, computes and samples them, and ends what has ended. */
#include "batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The state of a run. */
struct batch {
    struct engine *engine;
    struct sequence *sequences;
    uint32_t count;
    const struct batch_options *options;
    struct batch_result *result;
    struct scheduler *scheduler;
    struct scheduled_part *order;
    struct forward_part *parts; /* in this order */
    struct sequence **members;  /* of the parts */
    float *logits;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

/* Tokens of a whole text. The last one is never computed, so it may be one more than the context holds. */
static uint32_t length(const struct batch *b, const struct sequence *s)
{
    return least((uint64_t)s->prompt.count + s->most, (uint64_t)b->engine->model.shape.context + 1);
}

static uint32_t blocks_of(const struct batch *b, const struct sequence *s)
{
    return (length(b, s) - 2) / b->options->attention.block + 1;
}

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Blocks for the longest sequences that can meet: no order of ends makes others want more. */
static int count_blocks(const struct batch *b, struct attention_options *o, struct failure *err)
{
    uint32_t *wanted = malloc(b->count * sizeof *wanted);
    uint64_t blocks = 0;
    if (!wanted)
        return failure_set(err, "no memory for %" PRIu32 " sequences", b->count);
    for (uint32_t i = 0; i < b->count; i++)
        wanted[i] = blocks_of(b, &b->sequences[i]);
    qsort(wanted, b->count, sizeof *wanted, descending);
    for (uint32_t i = 0; i < o->max_seqs; i++)
        blocks += wanted[i];
    free(wanted);
    for (uint32_t g = 0; g < SCHEDULER_GROUPS; g++)
        o->blocks[g] = least(blocks, UINT32_MAX);
    return 0;
}

static void count_maxima(const struct batch *b, struct attention_options *o)
{
    uint64_t all = 0;
    uint32_t longest = 0;
    o->max_seqs = least(b->options->parallel, b->count);
    o->max_tokens = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        uint32_t tokens = length(b, &b->sequences[i]) - 1;
        all += tokens;
        longest = tokens > longest ? tokens : longest;
    }
    /* Whoever gave up its blocks computes what it generated as if it were a prompt. */
    o->max_tokens = longest;
    o->max_chunk = least(b->options->chunk, longest);
    o->max_rows = least(b->options->chunk, all) + o->max_seqs - 1;
}

static int start_scheduler(struct batch *b, const struct attention_options *o, struct failure *err)
{
    const struct attention_shape *shape = &b->engine->shape;
    struct scheduler_options options = {
        .block = o->block,
        .groups = shape->groups,
        .host_blocks = o->host_blocks,
        .max_seqs = o->max_seqs,
        .chunk = b->options->chunk,
        .reuse = b->options->reuse && shape->groups == 1 && shape->window[0] == 0,
    };
    for (uint32_t g = 0; g < shape->groups; g++)
        options.group[g] = (struct scheduler_group){o->blocks[g], shape->window[g]};
    return scheduler_create(&options, &b->scheduler, err);
}

/* Samples come later: they are forks of the sequence before them. */
static int add_requests(struct batch *b, struct failure *err)
{
    for (uint32_t i = 0; i < b->count; i++) {
        struct sequence *s = &b->sequences[i];
        if (s->sample && i > 0)
            continue;
        s->scheduled =
            scheduler_add(b->scheduler, s->prompt.ids, (uint32_t)s->prompt.count, length(b, s), s, err);
        if (!s->scheduled)
            return -1;
    }
    return 0;
}

static int start(struct batch *b, struct failure *err)
{
    struct attention_options o = b->options->attention;
    count_maxima(b, &o);
    b->order = calloc(o.max_seqs, sizeof *b->order);
    b->parts = calloc(o.max_seqs, sizeof *b->parts);
    b->members = calloc(o.max_seqs, sizeof *b->members);
    b->logits = malloc((size_t)o.max_seqs * b->engine->model.shape.vocab * sizeof *b->logits);
    if (!b->order || !b->parts || !b->members || !b->logits)
        return failure_set(err, "no memory for %" PRIu32 " times %" PRIu32 " logits", o.max_seqs,
                           b->engine->model.shape.vocab);
    if (o.blocks[0] == 0 && count_blocks(b, &o, err) < 0)
        return -1;
    if (start_scheduler(b, &o, err) < 0 || add_requests(b, err) < 0 || engine_start(b->engine, &o, err) < 0)
        return -1;
    if (!b->options->compare)
        return 0;
    return comparison_start(&b->result->comparison, b->engine, &o, o.max_seqs, err);
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
                  .seat = s->seat,
                  .unchanged = s->unchanged},
        .tokens = s->tokens + p->first,
        .first_row = is_last(p) ? p->count - 1 : p->count,
    };
    for (uint32_t g = 0; g < SCHEDULER_GROUPS; g++)
        part.place.blocks[g] = s->blocks[g];
    return part;
}

/* Prompts first, then those that generate in the order of their seats: so each mostly keeps its row. */
static int by_row(const void *a, const void *b)
{
    const struct scheduled_part *x = a;
    const struct scheduled_part *y = b;
    bool decodes_x = x->count == 1 && x->first > 0;
    bool decodes_y = y->count == 1 && y->first > 0;
    if (decodes_x != decodes_y)
        return decodes_x ? 1 : -1;
    return x->sequence->seat < y->sequence->seat ? -1 : 1;
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

static int sample(struct batch *b, struct sequence *s, const float *logits, struct failure *err)
{
    const struct engine *e = b->engine;
    int32_t token;
    if (sampler_next(&s->sampler, logits, e->model.shape.vocab, &token, err) < 0)
        return -1;
    if (tokenizer_ends(e->tokenizer, token)) {
        s->end = END_TEXT;
    } else {
        if (tokens_add(&s->made, token, err) < 0 || scheduler_append(s->scheduled, &token, 1, err) < 0)
            return -1;
        b->result->made_tokens++;
        if (s->made.count == s->most)
            s->end = END_LENGTH;
        else if (s->scheduled->count > e->model.shape.context)
            s->end = END_CONTEXT;
    }
    if (s->end != END_NONE)
        scheduler_end(b->scheduler, s->scheduled);
    return 0;
}

/* Samples begin when the logits behind their prompt are there. */
static int begin_samples(struct batch *b, struct sequence *first, const float *logits, struct failure *err)
{
    if (first->made.count > 0)
        return 0;
    for (struct sequence *s = first + 1; s < b->sequences + b->count && s->sample; s++) {
        s->scheduled = scheduler_fork(b->scheduler, first->scheduled, s, err);
        if (!s->scheduled || sample(b, s, logits, err) < 0)
            return -1;
    }
    return 0;
}

/* Chooses the next token of each part whose logits are there. */
static int sample_all(struct batch *b, uint32_t count, struct failure *err)
{
    struct comparison *c = &b->result->comparison;
    uint32_t vocab = b->engine->model.shape.vocab;
    uint32_t row = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *s = b->members[i];
        const float *logits = b->logits + (size_t)row * vocab;
        if (b->parts[i].first_row == b->parts[i].place.count)
            continue;
        if (c->attention)
            comparison_judge(c, logits, row, vocab, (uint32_t)(s - b->sequences), s->scheduled->computed - 1);
        if (begin_samples(b, s, logits, err) < 0 || sample(b, s, logits, err) < 0)
            return -1;
        row++;
    }
    return 0;
}

static int run_second(struct batch *b, const struct scheduler_step *step, struct failure *err)
{
    struct comparison *c = &b->result->comparison;
    if (!c->attention)
        return 0;
    if (move_blocks(c->attention, step, err) < 0)
        return -1;
    return comparison_step(c, b->engine, b->parts, step->part_count, false, err);
}

static int run_step(struct batch *b, const struct scheduler_step *step, struct failure *err)
{
    struct batch_result *r = b->result;
    double begin = now();
    fill_parts(b, step);
    if (move_blocks(b->engine->attention, step, err) < 0 ||
        forward_run(b->engine->forward, b->engine->attention, b->parts, step->part_count, b->logits, err) < 0)
        return -1;
    double seconds = now() - begin;
    if (run_second(b, step, err) < 0)
        return -1;
    begin = now();
    uint32_t count = step->part_count;
    scheduler_commit(b->scheduler);
    if (sample_all(b, count, err) < 0)
        return -1;
    if (b->options->on_step)
        b->options->on_step(b->options->user);
    seconds += now() - begin;
    r->prompt_tokens += step->prompt_rows;
    r->prompt_seconds += seconds * step->prompt_rows / step->rows;
    r->made_seconds += seconds * (step->rows - step->prompt_rows) / step->rows;
    return 0;
}

static void finish(struct batch *b)
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
    scheduler_destroy(b->scheduler);
    comparison_finish(&b->result->comparison);
    free(b->order);
    free(b->parts);
    free(b->members);
    free(b->logits);
}

int batch_run(struct engine *e, struct sequence *sequences, uint32_t count,
              const struct batch_options *options, struct batch_result *out, struct failure *err)
{
    struct batch b = {.engine = e, .sequences = sequences, .count = count, .options = options, .result = out};
    *out = (struct batch_result){0};
    int status = start(&b, err);
    while (status == 0 && scheduler_left(b.scheduler) > 0) {
        const struct scheduler_step *step = scheduler_step(b.scheduler);
        status = step->part_count > 0 ? run_step(&b, step, err)
                                      : failure_set(err, "%" PRIu32 " sequences are left, and none can go on",
                                                    scheduler_left(b.scheduler));
    }
    finish(&b);
    return status;
}
