/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How far the logits of each cache type are from those of an f32 cache over the same tokens, against bounds a
 * few times what was seen. Usage: test-compare [--tap] [MODEL.gguf]; with --toy the generated model is used.
 */
#include "serve/batch.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPTS = 3, TOKENS = 24 };

static const char *const prompts[PROMPTS] = {
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time, in a small village by the sea, there lived",
    "2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40,",
};

/* Largest difference and most positions with another largest logit, of the toy and of the real model. The
 * last two types differ from the ones before in codes alone and are left to the toy. */
static const struct kind {
    const char *kv;
    double least;
    double most[2];
    uint32_t others[2];
} kinds[] = {
    {"f32", 0, {0, 0}, {0, 0}},          {"f16", 1e-5, {6e-3, 0.06}, {1, 1}},
    {"bf16", 1e-4, {0.04, 0.4}, {2, 2}}, {"int8", 1e-3, {0.1, 5}, {2, 4}},
    {"e4m3", 1e-2, {0.5, 5}, {10, 5}},   {"e5m2", 1e-2, {1, 13}, {20, 5}},
    {"e4m3fnuz", 1e-2, {0.5}, {14}},     {"e5m2fnuz", 1e-2, {1}, {20}},
};
enum { KINDS = sizeof kinds / sizeof kinds[0], REAL_KINDS = KINDS - 2 };

static void test_kind(struct engine *e, const struct kind *kind, bool toy)
{
    struct sequence sequences[PROMPTS] = {0};
    struct batch_result result = {0};
    struct failure err = {0};
    const struct comparison *c = &result.comparison;
    const struct batch_options options = {
        .parallel = 2,
        .chunk = 16,
        .attention = {.block = 16, .threads = 2, .kv = kind->kv, .seed = 1},
        .compare = true,
    };
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < PROMPTS; i++) {
        sequences[i].most = TOKENS;
        status = tokenizer_encode(e->tokenizer, prompts[i], strlen(prompts[i]), &sequences[i].prompt, &err);
    }
    if (status == 0)
        status = batch_run(e, sequences, PROMPTS, &options, &result, &err);
    uint32_t expected = 0;
    for (uint32_t i = 0; i < PROMPTS; i++)
        expected += (uint32_t)sequences[i].made.count + (sequences[i].end == END_TEXT);
    tap_result(status == 0 && c->largest >= kind->least && c->largest <= kind->most[!toy],
               "cache %s: logits within %g of those of f32 (%.3g at sequence %u, position %u, token %d)%s",
               kind->kv, kind->most[!toy], c->largest, c->sequence + 1, c->position, c->token, err.text);
    tap_result(status == 0 && c->positions == expected && expected > PROMPTS &&
                   c->others <= kind->others[!toy],
               "cache %s: at most %u choices differ (%u of %u)", kind->kv, kind->others[!toy], c->others,
               c->positions);
    engine_stop(e);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        tokens_finish(&sequences[i].prompt);
        tokens_finish(&sequences[i].made);
    }
}

int main(int argc, char **argv)
{
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
    for (size_t i = 0; i < (toy ? KINDS : REAL_KINDS); i++)
        test_kind(&e, &kinds[i], toy);
    engine_finish(&e);
    return tap_finish();
}
