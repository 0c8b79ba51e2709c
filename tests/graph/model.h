/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A model of two layer classes, with a cache group each, on builder, metadata and state. */
#ifndef TEST_GRAPH_MODEL_H
#define TEST_GRAPH_MODEL_H

#include <stdbool.h>

#include "attn/device.h"
#include "attn/layer.h"

enum {
    MODEL_CLASSES = 2,
    MODEL_SEQS = 16, /* most sequences of a step */
    MODEL_TOKENS = 64,
    MODEL_LEN = 96,
    MODEL_HEADS = 4,
    MODEL_KV_HEADS = 2,
    MODEL_DIM = 32,
    MODEL_BLOCK = 8,
    MODEL_BLOCKS = MODEL_LEN / MODEL_BLOCK,
    MODEL_PAGES = MODEL_SEQS * MODEL_BLOCKS + 1 /* page 0 is nobody's: padding reads it */
};

/* What layers read and write, once for each way to run a step. */
struct model_memory {
    float q[MODEL_CLASSES][MODEL_TOKENS][MODEL_HEADS][MODEL_DIM];
    float k[MODEL_CLASSES][MODEL_TOKENS][MODEL_KV_HEADS][MODEL_DIM];
    float v[MODEL_CLASSES][MODEL_TOKENS][MODEL_KV_HEADS][MODEL_DIM];
    float out[MODEL_CLASSES][MODEL_TOKENS][MODEL_HEADS][MODEL_DIM];
    float cache[MODEL_CLASSES][2][MODEL_PAGES][MODEL_BLOCK][MODEL_KV_HEADS][MODEL_DIM];
};

struct model {
    struct attn_backend *backend;
    struct attn_problem problems[MODEL_CLASSES];
    struct attn_layer_class classes[MODEL_CLASSES];
    struct attn_builder_group groups[MODEL_CLASSES];
    struct attn_state_params params;
    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_kv *kv[2][MODEL_CLASSES];
    struct model_memory *memory[2]; /* 0: eager, 1: graphs */
    uint32_t first_q;               /* new tokens of sequence 0 if it decodes; 0 = 1 */
    int64_t blocks[MODEL_CLASSES][MODEL_SEQS][MODEL_BLOCKS];
};

/* Descriptions of a model for a backend; `state` and `builder` are not made yet. */
void model_describe(struct model *model, struct attn_backend *backend);
/* Describes and makes all of it. */
void model_init(struct model *model, struct attn_backend *backend);
void model_finish(struct model *model);
/* A step of `seqs` sequences with random lengths and blocks; of prompts the first `prompts`. */
struct attn_metadata *model_step(struct model *model, uint32_t seqs, uint32_t prompts, uint32_t graph,
                                 uint32_t pad, uint32_t seed);
/* All layers of a step: writes the cache with `slots` of each class, and attends. */
int32_t model_layers(struct model *model, const struct attn_state *state, uint32_t way,
                     const struct attn_buffer *slots, uint32_t rows, void *stream, struct attn_error *err);

#endif
