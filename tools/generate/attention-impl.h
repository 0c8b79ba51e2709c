/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the parts of the attention object share. */
#ifndef GENERATE_ATTENTION_IMPL_H
#define GENERATE_ATTENTION_IMPL_H

#include "attention.h"

#include <attn/attn.h>
#include <attn/device.h>

/* A layer's cache: memory of the backend and the checked description of it. */
struct attention_cache {
    struct attn_buffer memory;
    struct attn_buffer scales[2]; /* of keys and values, 8-bit types only */
    struct attn_kv *kv;
};

/* The same for blocks that are moved out, in the host's memory. */
struct host_cache {
    void *memory;
    void *scales[2];
    struct attn_kv_desc desc;
};

struct attention {
    struct attention_shape shape;
    struct attention_options options;
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct attn_plan *plan;
    struct attn_plan_info plan_info;
    struct attn_problem problem;
    struct attention_cache *caches;
    struct host_cache *host_caches; /* NULL without host blocks */
    uint32_t width;                 /* most blocks of a sequence */
    uint32_t pages;                 /* of each cache */
    int32_t *page;                  /* [pages] where a block lies: not in order, as after a long run */

    /* Blocks to move: pairs on the host, and a copy in the backend's memory. */
    int64_t *pairs;
    struct attn_buffer d_pairs;

    /* Memory of a plan's runs. */
    struct attn_span schedule;
    struct attn_span staging;
    struct attn_scratch scratch;

    /* Arrays of a step: the host writes them, copies lie in the backend's memory. */
    int32_t *table; /* rows of the step's sequences, as wide as the longest of them needs */
    int64_t *slots;
    int32_t *q_offsets;
    int32_t *kv_lens;
    struct attn_buffer d_table;
    struct attn_buffer d_slots;
    struct attn_buffer d_q_offsets;
    struct attn_buffer d_kv_lens;
    struct attn_batch_host host;
    struct attn_batch batch;

    /* Tensors of a step in the backend's memory. */
    struct attn_buffer d_q;
    struct attn_buffer d_k;
    struct attn_buffer d_v;
    struct attn_buffer d_out;
};

/* Translates an error of libattn. */
int attention_fail(struct failure *err, const char *what, const struct attn_error *error);

/* Buffers, caches, block table: everything that comes after the plan. */
int attention_allocate(struct attention *a, struct failure *err);
void attention_free(struct attention *a);

/* attention-move.c: what moves need. */
int attention_make_moves(struct attention *a, struct failure *err);
void attention_free_moves(struct attention *a);

int attention_alloc(struct attention *a, const char *what, uint64_t size, struct attn_buffer *out,
                    struct failure *err);

/* Copies between host and backend memory and waits for it. */
int attention_to_device(struct attention *a, const struct attn_buffer *to, const void *from, uint64_t size,
                        struct failure *err);
int attention_to_host(struct attention *a, void *to, const struct attn_buffer *from, uint64_t size,
                      struct failure *err);

#endif
