/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A device whose memory is apart from the host's, and random steps for builders on it or without one. */
#ifndef TESTS_STEP_FIXTURE_H
#define TESTS_STEP_FIXTURE_H

#include "attn/serving.h"
#include "step.h"

#define FIXTURE_SEQS     12
#define FIXTURE_TOKENS   160
#define FIXTURE_BLOCKS   16
#define FIXTURE_INDICES  (FIXTURE_SEQS * FIXTURE_BLOCKS)
#define FIXTURE_MAPS     24
#define FIXTURE_GROUPS   2
#define FIXTURE_MODALITY 2

/* Tables of a device: memory of its own, copies at once, advance_step on it. */
extern const struct attn_memory_table fixture_memory;
extern const struct attn_kv_table fixture_kv;

/* One sequence. Everything else follows from it. */
struct fixture_seq {
    uint32_t prompt;
    uint32_t context_len;
    uint32_t query_len;
    uint32_t encoder_len;
    uint32_t hit;
    uint32_t count[FIXTURE_GROUPS + 1]; /* blocks; the last group is cross-attention's */
    int64_t blocks[FIXTURE_GROUPS + 1][FIXTURE_BLOCKS];
    uint32_t pairs;
    int64_t sources[4], destinations[4];
};

struct fixture_step {
    uint32_t flavour;
    uint32_t groups;
    uint32_t block[FIXTURE_GROUPS + 1];
    uint32_t index_dtype;
    uint32_t chunked;
    uint32_t apart; /* on the device */
    uint32_t modalities;
    uint32_t cross;
    uint32_t profile;
    uint32_t graph, pad;
    uint32_t seqs;
    struct fixture_seq seq[FIXTURE_SEQS];
};

enum fixture_kind { FIXTURE_ANY, FIXTURE_DECODES, FIXTURE_TO_DECODE };

/* A random step, with room in its blocks for the tokens of later steps if it is to advance. */
void fixture_roll(struct dice *dice, enum fixture_kind kind, struct fixture_step *step);

struct attn_builder_impl *fixture_builder(const struct fixture_step *step);
/* Adds and builds all of it; ends the program if that fails. */
struct attn_metadata_impl *fixture_build(struct attn_builder_impl *builder, const struct fixture_step *step);

struct attn_view fixture_get(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index);
/* Element i of a view; `device`: of the array where kernels read it. */
int64_t fixture_at(const struct attn_view *view, uint64_t i, int device);
/* How many there are. */
uint64_t fixture_count(const struct attn_view *view);

/*
 * Compares all fields of two steps, on the host and on the device; block_table_bound, which only an advance
 * fills, if `bound`. Says what differs.
 */
void fixture_same(const struct fixture_step *step, const struct attn_metadata_impl *a,
                  const struct attn_metadata_impl *b, int bound, uint64_t seed);

/* Reads all of a step, takes its parts, and advances it, with no device. use.c */
void fixture_use(const struct fixture_step *step, struct attn_builder_impl *builder,
                 struct attn_metadata_impl *whole);
/* A step of bytes that nobody vouches for; NULL if they are refused, which is to name a field. */
struct attn_metadata_impl *fixture_restore(struct attn_builder_impl *builder, const void *data, uint64_t size,
                                           uint64_t seed);

/* Calls of malloc and its like so far: the linker leads them through wrappers here. wrap.c */
extern unsigned long fixture_allocations;

#endif
