/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Prompts in one batch give the tokens that each gives alone, in any order, for any number at once, block,
 * chunk and number of threads. Usage: test-batch [--tap] [MODEL.gguf]; with --toy the generated model is
 * used.
 */
#include "batch.h"
#include "greedy.h"
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
};

static const struct config configs[] = {
    {"all at once", NULL, PROMPTS, 16, 256, 2, false},
    {"reversed", NULL, PROMPTS, 16, 256, 2, true},
    {"two at once", NULL, 2, 16, 256, 2, false},
    {"three at once, reversed, block 1, chunk 7", NULL, 3, 1, 7, 2, true},
    {"three at once, block 33, chunk 1", NULL, 3, 33, 1, 2, false},
    {"four at once, chunk 64, one thread", NULL, 4, 16, 64, 1, false},
    {"one at once", NULL, 1, 16, 256, 2, false},
    {"cpu/flashinfer, two at once, reversed, chunk 7", "cpu/flashinfer", 2, 16, 7, 2, true},
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
    const struct greedy_config config = {"base", NULL, NULL, kind->kv, 16, 0, 2};
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

static void test_config(struct engine *e, const struct kind *kind, const struct base *bases,
                        const struct config *config)
{
    struct sequence sequences[PROMPTS] = {0};
    struct batch_result result = {0};
    struct failure err = {0};
    uint32_t compared = 0;
    uint32_t wrong = 0;
    const struct batch_options options = {
        .parallel = config->parallel,
        .chunk = config->chunk,
        .attention = {.block = config->block,
                      .threads = config->threads,
                      .kv = kind->kv,
                      .backend = config->backend,
                      .seed = config->parallel},
    };
    for (uint32_t i = 0; i < PROMPTS; i++) {
        sequences[i].prompt = bases[place(config, i)].prompt;
        /* Ends at different steps, so that others come in between. */
        sequences[i].most = GREEDY_TOKENS - place(config, i) % 3;
    }
    int status = batch_run(e, sequences, PROMPTS, &options, &result, &err);
    for (uint32_t i = 0; status == 0 && i < PROMPTS; i++) {
        const struct base *base = &bases[place(config, i)];
        uint32_t count = base->count < sequences[i].most ? base->count : sequences[i].most;
        compared += count;
        wrong += sequences[i].made.count < count ||
                 memcmp(sequences[i].made.ids, base->result.ids, count * sizeof(int32_t)) != 0;
    }
    tap_result(status == 0 && !wrong && compared >= kind->least && result.most_at_once == config->parallel,
               "cache %s, %s: the same %u tokens (%u sequences differ)%s", kind->kv, config->name, compared,
               wrong, err.text);
    engine_stop(e);
    for (uint32_t i = 0; i < PROMPTS; i++)
        tokens_finish(&sequences[i].made);
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
    for (uint32_t i = 0; i < PROMPTS; i++)
        tokens_finish(&bases[i].prompt);
}

int main(int argc, char **argv)
{
    static const struct kind kinds[] = {{"f16", 2e-3, 60, 8}, {"f32", 2e-3, 60, 1}, {"int8", 0.05, 30, 3}};
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
