/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The attention layers of a model on libattn: cache, block table, one plan for prompt chunks and decoding
 * alike. */
#ifndef GENERATE_ATTENTION_H
#define GENERATE_ATTENTION_H

#include <stdint.h>

#include "failure.h"

struct attention;

struct attention_shape {
    uint32_t layers;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
};

struct attention_options {
    uint32_t block;               /* tokens per page */
    uint32_t max_tokens;          /* of the whole sequence */
    uint32_t max_chunk;           /* tokens of one step */
    uint32_t threads;             /* 0: as libattn decides */
    const char *kv;               /* "f32", "f16" or "bf16" */
    const char *backend;          /* wanted list, NULL: as ATTN_BACKEND says */
    uint64_t seed;                /* of the order in which pages are used */
    const char *const *variables; /* "NAME=VALUE" before the environment */
    uint32_t variable_count;
};

/* What was chosen. Texts live as long as the object. */
struct attention_info {
    const char *backend;
    const char *device;
    const char *kernels;
};

int attention_create(const struct attention_shape *shape, const struct attention_options *options,
                     struct attention **out, struct failure *err);
void attention_destroy(struct attention *a);
void attention_get_info(const struct attention *a, struct attention_info *out);

/* Begins a step of "count" new tokens behind "past" earlier ones. */
int attention_begin(struct attention *a, uint32_t past, uint32_t count, struct failure *err);

/* Puts the step's keys and values of one layer into its cache; both are [count, kv_heads, head_dim]. */
int attention_write(struct attention *a, uint32_t layer, const float *k, const float *v, struct failure *err);

/* Attention of the step's queries over all tokens so far; q and out are [count, heads, head_dim]. */
int attention_run(struct attention *a, uint32_t layer, const float *q, float *out, struct failure *err);

#endif
