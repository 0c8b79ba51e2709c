/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A device whose memory is apart from the host's, and random steps for builders on it or without one. */
#ifndef TESTS_STEP_RIG_H
#define TESTS_STEP_RIG_H

#include "builder-table.h"
#include "step.h"

#define RIG_SEQS     12
#define RIG_TOKENS   160
#define RIG_BLOCKS   16
#define RIG_INDICES  (RIG_SEQS * RIG_BLOCKS)
#define RIG_MAPS     24
#define RIG_GROUPS   2
#define RIG_MODALITY 2

/* Tables of a device: memory of its own, copies at once, advance_step on it. */
extern const struct attn_memory_table rig_memory;
extern const struct attn_kv_table rig_kv;

/* One sequence. Everything else follows from it. */
struct rig_seq {
    uint32_t prompt;
    uint32_t context_len;
    uint32_t query_len;
    uint32_t encoder_len;
    uint32_t hit;
    uint32_t count[RIG_GROUPS + 1]; /* blocks; the last group is cross-attention's */
    int64_t blocks[RIG_GROUPS + 1][RIG_BLOCKS];
    uint32_t pairs;
    int64_t sources[4], destinations[4];
};

struct rig_step {
    uint32_t flavour;
    uint32_t groups;
    uint32_t block[RIG_GROUPS + 1];
    uint32_t index_dtype;
    uint32_t chunked;
    uint32_t apart; /* on the device */
    uint32_t modalities;
    uint32_t cross;
    uint32_t profile;
    uint32_t graph, pad;
    uint32_t seqs;
    struct rig_seq seq[RIG_SEQS];
};

enum rig_kind { RIG_ANY, RIG_DECODES, RIG_TURN };

/* A random step, with room in its blocks for the tokens of later steps if it is to advance. */
void rig_roll(struct dice *dice, enum rig_kind kind, struct rig_step *step);

struct attn_builder_impl *rig_builder(const struct rig_step *step);
/* Adds and builds all of it; ends the program if that fails. */
struct attn_metadata_impl *rig_build(struct attn_builder_impl *builder, const struct rig_step *step);

struct attn_view rig_get(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index);
/* Element i of a view; `device`: of the array where kernels read it. */
int64_t rig_at(const struct attn_view *view, uint64_t i, int device);
/* How many there are. */
uint64_t rig_count(const struct attn_view *view);

/*
 * Compares all fields of two steps, on the host and on the device; block_table_bound, which only an advance
 * fills, if `bound`. Says what differs.
 */
void rig_same(const struct rig_step *step, const struct attn_metadata_impl *a,
              const struct attn_metadata_impl *b, int bound, uint64_t seed);

/* Reads all of a step, takes its parts, and advances it, with no device. use.c */
void rig_use(const struct rig_step *step, struct attn_builder_impl *builder,
             struct attn_metadata_impl *whole);
/* A step of bytes that nobody vouches for; NULL if they are refused, which is to name a field. */
struct attn_metadata_impl *rig_restore(struct attn_builder_impl *builder, const void *data, uint64_t size,
                                       uint64_t seed);

/* Calls of malloc and its like so far: the linker leads them through wrappers here. wrap.c */
extern unsigned long rig_allocations;

#endif
