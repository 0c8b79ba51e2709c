/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The engine on generated models, one of full layers and one of windowed and full ones, against a plain model
 * without pages: the same tokens for chosen and for random configurations of batch, blocks, chunks, cache
 * size, backend, graphs and steps. Usage: test-engine [--tap] [--some] [BACKEND ...]; without names those of
 * the CPU. --some: the windowed model and four configurations that take every way.
 */
#include "fake-watch.h"
#include "plain.h"
#include "rng.h"
#include "serve/batch.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPTS = 6, WINDOW = 24, RANDOM = 24, RANDOM_ELSEWHERE = 6, SOME = 4 };

/* From one token to several windows; two begin alike. */
static const char *const prompts[PROMPTS] = {
    "What is the capital of France?",
    "int main(void)\n{\n    for (int i = 1; i <= 10; i++)\n        printf(\"%d\\n\", square(i));\n",
    "1",
    "Once upon a time, in a small village by the sea, there lived",
    "Once upon a time, in a small village by the hills, there died a fox",
    "2, 4, 6, 8, 10, 12, 14, 16, 18",
};

struct config {
    const char *backend;
    const char *kv;
    uint32_t parallel;
    uint32_t block;
    uint32_t chunk;
    uint32_t steps;
    bool graph;
    bool tight; /* a cache as small as the longest text allows */
    uint32_t host_blocks;
    bool reuse;
    bool reversed;
    const char *q; /* NULL: f32 */
};

/* Backends that were asked for; NULL: each configuration has its own. */
struct wanted {
    char **names;
    uint32_t count;
    bool some;
};

struct base {
    struct tokens prompt;
    struct plain_result result;
    uint32_t count[3]; /* tokens that are decided, with f32 and with f16 caches, with f16 all through */
};

/* Rounding of logits, what f16 keys and values move them by, and what f16 queries and outputs do. */
static const double undecided[3] = {2e-3, 1.2e-2, 2e-2};

static int make_bases(struct engine *e, struct base *bases, struct failure *err)
{
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < PROMPTS; i++) {
        struct base *b = &bases[i];
        status = tokenizer_encode(e->tokenizer, prompts[i], strlen(prompts[i]), &b->prompt, err);
        if (status == 0)
            status = plain_run(&e->model, b->prompt.ids, (uint32_t)b->prompt.count, true, &b->result, err);
        for (int k = 0; k < 3; k++)
            while (b->count[k] < PLAIN_TOKENS && b->result.margins[b->count[k]] >= undecided[k] &&
                   !tokenizer_ends(e->tokenizer, b->result.ids[b->count[k]]))
                b->count[k]++;
    }
    return status;
}

/* Blocks of a cache group that the longest text needs: no fewer are accepted. */
static uint32_t least_blocks(const struct config *c, const struct base *bases, uint32_t window)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        uint32_t all = ((uint32_t)bases[i].prompt.count + PLAIN_TOKENS - 2) / c->block + 1;
        uint32_t seen = (window + c->chunk + c->steps - 1) / c->block + 2;
        uint32_t wanted = window > 0 && seen < all ? seen : all;
        most = wanted > most ? wanted : most;
    }
    return most;
}

static void describe(const struct config *c, char *out, size_t size)
{
    snprintf(out, size, "%s %s%s, %u at once, block %u, chunk %u, steps %u%s%s%s%s", c->backend,
             c->q ? "f16 and " : "", c->kv, c->parallel, c->block, c->chunk, c->steps,
             c->graph ? ", graphs" : "",
             c->tight ? c->host_blocks ? ", small cache and host" : ", small cache" : "",
             c->reuse ? ", reuse" : "", c->reversed ? ", reversed" : "");
}

