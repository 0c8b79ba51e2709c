/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Speech as models want it: samples of a sound file, and the logarithm of their mel spectrum. */
#ifndef ENGINE_WAVE_H
#define ENGINE_WAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "failure.h"

enum { WAVE_RATE = 16000, WAVE_HOP = 160, WAVE_WINDOW = 400 };

struct wave {
    float *samples; /* -1 to 1 */
    uint32_t count;
    bool missing; /* the file could not be found */
};

/* Reads what libsndfile does, at 16 kHz with one channel, of at most "most" samples; all else is refused. */
int wave_read(const char *path, uint32_t most, struct wave *out, struct failure *err);
void wave_finish(struct wave *w);

/* Frames that a clip needs by itself: an even number, at least 2. */
uint32_t wave_frames(const struct wave *w);

/* Log-mel spectrum of the clip with silence up to "frames" frames; out is [frames, bands]. */
int wave_log_mel(const struct wave *w, uint32_t frames, uint32_t bands, float *out, struct failure *err);

#endif
