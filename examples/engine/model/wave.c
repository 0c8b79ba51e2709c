/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* WAV files, and the logarithm of their mel spectrum. */
#include "wave.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- WAV files */

static uint32_t number(const uint8_t *at, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)at[i] << (8 * i);
    return value;
}

static int check_format(const char *path, const uint8_t *at, uint32_t size, struct failure *err)
{
    if (size < 16)
        return failure_set(err, "%s: the fmt chunk has %" PRIu32 " bytes; accepted are 16 and more", path,
                           size);
    const struct {
        const char *what;
        uint32_t value, accepted;
    } list[] = {{"format", number(at, 2), 1},
                {"number of channels", number(at + 2, 2), 1},
                {"sample rate", number(at + 4, 4), WAVE_RATE},
                {"bits per sample", number(at + 14, 2), 16}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].value != list[i].accepted)
            return failure_set(err, "%s: %s is %" PRIu32 "; accepted is %" PRIu32, path, list[i].what,
                               list[i].value, list[i].accepted);
    return 0;
}

static int take_samples(const char *path, const uint8_t *at, size_t size, uint32_t most, struct wave *out,
                        struct failure *err)
{
    size_t count = size / 2;
    if (count == 0 || count > most)
        return failure_set(err, "%s: the clip has %zu samples; accepted are 1 to %" PRIu32 " (%" PRIu32 " s)",
                           path, count, most, most / WAVE_RATE);
    out->samples = malloc(count * sizeof *out->samples);
    if (!out->samples)
        return failure_set(err, "%s: no memory for %zu samples", path, count);
    for (size_t i = 0; i < count; i++)
        out->samples[i] = (float)(int16_t)number(at + 2 * i, 2) / 32768.0f;
    out->count = (uint32_t)count;
    return 0;
}

int wave_parse(const char *path, const uint8_t *data, size_t size, uint32_t most, struct wave *out,
               struct failure *err)
{
    bool format = false;
    if (size < 12 || memcmp(data, "RIFF", 4) != 0 || memcmp(data + 8, "WAVE", 4) != 0)
        return failure_set(err, "%s is no WAV file; accepted are 16-bit PCM, 16000 Hz, one channel", path);
    for (size_t at = 12; size - at >= 8;) {
        const uint8_t *chunk = data + at;
        size_t bytes = number(chunk + 4, 4);
        if (bytes > size - at - 8)
            return failure_set(err, "%s: the chunk at byte %zu has %zu bytes; the file has %zu more", path,
                               at, bytes, size - at - 8);
        if (memcmp(chunk, "fmt ", 4) == 0 && !format) {
            if (check_format(path, chunk + 8, (uint32_t)bytes, err) < 0)
                return -1;
            format = true;
        }
        if (memcmp(chunk, "data", 4) == 0 && format)
            return take_samples(path, chunk + 8, bytes, most, out, err);
        at += 8 + bytes + (bytes & 1);
        if (at > size)
            break;
    }
    return failure_set(err, "%s: there is no %s chunk", path, format ? "data" : "fmt");
}

int wave_read(const char *path, uint32_t most, struct wave *out, struct failure *err)
{
    enum { HEADERS = 1 << 20 };
    size_t room = (size_t)most * 2 + HEADERS;
    *out = (struct wave){0};
    FILE *file = fopen(path, "rb");
    out->missing = !file && errno == ENOENT;
    if (!file)
        return failure_set(err, "%s: %s", path, strerror(errno));
    uint8_t *data = malloc(room);
    size_t size = data ? fread(data, 1, room, file) : 0;
    int status;
    if (!data)
        status = failure_set(err, "%s: no memory for %zu bytes", path, room);
    else if (ferror(file))
        status = failure_set(err, "%s: %s", path, strerror(errno));
    else if (size == room)
        status = failure_set(err, "%s has %zu bytes and more; accepted are clips of %" PRIu32 " s", path,
                             room, most / WAVE_RATE);
    else
        status = wave_parse(path, data, size, most, out, err);
    fclose(file);
    free(data);
    return status;
}

void wave_finish(struct wave *w)
{
    free(w->samples);
    *w = (struct wave){0};
}

uint32_t wave_frames(const struct wave *w)
{
    return (w->count + 2 * WAVE_HOP - 1) / (2 * WAVE_HOP) * 2;
}

