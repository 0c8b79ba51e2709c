/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzz target for WAV files: the reader, and the spectrum of what it takes. */
#include "fuzz.h"
#include "model/wave.h"

#include <math.h>

enum { MOST_SAMPLES = 1600, BANDS = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wave wave = {0};
    struct failure err = {0};
    if (wave_parse("input", data, size, MOST_SAMPLES, &wave, &err) < 0) {
        FUZZ_CHECK(err.text[0] != '\0' && wave.samples == NULL);
        return 0;
    }
    FUZZ_CHECK(wave.count >= 1 && wave.count <= MOST_SAMPLES && wave.count <= size / 2);
    uint32_t frames = wave_frames(&wave);
    float *mel = calloc((size_t)frames * BANDS, sizeof *mel);
    FUZZ_CHECK(mel != NULL && frames >= 2 && frames % 2 == 0 && frames * WAVE_HOP >= wave.count);
    FUZZ_CHECK(wave_log_mel(&wave, frames, BANDS, mel, &err) == 0);
    for (uint32_t i = 0; i < frames * BANDS; i++)
        FUZZ_CHECK(isfinite(mel[i]));
    free(mel);
    wave_finish(&wave);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
