/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What goes wrong for one text goes wrong for it alone: prompts that cannot be served, texts that are
 * cancelled at any layer of any step, caches that run out, and runs that are stopped. The others have the
 * tokens that they have without it, and no block stays held (batch_run fails if one does). Usage: test-kill
 * [--tap]
 */
#include "serve/batch.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 6, TOKENS = 12, WINDOW = 24 };

static const char *const prompts[TEXTS] = {
    "a first one that is as long as several chunks and more than several blocks of the cache",
    "the second",
    "a third one, to be the victim of most tests, long enough to be computed in many chunks",
    "4",
    "a fifth one comes later, when a batch slot is free for it",
    "and the sixth",
};

/* The run at hand, for the hooks. */
struct world {
    struct sequence sequences[TEXTS];
    struct batch_options options;
    struct batch_result result;
    struct failure err;
    uint64_t layers; /* begun so far */
    uint64_t strike; /* the layer before which the victim is cancelled, or everything stopped */
    struct sequence *victim;
    volatile sig_atomic_t stop;
    bool struck;
};

static struct tokens encoded[TEXTS];
static int32_t expected[TEXTS][TOKENS];

static void on_layer(void *user)
{
    struct world *w = user;
    if (w->layers++ != w->strike)
        return;
    if (!w->victim)
        w->stop = 1;
    else
        w->victim->cancel = true;
    /* A text that has ended cannot be cancelled. */
    w->struck = !w->victim || w->victim->end == END_NONE;
}

static void begin(struct world *w)
{
    *w = (struct world){.strike = UINT64_MAX};
    w->options = (struct batch_options){
        .parallel = 3,
        .chunk = 7,
        .reuse = true,
        .attention = {.block = 4, .threads = 1, .kv = "f32", .seed = 1},
        .stop = &w->stop,
        .on_layer = on_layer,
        .user = w,
    };
    for (uint32_t i = 0; i < TEXTS; i++) {
        w->sequences[i].prompt = encoded[i];
        w->sequences[i].most = TOKENS;
    }
}

static int run(struct engine *e, struct world *w)
{
    int status = batch_run(e, w->sequences, TEXTS, &w->options, &w->result, &w->err);
    engine_stop(e);
    return status;
}

/* Texts but for one that are as expected, whole. */
static uint32_t count_right(const struct world *w, const struct sequence *but)
{
    uint32_t right = 0;
    for (uint32_t i = 0; i < TEXTS; i++) {
        const struct sequence *s = &w->sequences[i];
        right += s != but && s->end == END_LENGTH && s->made.count == TOKENS &&
                 memcmp(s->made.ids, expected[i], sizeof expected[i]) == 0;
    }
    return right;
}

static void finish(struct world *w)
{
    for (uint32_t i = 0; i < TEXTS; i++)
        tokens_finish(&w->sequences[i].made);
}

static int expect_tokens(struct engine *e)
{
    struct world w;
    struct failure err = {0};
    for (uint32_t i = 0; i < TEXTS; i++)
        if (tokenizer_encode(e->tokenizer, prompts[i], strlen(prompts[i]), &encoded[i], &err) < 0)
            return -1;
    begin(&w);
    int status = run(e, &w);
    for (uint32_t i = 0; i < TEXTS && status == 0; i++)
        if (w.sequences[i].made.count != TOKENS)
            status = -1;
        else
            memcpy(expected[i], w.sequences[i].made.ids, sizeof expected[i]);
    finish(&w);
    return status;
}

/* One prompt is refused with a text that has this part. */
static void refuses(struct engine *e, struct world *w, uint32_t victim, const char *what, const char *part)
{
    struct sequence *s = &w->sequences[victim];
    int status = run(e, w);
    uint32_t right = count_right(w, s);
    tap_result(status == 0 && s->end == END_REFUSED && s->made.count == 0 && w->result.refused == 1 &&
                   strstr(s->refusal.text, part) != NULL && right == TEXTS - 1,
               "%s is refused, and %u others are as they were: %s%s", what, right, s->refusal.text,
               w->err.text);
    finish(w);
}

