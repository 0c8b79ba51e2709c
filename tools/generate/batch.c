/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Continuous batching: admits sequences in order, composes steps, samples, and frees what has ended. */
#include "batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

/* The state of a run. */
struct batch {
    struct engine *engine;
    struct sequence *sequences;
    uint32_t count;
    const struct batch_options *options;
    struct batch_result *result;
    uint32_t *running; /* sequences that have pages, in order; at most options->parallel */
    uint32_t running_count;
    uint32_t *free_slots;
    uint32_t free_count;
    uint32_t next; /* the first sequence that has not begun */
    struct forward_part *parts;
    uint32_t *members; /* sequence of each part */
    uint32_t part_count;
    uint32_t prompt_rows; /* of the step */
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

/* Tokens that a sequence has at most. The last one generated is never fed, but may fill the context. */
static uint32_t length(const struct batch *b, const struct sequence *s)
{
    return least((uint64_t)s->prompt.count + s->most, b->engine->model.shape.context);
}

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Pages for the longest sequences that can meet: no order of ends makes others want more. */
static int count_pages(const struct batch *b, struct attention_options *o, struct failure *err)
{
    uint32_t *wanted = malloc(b->count * sizeof *wanted);
    uint64_t pages = 0;
    if (!wanted)
        return failure_set(err, "no memory for %" PRIu32 " sequences", b->count);
    for (uint32_t i = 0; i < b->count; i++)
        wanted[i] = (length(b, &b->sequences[i]) - 1) / o->block + 1;
    qsort(wanted, b->count, sizeof *wanted, descending);
    for (uint32_t i = 0; i < o->max_seqs; i++)
        pages += wanted[i];
    free(wanted);
    o->max_pages = least(pages, UINT32_MAX);
    return 0;
}

static int start(struct batch *b, struct failure *err)
{
    struct attention_options o = b->options->attention;
    uint64_t all = 0;
    uint64_t longest = 0;
    o.max_seqs = least(b->options->parallel, b->count);
    o.max_tokens = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct sequence *s = &b->sequences[i];
        all += s->prompt.count;
        longest = s->prompt.count > longest ? s->prompt.count : longest;
        o.max_tokens = length(b, s) > o.max_tokens ? length(b, s) : o.max_tokens;
    }
    o.max_chunk = least(b->options->chunk, longest);
    o.max_rows = least(b->options->chunk, all) + o.max_seqs - 1;
    b->running = calloc(o.max_seqs, sizeof *b->running);
    b->free_slots = calloc(o.max_seqs, sizeof *b->free_slots);
    b->parts = calloc(o.max_seqs, sizeof *b->parts);
    b->members = calloc(o.max_seqs, sizeof *b->members);
    b->logits = malloc((size_t)o.max_seqs * b->engine->model.shape.vocab * sizeof *b->logits);
    if (!b->running || !b->free_slots || !b->parts || !b->members || !b->logits)
        return failure_set(err, "no memory for %" PRIu32 " times %" PRIu32 " logits", o.max_seqs,
                           b->engine->model.shape.vocab);
    while (b->free_count < o.max_seqs) {
        b->free_slots[b->free_count] = o.max_seqs - 1 - b->free_count;
        b->free_count++;
    }
    if (count_pages(b, &o, err) < 0 || engine_start(b->engine, &o, err) < 0)
        return -1;
    if (!b->options->compare)
        return 0;
    return comparison_start(&b->result->comparison, b->engine, &o, o.max_seqs, err);
}

static void add_part(struct batch *b, uint32_t index, uint32_t count)
{
    struct sequence *s = &b->sequences[index];
    bool in_prompt = s->past < s->prompt.count;
    bool last = s->past + count >= s->prompt.count;
    b->members[b->part_count] = index;
    b->parts[b->part_count++] = (struct forward_part){
        .place = {s->slot, s->past, count},
        .tokens = in_prompt ? s->prompt.ids + s->past : &s->made.ids[s->made.count - 1],
        .first_row = last ? count - 1 : count,
    };
    b->prompt_rows += in_prompt ? count : 0;
}

/* Every sequence that decodes brings a token; prompts share the chunk in order. Ones that have not begun take
 * the free places. */
