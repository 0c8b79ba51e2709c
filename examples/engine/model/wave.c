/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sound files, and the logarithm of their mel spectrum. */
#include "wave.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef ATTN_HAVE_SNDFILE
#include <sndfile.h>
#endif

/* ---------------------------------------------------------------- sound files */

#ifdef ATTN_HAVE_SNDFILE
static int take_samples(const char *path, SNDFILE *file, const SF_INFO *info, uint32_t most, struct wave *out,
                        struct failure *err)
{
    if (info->samplerate != WAVE_RATE || info->channels != 1)
        return failure_set(err, "%s: %d Hz, %d channels; accepted are %d Hz and one channel", path,
                           info->samplerate, info->channels, WAVE_RATE);
    float *samples = malloc(((size_t)most + 1) * sizeof *samples);
    if (!samples)
        return failure_set(err, "%s: no memory for %" PRIu32 " samples", path, most);
    out->samples = samples;
    sf_count_t count = sf_readf_float(file, samples, (sf_count_t)most + 1);
    if (count < 1 || count > most)
        return failure_set(err, "%s: the clip has %s; accepted are 1 to %" PRIu32 " samples (%" PRIu32 " s)",
                           path, count < 1 ? "no samples" : "more", most, most / WAVE_RATE);
    for (sf_count_t i = 0; i < count; i++)
        if (!isfinite(samples[i]))
            return failure_set(err, "%s: sample %" PRIi64 " is %f; accepted are finite ones", path,
                               (int64_t)i, (double)samples[i]);
    out->count = (uint32_t)count;
    return 0;
}

int wave_read(const char *path, uint32_t most, struct wave *out, struct failure *err)
{
    SF_INFO info = {0};
    *out = (struct wave){0};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    out->missing = descriptor < 0 && errno == ENOENT;
    if (descriptor < 0)
        return failure_set(err, "%s: %s", path, strerror(errno));
    SNDFILE *file = sf_open_fd(descriptor, SFM_READ, &info, SF_FALSE);
    int status =
        file ? take_samples(path, file, &info, most, out, err)
             : failure_set(err, "%s is no sound file (%s); accepted is what libsndfile reads, such as WAV",
                           path, sf_strerror(NULL));
    if (file)
        sf_close(file);
    close(descriptor);
    return status;
}
#else
int wave_read(const char *path, uint32_t most, struct wave *out, struct failure *err)
{
    (void)most;
    *out = (struct wave){0};
    return failure_set(err,
                       "%s: sound files are not read by this build, which is without libsndfile; build with "
                       "-Dsndfile=enabled",
                       path);
}
#endif

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
