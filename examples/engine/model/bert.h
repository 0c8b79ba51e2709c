/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An encoder of the BERT architecture: weights, and the forward pass from tokens to embeddings. */
#ifndef ENGINE_BERT_H
#define ENGINE_BERT_H

#include <stdint.h>

#include "attention/encoding.h"
#include "failure.h"
#include "gguf/gguf.h"
#include "weights.h"

/* Numbers of bert.pooling_type. */
enum bert_pooling { BERT_POOLING_MEAN = 1, BERT_POOLING_FIRST = 2 };

struct bert_shape {
    uint32_t layers;
    uint32_t width;
    uint32_t hidden; /* of the feed-forward part */
    uint32_t heads;
    uint32_t head_dim;
    uint32_t vocab;
    uint32_t context;
    uint32_t types;
    uint32_t pooling;
    float epsilon;
};

struct bert_layer {
    struct dense q;
    struct dense k;
    struct dense v;
    struct dense o;
    struct norm attn_norm; /* behind attention */
    struct dense up;
    struct dense down;
    struct norm norm; /* behind the feed-forward part */
};

struct bert {
    struct bert_shape shape;
    struct weights weights;
    const float *tokens;
    const float *positions;
    const float *types;
    struct norm norm;
    struct bert_layer *layers;
};

/* Checks keys and tensors and converts the weights. The file must stay open while the model is in use. */
int bert_load(const struct gguf *file, struct bert *out, struct failure *err);
void bert_finish(struct bert *b);

/* One text of a batch. */
struct bert_text {
    const int32_t *tokens;
    uint32_t count; /* 1 to the model's context */
};

struct bert_forward;

/* The model must outlive it. A batch has up to max_texts texts with up to max_batch_tokens tokens together.
 */
int bert_forward_create(const struct bert *model, uint32_t max_texts, uint32_t max_batch_tokens,
                        struct bert_forward **out, struct failure *err);
void bert_forward_destroy(struct bert_forward *f);

/*
 * Runs a batch through all layers; out receives an embedding of length 1 for each text. It does not depend
 * on the other texts: each text has matrix products of its own.
 */
int bert_forward_run(struct bert_forward *f, struct encoding *attention, const struct bert_text *texts,
                     uint32_t count, float *out, struct failure *err);

#endif
