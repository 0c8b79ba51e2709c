/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * An encoder-decoder model through libattn: spectrum, encoder, scores and tokens of another runtime, and the
 * same tokens for a clip whatever it runs beside. Usage: test-speech [--tap] REFERENCE.json [MODEL.gguf]
 */
#include "serve/speech.h"
#include "tap.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLIPS = 8 };
static const double tolerance = 1e-3;

static const char *const backends[] = {"cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};

struct set {
    struct speech speech;
    const json_t *ids; /* of the scores that were recorded besides the largest */
    const json_t *recorded;
    uint32_t count;
    struct clip clips[MOST_CLIPS];
    float *mels[MOST_CLIPS];
};

/* What the steps of one clip were compared to. */
struct watch {
    const struct set *set;
    const json_t *clip;
    size_t step;
    double encoded;
    double logit;
};

static double far(double largest, double a, double b)
{
    return fabs(a - b) <= largest ? largest : fabs(a - b); /* NaN does not pass as a small difference */
}

/* Values at recorded places. */
static double compare_values(const json_t *values, const float *own, size_t count)
{
    double largest = json_array_size(values) ? 0 : INFINITY;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *pair = json_array_get(values, i);
        size_t at = (size_t)json_integer_value(json_array_get(pair, 0));
        largest =
            at < count ? far(largest, (double)own[at], json_number_value(json_array_get(pair, 1))) : INFINITY;
    }
    return largest;
}

static void on_step(void *user, uint32_t clip, const float *logits)
{
    struct watch *w = user;
    const struct whisper_shape *m = &w->set->speech.model.shape;
    const json_t *step = json_array_get(json_object_get(w->clip, "steps"), w->step);
    const json_t *top = json_object_get(step, "top");
    const json_t *sample = json_object_get(step, "sample");
    (void)clip;
    if (w->step == 0)
        w->encoded = compare_values(json_object_get(w->clip, "encoded"),
                                    whisper_forward_encoded(w->set->speech.forward),
                                    (size_t)json_integer_value(json_object_get(w->clip, "rows")) * m->width);
    if (step)
        w->logit = compare_values(top, logits, m->vocab) > w->logit ? compare_values(top, logits, m->vocab)
                                                                    : w->logit;
    for (size_t i = 0; step && i < json_array_size(sample); i++)
        w->logit = far(w->logit, (double)logits[json_integer_value(json_array_get(w->set->ids, i))],
                       json_number_value(json_array_get(sample, i)));
    w->step++;
}

static bool same_tokens(const struct clip *clip, const json_t *recorded)
{
    const json_t *tokens = json_object_get(recorded, "tokens");
    bool same = clip->made.count == json_array_size(tokens);
    for (size_t i = 0; same && i < clip->made.count; i++)
        same = clip->made.ids[i] == json_integer_value(json_array_get(tokens, i));
    return same && (!json_is_true(json_object_get(recorded, "ended")) || clip->ended);
}

/* Puts a clip back to its beginning. */
static struct clip fresh(const struct set *s, uint32_t index)
{
    const json_t *recorded = json_array_get(s->recorded, index);
    bool ended = json_is_true(json_object_get(recorded, "ended"));
    size_t tokens = json_array_size(json_object_get(recorded, "tokens"));
    return (struct clip){.mel = s->mels[index],
                         .rows = (uint32_t)json_integer_value(json_object_get(recorded, "rows")),
                         .most = (uint32_t)(ended ? tokens + 8 : tokens)};
}

static int start(struct set *s, uint32_t batch_slots, const char *backend, const char *kv,
                 struct failure *err)
{
    struct encoding_options options = {
        .block = 16, .max_seqs = batch_slots, .threads = 1, .backend = backend, .kv = kv, .seed = 1};
    for (uint32_t i = 0; i < s->count; i++)
        options.max_encoder = fresh(s, i).rows > options.max_encoder ? fresh(s, i).rows : options.max_encoder;
    return speech_start(&s->speech, &options, err);
}

/* Each of the first clips by itself, with every score looked at. */
static void test_alone(struct set *s, uint32_t count, const char *backend)
{
    struct failure err = {0};
    bool ran = start(s, 1, backend, "f32", &err) == 0;
    for (uint32_t i = 0; ran && i < count; i++) {
        const json_t *recorded = json_array_get(s->recorded, i);
        const char *name = json_string_value(json_object_get(recorded, "file"));
        struct watch watch = {.set = s, .clip = recorded};
        struct clip clip = fresh(s, i);
        ran = speech_run(&s->speech, &clip, 1, on_step, &watch, &err) == 0;
        tap_result(ran && watch.encoded <= tolerance, "%s: %s, %u rows: the encoder within %g (%.2g)",
                   backend, name, clip.rows, tolerance, watch.encoded);
        tap_result(ran && watch.logit <= tolerance, "%s: %s, %u rows: scores of %zu steps within %g (%.2g)",
                   backend, name, clip.rows, watch.step, tolerance, watch.logit);
        tap_result(ran && same_tokens(&clip, recorded), "%s: %s, %u rows: the same %zu tokens", backend, name,
                   clip.rows, clip.made.count);
        tokens_finish(&clip.made);
    }
    if (err.text[0])
        tap_note("%s", err.text);
    tap_result(ran, "%s: every clip ran", backend);
    speech_stop(&s->speech);
}

