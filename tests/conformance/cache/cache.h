/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the checks of operations on caches share. A case is an operation and a seed. Everything that it may
 * write is tracked: a copy of what was there, and a mirror in which a plain reference does the same. Then all
 * bytes are compared, of elements, scales and padding alike.
 */
#ifndef CACHE_H
#define CACHE_H

#include "conform.h"

enum { CACHE_TRACKED = 24, CACHE_BOXES = 4, CACHE_PAIRS = 160, CACHE_HALVES = 2 };

struct tracked {
    struct guarded *memory;
    unsigned char *before;
    unsigned char *mirror;
};

/* A cache of one layer. */
struct box {
    struct attn_kv_desc desc;
    bool use_handle;
    struct attn_kv *kv; /* during a run */
};

struct cache_case;

struct cache_operation {
    const char *name;
    /* Lays everything out. */
    void (*init)(struct cache_case *c);
    int32_t (*call)(void *the_case, void *stream, struct attn_error *err);
    /* Does the same in the mirrors. */
    void (*reference)(struct cache_case *c);
};

/* The arguments of one operation. */
union cache_args {
    struct attn_kv_slot_mapping_args slot_mapping;
    struct attn_kv_copy_slots_args copy_slots;
    struct attn_kv_copy_blocks_args copy_blocks;
    struct attn_kv_swap_blocks_args swap_blocks;
    struct attn_kv_gather_args gather;
    struct attn_kv_convert_args convert;
    struct attn_kv_write_args write;
    struct attn_kv_advance_step_args advance_step;
};

struct cache_case {
    struct rng rng;
    const struct cache_operation *operation;
    struct arena arena;
    struct layout layout; /* of tensors: no demands */
    struct tracked tracked[CACHE_TRACKED];
    uint32_t tracked_count;
    struct box boxes[CACHE_BOXES];
    uint32_t box_count;
    int64_t pairs[2 * CACHE_PAIRS];
    uint32_t pair_count;
    bool refused; /* a pair lies beyond a cache: an error, and nothing is written */
    bool exact;   /* divisions of the target are correctly rounded */
    struct attn_backend *backend;
    union cache_args args;
    struct attn_batch batch;
    struct oracle_sequence keys[MAX_SEQS];
    struct attn_problem problem; /* how the batch is addressed */
    int32_t starts[MAX_SEQS];
    int32_t offsets[MAX_SEQS + 1];
};

/* ---------------------------------------------------------------- cache-box.c */

/* A random cache; `like` (or NULL) says types, layout, heads, dimensions and granularities. */
struct box *box_add(struct cache_case *c, const struct box *like);
/* Other types, layout and granularities for the same block, heads and dimensions. */
struct box *box_add_converted(struct cache_case *c, const struct box *from);
void box_fill(struct cache_case *c, const struct box *box);
/* Both halves have elements (page, token, head, d), an MLA cache has one. */
uint32_t box_halves(const struct box *box);
uint32_t box_dim(const struct box *box, uint32_t half);
uint32_t box_dtype(const struct box *box, uint32_t half);
const struct attn_scale *box_scale(const struct box *box, uint32_t half);
unsigned char *box_element(const struct box *box, uint32_t half, int64_t page, int64_t token, uint32_t head,
                           uint32_t d);
/* Where the scale of a place is, NULL if it is 1. */
unsigned char *box_scale_at(const struct box *box, uint32_t half, int64_t page, int64_t token, uint32_t head);
bool box_is_token_head(const struct box *box, uint32_t half);

/* Starts to track a buffer that holds what it is to hold before a run. */
void cache_track(struct cache_case *c, struct guarded *memory);
/* An array that is only read. */
struct attn_buffer cache_array(struct cache_case *c, const char *name, const void *from, size_t size,
                               size_t alignment);
/* The place in the mirror of an address in a tracked buffer. */
unsigned char *cache_mirror(struct cache_case *c, const void *address);
void cache_restore(struct cache_case *c);
/* False: *out_name is the buffer and *out_at its first wrong byte. */
bool cache_compare(const struct cache_case *c, const char **out_name, size_t *out_at);

/* ---------------------------------------------------------------- cache-reference.c, all in mirrors */

/* The vector of a place and its scale as they are. */
void reference_move(struct cache_case *c, const struct box *from, const int64_t from_place[2],
                    const struct box *to, const int64_t to_place[2], uint32_t half, uint32_t head);
/* The values of a place, scale applied in f32. */
void reference_load(struct cache_case *c, const struct box *from, uint32_t half, const int64_t place[2],
                    uint32_t head, double *to);
/* Values to a place as a write stores them. */
void reference_store(struct cache_case *c, const struct box *to, uint32_t half, const int64_t place[2],
                     uint32_t head, const double *values);
/* One value of f32, f16 or bf16; any NaN will do. */
void reference_put(struct cache_case *c, uint32_t dtype, double value, unsigned char *to);

/* ---------------------------------------------------------------- cache-pairs.c, cache-batch.c,
 * cache-write.c, cache-step.c */

extern const struct cache_operation cache_copy_slots, cache_copy_blocks, cache_swap_blocks, cache_convert;
extern const struct cache_operation cache_slot_mapping, cache_gather;
extern const struct cache_operation cache_write;
extern const struct cache_operation cache_advance_step;

#endif
