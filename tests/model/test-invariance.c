/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The same greedy tokens whatever the block size, chunk, threads, backend flavour or kernel level. Usage:
 * test-invariance [--tap] [MODEL.gguf]; with --toy in place of a model the generated one is used.
 */
#include "greedy.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Choices closer than this may fall either way by rounding alone: a run is compared up to the first of them.
 */
static const double undecided = 2e-3;
enum { LEAST_COMPARED = 8 };

/* The second one is longer than the largest chunk. */
static const char *const prompts[] = {
    "<|im_start|>user\nName the four seasons of the year and say one thing about each of them.<|im_end|>\n"
    "<|im_start|>assistant\n",
    "#include <stdio.h>\n\n/* Returns the square of a number. */\nstatic int square(int number)\n{\n"
    "    return number * number;\n}\n\n/* Prints the first ten square numbers, one on each line. */\n"
    "int main(void)\n{\n    for (int i = 1; i <= 10; i++)\n",
};

static const struct greedy_config configs[] = {
    {"block 1", NULL, NULL, "f16", 1, 0, 2, NULL},
    {"block 33", NULL, NULL, "f16", 33, 0, 2, NULL},
    {"block 64", NULL, NULL, "f16", 64, 0, 2, NULL},
    {"chunk 1", NULL, NULL, "f16", 16, 1, 2, NULL},
    {"chunk 7", NULL, NULL, "f16", 16, 7, 2, NULL},
    {"chunk 64", NULL, NULL, "f16", 16, 64, 2, NULL},
    {"one thread", NULL, NULL, "f16", 16, 0, 1, NULL},
    {"cpu/flash-attn", "cpu/flash-attn", NULL, "f16", 16, 0, 2, NULL},
    {"cpu/flashinfer", "cpu/flashinfer", NULL, "f16", 16, 0, 2, NULL},
    {"cpu/flashinfer, block 33, chunk 7, one thread", "cpu/flashinfer", NULL, "f16", 33, 7, 1, NULL},
    {"without AVX2 and NEON", NULL, "ATTN_CPU_FLAGS=-avx2,-neon", "f16", 16, 0, 2, NULL},
    {"plain C", NULL, "ATTN_CPU_FLAGS=none", "f16", 16, 0, 2, NULL},
    {"plain C, cpu/flashinfer, block 1, chunk 7", "cpu/flashinfer", "ATTN_CPU_FLAGS=none", "f16", 1, 7, 1,
     NULL},
};

static uint32_t agreed(const struct greedy_result *a, const struct greedy_result *b, bool *out_same)
{
    for (uint32_t i = 0; i < GREEDY_TOKENS; i++) {
        *out_same = a->margins[i] < undecided || a->ids[i] == b->ids[i];
        if (!*out_same || a->margins[i] < undecided)
            return i;
    }
    return GREEDY_TOKENS;
}

/* What was asked for must be what ran: the backend by name, plain C by the absence of instruction sets. */
static bool honoured(const struct greedy_config *config, const struct greedy_result *result)
{
    if (config->backend && strcmp(config->backend, result->backend) != 0)
        return false;
    return !config->variable || strcmp(config->variable, "ATTN_CPU_FLAGS=none") != 0 ||
           (!strstr(result->kernels, "avx") && !strstr(result->kernels, "sve") &&
            !strstr(result->kernels, "neon"));
}

static void test_config(struct engine *e, const struct tokens *prompt, const struct greedy_result *base,
                        int number, const struct greedy_config *config)
{
    struct greedy_result result;
    struct failure err = {0};
    bool same = false;
    uint32_t count = 0;
    if (greedy_run(e, prompt, config, &result, &err) < 0)
        tap_note("%s", err.text);
    else
        count = agreed(base, &result, &same);
    tap_result(same && count >= LEAST_COMPARED && honoured(config, &result),
               "prompt %d, %s, cache %s: the same %u tokens (%s, %s)", number, config->name, config->kv,
               count, result.backend, result.kernels);
}

static void print_text(const struct engine *e, const struct greedy_result *result)
{
    char text[1024];
    size_t size = 0;
    for (int i = 0; i < GREEDY_TOKENS && size < sizeof text; i++)
        size += tokenizer_decode(e->tokenizer, result->ids[i], text + size, sizeof text - size);
    size = size < sizeof text ? size : sizeof text;
    for (size_t i = 0; i < size; i++)
        if (text[i] == '\n')
            text[i] = ' ';
    tap_note("base: %.*s", (int)size, text);
}

/* All configurations with the f16 cache against one base, then the wider and the other 16-bit type in three.
 */
static void test_prompt(struct engine *e, int number, const char *text)
{
    static const char *const types[] = {"f16", "f32", "bf16"};
    struct tokens prompt = {0};
    struct failure err = {0};
    if (tokenizer_encode(e->tokenizer, text, strlen(text), &prompt, &err) < 0)
        tap_result(false, "prompt %d: %s", number, err.text);
    for (int t = 0; t < 3 && prompt.count; t++) {
        struct greedy_config config = {"base", NULL, NULL, types[t], 16, 0, 2, NULL};
        struct greedy_result base;
        if (greedy_run(e, &prompt, &config, &base, &err) < 0) {
            tap_result(false, "prompt %d, base, cache %s: %s", number, types[t], err.text);
            continue;
        }
        tap_note("prompt %d, cache %s: %zu tokens, %s, %s", number, types[t], prompt.count, base.backend,
                 base.kernels);
        print_text(e, &base);
        for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
            config = configs[i];
            config.kv = types[t];
            if (t == 0 || i == 1 || i == 9 || i == 11)
                test_config(e, &prompt, &base, number, &config);
        }
    }
    tokens_finish(&prompt);
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
    for (int i = 0; i < (int)(sizeof prompts / sizeof prompts[0]); i++)
        test_prompt(&e, i + 1, prompts[i]);
    engine_finish(&e);
    return tap_finish();
}
