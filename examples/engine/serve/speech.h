/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Text of spoken clips by an encoder-decoder model, several clips at once. */
#ifndef ENGINE_SPEECH_H
#define ENGINE_SPEECH_H

#include <stdbool.h>
#include <stdint.h>

#include "attention/encoding.h"
#include "failure.h"
#include "gguf/gguf.h"
#include "model/wave.h"
#include "model/whisper.h"
#include "tokenizer/tokenizer.h"

struct speech {
    struct gguf file;
    struct whisper model;
    struct whisper_forward *forward;
    struct encoding *attention;
    struct gguf_string *texts; /* of the tokens */
    int16_t byte_of[324];      /* characters that stand for bytes in them; -1: none */
    char hash[65];
    char name[300];
};

/* A clip; the caller gives spectrum, encoder tokens and most, and the rest begins as zeros. */
struct clip {
    const float *mel;   /* [2 * rows, bands] */
    uint32_t rows;      /* encoder tokens */
    uint32_t most;      /* tokens to make */
    struct tokens made; /* without the token that ends the text */
    bool ended;         /* the model ended the text */
    bool done;
    uint32_t batch_slot;
    int32_t next; /* the token that the next step begins with */
    uint32_t past;
};

/* Opens a file, then vocabulary and weights. speech_finish has to be called after a failure too. */
int speech_load(struct speech *s, const char *path, struct failure *err);
int speech_load_memory(struct speech *s, const char *name, const void *data, size_t size,
                       struct failure *err);

/* options->max_batch_tokens and max_tokens are the model's; max_encoder is that of the longest clip. */
int speech_start(struct speech *s, const struct encoding_options *options, struct failure *err);
void speech_stop(struct speech *s);
void speech_finish(struct speech *s);

/* Called with the scores of all tokens from which a clip's next one is taken. */
typedef void (*speech_step_fn)(void *user, uint32_t clip, const float *logits);

/*
 * Greedy texts of all clips: as many at once as there are batch slots, prompts and decodes in one step.
 * on_step may be NULL.
 */
int speech_run(struct speech *s, struct clip *clips, uint32_t count, speech_step_fn on_step, void *user,
               struct failure *err);

/* The bytes of a clip's text, terminated; the caller frees them. NULL without memory. */
char *speech_text(const struct speech *s, const struct tokens *tokens);

#endif
