/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The attention layers of models with an encoder, through the serving layer of libattn: a builder makes the
 * metadata of a step, a state plans it for all classes of layers, and each layer runs by its class. */
#ifndef ENGINE_ENCODING_H
#define ENGINE_ENCODING_H

#include <stdbool.h>
#include <stdint.h>

#include "failure.h"

struct encoding;

/* Classes of layers: the encoder's, and the two of the decoder. */
enum encoding_class { ENCODING_ENCODER, ENCODING_SELF, ENCODING_CROSS, ENCODING_CLASSES };

struct encoding_shape {
    uint32_t layers[ENCODING_CLASSES]; /* of each class; 1 and more */
    uint32_t heads;
    uint32_t head_dim;
};

struct encoding_options {
    uint32_t block;               /* tokens of a block of the caches */
    uint32_t max_seqs;            /* sequences of a step, each with a batch slot of its own */
    uint32_t max_batch_tokens;    /* new tokens of a step */
    uint32_t max_tokens;          /* of a sequence */
    uint32_t max_encoder;         /* encoder tokens of a sequence */
    uint32_t threads;             /* 0: as libattn decides */
    const char *kv;               /* cache type */
    const char *backend;          /* wanted list, NULL: as ATTN_BACKEND says */
    uint64_t seed;                /* of the order in which blocks lie in memory */
    const char *const *variables; /* "NAME=VALUE" before the environment */
    uint32_t variable_count;
};

/* What was chosen. Texts are valid as long as the object. */
struct encoding_info {
    const char *backend;
    const char *device;
    const char *device_name; /* with the vendor's name of the device */
    const char *kernels;
    const char *generic; /* one of the kernels, or NULL */
};

int encoding_create(const struct encoding_shape *shape, const struct encoding_options *options,
                    struct encoding **out, struct failure *err);
void encoding_destroy(struct encoding *e);
/* How many sequences have a batch slot. */
uint32_t encoding_slots(const struct encoding *e);

void encoding_get_info(const struct encoding *e, struct encoding_info *out);

/* What a sequence brings to a step: "count" new tokens behind "past" earlier ones. */
struct encoding_part {
    uint32_t batch_slot; /* below max_seqs: whose blocks it has in the caches */
    uint32_t past;       /* 0: a prompt, with which the encoder runs */
    uint32_t count;
    uint32_t encoder; /* its encoder tokens, in every step the same */
};

/* Begins a step: prompts, then decodes. */
int encoding_begin(struct encoding *e, const struct encoding_part *parts, uint32_t count,
                   struct failure *err);

/*
 * One layer of a class. q and out are [rows, heads, head_dim], k and v too; rows are those of the encoder for
 * the encoder's layers and for keys and values of cross-attention (those of the step's prompts), else the
 * step's new tokens. Without prompts cross-attention has neither k nor v.
 */
int encoding_run(struct encoding *e, enum encoding_class class, uint32_t layer, const float *q,
                 const float *k, const float *v, float *out, struct failure *err);

#endif
