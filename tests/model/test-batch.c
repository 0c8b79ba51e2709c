/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Prompts in one batch give the tokens that each gives alone, in any order, for any number at once, block,
 * chunk and number of threads. Usage: test-batch [--tap] [MODEL.gguf]; with --toy the generated model is
 * used.
 */
#include "greedy.h"
#include "serve/batch.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPTS = 6 };

/* Lengths from one token to more than a chunk. */
static const char *const prompts[PROMPTS] = {
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    ("#include <stdio.h>\n\n/* Returns the square of a number. */\nstatic int square(int number)\n{\n"
     "    return number * number;\n}\n\n/* Prints the first ten square numbers, one on each line. */\n"
     "int main(void)\n{\n    for (int i = 1; i <= 10; i++)\n"),
    "1",
    ("<|im_start|>user\nName the four seasons of the year and say one thing about each of them.<|im_end|>\n"
     "<|im_start|>assistant\n"),
    "Once upon a time, in a small village by the sea, there lived",
    "2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40,",
};

struct config {
    const char *name;
    const char *backend;
    uint32_t parallel;
    uint32_t block;
    uint32_t chunk;
    uint32_t threads;
    bool reversed;
    /* A cache that is as small as the longest text allows, and blocks on the host for those that give way. */
    bool tight;
    uint32_t host_blocks;
    bool graph;
    uint32_t steps;
    bool twice; /* every prompt again, whose blocks are there already */
};

static const struct config configs[] = {
    {"all at once", NULL, PROMPTS, 16, 256, 2, .reversed = false},
    {"all at once, graphs, three steps", NULL, PROMPTS, 16, 256, 2, .graph = true, .steps = 3},
    {"all at once in a small cache, computed again", NULL, PROMPTS, 4, 64, 2, .tight = true},
    {"all at once in a small cache, by way of the host", NULL, PROMPTS, 4, 64, 2, .tight = true,
     .host_blocks = 200},
    {"each twice, the second time found", NULL, PROMPTS, 4, 256, 2, .twice = true},
    {"reversed", NULL, PROMPTS, 16, 256, 2, .reversed = true},
    {"two at once", NULL, 2, 16, 256, 2, .reversed = false},
    {"three at once, reversed, block 1, chunk 7", NULL, 3, 1, 7, 2, .reversed = true},
    {"three at once, block 33, chunk 1", NULL, 3, 33, 1, 2, .reversed = false},
    {"four at once, chunk 64, one thread", NULL, 4, 16, 64, 1, .reversed = false},
    {"one at once", NULL, 1, 16, 256, 2, .reversed = false},
    {"cpu/flashinfer, two at once, reversed, chunk 7", "cpu/flashinfer", 2, 16, 7, 2, .reversed = true},
};

/* A cache type, from which margin between the two largest logits on a choice is compared (rounding that
 * depends on the number of rows moves logits, and moves codes of 8 bits with them), and how many of its
 * tokens must be compared at least. */
struct kind {
    const char *kv;
    double undecided;
    uint32_t least;
    size_t configs; /* of a real model */
};

struct base {
    struct tokens prompt;
    struct greedy_result result;
    uint32_t count; /* tokens to be compared */
};

static int make_base(struct engine *e, const struct kind *kind, struct base *base, const char *text,
                     struct failure *err)
{
    const struct greedy_config config = {"base", NULL, NULL, kind->kv, 16, 0, 2, NULL};
    *base = (struct base){0};
    if (tokenizer_encode(e->tokenizer, text, strlen(text), &base->prompt, err) < 0 ||
        greedy_run(e, &base->prompt, &config, &base->result, err) < 0)
        return -1;
    while (base->count < GREEDY_TOKENS && base->result.margins[base->count] >= kind->undecided &&
           !tokenizer_ends(e->tokenizer, base->result.ids[base->count]))
        base->count++;
    return 0;
}

/* Index of the prompt that stands at a place. */
static uint32_t place(const struct config *config, uint32_t i)
{
    return config->reversed ? PROMPTS - 1 - i : i;
}

/* Whether what a configuration is about happened. */
static bool went_its_way(const struct config *config, const struct batch_result *result,
                         const struct attention_info *info)
{
    if (config->graph != (info->replayed > 0) || (config->steps > 1) != (info->advanced > 0))
        return false;
    if (config->twice)
        return result->counts.hit_tokens > 0;
    if (config->tight)
        return config->host_blocks > 0 ? result->counts.swapped > 0 : result->counts.recomputed > 0;
    return result->most_at_once == config->parallel &&
           result->counts.recomputed + result->counts.swapped == 0;
}

