/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Layer classes with steps of their own, planned together on the fake driver. */
#ifndef PLAN_RIG_H
#define PLAN_RIG_H

#include "plan.h"
#include "world.h"

enum { RIG_CLASSES = 40, RIG_SEQS = 2100, RIG_Q_LEN = 200, RIG_KV_LEN = 3000 };

/* A layer class and the arrays of its step, of which `device` is a copy. */
struct rig_class {
    struct attn_problem problem;
    struct attn_plan_impl *plan;
    struct attn_plan_sizes sizes;
    struct attn_batch batch;
    struct attn_batch_host host;
    struct {
        int32_t q_offsets[RIG_SEQS + 1], kv_lens[RIG_SEQS], kv_offsets[RIG_SEQS + 1], global_lens[RIG_SEQS];
        int32_t positions[RIG_SEQS * RIG_Q_LEN];
        uint8_t seq_causal[RIG_SEQS];
    } arrays;
    struct attn_buffer device;
};

struct rig {
    struct world *world;
    struct attn_backend_impl *backend;
    void *stream;
    struct rig_class *made[RIG_CLASSES];
    uint32_t made_count;
    const struct rig_class *step[RIG_CLASSES]; /* what a call plans: one may be there several times */
    uint32_t count;
    uint64_t random;
};

void rig_begin(struct rig *rig, struct world *world, uint64_t random);
void rig_end(struct rig *rig);
uint32_t rig_draw(struct rig *rig, uint32_t below);

/* A decoder of bf16 with 8 heads, 2 of keys, and 64 columns, in a cache without a table. */
struct attn_problem rig_problem(uint32_t max_q);
/* What of the rules a schedule depends on. */
struct attn_problem rig_draw_problem(struct rig *rig);
/* Makes a class, and adds it to the step. */
struct rig_class *rig_add(struct rig *rig, const struct attn_problem *problem);
/* A sequence behind those that there are; only the keys that its class counts are needed. */
void rig_add_sequence(struct rig_class *own, uint32_t q_len, uint32_t keys, bool causal);
/* The batch of these sequences. */
void rig_set_batch(struct rig *rig, struct rig_class *own, uint32_t max_q);
void rig_draw_batch(struct rig *rig, struct rig_class *own);

/* Bytes of the schedules of a step. */
uint64_t rig_bytes(const struct rig *rig);
/* Plans the step, classes whose bit is in `hosts` by host copies, and shows the schedules, one behind the
 * other, in `out`: bytes that nobody wrote are RIG_RUBBISH. */
int32_t rig_plan(struct rig *rig, uint64_t hosts, unsigned char *out);
#define RIG_RUBBISH 0xa5

#endif