/* Returns the tokens that were compared, 0 if any differs. */
static uint32_t run(struct engine *e, const struct base *bases, const struct config *c,
                    struct batch_result *result, struct attention_info *info, struct failure *err)
{
    struct sequence sequences[PROMPTS] = {0};
    struct batch_options options = {
        .parallel = c->parallel,
        .chunk = c->chunk,
        .steps = c->steps,
        .reuse = c->reuse,
        .attention = {.block = c->block,
                      .host_blocks = c->host_blocks,
                      .threads = c->parallel == 4 ? 2 : 1,
                      .kv = c->kv,
                      .q = c->q,
                      .backend = c->backend,
                      .graph = c->graph,
                      .seed = c->parallel},
    };
    int exact = c->q ? 2 : strcmp(c->kv, "f32") == 0 ? 0 : 1;
    uint32_t compared = 0;
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        uint32_t place = c->reversed ? PROMPTS - 1 - i : i;
        sequences[i].prompt = bases[place].prompt;
        sequences[i].most = PLAIN_TOKENS - place % 3;
    }
    for (uint32_t g = 0; c->tight && g < e->shape.groups; g++)
        options.attention.blocks[g] = least_blocks(c, bases, e->shape.window[g]);
    int status = batch_run(e, sequences, PROMPTS, &options, result, err);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        const struct base *base = &bases[c->reversed ? PROMPTS - 1 - i : i];
        uint32_t tokens = base->count[exact] < sequences[i].most ? base->count[exact] : sequences[i].most;
        compared += tokens;
        wrong += sequences[i].made.count < tokens ||
                 (tokens && memcmp(sequences[i].made.ids, base->result.ids, tokens * sizeof(int32_t)) != 0);
        tokens_finish(&sequences[i].made);
    }
    *info = (struct attention_info){0};
    if (e->attention)
        attention_get_info(e->attention, info);
    wrong += info->backend && strcmp(info->backend, c->backend) != 0;
    engine_stop(e);
    return status == 0 && wrong == 0 && result->refused == 0 ? compared : 0;
}

/* What a configuration is about must have happened. */
static bool went_its_way(const struct config *c, const struct batch_result *r, const struct attention_info *i)
{
    bool good = !c->graph == (i->replayed == 0) && i->replayed <= r->steps;
    good = good && (c->steps > 1) == (i->advanced > 0);
    if (c->tight && c->parallel > 2)
        good = good && (c->host_blocks ? r->counts.swapped : r->counts.recomputed) > 0;
    return good && (!c->reuse || r->counts.asked_tokens > 0);
}

static void test_chosen(struct engine *e, const struct base *bases, const char *model,
                        const struct wanted *wanted)
{
    static const struct config configs[] = {
        /* The first four are --some. */
        {"cpu/flash-attn", "f32", 6, 4, 16, 3, true, true, 200, false, false, NULL},
        {"cpu/flashinfer", "f32", 6, 4, 64, 5, true, false, 0, false, false, NULL},
        {"cpu/flashinfer", "f16", 4, 8, 64, 4, true, false, 0, false, false, NULL},
        {"cpu/flash-attn", "f16", 6, 4, 16, 3, true, true, 200, false, false, "f16"},
        {"cpu/rocm-flash", "f32", 6, 8, 16, 1, false, true, 200, false, false, NULL},
        {"cpu/flash-attn", "f32", 6, 16, 256, 1, false, false, 0, false, false, NULL},
        {"cpu/flash-attn", "f32", 6, 4, 7, 1, true, false, 0, false, false, NULL},
        {"cpu/flashinfer", "f32", 6, 4, 7, 1, true, false, 0, false, true, NULL},
        {"cpu/rocm-flash", "f32", 5, 16, 7, 1, true, false, 0, false, false, NULL},
        {"cpu/flash-attn", "f32", 6, 4, 64, 5, false, false, 0, false, false, NULL},
        {"cpu/rocm-flash", "f32", 6, 8, 64, 3, true, false, 0, false, true, NULL},
        {"cpu/flash-attn", "f32", 6, 4, 16, 3, true, true, 0, false, false, NULL},
        {"cpu/flashinfer", "f32", 6, 4, 16, 1, false, true, 0, false, false, NULL},
        {"cpu/flash-attn", "f16", 6, 16, 64, 4, true, false, 0, false, false, NULL},
    };
    for (size_t i = 0; i < (wanted->some ? SOME : sizeof configs / sizeof configs[0]); i++) {
        struct config c = configs[i];
        struct batch_result result;
        struct attention_info info;
        struct failure err = {0};
        char text[200];
        if (wanted->count)
            c.backend = wanted->names[i % wanted->count];
        describe(&c, text, sizeof text);
        uint32_t compared = run(e, bases, &c, &result, &info, &err);
        tap_result(compared >= 40 && went_its_way(&c, &result, &info),
                   "%s, %s: the %u tokens of the plain model (%llu replayed, %llu advanced, %llu computed "
                   "again, %llu by way of the host)%s",
                   model, text, compared, (unsigned long long)info.replayed,
                   (unsigned long long)info.advanced, (unsigned long long)result.counts.recomputed,
                   (unsigned long long)result.counts.swapped, err.text);
    }
}

