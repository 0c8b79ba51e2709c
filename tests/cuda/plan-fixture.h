/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Layer classes with steps of their own, planned together on the fake driver. */
#ifndef PLAN_FIXTURE_H
#define PLAN_FIXTURE_H

#include "plan.h"
#include "world.h"

enum {
    FIXTURE_CLASSES = 40,
    FIXTURE_SEQS = 2100,
    FIXTURE_Q_LEN = 200,
    FIXTURE_KV_LEN = 3000,
    FIXTURE_ENTRIES = 1 << 16
};

/* A layer class and the arrays of its step, of which `device` is a copy. */
struct fixture_class {
    struct attn_problem problem;
    struct attn_plan_impl *plan;
    struct attn_plan_sizes sizes;
    struct attn_batch batch;
    struct attn_batch_host host;
    struct {
        int32_t q_offsets[FIXTURE_SEQS + 1], kv_lens[FIXTURE_SEQS], kv_offsets[FIXTURE_SEQS + 1],
            global_lens[FIXTURE_SEQS];
        int32_t positions[FIXTURE_SEQS * FIXTURE_Q_LEN];
        int32_t entries[FIXTURE_ENTRIES], indptr[FIXTURE_SEQS + 1]; /* paged: written by the test */
        int64_t wide[FIXTURE_ENTRIES];
        uint8_t seq_causal[FIXTURE_SEQS];
    } arrays;
    struct attn_buffer device;
};

struct fixture {
    struct world *world;
    struct attn_backend_impl *backend;
    void *stream;
    struct fixture_class *made[FIXTURE_CLASSES];
    uint32_t made_count;
    const struct fixture_class *step[FIXTURE_CLASSES]; /* what a call plans: one may be there several times */
    uint32_t count;
    uint64_t random;
};

void fixture_begin(struct fixture *fixture, struct world *world, uint64_t random);
/* On a device with so many bytes of memory; 0 = as many as others have. */
void fixture_begin_with(struct fixture *fixture, struct world *world, uint64_t random, uint64_t memory);
void fixture_end(struct fixture *fixture);
uint32_t fixture_draw(struct fixture *fixture, uint32_t below);

/* A decoder of bf16 with 8 heads, 2 of keys, and 64 columns, in a cache without a table. */
struct attn_problem fixture_problem(uint32_t max_q);
/* What of the rules a schedule depends on. */
struct attn_problem fixture_draw_problem(struct fixture *fixture);
/* Makes a class, and adds it to the step. */
struct fixture_class *fixture_add(struct fixture *fixture, const struct attn_problem *problem);
/* A sequence behind those that there are; only the keys that its class counts are needed. */
void fixture_add_sequence(struct fixture_class *own, uint32_t q_len, uint32_t keys, bool causal);
/* The batch of these sequences. */
void fixture_set_batch(struct fixture *fixture, struct fixture_class *own, uint32_t max_q);
void fixture_draw_batch(struct fixture *fixture, struct fixture_class *own);

/* Bytes of the schedules of a step. */
uint64_t fixture_bytes(const struct fixture *fixture);
/* Plans the step, classes whose bit is in `hosts` by host copies, and shows the schedules, one behind the
 * other, in `out`: bytes that nobody wrote are FIXTURE_RUBBISH. */
int32_t fixture_plan(struct fixture *fixture, uint64_t hosts, unsigned char *out);
#define FIXTURE_RUBBISH 0xa5

#endif