static void test_config(struct engine *e, const struct kind *kind, const struct base *bases,
                        const struct config *config)
{
    struct sequence sequences[2 * PROMPTS] = {0};
    struct batch_result result = {0};
    struct failure err = {0};
    uint32_t count = config->twice ? 2 * PROMPTS : PROMPTS;
    uint32_t compared = 0;
    uint32_t wrong = 0;
    struct batch_options options = {
        .parallel = config->parallel,
        .chunk = config->chunk,
        .steps = config->steps,
        .reuse = config->twice,
        .attention = {.block = config->block,
                      .host_blocks = config->host_blocks,
                      .threads = config->threads,
                      .kv = kind->kv,
                      .backend = config->backend,
                      .graph = config->graph,
                      .seed = config->parallel},
    };
    for (uint32_t i = 0; i < count; i++) {
        sequences[i].prompt = bases[place(config, i % PROMPTS)].prompt;
        /* Ends at different steps, so that others come in between. */
        sequences[i].most = GREEDY_TOKENS - place(config, i % PROMPTS) % 3;
        uint32_t blocks = ((uint32_t)sequences[i].prompt.count + sequences[i].most) / config->block + 1;
        if (config->tight && blocks > options.attention.blocks[0])
            options.attention.blocks[0] = blocks;
    }
    int status = batch_run(e, sequences, count, &options, &result, &err);
    struct attention_info info = {0};
    if (status == 0)
        attention_get_info(e->attention, &info);
    for (uint32_t i = 0; status == 0 && i < count; i++) {
        const struct base *base = &bases[place(config, i % PROMPTS)];
        uint32_t tokens = base->count < sequences[i].most ? base->count : sequences[i].most;
        compared += tokens;
        wrong += sequences[i].made.count < tokens ||
                 memcmp(sequences[i].made.ids, base->result.ids, tokens * sizeof(int32_t)) != 0;
    }
    tap_result(
        status == 0 && !wrong && compared >= kind->least && went_its_way(config, &result, &info),
        "cache %s, %s: the same %u tokens (%u sequences differ; %llu computed again, %llu by way of the "
        "host, %llu tokens found)%s",
        kind->kv, config->name, compared, wrong, (unsigned long long)result.counts.recomputed,
        (unsigned long long)result.counts.swapped, (unsigned long long)result.counts.hit_tokens, err.text);
    engine_stop(e);
    for (uint32_t i = 0; i < count; i++)
        tokens_finish(&sequences[i].made);
}

/* Texts that share the blocks of their prompt are those that have blocks of their own. */
static void test_samples(struct engine *e, const struct base *base)
{
    enum { SAMPLES = 5 };
    struct sequence sequences[2][SAMPLES] = {0};
    struct batch_result result = {0};
    struct failure err = {0};
    uint32_t wrong = 0;
    int status = 0;
    for (int shared = 0; shared < 2 && status == 0; shared++) {
        const struct batch_options options = {
            .parallel = SAMPLES,
            .chunk = 16,
            .attention = {.block = 7, .threads = 2, .kv = "f32", .seed = 3}};
        for (uint32_t i = 0; i < SAMPLES; i++)
            sequences[shared][i] = (struct sequence){.prompt = base->prompt,
                                                     .most = GREEDY_TOKENS,
                                                     .sampler = {0.8, i},
                                                     .sample = shared && i > 0};
        status = batch_run(e, sequences[shared], SAMPLES, &options, &result, &err);
        engine_stop(e);
    }
    for (uint32_t i = 0; status == 0 && i < SAMPLES; i++)
        wrong += sequences[0][i].made.count != sequences[1][i].made.count ||
                 memcmp(sequences[0][i].made.ids, sequences[1][i].made.ids,
                        sequences[0][i].made.count * sizeof(int32_t)) != 0;
    tap_result(
        status == 0 && !wrong && result.counts.copied > 0 && result.prompt_tokens == base->prompt.count,
        "%d samples on shared blocks: the same texts (%u differ; %llu blocks copied, %u prompt tokens)%s",
        SAMPLES, wrong, (unsigned long long)result.counts.copied, result.prompt_tokens, err.text);
    for (uint32_t i = 0; i < 2 * SAMPLES; i++)
        tokens_finish(&sequences[i / SAMPLES][i % SAMPLES].made);
}

/* The generated model takes every configuration with every type; a real one, being slow, only the first ones.
 */
static void test_kind(struct engine *e, const struct kind *kind, bool toy)
{
    struct base bases[PROMPTS] = {0};
    struct failure err = {0};
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < PROMPTS; i++) {
        status = make_base(e, kind, &bases[i], prompts[i], &err);
        tap_note("cache %s, prompt %u: %zu tokens, %u compared", kind->kv, i + 1, bases[i].prompt.count,
                 bases[i].count);
    }
    if (status < 0)
        tap_result(false, "cache %s, alone: %s", kind->kv, err.text);
    size_t count = toy ? sizeof configs / sizeof configs[0] : kind->configs;
    for (size_t i = 0; status == 0 && i < count; i++)
        test_config(e, kind, bases, &configs[i]);
    if (status == 0 && toy && strcmp(kind->kv, "f32") == 0)
        test_samples(e, &bases[0]);
    for (uint32_t i = 0; i < PROMPTS; i++)
        tokens_finish(&bases[i].prompt);
}

int main(int argc, char **argv)
{
    static const struct kind kinds[] = {{"f16", 2e-3, 60, 6}, {"f32", 2e-3, 60, 2}, {"int8", 0.05, 30, 5}};
    struct engine e = {0};
    struct failure err = {0};
    bool absent = false;
    bool tap = argc > 1 && strcmp(argv[1], "--tap") == 0;
    const char *path = argc - tap > 1 ? argv[1 + tap] : NULL;
    bool toy = path && strcmp(path, "--toy") == 0;
    if (toy ? engine_load(&e, NULL, 1, &err) : model_open(&e, path, &absent)) {
        if (toy)
            fprintf(stderr, "%s\n", err.text);
        return absent ? tap_skip(tap, "no model file: ATTN_MODEL does not name one") : 1;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        test_kind(&e, &kinds[i], toy);
    engine_finish(&e);
    return tap_finish();
}
