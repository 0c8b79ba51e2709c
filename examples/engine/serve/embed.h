/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Embeddings of texts by an encoder model, from the opened file to the attention layers. */
#ifndef ENGINE_EMBED_H
#define ENGINE_EMBED_H

#include <stdint.h>

#include "attention/encoding.h"
#include "failure.h"
#include "gguf/gguf.h"
#include "model/bert.h"
#include "tokenizer/wordpiece.h"

struct embedder {
    struct gguf file;
    struct wordpiece *tokenizer;
    struct bert model;
    struct bert_forward *forward;
    struct encoding *attention;
    char hash[65];
    char name[300];
};

/* Opens a file, then vocabulary and weights. embedder_finish has to be called after a failure too. */
int embedder_load(struct embedder *e, const char *path, struct failure *err);

/* The same from memory, which must outlive it; name stands for the path in messages. */
int embedder_load_memory(struct embedder *e, const char *name, const void *data, size_t size,
                         struct failure *err);

/* Makes forward pass and attention for batches of up to options->max_seqs texts with up to max_batch_tokens
 * tokens; options->max_tokens is the model's. */
int embedder_start(struct embedder *e, const struct encoding_options *options, struct failure *err);
void embedder_stop(struct embedder *e);

/* Tokens of a text, which must fit the model's positions. */
int embedder_encode(const struct embedder *e, const char *text, struct tokens *out, struct failure *err);

/* out receives an embedding of length 1 for each text. */
int embedder_run(struct embedder *e, const struct tokens *texts, uint32_t count, float *out,
                 struct failure *err);

void embedder_finish(struct embedder *e);

#endif