static void test_refusals(struct engine *e)
{
    static const int32_t wrong[] = {-1, 257, INT32_MAX, INT32_MIN};
    struct world w;
    int32_t ids[16] = {104, 101, 108, 108, 111};
    for (uint32_t i = 0; i < 4; i++) {
        char part[80];
        begin(&w);
        ids[3] = wrong[i];
        w.sequences[2].prompt = (struct tokens){.ids = ids, .count = 5};
        snprintf(part, sizeof part, "token 4 of the prompt is %d; accepted are 0 to 256", wrong[i]);
        refuses(e, &w, 2, "a token that the model does not have", part);
    }
    begin(&w);
    w.sequences[0].prompt = (struct tokens){0};
    refuses(e, &w, 0, "an empty prompt", "the prompt has no tokens; accepted are 1 to 4095");
    begin(&w);
    w.sequences[5].most = 0;
    refuses(e, &w, 5, "a text of no tokens", "accepted are 1 and more");
    begin(&w);
    w.sequences[1].most = 400;
    w.options.attention.blocks[0] = w.options.attention.blocks[1] = 40;
    refuses(e, &w, 1, "a text that is longer than the cache",
            "a request of up to 410 tokens needs 103 blocks of 4 tokens, and the cache has 40");
    begin(&w);
    int32_t *many = calloc(5000, sizeof *many);
    if (many) {
        w.sequences[3].prompt = (struct tokens){.ids = many, .count = 5000};
        refuses(e, &w, 3, "a prompt that is longer than the context",
                "the prompt has 5000 tokens; the model accepts up to 4095");
    }
    free(many);
}

static void test_all_refused(struct engine *e)
{
    struct world w;
    begin(&w);
    for (uint32_t i = 0; i < TEXTS; i++)
        w.sequences[i].most = 0;
    int status = run(e, &w);
    tap_result(status == 0 && w.result.refused == TEXTS && w.layers == 0,
               "all are refused, and nothing runs");
    finish(&w);
}

/* Ways of life in which a victim is struck: in a chunk, between texts, while it waits or is on the host. */
static void set_way(struct world *w, uint32_t way)
{
    if (way == 1)
        w->options.steps = 4;
    if (way == 1 || way == 2)
        w->options.attention.graph = true;
    if (way >= 2)
        w->options.attention.blocks[0] = w->options.attention.blocks[1] = 27;
    if (way == 3)
        w->options.attention.host_blocks = 60;
}

static void test_cancel(struct engine *e)
{
    static const char *const ways[] = {"plain", "graphs and steps", "small cache and graphs",
                                       "small cache and host"};
    for (uint32_t way = 0; way < 4; way++) {
        uint32_t runs = 0, struck = 0, wrong = 0, swaps = 0;
        uint32_t chunks = 0; /* cancelled before their prompt was complete */
        /* A run has more layers than that, and each victim is struck twice. */
        uint64_t last = 34 * e->shape.layers;
        for (uint64_t strike = 0; strike < last; strike += last / (2 * TEXTS)) {
            struct world w;
            begin(&w);
            set_way(&w, way);
            w.strike = strike;
            w.victim = &w.sequences[runs % TEXTS];
            int status = run(e, &w);
            uint32_t right = count_right(&w, w.victim);
            bool cancelled = w.victim->end == END_CANCELLED;
            bool begins =
                w.victim->made.count <= TOKENS &&
                memcmp(w.victim->made.ids ? w.victim->made.ids : expected[0],
                       expected[w.victim - w.sequences], w.victim->made.count * sizeof(int32_t)) == 0;
            /* Unless the step that ran was its last one. */
            bool whole = w.victim->end == END_LENGTH && w.victim->made.count == TOKENS;
            if (status < 0 || right != TEXTS - 1 || !begins || (w.struck ? !cancelled && !whole : !whole)) {
                tap_note("%s, layer %u: %u right%s", ways[way], (unsigned)strike, right, w.err.text);
                wrong++;
            }
            runs++;
            struck += cancelled;
            chunks += cancelled && w.victim->made.count == 0;
            swaps += (uint32_t)(w.result.counts.swapped + w.result.counts.recomputed);
            finish(&w);
        }
        tap_result(wrong == 0 && struck > runs / 2 && chunks > 2 && (way < 2 || swaps > runs / 2),
                   "%s: %u of %u texts cancelled in a layer, %u before their prompt was complete; the others "
                   "are as they were (%u runs are not)",
                   ways[way], struck, runs, chunks, wrong);
    }
}

