/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A small engine on the serving layer: one rank of it, or all of it on one rank. */
#ifndef PARALLEL_ENGINE_H
#define PARALLEL_ENGINE_H

#include <stdbool.h>

#include "../cpu/shape-fixture.h"
#include "attn/layer.h"
#include "attn/parallel.h"

enum {
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 16,
    BLOCK = 4,
    CLASSES = 2, /* layers that see all tokens, and layers with a window */
    SEQS = 5,
    LONGEST = 64,   /* tokens of a sequence */
    MOST_ROWS = 64, /* query tokens of a step */
    COLUMNS = LONGEST / BLOCK,
    PAGES = 97,       /* more than the sequences have blocks, and a prime */
    GRAPH_SEQS = 4,   /* of a captured size */
    GRAPH_TOKENS = 10 /* of a captured mix */
};

struct engine_options {
    uint32_t world; /* 0: keys are on one rank, and nothing knows of ranks */
    uint32_t interleave;
    uint32_t heads; /* enum attn_cp_queries */
    bool graphs;    /* steps of few tokens run over the buffers of a captured size */
};

/* A sequence. Its blocks are numbered as if it were alone; each rank has them in other pages. */
struct engine_sequence {
    uint32_t id; /* of what its tokens hold */
    uint32_t len;
    int64_t blocks[COLUMNS];
};

/* What a sequence brings to a step. */
struct engine_part {
    uint32_t sequence;
    uint32_t count;
    bool prompt;
    uint32_t hits;   /* of a prompt: blocks that were found */
    uint32_t beyond; /* tokens that it has blocks for beyond these */
    bool kept;       /* its row has these blocks already */
};

/* What a class' layer gives: rows of this rank's heads. */
struct engine_result {
    float out[MOST_ROWS][HEADS][DIM];
    float lse[MOST_ROWS][HEADS];
};

struct engine {
    struct engine_options options;
    uint32_t number;    /* of this rank */
    uint32_t own_heads; /* and how many it has */
    struct attn_backend *backend;
    struct attn_builder_group group;
    struct attn_problem problem[CLASSES];
    struct attn_layer_class classes[CLASSES];
    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_layer *layers[CLASSES];
    struct attn_kv *kv[CLASSES];
    struct attn_kv_desc kv_desc[CLASSES], host_desc[CLASSES];
    float (*memory[CLASSES][4])[BLOCK][KV_HEADS][DIM]; /* keys and values of the cache, and of the host's */
    struct engine_sequence sequences[SEQS];
    struct attn_state *graphs[2]; /* of captured sizes */
    struct attn_metadata *metadata;
    struct engine_part parts[SEQS]; /* of the step */
    uint32_t count;
    uint32_t rows;
    uint32_t pad; /* sequences that a graph has behind these */
};

/* Parameters as an engine has them; collectives may be NULL. */
void engine_builder_params(const struct engine *e, struct attn_builder_params *out);
void engine_state_params(const struct engine *e, const struct attn_collectives *net,
                         struct attn_state_params *out);
/* Groups, problems and classes alone. */
void engine_describe(struct engine *e, const struct engine_options *options, uint32_t number);
void engine_open(struct engine *e, struct attn_backend *backend, const struct engine_options *options,
                 uint32_t number, const struct attn_collectives *net);
void engine_close(struct engine *e);

/* Tokens that a block of all ranks holds. */
uint32_t engine_span(const struct engine *e);
int64_t engine_page(const struct engine *e, int64_t block);
/* Adds the parts, and builds. */
void engine_build(struct engine *e, const struct engine_part *parts, uint32_t count);
int32_t engine_begin(struct engine *e, struct attn_error *err);
/* Both layers of the step; the first status that is no ATTN_OK. */
int32_t engine_run(struct engine *e, struct engine_result *out, struct attn_error *err);
/* The sequences have the tokens of the step from here on. */
void engine_commit(struct engine *e);

/* After a step of one token each: the next one, in place. */
void engine_advance(struct engine *e);
/* Moves the first blocks of a sequence to the host, forgets them here, and gets them back into others. */
void engine_swap(struct engine *e, uint32_t sequence);
/* `to` becomes the sequence `from`: it shares whole blocks, and has a copy of the last one. */
void engine_fork(struct engine *e, uint32_t from, uint32_t to);

#endif
