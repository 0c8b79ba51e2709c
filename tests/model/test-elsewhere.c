/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What a backend with a memory of its own answers against the CPU's, on small generated models: every type of
 * cache, texts on shared blocks, speech. Usage: test-elsewhere [--tap] BACKEND
 */
#include "fake-watch.h"
#include "greedy.h"
#include "rng.h"
#include "serve/batch.h"
#include "serve/speech.h"
#include "small-whisper.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char here[] = "cpu/flash-attn";

static bool is_same(const struct tokens *a, const struct tokens *b)
{
    return a->count > 0 && a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof(int32_t)) == 0;
}

/* ---------------------------------------------------------------- types of caches */

/*
 * Up to the first choice that rounding could decide: codes of 8 bits move logits by more. Chunks are the
 * same, so that the products that codes are made of are, too.
 */
static void test_type(struct engine *e, const struct tokens *prompt, const char *q, const char *kv,
                      const char *backend)
{
    static const double undecided[] = {1e-2, 2e-3};
    const double least =
        undecided[strcmp(q, "f32") == 0 && (strcmp(kv, "f32") == 0 || strstr(kv, "16") != NULL)];
    const struct greedy_config configs[] = {{"here", here, NULL, kv, 16, 0, 1, q},
                                            {"elsewhere", backend, NULL, kv, 5, 0, 1, q}};
    struct greedy_result results[2];
    struct failure err = {0};
    uint32_t count = 0;
    bool ran = true;
    for (int i = 0; i < 2 && ran; i++)
        ran = greedy_run(e, prompt, &configs[i], &results[i], &err) == 0 &&
              strcmp(results[i].backend, configs[i].backend) == 0;
    while (ran && count < GREEDY_TOKENS && results[0].margins[count] >= least &&
           results[0].ids[count] == results[1].ids[count])
        count++;
    tap_result(ran && count >= 6 && (count == GREEDY_TOKENS || results[0].margins[count] < least),
               "%s, %s and %s cache: the %u tokens of the CPU (%s)%s", backend, q, kv, count,
               ran ? results[1].kernels : "", err.text);
}

/* ---------------------------------------------------------------- shared blocks */

/* Texts that share the blocks of their prompt, and copy those that they write to. */
static void test_shared(struct engine *e, const struct tokens *prompt, const char *backend)
{
    enum { SAMPLES = 3 };
    const char *const backends[] = {here, backend};
    struct sequence made[2][SAMPLES] = {0};
    struct batch_result result = {0};
    struct failure err = {0};
    uint32_t others = 0;
    bool ran = true;
    for (int b = 0; b < 2 && ran; b++) {
        const struct batch_options options = {
            .parallel = SAMPLES,
            .chunk = 16,
            .attention = {.block = 7, .threads = 1, .kv = "f32", .backend = backends[b], .seed = 3}};
        for (uint32_t i = 0; i < SAMPLES; i++)
            made[b][i] = (struct sequence){
                .prompt = *prompt, .most = GREEDY_TOKENS, .sampler = {0.8, i}, .sample = i > 0};
        ran = batch_run(e, made[b], SAMPLES, &options, &result, &err) == 0;
        engine_stop(e);
    }
    for (uint32_t i = 0; i < SAMPLES; i++)
        others += !is_same(&made[0][i].made, &made[1][i].made);
    tap_result(ran && others == 0 && result.counts.copied > 0,
               "%s, %d texts on shared blocks: those of the CPU (%u others, %llu blocks copied)%s", backend,
               SAMPLES, others, (unsigned long long)result.counts.copied, err.text);
    for (uint32_t i = 0; i < 2 * SAMPLES; i++)
        tokens_finish(&made[i / SAMPLES][i % SAMPLES].made);
}

static void test_language(const char *backend)
{
    static const char text[] = "Once upon a time, in a small village by the sea, there lived";
    static const char *const types[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"};
    struct engine e = {0};
    struct tokens prompt = {0};
    struct failure err = {0};
    bool loaded = engine_load(&e, NULL, 1, &err) == 0 &&
                  tokenizer_encode(e.tokenizer, text, strlen(text), &prompt, &err) == 0;
    tap_result(loaded, "the generated model loads%s", err.text);
    for (size_t i = 0; loaded && i < sizeof types / sizeof types[0]; i++)
        test_type(&e, &prompt, "f32", types[i], backend);
    if (loaded) {
        test_type(&e, &prompt, "f16", "f16", backend);
        test_type(&e, &prompt, "f16", "e4m3", backend);
        test_type(&e, &prompt, "bf16", "bf16", backend);
    }
    if (loaded)
        test_shared(&e, &prompt, backend);
    tokens_finish(&prompt);
    engine_finish(&e);
}

/* ---------------------------------------------------------------- speech */

enum { CLIPS = 4, BATCH_SLOTS = 3, TOKENS = 16 };

struct clips {
    float mel[CLIPS][2 * SMALL_WHISPER_ROWS * SMALL_WHISPER_BANDS];
    struct clip list[2][CLIPS];
};

static bool transcribe(struct speech *s, struct clips *clips, int place, const char *backend, const char *kv,
                       struct failure *err)
{
    static const uint32_t rows[CLIPS] = {16, 5, 70, 33};
    const struct encoding_options options = {.block = 16,
                                             .max_seqs = BATCH_SLOTS,
                                             .max_encoder = SMALL_WHISPER_ROWS,
                                             .backend = backend,
                                             .kv = kv,
                                             .seed = 5};
    for (uint32_t i = 0; i < CLIPS; i++)
        clips->list[place][i] = (struct clip){.mel = clips->mel[i], .rows = rows[i], .most = TOKENS - 2 * i};
    bool ran =
        speech_start(s, &options, err) == 0 && speech_run(s, clips->list[place], CLIPS, NULL, NULL, err) == 0;
    speech_stop(s);
    return ran;
}

static void test_speech(const char *backend, const char *kv)
{
    static struct clips clips;
    struct speech s = {0};
    struct failure err = {0};
    size_t size;
    uint64_t seed = 6;
    uint32_t others = 0;
    uint8_t *data = small_whisper_build(&(struct small_whisper){0}, &size);
    memset(&clips, 0, sizeof clips);
    for (uint32_t i = 0; i < CLIPS; i++)
        for (size_t k = 0; k < sizeof clips.mel[i] / sizeof clips.mel[i][0]; k++)
            clips.mel[i][k] = (float)(rng_next(&seed) >> 40) * 0x1p-22f - 2;
    bool ran = data && speech_load_memory(&s, "small", data, size, &err) == 0 &&
               transcribe(&s, &clips, 0, here, kv, &err) && transcribe(&s, &clips, 1, backend, kv, &err);
    for (uint32_t i = 0; i < CLIPS; i++)
        others += !is_same(&clips.list[0][i].made, &clips.list[1][i].made);
    tap_result(ran && others == 0, "%s, speech, %s cache, %d at once: the texts of the CPU (%u others)%s",
               backend, kv, BATCH_SLOTS, others, err.text);
    for (uint32_t i = 0; i < 2 * CLIPS; i++)
        tokens_finish(&clips.list[i / CLIPS][i % CLIPS].made);
    speech_finish(&s);
    free(data);
}

int main(int argc, char **argv)
{
    struct fake_watch watch;
    if (argc < 2) {
        fprintf(stderr, "usage: test-elsewhere [--tap] BACKEND\n");
        return 2;
    }
    const char *backend = argv[argc - 1];
    fake_watch_begin(&watch);
    test_language(backend);
    test_speech(backend, "f32");
    test_speech(backend, "f16");
    fake_watch_end(&watch);
    return tap_finish();
}
