/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A whole model in a backend's memory: layers of two classes, four if nothing else is wanted, each layer's
 * queries what the one before gave out. Twice, to do the same step in two ways.
 */
#ifndef TEST_GRAPH_STACK_H
#define TEST_GRAPH_STACK_H

#include "crowd.h"

#ifndef STACK_LAYERS_WANTED
#define STACK_LAYERS_WANTED 4
#endif

enum {
    STACK_LAYERS = STACK_LAYERS_WANTED,
    STACK_CLASSES = 2,
    STACK_WAYS = 2, /* 0: without graphs, 1: on graphs */
    STACK_HEADS = 4,
    STACK_KV_HEADS = 2,
    STACK_DIM = 32,
    STACK_SIZES = 8,
    STACK_OUT = CROWD_ROWS * STACK_HEADS * STACK_DIM,   /* elements of queries or results of a layer */
    STACK_NEW = CROWD_ROWS * STACK_KV_HEADS * STACK_DIM /* of new keys */
};

struct stack_config {
    const char *name;
    const char *backend;
    uint32_t flavour;  /* 0: the backend's */
    uint32_t dtype;    /* of everything but the cache */
    const char *types; /* keys of the problem */
    uint32_t scales;   /* enum attn_granularity of an 8-bit cache, 0 without */
    bool cross;        /* every other layer is cross-attention */
    bool late;         /* the stream is late */
    uint32_t tokens;   /* of each decode; 0 = 1; STACK_MIX: graphs take prompts and decodes as they come */
};

#define STACK_MIX UINT32_MAX

/* Bytes of a sequence's mask, with mask=bits span=square: a row for each of 8 tokens. */
enum { STACK_MASK = 8 };

/* Numbers of a step, on the host. */
struct stack_inputs {
    unsigned char q[STACK_OUT * 4];
    unsigned char k[STACK_LAYERS][STACK_NEW * 4];
    unsigned char v[STACK_LAYERS][STACK_NEW * 4];
    unsigned char mask[CROWD_SEQS][STACK_MASK]; /* random trees, where the problem has a mask */
};

struct stack_outputs {
    unsigned char out[STACK_LAYERS][STACK_OUT * 4];
};

/* One way's memory. */
struct stack_way {
    struct attn_buffer inputs;  /* as struct stack_inputs */
    struct attn_buffer outputs; /* as struct stack_outputs */
    struct attn_buffer spare;   /* outputs of prompts */
    struct attn_buffer cache[STACK_LAYERS];
    struct attn_buffer scales[STACK_LAYERS][2];
    struct attn_kv *kv[STACK_LAYERS];
};

/* One captured size. */
struct stack_size {
    uint32_t seqs;
    uint32_t num_tokens; /* with STACK_MIX */
    struct attn_state *clone;
    struct attn_metadata *metadata;
    struct attn_graph *graph;
};

struct stack {
    const struct stack_config *config;
    struct attn_backend *backend;
    uint32_t element; /* bytes */
    uint64_t cache_bytes[STACK_CLASSES];
    uint64_t scale_bytes[STACK_CLASSES];
    struct attn_problem problems[STACK_CLASSES];
    struct attn_layer_class classes[STACK_CLASSES];
    struct crowd_builder eager;
    struct crowd_builder replay;
    struct attn_state *state;
    struct attn_layer *layers[STACK_LAYERS];
    struct stack_way way[STACK_WAYS];
    float scale;
    void *stream;
    uint32_t size_count;
    struct stack_size sizes[STACK_SIZES]; /* from small to large */
};

int32_t stack_init(struct stack *stack, struct attn_backend *backend, const struct stack_config *config,
                   struct attn_error *err);
void stack_finish(struct stack *stack);
/* All layers in one graph for each size of the ladder. `plan`: the planning too. */
int32_t stack_capture(struct stack *stack, bool plan, struct attn_error *err);
/* All layers of the step that was begun. Results go to `outputs`. */
int32_t stack_forward(const struct stack *stack, struct attn_state *state,
                      const struct attn_metadata *metadata, uint32_t way, const struct attn_buffer *outputs,
                      void *stream, struct attn_error *err);
/* Query tokens of each sequence of a decode step; 0 with STACK_MIX. */
uint32_t stack_tokens(const struct stack *stack);
/* The smallest captured size for the step that comes. */
const struct stack_size *stack_find(const struct stack *stack, const struct crowd *crowd);

/* Random numbers for all rows. */
void stack_draw(const struct stack *stack, struct crowd *crowd, struct stack_inputs *out);
int32_t stack_copy_in(const struct stack *stack, uint32_t way, const struct stack_inputs *inputs,
                      void *stream, struct attn_error *err);
int32_t stack_copy_out(const struct stack *stack, uint32_t way, struct stack_outputs *out, void *stream,
                       struct attn_error *err);
/* Whether all caches are the same. */
bool stack_same_caches(const struct stack *stack);

#endif