/* ---------------------------------------------------------------- mel spectrum */

enum { BINS = WAVE_WINDOW / 2 + 1 };
static const double circle = 6.283185307179586;

struct tables {
    double window[WAVE_WINDOW];
    double cosine[WAVE_WINDOW];
    double sine[WAVE_WINDOW];
};

/* Linear below 1 kHz, logarithmic above. */
static double hertz(double mel)
{
    return mel < 15 ? mel * 200 / 3 : 1000 * exp((mel - 15) * log(6.4) / 27);
}

/* [bands, BINS]: triangles between neighbouring points that are equally far apart in mel, all of one area. */
static void make_bands(uint32_t bands, double *out)
{
    double top = 15 + 27 * log(WAVE_RATE / 2.0 / 1000) / log(6.4);
    for (uint32_t b = 0; b < bands; b++, out += BINS) {
        double left = hertz(top * b / (bands + 1));
        double peak = hertz(top * (b + 1) / (bands + 1));
        double right = hertz(top * (b + 2) / (bands + 1));
        for (uint32_t i = 0; i < BINS; i++) {
            double at = (double)i * WAVE_RATE / WAVE_WINDOW;
            double height = fmin((at - left) / (peak - left), (right - at) / (right - peak));
            out[i] = fmax(height, 0) * 2 / (right - left);
        }
    }
}

static void make_tables(struct tables *t)
{
    for (uint32_t i = 0; i < WAVE_WINDOW; i++) {
        t->cosine[i] = cos(circle * i / WAVE_WINDOW);
        t->sine[i] = sin(circle * i / WAVE_WINDOW);
        t->window[i] = 0.5 - 0.5 * t->cosine[i];
    }
}

/* A sample of the clip with silence up to "total", mirrored at both ends. */
static double sample(const struct wave *w, int64_t at, int64_t total)
{
    if (at < 0)
        at = -at;
    if (at >= total)
        at = 2 * (total - 1) - at;
    return at >= 0 && at < w->count ? (double)w->samples[at] : 0;
}

/* Power of each frequency in the window around a frame's middle. */
static void spectrum(const struct wave *w, const struct tables *t, uint32_t frame, int64_t total, double *out)
{
    double windowed[WAVE_WINDOW];
    double loud = 0;
    for (uint32_t i = 0; i < WAVE_WINDOW; i++) {
        windowed[i] = t->window[i] * sample(w, (int64_t)frame * WAVE_HOP + i - WAVE_WINDOW / 2, total);
        loud = fmax(loud, fabs(windowed[i]));
    }
    for (uint32_t k = 0; k < BINS; k++) {
        double real = 0;
        double imaginary = 0;
        for (uint32_t i = 0, turn = 0; i < WAVE_WINDOW && loud > 0; i++) {
            real += windowed[i] * t->cosine[turn];
            imaginary += windowed[i] * t->sine[turn];
            turn += k;
            turn -= turn >= WAVE_WINDOW ? WAVE_WINDOW : 0;
        }
        out[k] = real * real + imaginary * imaginary;
    }
}

int wave_log_mel(const struct wave *w, uint32_t frames, uint32_t bands, float *out, struct failure *err)
{
    int64_t total = (int64_t)frames * WAVE_HOP;
    uint64_t count = (uint64_t)frames * bands;
    double *filters = calloc((size_t)bands * BINS, sizeof *filters);
    struct tables tables;
    double power[BINS];
    float loudest = -10;
    if (!filters)
        return failure_set(err, "no memory for %u mel bands", bands);
    make_bands(bands, filters);
    make_tables(&tables);
    for (uint32_t f = 0; f < frames; f++) {
        spectrum(w, &tables, f, total, power);
        for (uint32_t b = 0; b < bands; b++) {
            double sum = 0;
            for (uint32_t i = 0; i < BINS; i++)
                sum += filters[(size_t)b * BINS + i] * power[i];
            float *to = &out[(size_t)f * bands + b];
            *to = (float)log10(fmax(sum, 1e-10));
            loudest = fmaxf(loudest, *to);
        }
    }
    for (uint64_t i = 0; i < count; i++)
        out[i] = (fmaxf(out[i], loudest - 8) + 4) / 4;
    free(filters);
    return 0;
}