/* Clips with so many batch slots, from the first on or from the last; tokens must not change. */
static void test_together(struct set *s, uint32_t batch_slots, bool backwards, const char *backend,
                          const char *kv)
{
    struct failure err = {0};
    struct clip clips[MOST_CLIPS];
    uint32_t others = 0;
    bool ran = start(s, batch_slots, backend, kv, &err) == 0;
    for (uint32_t i = 0; i < s->count; i++)
        clips[i] = fresh(s, backwards ? s->count - 1 - i : i);
    ran = ran && speech_run(&s->speech, clips, s->count, NULL, NULL, &err) == 0;
    for (uint32_t i = 0; i < s->count; i++) {
        others += !same_tokens(&clips[i], json_array_get(s->recorded, backwards ? s->count - 1 - i : i));
        tokens_finish(&clips[i].made);
    }
    if (err.text[0])
        tap_note("%s", err.text);
    tap_result(ran && others == 0, "%s, %s cache: %u clips, %u at once%s: the same tokens (%u others)",
               backend, kv, s->count, batch_slots, backwards ? ", from the last on" : "", others);
    speech_stop(&s->speech);
}

static bool load_clips(struct set *s, const char *directory)
{
    const struct whisper_shape *m = &s->speech.model.shape;
    for (; s->count < json_array_size(s->recorded); s->count++) {
        const json_t *recorded = json_array_get(s->recorded, s->count);
        const char *name = json_string_value(json_object_get(recorded, "file"));
        uint32_t frames = 2 * (uint32_t)json_integer_value(json_object_get(recorded, "rows"));
        struct wave wave;
        struct failure err = {0};
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", directory, name);
        float *mel = calloc((size_t)frames * m->bands, sizeof *mel);
        s->mels[s->count] = mel;
        bool made = mel && wave_read(path, 2 * m->encoder_rows * WAVE_HOP, &wave, &err) == 0;
        made = made && wave_log_mel(&wave, frames, m->bands, mel, &err) == 0;
        double largest =
            made ? compare_values(json_object_get(recorded, "mel"), mel, (size_t)frames * m->bands)
                 : INFINITY;
        tap_result(made && frames >= wave_frames(&wave) && largest <= 1e-5,
                   "%s, %u frames: the spectrum within 1e-5 (%.2g) %s", name, frames, largest, err.text);
        if (!made)
            return false;
        wave_finish(&wave);
    }
    return true;
}

static int test(const char *path, const char *model)
{
    struct set s = {0};
    struct failure err = {0};
    char directory[900];
    json_t *json = json_load_file(path, 0, NULL);
    s.ids = json_object_get(json, "sample_ids");
    s.recorded = json_object_get(json, "clips");
    bool good = json_array_size(s.recorded) > 0 && json_array_size(s.recorded) <= MOST_CLIPS;
    tap_result(good, "%s holds clips", path);
    snprintf(directory, sizeof directory, "%.*s", (int)strlen(path) - (int)strlen(".json"), path);
    bool loaded = speech_load(&s.speech, model, &err) == 0;
    tap_result(loaded, "the model loads %s", err.text);
    if (good && loaded && load_clips(&s, directory)) {
        for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
            test_alone(&s, i == 0 ? s.count : s.count - 1, backends[i]);
        test_together(&s, s.count, false, backends[0], "f32");
        s.count--; /* the last clip is the longest */
        test_together(&s, 2, false, backends[0], "f32");
        test_together(&s, 2, true, backends[1], "f16");
        test_together(&s, 3, true, backends[2], "f32");
    }
    for (uint32_t i = 0; i < MOST_CLIPS; i++)
        free(s.mels[i]);
    speech_finish(&s.speech);
    json_decref(json);
    return tap_finish();
}

int main(int argc, char **argv)
{
    bool tap = argc > 1 && strcmp(argv[1], "--tap") == 0;
    const char *model = argc - tap > 2 ? argv[2 + tap] : getenv("ATTN_SPEECH_MODEL");
    if (argc - tap < 2) {
        fprintf(stderr, "usage: test-speech [--tap] REFERENCE.json [MODEL.gguf]\n");
        return 2;
    }
    if (!model || !model[0])
        return tap_skip(tap, "no model file: ATTN_SPEECH_MODEL does not name one");
    return test(argv[1 + tap], model);
}
