/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads WAV files: chunks, of which "fmt " and "data" count. */
#include "wave.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