static void compose(struct batch *b)
{
    uint32_t left = b->options->chunk;
    while (b->free_count && b->next < b->count) {
        b->sequences[b->next].slot = b->free_slots[--b->free_count];
        b->running[b->running_count++] = b->next++;
    }
    b->part_count = 0;
    b->prompt_rows = 0;
    for (uint32_t i = 0; i < b->running_count; i++) {
        const struct sequence *s = &b->sequences[b->running[i]];
        uint32_t rest = least(s->prompt.count - least(s->past, s->prompt.count), left);
        if (s->past >= s->prompt.count)
            add_part(b, b->running[i], 1);
        else if (rest)
            add_part(b, b->running[i], rest);
        left -= s->past < s->prompt.count ? rest : 0;
    }
    if (b->part_count > b->result->most_at_once)
        b->result->most_at_once = b->part_count;
}

static int sample(struct batch *b, uint32_t index, const float *logits, struct failure *err)
{
    const struct engine *e = b->engine;
    struct sequence *s = &b->sequences[index];
    int32_t token;
    if (sampler_next(&s->sampler, logits, e->model.shape.vocab, &token, err) < 0)
        return -1;
    if (tokenizer_ends(e->tokenizer, token)) {
        s->end = SEQUENCE_ENDED;
        return 0;
    }
    if (tokens_add(&s->made, token, err) < 0)
        return -1;
    b->result->made_tokens++;
    if (s->made.count == s->most)
        s->end = SEQUENCE_LENGTH;
    else if (s->past == e->model.shape.context)
        s->end = SEQUENCE_CONTEXT;
    return 0;
}

/* Frees the pages of the sequences that have ended. */
static void retire(struct batch *b)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->running_count; i++) {
        struct sequence *s = &b->sequences[b->running[i]];
        if (s->end == SEQUENCE_RUNS) {
            b->running[kept++] = b->running[i];
            continue;
        }
        attention_release(b->engine->attention, s->slot);
        if (b->result->comparison.attention)
            attention_release(b->result->comparison.attention, s->slot);
        b->free_slots[b->free_count++] = s->slot;
    }
    b->running_count = kept;
}

/* Chooses the next token of each part whose logits are there. */
static int sample_all(struct batch *b, struct failure *err)
{
    struct comparison *c = &b->result->comparison;
    uint32_t vocab = b->engine->model.shape.vocab;
    uint32_t row = 0;
    for (uint32_t i = 0; i < b->part_count; i++) {
        struct sequence *s = &b->sequences[b->members[i]];
        const float *logits = b->logits + (size_t)row * vocab;
        s->past += b->parts[i].place.count;
        if (b->parts[i].first_row == b->parts[i].place.count)
            continue;
        if (c->attention)
            comparison_judge(c, logits, row, vocab, b->members[i], s->past - 1);
        if (sample(b, b->members[i], logits, err) < 0)
            return -1;
        row++;
    }
    return 0;
}

static int step(struct batch *b, struct failure *err)
{
    struct batch_result *r = b->result;
    uint32_t rows = 0;
    double begin = now();
    compose(b);
    if (forward_run(b->engine->forward, b->engine->attention, b->parts, b->part_count, b->logits, err) < 0)
        return -1;
    double seconds = now() - begin;
    if (r->comparison.attention &&
        comparison_step(&r->comparison, b->engine, b->parts, b->part_count, err) < 0)
        return -1;
    begin = now();
    if (sample_all(b, err) < 0)
        return -1;
    retire(b);
    if (b->options->on_step)
        b->options->on_step(b->options->user);
    seconds += now() - begin;
    for (uint32_t i = 0; i < b->part_count; i++)
        rows += b->parts[i].place.count;
    r->prompt_tokens += b->prompt_rows;
    r->prompt_seconds += seconds * b->prompt_rows / rows;
    r->made_seconds += seconds * (rows - b->prompt_rows) / rows;
    return 0;
}

int batch_run(struct engine *e, struct sequence *sequences, uint32_t count,
              const struct batch_options *options, struct batch_result *out, struct failure *err)
{
    struct batch b = {.engine = e, .sequences = sequences, .count = count, .options = options, .result = out};
    *out = (struct batch_result){0};
    int status = start(&b, err);
    while (status == 0 && (b.running_count || b.next < count))
        status = step(&b, err);
    comparison_finish(&out->comparison);
    free(b.running);
    free(b.free_slots);
    free(b.parts);
    free(b.members);
    free(b.logits);
    return status;
}
