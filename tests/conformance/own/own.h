/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Steps that live in the backend's own memory from beginning to end, as an engine's do: no detour through
 * guarded buffers of the host, streams that are not waited for after every call, threads that do not take
 * turns. Results are held against a run of the same step alone, whose numbers the kind `attention` judges.
 */
#ifndef OWN_H
#define OWN_H

#include "attn/device.h"
#include "conform.h"

enum { OWN_SEQS = 12, OWN_ROWS = 48, OWN_KEYS = 200, OWN_BLOCK = 16, OWN_WIDTH = 13, OWN_PAGES = 64 };

/* What changes from step to step, as the host has it. */
struct own_step {
    int32_t q_offsets[OWN_SEQS + 1];
    int32_t kv_lens[OWN_SEQS];
    int32_t table[OWN_SEQS * OWN_WIDTH];
    unsigned char *q;
    unsigned char *expected; /* out, then lse, after a run alone */
};

/* Where things lie in the one piece of memory. */
enum own_place {
    OWN_OFFSETS,
    OWN_LENS,
    OWN_TABLE,
    OWN_Q,
    OWN_OUT, /* lse follows at once */
    OWN_LSE,
    OWN_CACHE,
    OWN_SCHEDULE,
    OWN_SCRATCH,
    OWN_COUNTERS,
    OWN_END
};

struct own {
    struct attn_backend *backend;
    struct attn_problem problem;
    struct attn_plan *plan;
    bool plan_lent; /* it is another's */
    struct attn_kv_desc kv;
    struct attn_buffer memory;
    uint64_t at[OWN_END + 1];
    uint64_t result_bytes; /* out and lse */
    struct attn_span staging;
    bool staging_pinned;
    void *stream; /* NULL where the backend has none */
    unsigned char *result;
    uint32_t seqs, rows; /* of the step at hand: what a capture bakes in */
};

/* The problems of these kinds; all with det=1, so that a run has one result. */
extern const char *const own_problems[];
extern const uint32_t own_problem_count;

/*
 * 1; 0 with a text in `why` where the target does not serve the problem with this graph level; -1 with a
 * text. What was made is released in either case by own_finish. `lender` may lend its plan.
 */
int own_init(struct own *own, const struct target *target, const char *problem, uint32_t graph,
             const struct own *lender, char *why, size_t size);
void own_finish(struct own *own);

/* A random step of `seqs` sequences, padding included, and `rows` query tokens. */
void own_step_init(const struct own *own, struct own_step *step, struct rng *rng, uint32_t seqs,
                   uint32_t rows);
void own_step_finish(struct own_step *step);

/* Arrays and queries go to the device, and a pattern into the outputs; in order of the stream. */
int32_t own_send(struct own *own, const struct own_step *step, struct attn_error *err);
/* Prepares on the device and runs. */
int32_t own_run(struct own *own, struct attn_error *err);
/* Waits, and takes the outputs into own->result. */
int32_t own_take(struct own *own, struct attn_error *err);
/* All three, and the outputs become what is expected of the step. */
int32_t own_expect(struct own *own, struct own_step *step, struct attn_error *err);
/* Captures own_run for own->seqs and own->rows. */
int32_t own_capture(struct own *own, struct attn_graph **out, struct attn_error *err);
/* Whether own->result is what is expected; if not, where it begins to differ. */
bool own_is_right(const struct own *own, const struct own_step *step, uint64_t *out_at);

#endif