/* After a stop in the middle of a step the engine runs again. */
static void test_stop(struct engine *e)
{
    uint32_t wrong = 0;
    uint32_t cancelled = 0;
    for (uint64_t strike = 0; strike < 120; strike += 17) {
        struct world w;
        begin(&w);
        set_way(&w, (uint32_t)(strike % 4));
        w.strike = strike;
        int status = run(e, &w);
        for (uint32_t i = 0; i < TEXTS; i++) {
            const struct sequence *s = &w.sequences[i];
            wrong +=
                s->end == END_NONE || s->made.count > TOKENS ||
                (s->made.count && memcmp(s->made.ids, expected[i], s->made.count * sizeof(int32_t)) != 0);
        }
        wrong += status < 0 || w.layers > strike + 1;
        cancelled += w.result.cancelled;
        finish(&w);
    }
    struct world w;
    begin(&w);
    int status = run(e, &w);
    tap_result(
        status == 0 && wrong == 0 && cancelled > 10 && count_right(&w, NULL) == TEXTS,
        "runs are stopped in the layer in which they are asked to (%u texts cancelled), and the next one "
        "is as ever%s",
        cancelled, w.err.text);
    finish(&w);
}

/* A host that is too small, and one that is larger than the cache: texts share blocks and all move. */
static void test_exhausted(struct engine *e)
{
    static const uint32_t hosts[] = {0, 1, 200};
    for (uint32_t h = 0; h < 3; h++) {
        struct world w;
        begin(&w);
        w.options.parallel = TEXTS;
        w.options.attention.blocks[0] = w.options.attention.blocks[1] = 27;
        w.options.attention.host_blocks = hosts[h];
        int status = run(e, &w);
        uint32_t right = count_right(&w, NULL);
        uint64_t moved = w.result.counts.swapped + w.result.counts.recomputed;
        tap_result(status == 0 && right == TEXTS && moved > 0 &&
                       (hosts[h] > 100) == (w.result.counts.recomputed == 0),
                   "a cache of 27 blocks and %u on the host: %u texts as they were (%llu gave way)%s",
                   hosts[h], right, (unsigned long long)moved, w.err.text);
        finish(&w);
    }
}

static void test_samples(struct engine *e)
{
    for (uint32_t cancelled = 0; cancelled < 3; cancelled++) {
        struct world w;
        begin(&w);
        w.options.parallel = TEXTS;
        w.options.attention.blocks[0] = w.options.attention.blocks[1] = 30;
        w.options.attention.host_blocks = 300;
        for (uint32_t i = 0; i < TEXTS; i++) {
            w.sequences[i].prompt = encoded[0];
            w.sequences[i].sample = i > 0;
        }
        if (cancelled > 0) {
            w.victim = &w.sequences[cancelled == 1 ? 0 : 3];
            w.strike = 5; /* the prompt is not complete then */
        }
        int status = run(e, &w);
        uint32_t right = 0;
        uint32_t ended = 0;
        for (uint32_t i = 0; i < TEXTS; i++) {
            const struct sequence *s = &w.sequences[i];
            right += s->end == END_LENGTH && memcmp(s->made.ids, expected[0], sizeof expected[0]) == 0;
            ended += s->end == END_CANCELLED;
        }
        uint32_t gone = cancelled == 0 ? 0 : cancelled == 1 ? TEXTS : 1;
        tap_result(status == 0 && ended == gone && right == TEXTS - gone &&
                       (gone == TEXTS || w.result.counts.swapped > 0),
                   "samples that share blocks: %u cancelled, %u as they were (%llu swapped, %llu copied)%s",
                   ended, right, (unsigned long long)w.result.counts.swapped,
                   (unsigned long long)w.result.counts.copied, w.err.text);
        finish(&w);
    }
}

int main(void)
{
    for (int windowed = 0; windowed < 2; windowed++) {
        struct engine e = {0};
        struct failure err = {0};
        int status = windowed ? engine_load_windowed(&e, WINDOW, 1, &err) : engine_load(&e, NULL, 1, &err);
        if (status == 0)
            status = expect_tokens(&e);
        tap_result(status == 0, "%s model%s", windowed ? "windowed" : "full", err.text);
        if (status == 0) {
            test_refusals(&e);
            test_all_refused(&e);
            test_cancel(&e);
            test_stop(&e);
            test_exhausted(&e);
            test_samples(&e);
        }
        for (uint32_t i = 0; i < TEXTS; i++)
            tokens_finish(&encoded[i]);
        engine_finish(&e);
    }
    return tap_finish();
}
