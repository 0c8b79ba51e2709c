/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Everything that a run of attn-generate holds, from the opened file to the attention layers. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "attention/attention.h"
#include "failure.h"
#include "gguf/gguf.h"
#include "model/llama.h"
#include "tokenizer/tokenizer.h"

struct engine {
    struct gguf file;
    uint8_t *toy; /* the file's bytes when it was generated */
    struct tokenizer *tokenizer;
    struct model model;
    struct attention_shape shape;
    uint8_t groups[MODEL_MOST_LAYERS]; /* cache group of each layer */
    struct forward *forward;
    struct attention *attention;
    char hash[65];
    char name[300];
};

/* Opens a file, or generates the toy model where path is NULL; then vocabulary and weights. */
int engine_load(struct engine *e, const char *path, uint64_t seed, struct failure *err);

/* The toy model of windowed and full layers. */
int engine_load_windowed(struct engine *e, uint32_t window, uint64_t seed, struct failure *err);

/* Makes forward pass and attention; options->max_tokens and max_chunk are the caller's. */
int engine_start(struct engine *e, const struct attention_options *options, struct failure *err);

/* Drops what engine_start made, so that it can be called again. */
void engine_stop(struct engine *e);

void engine_finish(struct engine *e);

#endif
