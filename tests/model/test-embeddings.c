/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * An encoder through libattn: the tokens and embeddings of another runtime, and the same bits for a text
 * whatever it is batched with. Usage: test-embeddings [--tap] --small | REFERENCE.json [MODEL.gguf]
 */
#include "serve/embed.h"
#include "small-bert.h"
#include "tap.h"

#ifdef ATTN_HAVE_JANSSON
#include <jansson.h>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXTS = 16 };
static const double tolerance = 1e-3;
static const double least_cosine = 0.99999;

static const char *const backends[] = {"cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};

struct set {
    uint32_t count;
    uint32_t width;
    struct tokens texts[MOST_TEXTS];
    float *alone; /* an embedding per text, as it is by itself */
};

static int start(struct embedder *e, const struct set *s, const char *backend, struct failure *err)
{
    struct encoding_options options = {.block = 16,
                                       .max_seqs = s->count,
                                       .threads = s->width == SMALL_BERT_WIDTH ? 0 : 1,
                                       .backend = backend,
                                       .seed = 1};
    for (uint32_t i = 0; i < s->count; i++)
        options.max_batch_tokens += (uint32_t)s->texts[i].count;
    return embedder_start(e, &options, err);
}

static int run_alone(struct embedder *e, struct set *s, struct failure *err)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (embedder_run(e, &s->texts[i], 1, s->alone + (size_t)i * s->width, err) < 0)
            return -1;
    return 0;
}

/* Texts first, first + step, … as one batch; how many embeddings are not the same bit for bit. */
static uint32_t count_others(struct embedder *e, const struct set *s, uint32_t first, uint32_t step,
                             struct failure *err)
{
    struct tokens list[MOST_TEXTS];
    uint32_t from[MOST_TEXTS];
    uint32_t count = 0;
    uint32_t others = 0;
    for (uint32_t i = 0; i < s->count; i++, count++) {
        from[count] = (first + i * step) % s->count;
        list[count] = s->texts[from[count]];
        if (i && from[count] == first)
            break;
    }
    float *out = calloc((size_t)count * s->width, sizeof *out);
    if (!out || embedder_run(e, list, count, out, err) < 0)
        others = count;
    for (uint32_t i = 0; out && i < count; i++)
        others += memcmp(out + (size_t)i * s->width, s->alone + (size_t)from[i] * s->width,
                         s->width * sizeof *out) != 0;
    free(out);
    return others;
}

/* A model that takes its time is mixed in one way alone. */
static void test_mixes(struct embedder *e, const struct set *s, const char *backend)
{
    static const struct {
        uint32_t first, step;
        const char *how;
    } mixes[] = {{3, 7, "all in another order"}, {0, 1, "all in order"}, {1, 2, "some of them"}};
    size_t count = s->width == SMALL_BERT_WIDTH ? sizeof mixes / sizeof mixes[0] : 1;
    for (size_t i = 0; i < count; i++) {
        struct failure err = {0};
        uint32_t others = count_others(e, s, mixes[i].first, mixes[i].step, &err);
        if (err.text[0])
            tap_note("%s", err.text);
        tap_result(others == 0, "%s: %s as one batch, the same bits for each text (%u others)", backend,
                   mixes[i].how, others);
    }
}

/* All backends; compare is called with the embeddings of each. */
static void test_backends(struct embedder *e, struct set *s,
                          void (*compare)(const struct set *, const void *), const void *reference)
{
    s->alone = calloc((size_t)s->count * s->width, sizeof *s->alone);
    for (size_t i = 0; s->alone && i < sizeof backends / sizeof backends[0]; i++) {
        struct failure err = {0};
        struct encoding_info info = {0};
        bool ran = start(e, s, backends[i], &err) == 0 && run_alone(e, s, &err) == 0;
        if (err.text[0])
            tap_note("%s", err.text);
        if (e->attention)
            encoding_get_info(e->attention, &info);
        tap_result(ran && info.kernels[0] && strcmp(info.backend, backends[i]) == 0,
                   "%s: every text by itself", backends[i]);
        if (ran && compare)
            compare(s, reference);
        if (ran)
            test_mixes(e, s, backends[i]);
        embedder_stop(e);
    }
    free(s->alone);
}

/* ---------------------------------------------------------------- the small model */

static void test_lengths(const struct set *s, const void *reference)
{
    uint32_t bad = 0;
    (void)reference;
    for (uint32_t i = 0; i < s->count; i++) {
        double squares = 0;
        for (uint32_t k = 0; k < s->width; k++)
            squares +=
                (double)s->alone[(size_t)i * s->width + k] * (double)s->alone[(size_t)i * s->width + k];
        bad += !(fabs(squares - 1) < 1e-5);
    }
    tap_result(bad == 0, "all embeddings have length 1 (%u others)", bad);
}

