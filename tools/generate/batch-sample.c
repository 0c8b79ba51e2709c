/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tokens that a step leads to, and the sequences that end with it. */
#include "batch-impl.h"

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
    return b->parts[part].first_row < b->parts[part].place.count;
}

int batch_choose(struct batch *b, uint32_t count, uint32_t turn, bool *out_ended, struct failure *err)
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
        if (choose(b, s, logits, &b->chosen[(size_t)i * b->steps + turn], err) < 0)
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

int batch_settle(struct batch *b, uint32_t count, uint32_t turns, struct failure *err)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *s = b->members[i];
        if (!has_logits(b, i))
            continue;
        /* Only the last turn's logits are there: a step behind a prompt has one turn. */
        if (begin_samples(b, s, b->logits + (size_t)row * b->engine->model.shape.vocab, err) < 0)
            return -1;
        if (append(b, s, &b->chosen[(size_t)i * b->steps], turns, err) < 0)
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
