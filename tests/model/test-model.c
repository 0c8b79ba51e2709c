/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A real model through libattn against the logits of another runtime: tokens, teacher-forced logits as one
 * chunk and token by token, and greedy continuations. Usage: test-model [--tap] [--some]
 * REFERENCE.json [MODEL.gguf]; --some: every second prompt
 */
#include "reference.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double tolerance = 1e-2;
static const double decided = 5e-2; /* margin from which on the largest logit must be the same */

struct difference {
    double logit;
    double moments;
    uint32_t at;
    uint32_t wrong_largest;
    uint32_t judged;
};

static uint32_t largest(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* NaN must not pass as a small difference. */
static double apart(double a, double b)
{
    double difference = fabs(a - b);
    return isnan(difference) ? INFINITY : difference;
}

static void note_logit(struct difference *d, double difference, uint32_t at)
{
    if (difference > d->logit) {
        d->logit = difference;
        d->at = at;
    }
}

static void compare(const struct reference *r, const struct reference_position *p, const float *logits,
                    uint32_t vocab, struct difference *d)
{
    double sum = 0;
    double squares = 0;
    for (int i = 0; i < REFERENCE_TOP; i++)
        note_logit(d, apart((double)logits[p->top_ids[i]], p->top[i]), p->index);
    for (int i = 0; i < REFERENCE_SAMPLE; i++)
        note_logit(d, apart((double)logits[r->sample_ids[i]], p->sample[i]), p->index);
    for (uint32_t i = 0; i < vocab; i++) {
        sum += (double)logits[i];
        squares += (double)logits[i] * (double)logits[i];
    }
    d->moments = fmax(d->moments, apart(sum / vocab, p->mean));
    d->moments = fmax(d->moments, apart(sqrt(squares / vocab), p->rms));
    if (p->top[0] - p->top[1] < decided)
        return;
    d->judged++;
    d->wrong_largest += largest(logits, vocab) != (uint32_t)p->top_ids[0];
}

static void report(const char *name, const char *how, const struct difference *d, const struct failure *err)
{
    if (err->text[0])
        tap_note("%s", err->text);
    tap_result(!err->text[0] && d->logit <= tolerance,
               "%s, %s: logits within %g (largest difference %.2g at %u)", name, how, tolerance, d->logit,
               d->at);
    tap_result(!err->text[0] && d->moments <= tolerance,
               "%s, %s: mean and rms of all logits (largest difference %.2g)", name, how, d->moments);
    tap_result(!err->text[0] && d->judged && !d->wrong_largest,
               "%s, %s: same largest logit at %u of %u positions", name, how, d->judged - d->wrong_largest,
               d->judged);
}

static int start(struct engine *e, const struct reference_prompt *p, struct failure *err)
{
    struct attention_options options = {
        .block = 16,
        .max_tokens = p->token_count + p->greedy_count,
        .max_chunk = p->token_count,
        .kv = "f32",
        .seed = 1,
    };
    err->text[0] = 0;
    return engine_start(e, &options, err);
}

static void test_tokens(const struct engine *e, const struct reference_prompt *p)
{
    struct tokens ids = {0};
    struct failure err = {0};
    tokenizer_encode(e->tokenizer, p->text, strlen(p->text), &ids, &err);
    bool same = ids.count == p->token_count && memcmp(ids.ids, p->tokens, ids.count * sizeof *ids.ids) == 0;
    if (err.text[0])
        tap_note("%s", err.text);
    tap_result(same, "%s: the same %u tokens", p->name, p->token_count);
    tokens_finish(&ids);
}

/* The whole prompt as one chunk, all positions from one product with the output matrix. */
static void test_chunk(struct engine *e, const struct reference *r, const struct reference_prompt *p,
                       float *logits)
{
    uint32_t vocab = e->model.shape.vocab;
    uint32_t first = p->positions[0].index;
    uint32_t count = first + p->position_count;
    struct difference d = {0};
    struct failure err;
    if (start(e, p, &err) == 0 &&
        forward_step(e->forward, e->attention, p->tokens, 0, count, first, logits, &err) == 0)
        for (uint32_t i = 0; i < p->position_count; i++)
            compare(r, &p->positions[i], logits + (size_t)i * vocab, vocab, &d);
    engine_stop(e);
    report(p->name, "one chunk", &d, &err);
}

/* The same positions one at a time behind a chunk, as in decoding; then the greedy continuation. */
static void test_steps(struct engine *e, const struct reference *r, const struct reference_prompt *p,
                       float *logits)
{
    uint32_t vocab = e->model.shape.vocab;
    uint32_t first = p->positions[0].index;
    uint32_t end = first + p->position_count;
    uint32_t same = 0;
    uint32_t past = 0;
    struct difference d = {0};
    struct failure err;
    int status = start(e, p, &err);
    if (status == 0 && first)
        status = forward_step(e->forward, e->attention, p->tokens, 0, first, first, NULL, &err);
    for (past = first; status == 0 && past < end; past++) {
        status = forward_step(e->forward, e->attention, p->tokens + past, past, 1, 0, logits, &err);
        if (status == 0)
            compare(r, &p->positions[past - first], logits, vocab, &d);
    }
    if (status == 0 && past < p->token_count) {
        uint32_t rest = p->token_count - past;
        status = forward_step(e->forward, e->attention, p->tokens + past, past, rest, rest - 1, logits, &err);
        past += rest;
    }
    for (; status == 0 && same < p->greedy_count; same++) {
        int32_t id = (int32_t)largest(logits, vocab);
        if (id != p->greedy[same])
            break;
        status = forward_step(e->forward, e->attention, &id, past++, 1, 0, logits, &err);
    }
    engine_stop(e);
    report(p->name, "token by token", &d, &err);
    tap_result(status == 0 && same == p->greedy_count, "%s: the same %u greedy tokens (%u)", p->name,
               p->greedy_count, same);
}

static void test_all(struct engine *e, const struct reference *r, bool some)
{
    float *logits = malloc((size_t)e->model.shape.vocab * 64 * sizeof *logits);
    tap_result(strcmp(e->hash, r->sha256) == 0, "the model file is the one of the reference");
    for (uint32_t i = 0; logits && i < r->prompt_count; i += some ? 2 : 1) {
        const struct reference_prompt *p = &r->prompts[i];
        test_tokens(e, p);
        if (p->position_count > 64) {
            tap_result(false, "%s: at most 64 positions", p->name);
            continue;
        }
        test_chunk(e, r, p, logits);
        test_steps(e, r, p, logits);
    }
    free(logits);
}

int main(int argc, char **argv)
{
    struct engine e;
    struct reference r;
    bool absent;
    bool tap = argc > 1 && strcmp(argv[1], "--tap") == 0;
    bool some = argc > 1 + tap && strcmp(argv[1 + tap], "--some") == 0;
    char **files = argv + 1 + tap + some;
    if (files[0] == NULL) {
        fprintf(stderr, "usage: test-model [--tap] [--some] REFERENCE.json [MODEL.gguf]\n");
        return 2;
    }
    if (model_open(&e, files[1], &absent) < 0)
        return absent ? tap_skip(tap, "no model file: ATTN_MODEL does not name one") : 1;
    if (reference_load(files[0], &r) < 0) {
        engine_finish(&e);
        return 1;
    }
    test_all(&e, &r, some);
    reference_finish(&r);
    engine_finish(&e);
    return tap_finish();
}
