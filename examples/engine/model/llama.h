/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A Llama model in memory and its forward pass over parts of sequences. */
#ifndef ENGINE_LLAMA_H
#define ENGINE_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attention/attention.h"
#include "failure.h"
#include "gguf/gguf.h"

struct model_shape {
    uint32_t layers;
    uint32_t width;
    uint32_t hidden; /* of the feed-forward part */
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t vocab;
    uint32_t context;
    uint32_t window;  /* tokens that windowed layers see, the token's own included; 0: none is windowed */
    uint32_t pattern; /* n: every n-th layer sees all tokens nevertheless; 0: none does */
    float norm_epsilon;
    double rope_base;
};

enum { MODEL_MOST_LAYERS = 1024 };

/* Matrices are [outputs, inputs], rows contiguous. */
struct model_layer {
    float *attn_norm;
    float *q;
    float *k;
    float *v;
    float *o;
    float *ffn_norm;
    float *gate;
    float *up;
    float *down;
};

struct model {
    struct model_shape shape;
    struct model_layer *layers;
    float *embedding;
    float *final_norm;
    float *output; /* the embedding itself where the file has no output matrix */
    float *memory;
};

/* Whether a layer sees no more than the window. */
bool model_is_windowed(const struct model_shape *shape, uint32_t layer);

/* Reads and checks the hyper-parameters alone. */
int model_read_shape(const struct gguf *file, struct model_shape *out, struct failure *err);

/* Checks every tensor against the shape, then converts all of them. The file may be closed afterwards. */
int model_load(const struct gguf *file, struct model *out, struct failure *err);
void model_finish(struct model *model);

/*
 * The usual name of a model: general.name; or the file's own name where it continues basename and size label
 * of the metadata, since the files of fine-tuned models often keep the name of a training run in
 * general.name.
 */
void model_name(const struct gguf *file, char *out, size_t size);

struct forward;

/* The model must outlive it; max_batch_tokens is the most tokens of a step. */
int forward_create(const struct model *model, uint32_t max_batch_tokens, struct forward **out,
                   struct failure *err);
void forward_destroy(struct forward *f);

/* What a sequence brings to a step. Logits are wanted for its tokens from logits_from on; place.count: none.
 */
struct forward_part {
    struct attention_part place;
    const int32_t *tokens;
    uint32_t logits_from;
};

/* Runs the parts together. Logits receive vocab floats for each token that wants them, part by part. */
int forward_run(struct forward *f, struct attention *attention, const struct forward_part *parts,
                uint32_t count, float *logits, struct failure *err);

/*
 * After a step of one token for each part: the step of the tokens that follow, one for each part again, in
 * the blocks that the parts of the step before held.
 */
int forward_advance(struct forward *f, struct attention *attention, const struct forward_part *parts,
                    uint32_t count, float *logits, struct failure *err);

/* Where the time of all steps went, in seconds. */
struct forward_times {
    double products;  /* with weight matrices */
    double attention; /* the layers on libattn, and beginning their steps */
    double rest;      /* norms, rotation, activation */
};
void forward_get_times(const struct forward *f, struct forward_times *out);

/*
 * `stop` is called before each layer, and the step fails if it returns true; NULL: no step is stopped. The
 * tokens of such a step have undefined contents in the caches.
 */
void forward_set_stop(struct forward *f, bool (*stop)(void *user), void *user);

/* A step of sequence 0 alone: "count" tokens behind "past" earlier ones. */
int forward_step(struct forward *f, struct attention *attention, const int32_t *tokens, uint32_t past,
                 uint32_t count, uint32_t logits_from, float *logits, struct failure *err);

/* Runs a whole prompt of sequence 0 in chunks; logits receives those of the last token. */
int forward_prompt(struct forward *f, struct attention *attention, const int32_t *tokens, uint32_t count,
                   uint32_t chunk, float *logits, struct failure *err);

#endif
