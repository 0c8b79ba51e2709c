/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A small step of a model with every call that a graph keeps, and two worlds of memory to do it in: what a
 * replay does to the one, the same calls done at once must do to the other.
 */
#ifndef TEST_GRAPH_WORLD_H
#define TEST_GRAPH_WORLD_H

#include "attn/device.h"

enum {
    SEQS = 5,
    ROWS = 8,
    MOST_Q = 4,
    MOST_KV = 48,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 32,
    BLOCK = 4,
    WIDTH = MOST_KV / BLOCK,
    PAGES = 64,
    PAIRS = 3
};

/* Everything that the calls read and write. Worlds are compared as bytes. */
struct memory {
    int32_t q_offsets[SEQS + 1];
    int32_t kv_lens[SEQS];
    int32_t table[SEQS][WIDTH];
    int64_t slots[ROWS];
    int64_t found_slots[ROWS];
    int64_t pairs[PAIRS][2];
    int32_t gather_offsets[SEQS + 1];
    float q[ROWS][HEADS][DIM];
    float k_new[ROWS][KV_HEADS][DIM];
    float v_new[ROWS][KV_HEADS][DIM];
    float out[ROWS][HEADS][DIM];
    float lse[ROWS][HEADS];
    float twice[ROWS][HEADS][DIM];
    float merged[ROWS][HEADS][DIM];
    float rescaled[ROWS][HEADS][DIM];
    float gathered[SEQS * MOST_KV][KV_HEADS][DIM];
    float copied[ROWS][HEADS][DIM];
    unsigned char cache[2][PAGES][BLOCK][KV_HEADS][DIM * sizeof(float)];
    unsigned char host_cache[2][PAGES][BLOCK][KV_HEADS][DIM * sizeof(float)];
    float converted[2][PAGES][BLOCK][KV_HEADS][DIM];
    uint64_t own_works; /* done so far */
};

struct world {
    struct attn_backend *backend;
    struct attn_plan *plan;
    struct attn_kv *kv; /* of memory.cache */
    uint32_t kv_dtype;
    struct attn_span schedule;
    struct attn_scratch scratch;
    struct memory *memory;
    /* Host values that are read during a call. */
    float scale;
    int64_t swaps[PAIRS][2];
};

/* Opens a backend of the CPU with two threads. */
void backend_open(const char *name, struct attn_context **out_context, struct attn_backend **out);
/* A zeroed world for caches of f32 or an 8-bit type. */
void world_init(struct world *world, struct attn_backend *backend, uint32_t kv_dtype);
void world_finish(struct world *world);
/* New contents for all arrays: other lengths, other pages, other numbers; the same for the same seed. */
void world_change(struct world *world, uint32_t seed);
/* Plans the step. `host`: with host copies. */
int32_t world_prepare(struct world *world, bool host, void *stream, struct attn_error *err);
/* All calls, on a stream; the program's own work goes into the graph if one is captured. */
void world_step(struct world *world, void *stream, struct attn_graph *graph);
/* The name of the first member that differs, or NULL. */
const char *world_difference(const struct world *a, const struct world *b);

#endif