static void test_random(struct engine *e, const struct base *bases, const char *model,
                        const struct wanted *wanted)
{
    static const char *const backends[] = {"cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};
    static const uint32_t blocks[] = {1, 4, 8, 16, 32, 64};
    static const uint32_t chunks[] = {1, 3, 7, 16, 64, 256};
    const uint32_t count = wanted->count ? RANDOM_ELSEWHERE : RANDOM;
    uint64_t state = 7;
    uint32_t wrong = 0;
    uint32_t compared = 0;
    for (uint32_t n = 0; n < count; n++) {
        struct batch_result result;
        struct attention_info info;
        struct failure err = {0};
        struct config c = {.backend = backends[n % 3], .kv = rng_next(&state) % 4 == 0 ? "f16" : "f32"};
        char text[200];
        if (wanted->count)
            c.backend = wanted->names[n % wanted->count];
        c.parallel = 1 + (uint32_t)(rng_next(&state) % PROMPTS);
        c.block = blocks[rng_next(&state) % 6];
        c.chunk = chunks[rng_next(&state) % 6];
        c.steps = 1 + (uint32_t)(rng_next(&state) % 5);
        c.graph = rng_next(&state) % 2 == 0;
        c.tight = rng_next(&state) % 2 == 0;
        c.host_blocks = c.tight && rng_next(&state) % 2 == 0 ? 1 + (uint32_t)(rng_next(&state) % 60) : 0;
        c.reuse = rng_next(&state) % 2 == 0;
        c.reversed = rng_next(&state) % 2 == 0;
        uint32_t same = run(e, bases, &c, &result, &info, &err);
        compared += same;
        if (same == 0) {
            describe(&c, text, sizeof text);
            tap_note("%s, %s: differs %s", model, text, err.text);
            wrong++;
        }
    }
    tap_result(wrong == 0 && compared > count * 40,
               "%s, %d random configurations: the tokens of the plain model (%u compared; %u runs differ)",
               model, count, compared, wrong);
}

/* Otherwise the windowed model would show nothing. */
static void test_windows(struct engine *e, const struct base *bases)
{
    uint32_t others = 0;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        struct plain_result all;
        struct failure err = {0};
        int status =
            plain_run(&e->model, bases[i].prompt.ids, (uint32_t)bases[i].prompt.count, false, &all, &err);
        others += status == 0 && memcmp(all.ids, bases[i].result.ids, sizeof all.ids) != 0;
    }
    tap_result(others >= 3, "windows matter: without them %u of %d texts are others", others, PROMPTS);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"full", "windowed"};
    struct wanted wanted = {argv, 0, false};
    struct fake_watch watch;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--some") == 0)
            wanted.some = true;
        else if (strcmp(argv[i], "--tap") != 0)
            wanted.names[wanted.count++] = argv[i];
    fake_watch_begin(&watch);
    for (int windowed = wanted.some; windowed < 2; windowed++) {
        struct base bases[PROMPTS] = {0};
        struct engine e = {0};
        struct failure err = {0};
        int status = windowed ? engine_load_windowed(&e, WINDOW, 1, &err) : engine_load(&e, NULL, 1, &err);
        if (status == 0)
            status = make_bases(&e, bases, &err);
        tap_result(status == 0 && e.shape.groups == 1 + (uint32_t)windowed, "%s: %u cache groups%s",
                   names[windowed], e.shape.groups, err.text);
        if (status == 0)
            test_chosen(&e, bases, names[windowed], &wanted);
        if (status == 0 && !wanted.some)
            test_random(&e, bases, names[windowed], &wanted);
        if (status == 0 && windowed)
            test_windows(&e, bases);
        for (uint32_t i = 0; i < PROMPTS; i++)
            tokens_finish(&bases[i].prompt);
        engine_finish(&e);
    }
    fake_watch_end(&watch);
    return tap_finish();
}
