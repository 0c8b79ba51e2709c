/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The attention layers of a model on the layer API of libattn: a builder makes the metadata of a step, a
 * state plans it for all layer classes, layers write their cache and attend. Which blocks of the caches a
 * sequence has is the caller's business.
 */
#ifndef ENGINE_ATTENTION_H
#define ENGINE_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "failure.h"
#include "scheduler.h"

struct attention;

struct attention_shape {
    uint32_t layers;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t groups;                   /* cache groups, each of one layer class; 0: one */
    uint32_t window[SCHEDULER_GROUPS]; /* tokens that a token of the group's layers sees, itself included; 0:
                                          all */
    const uint8_t *group;              /* [layers] group of each layer; NULL: 0. Must outlive the object */
};

/* Caches with 8 bits per element have one scale per token and kv head. */
#define ATTENTION_CACHE_TYPES "f32, f16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz, int8"

/* enum attn_dtype of a cache type, 0 for any other text. */
uint32_t attention_cache_type(const char *name);

struct attention_options {
    uint32_t block;                    /* tokens of a block */
    uint32_t max_tokens;               /* of a whole sequence */
    uint32_t max_chunk;                /* tokens of one sequence in a step */
    uint32_t max_seqs;                 /* sequences of a step; 0: one */
    uint32_t max_batch_tokens;         /* tokens of a step; 0: max_chunk */
    uint32_t blocks[SCHEDULER_GROUPS]; /* of each cache, by group; 0: as many as all sequences can need */
    uint32_t host_blocks;              /* for blocks that are moved out of each cache */
    uint32_t threads;                  /* 0: as libattn decides */
    const char *kv;                    /* one of ATTENTION_CACHE_TYPES */
    const char *q;       /* of queries, new keys and values, and the output: f32, f16 or bf16; NULL: f32 */
    const char *backend; /* wanted list, NULL: as ATTN_BACKEND says */
    uint64_t seed;       /* of the order in which blocks lie in memory */
    bool graph;          /* steps of one token per sequence replay captured graphs */
    uint32_t ranks;      /* that hold the keys of each sequence, threads of this process; 0: one */
    const char *const *variables; /* "NAME=VALUE" before the environment */
    uint32_t variable_count;
};

/* Tokens of a sequence that a block number stands for: with ranks it is a block on each of them. */
static inline uint32_t attention_block_tokens(const struct attention_options *o)
{
    return o->block * (o->ranks > 1 ? o->ranks : 1);
}

/* What was chosen, and what was done. Texts are valid as long as the object. */
struct attention_info {
    const char *backend;
    const char *device;
    const char *device_name; /* with the vendor's name of the device */
    const char *kernels;
    const char *generic; /* one of the kernels, or NULL */
    uint32_t ranks;
    uint32_t graphs;   /* captured sizes */
    uint64_t replayed; /* steps that ran as graphs */
    uint64_t advanced; /* steps that followed one without a builder */
};

int attention_create(const struct attention_shape *shape, const struct attention_options *options,
                     struct attention **out, struct failure *err);
void attention_destroy(struct attention *a);
void attention_get_info(const struct attention *a, struct attention_info *out);

/* What a sequence brings to a step: "count" new tokens behind "past" earlier ones. */
struct attention_part {
    /* Its blocks in order, by group; -1: behind the window. NULL: 0, 1, 2 …, for a sequence that is alone. */
    const int32_t *blocks[SCHEDULER_GROUPS];
    uint32_t past;
    uint32_t count;
    uint32_t held;       /* entries of each block list; 0: as many as its tokens need */
    uint32_t batch_slot; /* below max_seqs, each at most once in a step */
    uint32_t unchanged;  /* leading entries that are as in the last step in which the batch slot had a part */
};

/* Begins a step; each sequence appears at most once. Prompts should come first: a decode before a
 * prompt is computed as a prompt. */
int attention_begin(struct attention *a, const struct attention_part *parts, uint32_t count,
                    struct failure *err);

/*
 * After a step of one token for each sequence: begins the next one, of the tokens that follow these, without
 * a builder. The blocks that it needs were among those that the parts held.
 */
int attention_advance(struct attention *a, const int32_t *tokens, struct failure *err);

/* Before a step: moves blocks of all layers to the host, back from it, or within the caches, in order. */
int attention_swap_out(struct attention *a, const struct block_moves *moves, struct failure *err);
int attention_swap_in(struct attention *a, const struct block_moves *moves, struct failure *err);
int attention_copy(struct attention *a, const struct block_moves *moves, struct failure *err);

/*
 * One layer of the step: puts keys and values into its cache, then attends with the queries over all tokens
 * of each sequence so far. q and out are [rows, heads, head_dim], k and v [rows, kv_heads, head_dim], the
 * rows of the parts one after the other.
 */
int attention_forward(struct attention *a, uint32_t layer, const float *q, const float *k, const float *v,
                      float *out, struct failure *err);

#endif
