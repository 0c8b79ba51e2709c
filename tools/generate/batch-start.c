/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What comes before the first step: sequences are checked, sizes follow from them, requests are made. */
#include "batch-impl.h"

#include <inttypes.h>
#include <stdlib.h>

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

/* The last token is never computed, so it may be one more than the context holds. */
uint32_t batch_length(const struct batch *b, const struct sequence *s)
{
    return least((uint64_t)s->prompt.count + s->most, (uint64_t)b->engine->model.shape.context + 1);
}

void batch_refuse(struct batch *b, struct sequence *s, const struct failure *why)
{
    do {
        s->end = END_REFUSED;
        s->refusal = *why;
        b->result->refused++;
    } while (++s < b->sequences + b->count && s->sample);
}

/* Anything may stand in a prompt that did not come from the tokenizer. */
static int check_prompt(const struct batch *b, const struct sequence *s, struct failure *why)
{
    const struct model_shape *shape = &b->engine->model.shape;
    if (s->prompt.count == 0)
        return failure_set(why, "the prompt has no tokens; accepted are 1 to %" PRIu32, shape->context - 1);
    if (s->prompt.count >= shape->context)
        return failure_set(why, "the prompt has %zu tokens; the model accepts up to %" PRIu32,
                           s->prompt.count, shape->context - 1);
    if (s->most == 0)
        return failure_set(why, "0 tokens are to be generated; accepted are 1 and more");
    for (size_t i = 0; i < s->prompt.count; i++)
        if (s->prompt.ids[i] < 0 || (uint32_t)s->prompt.ids[i] >= shape->vocab)
            return failure_set(why, "token %zu of the prompt is %" PRId32 "; accepted are 0 to %" PRIu32,
                               i + 1, s->prompt.ids[i], shape->vocab - 1);
    return 0;
}

static void check_prompts(struct batch *b)
{
    struct failure why = {0};
    for (uint32_t i = 0; i < b->count; i++)
        b->result->refused += b->sequences[i].end == END_REFUSED; /* its prompt could not be read */
    for (uint32_t i = 0; i < b->count; i++)
        if (b->sequences[i].end == END_NONE && check_prompt(b, &b->sequences[i], &why) < 0)
            batch_refuse(b, &b->sequences[i], &why);
}

/* Blocks that a sequence can hold at once in a cache group. */
static uint32_t blocks_of(const struct batch *b, const struct sequence *s, uint32_t group)
{
    const struct attention_options *o = &b->attention;
    uint64_t window = b->engine->shape.window[group];
    uint32_t all = (batch_length(b, s) - 2) / o->block + 1;
    uint64_t seen = (window + o->max_chunk + b->steps) / o->block + 2;
    return window > 0 ? least(seen, all) : all;
}

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Blocks for the longest sequences that can meet: no order of ends makes others want more. */
static int count_blocks(struct batch *b, uint32_t group, struct failure *err)
{
    uint32_t *wanted = calloc(b->count, sizeof *wanted);
    uint64_t blocks = 0;
    if (!wanted)
        return failure_set(err, "no memory for %" PRIu32 " sequences", b->count);
    for (uint32_t i = 0; i < b->count; i++)
        if (b->sequences[i].end == END_NONE)
            wanted[i] = blocks_of(b, &b->sequences[i], group);
    qsort(wanted, b->count, sizeof *wanted, descending);
    for (uint32_t i = 0; i < b->attention.max_seqs; i++)
        blocks += wanted[i];
    free(wanted);
    b->attention.blocks[group] = least(blocks, UINT32_MAX);
    return 0;
}

static void count_maxima(struct batch *b)
{
    struct attention_options *o = &b->attention;
    uint64_t all = 0;
    uint32_t longest = 0;
    o->max_seqs = least(b->options->parallel, b->count - b->result->refused);
    for (uint32_t i = 0; i < b->count; i++) {
        if (b->sequences[i].end != END_NONE)
            continue;
        uint32_t tokens = batch_length(b, &b->sequences[i]) - 1;
        all += tokens;
        longest = tokens > longest ? tokens : longest;
    }
    /* Whoever gave up its blocks computes what it generated as if it were a prompt. */
    o->max_tokens = longest;
    o->max_chunk = least(b->options->chunk, longest);
    o->max_rows = least(b->options->chunk, all) + o->max_seqs - 1;
}

static int start_scheduler(struct batch *b, struct failure *err)
{
    const struct attention_shape *shape = &b->engine->shape;
    const struct attention_options *o = &b->attention;
    struct scheduler_options options = {
        .block = o->block,
        .groups = shape->groups,
        .host_blocks = o->host_blocks,
        .max_seqs = o->max_seqs,
        .chunk = b->options->chunk,
        .lookahead = b->steps - 1,
        .reuse = b->options->reuse && shape->groups == 1 && shape->window[0] == 0,
    };
    for (uint32_t g = 0; g < shape->groups; g++)
        options.group[g] = (struct scheduler_group){o->blocks[g], shape->window[g]};
    return scheduler_create(&options, &b->scheduler, err);
}

/* Samples come later: they are forks of the sequence before them. */
static void add_requests(struct batch *b)
{
    struct failure why = {0};
    for (uint32_t i = 0; i < b->count; i++) {
        struct sequence *s = &b->sequences[i];
        if ((s->sample && i > 0) || s->end != END_NONE)
            continue;
        s->scheduled = scheduler_add(b->scheduler, s->prompt.ids, (uint32_t)s->prompt.count,
                                     batch_length(b, s), s, &why);
        if (!s->scheduled)
            batch_refuse(b, s, &why);
    }
}

static int make_lists(struct batch *b, struct failure *err)
{
    uint32_t seats = b->attention.max_seqs;
    b->order = calloc(seats, sizeof *b->order);
    b->parts = calloc(seats, sizeof *b->parts);
    b->members = calloc(seats, sizeof *b->members);
    b->chosen = calloc((size_t)seats * b->steps, sizeof *b->chosen);
    b->logits = malloc((size_t)seats * b->engine->model.shape.vocab * sizeof *b->logits);
    if (!b->order || !b->parts || !b->members || !b->chosen || !b->logits)
        return failure_set(err, "no memory for %" PRIu32 " times %" PRIu32 " logits", seats,
                           b->engine->model.shape.vocab);
    return 0;
}

int batch_start(struct batch *b, struct failure *err)
{
    b->attention = b->options->attention;
    b->steps = b->options->steps ? b->options->steps : 1;
    check_prompts(b);
    if (b->result->refused == b->count)
        return 0;
    count_maxima(b);
    for (uint32_t g = 0; g < b->engine->shape.groups; g++)
        if (b->attention.blocks[g] == 0 && count_blocks(b, g, err) < 0)
            return -1;
    if (make_lists(b, err) < 0 || start_scheduler(b, err) < 0)
        return -1;
    add_requests(b);
    if (b->result->refused == b->count)
        return 0;
    if (engine_start(b->engine, &b->attention, err) < 0)
        return -1;
    if (!b->options->compare)
        return 0;
    return comparison_start(&b->result->comparison, b->engine, &b->attention, b->attention.max_seqs, err);
}