static int test_small(void)
{
    static const char *const texts[] = {
        "a",       "unable",          "the quick brown fox jumps over a dog.",
        "",        "sixteen letters", "z z z z z z z z z z z z z z z z z z z z z z z z z z",
        "un un un"};
    struct embedder e;
    struct set s = {.count = sizeof texts / sizeof texts[0]};
    struct failure err = {0};
    size_t size;
    uint8_t *data = small_bert_build(&(struct small_bert){0}, &size);
    bool loaded = data && embedder_load_memory(&e, "small", data, size, &err) == 0;
    tap_result(loaded, "the small encoder loads %s", err.text);
    for (uint32_t i = 0; loaded && i < s.count; i++)
        loaded = embedder_encode(&e, texts[i], &s.texts[i], &err) == 0;
    if (loaded) {
        s.width = e.model.shape.width;
        test_backends(&e, &s, test_lengths, NULL);
        struct tokens bad = {.ids = (int32_t[]){2, 60, 3}, .count = 3};
        float out[SMALL_BERT_WIDTH];
        tap_result(start(&e, &s, NULL, &err) == 0 && embedder_run(&e, &bad, 1, out, &err) < 0 &&
                       strstr(err.text, "token 1 is 60; accepted are 0 to 59"),
                   "a token that the model does not have is refused");
    }
    for (uint32_t i = 0; i < s.count; i++)
        tokens_finish(&s.texts[i]);
    embedder_finish(&e);
    free(data);
    return tap_finish();
}

/* ---------------------------------------------------------------- the real one */

#ifdef ATTN_HAVE_JANSSON

static void compare_recorded(const struct set *s, const void *reference)
{
    const json_t *texts = reference;
    for (uint32_t i = 0; i < s->count; i++) {
        const json_t *text = json_array_get(texts, i);
        const json_t *recorded = json_object_get(text, "embedding");
        double largest = 0, dot = 0, own = 0, theirs = 0;
        for (uint32_t k = 0; k < s->width; k++) {
            double a = (double)s->alone[(size_t)i * s->width + k];
            double b = json_number_value(json_array_get(recorded, k));
            largest = !(fabs(a - b) <= largest) ? fabs(a - b) : largest;
            dot += a * b;
            own += a * a;
            theirs += b * b;
        }
        double cosine = dot / sqrt(own * theirs);
        tap_result(json_array_size(recorded) == s->width && largest <= tolerance && cosine > least_cosine,
                   "%s: within %g (largest difference %.2g, 1 - cosine %.2g)",
                   json_string_value(json_object_get(text, "name")), tolerance, largest, 1 - cosine);
    }
}

static bool encode_recorded(const struct embedder *e, const json_t *text, struct tokens *out)
{
    const json_t *ids = json_object_get(text, "tokens");
    struct failure err = {0};
    bool same = embedder_encode(e, json_string_value(json_object_get(text, "text")), out, &err) == 0 &&
                json_array_size(ids) == out->count;
    for (size_t i = 0; same && i < out->count; i++)
        same = json_integer_value(json_array_get(ids, i)) == out->ids[i];
    if (err.text[0])
        tap_note("%s", err.text);
    tap_result(same, "%s: the same %zu tokens", json_string_value(json_object_get(text, "name")),
               json_array_size(ids));
    return out->count > 0;
}

static int test_recorded(bool tap, const char *path, const char *model)
{
    struct embedder e;
    struct set s = {0};
    struct failure err = {0};
    json_t *json = json_load_file(path, 0, NULL);
    const json_t *texts = json_object_get(json, "texts");
    if (!model)
        model = getenv("ATTN_ENCODER_MODEL");
    if (!model || !model[0]) {
        json_decref(json);
        return tap_skip(tap, "no model file: ATTN_ENCODER_MODEL does not name one");
    }
    bool good = json_array_size(texts) > 0 && json_array_size(texts) <= MOST_TEXTS;
    tap_result(good, "%s holds texts", path);
    if (good && embedder_load(&e, model, &err) == 0) {
        s.width = e.model.shape.width;
        for (; s.count < json_array_size(texts); s.count++)
            good = encode_recorded(&e, json_array_get(texts, s.count), &s.texts[s.count]) && good;
        if (good)
            test_backends(&e, &s, compare_recorded, texts);
    }
    tap_result(!err.text[0], "the model loads %s", err.text);
    for (uint32_t i = 0; i < s.count; i++)
        tokens_finish(&s.texts[i]);
    embedder_finish(&e);
    json_decref(json);
    return tap_finish();
}

#else

static int test_recorded(bool tap, const char *path, const char *model)
{
    (void)path;
    (void)model;
    return tap_skip(tap, "recorded embeddings need a build with jansson");
}

#endif

int main(int argc, char **argv)
{
    bool tap = argc > 1 && strcmp(argv[1], "--tap") == 0;
    if (argc - tap < 2) {
        fprintf(stderr, "usage: test-embeddings [--tap] --small | REFERENCE.json [MODEL.gguf]\n");
        return 2;
    }
    if (strcmp(argv[1 + tap], "--small") == 0)
        return test_small();
    return test_recorded(tap, argv[1 + tap], argc - tap > 2 ? argv[2 + tap] : NULL);
}
