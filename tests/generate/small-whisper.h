/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A small generated Whisper model as a GGUF file. */
#ifndef TESTS_GENERATE_SMALL_WHISPER_H
#define TESTS_GENERATE_SMALL_WHISPER_H

#include "gguf/writer.h"

/* A WAV file of 20 ms of silence. */
extern const char small_clip[44 + 640];

enum {
    SMALL_WHISPER_BANDS = 8,
    SMALL_WHISPER_ROWS = 70,
    SMALL_WHISPER_CONTEXT = 48,
    SMALL_WHISPER_VOCAB = 259
};

/* What differs from a file that is accepted; NULL: nothing. */
struct small_whisper {
    const char *without;  /* a tensor or key that is left out */
    const char *reshaped; /* a tensor with one row too many */
    const char *extra;    /* a tensor that does not belong there */
};

/* Tokens: the 256 bytes, then the end (256), the beginning (257) and "no times" (258). The caller frees. */
uint8_t *small_whisper_build(const struct small_whisper *variant, size_t *out_size);

#endif
