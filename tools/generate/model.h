/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The weights of a Llama-architecture model as floats. */
#ifndef GENERATE_MODEL_H
#define GENERATE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "failure.h"
#include "gguf.h"

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
    uint32_t pattern; /* every so many-th layer sees all tokens all the same; 0: none does */
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

#endif
