/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the parts of continuous batching share. */
#ifndef ENGINE_BATCH_IMPL_H
#define ENGINE_BATCH_IMPL_H

#include "batch.h"

/* The state of a run. */
struct batch {
    struct engine *engine;
    struct sequence *sequences;
    uint32_t count;
    const struct batch_options *options;
    struct attention_options attention; /* with the maxima */
    uint32_t steps;                     /* tokens that are generated at one go at most */
    struct batch_result *result;
    struct scheduler *scheduler;
    struct scheduled_part *order;
    struct forward_part *parts; /* in this order */
    struct sequence **members;  /* of the parts */
    int32_t *chosen;            /* [parts, steps] tokens that follow */
    float *logits;
};

/* Refuses what cannot run; then maxima, scheduler, requests and the engine. */
int batch_start(struct batch *b, struct failure *err);

/*
 * Chooses tokens for the parts whose logits are there, as token number `substep` of the step.
 * *out_ended tells that a text has ended.
 */
int batch_choose(struct batch *b, uint32_t count, uint32_t substep, bool *out_ended, struct failure *err);
/* After the step was committed: the tokens of all substeps go to the scheduler, and samples begin. */
int batch_settle(struct batch *b, uint32_t count, uint32_t substeps, struct failure *err);
/* Ends those that are to be cancelled. */
void batch_end_cancelled(struct batch *b);

#endif
