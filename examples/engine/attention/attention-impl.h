/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the parts of the attention object share. */
#ifndef ENGINE_ATTENTION_IMPL_H
#define ENGINE_ATTENTION_IMPL_H

#include <attn/layer.h>
#include <attn/parallel.h>

#include "attention.h"
#include "device.h"

/* A layer's cache: memory of the backend and the checked description of it. */
struct attention_cache {
    struct attn_buffer memory;
    struct attn_buffer scales[2]; /* of keys and values, 8-bit types only */
    struct attn_kv *kv;
};

/* The same for blocks that are moved out, in the host's memory. */
struct host_cache {
    struct device_host memory;
    struct device_host scales[2];
    struct attn_kv_desc desc;
};

/* Layers that share block numbers: a cache group and the layer class that reads it. */
struct attention_group {
    struct attn_problem problem;
    struct attn_layer *layer; /* what the layers of the class have in common; each brings its own cache */
    uint32_t pages;           /* of each cache */
    int32_t *page;            /* [pages] where a block lies: not in order, as after a long run */
    int64_t *blocks;          /* [max_seqs, width] pages of each batch slot's sequence */
};

/* The graphs of one size: one for each layer, since the products between layers are the host's. */
struct attention_size {
    uint32_t seqs;
    struct attn_state *state;
    struct attn_graph **layers;
};

/* Which batch slot a row of the block tables shows, and the step that wrote the row. */
struct attention_row {
    uint32_t batch_slot;
    uint64_t step;
};

struct attention {
    struct attention_shape shape;
    struct attention_options options;
    struct attn_collectives net;   /* size 0: all keys are here */
    struct attention_ranks *ranks; /* of rank 0: all of them, itself included; NULL: there are no others */
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct device device;
    char kernels[256];
    struct attention_group groups[SCHEDULER_GROUPS];
    struct attention_cache *caches;
    struct host_cache *host_caches; /* NULL without host blocks */
    uint32_t width;                 /* most blocks of a sequence */

    /* Blocks to move: pairs on the host, and a copy in the backend's memory. */
    int64_t *pairs;
    struct attn_buffer d_pairs;
    uint32_t most_pairs;

    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_builder_group builder_groups[SCHEDULER_GROUPS];
    struct attn_layer_class classes[SCHEDULER_GROUPS];

    /* Graphs, sizes from small to large. */
    struct attention_size *sizes;
    uint32_t size_count;

    /* The step at hand. */
    struct attn_metadata *metadata;
    const struct attention_size *size; /* NULL: without graphs */
    uint32_t seqs;
    uint32_t num_tokens;
    bool decodes; /* one token for each sequence */
    uint64_t step;
    struct attention_row *row; /* [max_seqs] */
    uint64_t *slot_step;       /* [max_seqs] the last step in which the batch slot had a part */
    uint64_t replayed;
    uint64_t advanced;

    struct device_tensors tensors; /* of a layer in this step */
    struct device_host tokens;     /* int64_t [max_seqs] that an advance is told */
    struct attn_buffer d_tokens;
};

static inline uint32_t attention_group_of(const struct attention *a, uint32_t layer)
{
    return a->shape.group ? a->shape.group[layer] : 0;
}

/* What a rank is: all of the object, with its part of the keys. Without `net` it has all keys. */
int attention_create_rank(const struct attention_shape *shape, const struct attention_options *options,
                          const struct attn_collectives *net, struct attention **out, struct failure *err);

/* Caches, block lists and tensors: everything that comes after the backend. */
int attention_allocate(struct attention *a, struct failure *err);
void attention_free(struct attention *a);

/* Captures the graphs of all sizes. */
int attention_capture(struct attention *a, struct failure *err);
void attention_free_graphs(struct attention *a);

/* Numbers in a layer's queries and in its keys for so many tokens. */
uint64_t attention_q_count(const struct attention *a, uint32_t num_tokens);
uint64_t attention_kv_count(const struct attention *a, uint32_t num_tokens);

#endif
