/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sequences of a batch: checked and counted before the first step, and the tokens that a step leads to. */
#include "batch-impl.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- before the first step */

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

/* The last token is never computed, so it may be one more than the context holds. */
static uint32_t text_length(const struct batch *b, const struct sequence *s)
{
    return least((uint64_t)s->prompt.count + s->most, (uint64_t)b->engine->model.shape.context + 1);
}

/* Ends a sequence that never ran, and the samples that it would have begun. */
static void refuse(struct batch *b, struct sequence *s, const struct failure *why)
{
    do {
        s->end = END_REFUSED;
        s->refusal = *why;
        b->result->refused++;
    } while (++s < b->sequences + b->count && s->sample);
}

/* Prompts that did not come from the tokenizer (--ids) may contain any number. */
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
            refuse(b, &b->sequences[i], &why);
}

/* Blocks that a sequence can hold at once in a cache group. */
static uint32_t blocks_of(const struct batch *b, const struct sequence *s, uint32_t group)
{
    const struct attention_options *o = &b->attention;
    uint64_t window = b->engine->shape.window[group];
    const uint32_t block = attention_block_tokens(o);
    uint32_t all = (text_length(b, s) - 2) / block + 1;
    uint64_t seen = (window + o->max_chunk + b->steps) / block + 2;
    return window > 0 ? least(seen, all) : all;
}

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Reserves blocks for the max_seqs sequences that need the most: no others that run at once need more. */
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
        uint32_t tokens = text_length(b, &b->sequences[i]) - 1;
        all += tokens;
        longest = tokens > longest ? tokens : longest;
    }
    /* A sequence that gave up its blocks computes its generated tokens again, as part of the prompt. */
    o->max_tokens = longest;
    o->max_chunk = least(b->options->chunk, longest);
    o->max_batch_tokens = least(b->options->chunk, all) + o->max_seqs - 1;
}

static int start_scheduler(struct batch *b, struct failure *err)
{
    const struct attention_shape *shape = &b->engine->shape;
    const struct attention_options *o = &b->attention;
    struct scheduler_options options = {
        .block = attention_block_tokens(o),
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
        s->scheduled =
            scheduler_add(b->scheduler, s->prompt.ids, (uint32_t)s->prompt.count, text_length(b, s), s, &why);
        if (!s->scheduled)
            refuse(b, s, &why);
    }
}

static int make_lists(struct batch *b, struct failure *err)
{
    uint32_t batch_slots = b->attention.max_seqs;
    b->order = calloc(batch_slots, sizeof *b->order);
    b->parts = calloc(batch_slots, sizeof *b->parts);
    b->members = calloc(batch_slots, sizeof *b->members);
    b->chosen = calloc((size_t)batch_slots * b->steps, sizeof *b->chosen);
    b->logits = malloc((size_t)batch_slots * b->engine->model.shape.vocab * sizeof *b->logits);
    if (!b->order || !b->parts || !b->members || !b->chosen || !b->logits)
        return failure_set(err, "no memory for %" PRIu32 " times %" PRIu32 " logits", batch_slots,
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

/* ---------------------------------------------------------------- after a step */

static int choose(struct batch *b, struct sequence *s, const float *logits, int32_t *out, struct failure *err)
{
    const struct model_shape *shape = &b->engine->model.shape;
    if (sampler_next(&s->sampler, logits, shape->vocab, out, err) < 0)
        return -1;
    if (tokenizer_ends(b->engine->tokenizer, *out)) {
        s->end = END_TEXT;
        return 0;
    }
    if (tokens_add(&s->made, *out, err) < 0)
        return -1;
    b->result->made_tokens++;
    if (s->made.count == s->most)
        s->end = END_LENGTH;
    else if (s->prompt.count + s->made.count > shape->context)
        s->end = END_CONTEXT;
    return 0;
}

static bool has_logits(const struct batch *b, uint32_t part)
{
    return b->parts[part].logits_from < b->parts[part].place.count;
}

int batch_choose(struct batch *b, uint32_t count, uint32_t substep, bool *out_ended, struct failure *err)
{
    struct comparison *c = &b->result->comparison;
    uint32_t vocab = b->engine->model.shape.vocab;
    uint32_t row = 0;
    *out_ended = false;
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *s = b->members[i];
        const struct attention_part *place = &b->parts[i].place;
        if (!has_logits(b, i))
            continue;
        const float *logits = b->logits + (size_t)row * vocab;
        if (c->attention)
            comparison_judge(c, logits, row, vocab, (uint32_t)(s - b->sequences),
                             place->past + place->count - 1);
        if (choose(b, s, logits, &b->chosen[(size_t)i * b->steps + substep], err) < 0)
            return -1;
        *out_ended = *out_ended || s->end != END_NONE;
        row++;
    }
    return 0;
}

/* Tokens go to the scheduler but for the one that ends a text. */
static int append(struct batch *b, struct sequence *s, const int32_t *tokens, uint32_t count,
                  struct failure *err)
{
    if (s->end == END_TEXT)
        count--;
    if (count > 0 && scheduler_append(s->scheduled, tokens, count, err) < 0)
        return -1;
    if (s->end != END_NONE)
        scheduler_end(b->scheduler, s->scheduled);
    return 0;
}

/* Samples begin when the logits behind their prompt are there. */
static int begin_samples(struct batch *b, struct sequence *first, const float *logits, struct failure *err)
{
    for (struct sequence *s = first + 1; s < b->sequences + b->count && s->sample; s++) {
        int32_t token;
        if (s->scheduled)
            break;
        if (s->end != END_NONE)
            continue;
        s->scheduled = scheduler_fork(b->scheduler, first->scheduled, s, err);
        if (!s->scheduled || choose(b, s, logits, &token, err) < 0 || append(b, s, &token, 1, err) < 0)
            return -1;
    }
    return 0;
}

int batch_settle(struct batch *b, uint32_t count, uint32_t substeps, struct failure *err)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *s = b->members[i];
        if (!has_logits(b, i))
            continue;
        /* Only the last substep's logits are there: a step behind a prompt has one substep. */
        if (begin_samples(b, s, b->logits + (size_t)row * b->engine->model.shape.vocab, err) < 0)
            return -1;
        if (append(b, s, &b->chosen[(size_t)i * b->steps], substeps, err) < 0)
            return -1;
        row++;
    }
    return 0;
}

static void cancel(struct batch *b, struct sequence *s)
{
    s->end = END_CANCELLED;
    b->result->cancelled++;
    if (s->scheduled)
        scheduler_end(b->scheduler, s->scheduled);
}

void batch_end_cancelled(struct batch *b)
{
    const struct sequence *first = b->sequences;
    bool all = b->options->stop && *b->options->stop;
    for (uint32_t i = 0; i < b->count; i++) {
        struct sequence *s = &b->sequences[i];
        if (!s->sample)
            first = s;
        /* A sample that has not begun goes with the sequence that it would have come from. */
        bool orphan = first != s && !s->scheduled && first->end != END_NONE;
        if (s->end == END_NONE && (all || s->cancel || orphan))
            cancel(b, s);
    }
}
