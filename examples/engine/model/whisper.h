/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A speech model of the Whisper architecture: encoder over a mel spectrum, decoder with cross-attention. */
#ifndef ENGINE_WHISPER_H
#define ENGINE_WHISPER_H

#include <stdint.h>

#include "attention/encoding.h"
#include "failure.h"
#include "gguf/gguf.h"
#include "weights.h"

struct whisper_shape {
    uint32_t encoder_layers;
    uint32_t decoder_layers;
    uint32_t width;
    uint32_t hidden; /* of the feed-forward parts */
    uint32_t heads;
    uint32_t head_dim;
    uint32_t vocab;
    uint32_t context;      /* tokens of the decoder */
    uint32_t encoder_rows; /* of the encoder: half the frames of a clip */
    uint32_t bands;        /* of the mel spectrum */
    float epsilon;
    int32_t begin; /* the tokens that begin a text */
    int32_t plain; /* without times */
    int32_t end;
};

/* What self-attention and cross-attention have in common. */
struct whisper_attention {
    struct norm norm; /* in front of it */
    struct dense q;
    struct dense k;
    struct dense v;
    struct dense o;
};

struct whisper_layer {
    struct whisper_attention self;
    struct whisper_attention cross; /* decoder only */
    struct norm norm;               /* in front of the feed-forward part */
    struct dense up;
    struct dense down;
};

struct whisper {
    struct whisper_shape shape;
    struct weights weights;
    struct dense conv[2]; /* inputs: channel by channel, three neighbours each */
    const float *encoder_positions;
    const float *tokens; /* output matrix too */
    const float *positions;
    struct norm encoder_norm;
    struct norm decoder_norm;
    struct whisper_layer *encoder;
    struct whisper_layer *decoder;
};

/* Checks keys and tensors and converts the weights. The file must stay open while the model is in use. */
int whisper_load(const struct gguf *file, struct whisper *out, struct failure *err);
void whisper_finish(struct whisper *w);

/* What a sequence brings to a step. */
struct whisper_part {
    struct encoding_part place; /* past 0: a prompt, with which the encoder runs */
    const int32_t *tokens;      /* place.count of them */
    const float *mel;           /* prompts: [2 * place.encoder, bands] */
};

struct whisper_forward;

/* The model must outlive it. Steps of up to max_seqs sequences, max_batch_tokens tokens, and encoders of up
 * to max_encoder rows each. */
int whisper_forward_create(const struct whisper *model, uint32_t max_seqs, uint32_t max_batch_tokens,
                           uint32_t max_encoder, struct whisper_forward **out, struct failure *err);
void whisper_forward_destroy(struct whisper_forward *f);

/* Runs prompts, or decodes; logits receives vocab floats for the last token of each part. */
int whisper_forward_run(struct whisper_forward *f, struct encoding *attention,
                        const struct whisper_part *parts, uint32_t count, float *logits, struct failure *err);

/* Output of the encoder in the last step of prompts: [encoder tokens of all parts, width]. */
const float *whisper_forward_encoded(const struct whisper_forward *f);

#endif
