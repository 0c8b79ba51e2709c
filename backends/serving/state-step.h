/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files that make the batches of a step have in common. */
#ifndef ATTN_SERVING_STATE_STEP_H
#define ATTN_SERVING_STATE_STEP_H

#include "state.h"

/* A step, and the state that makes batches of it. */
struct attn__step_view {
    const struct attn_state_impl *state;
    const struct attn_metadata_impl *metadata;
    const struct attn_step *step;
    int32_t *lens; /* out: sequence lengths that follow from pages, [groups][max_seqs] */
};

/* One run of a class while its batch is filled. */
struct attn__run {
    struct attn_batch *batch;
    struct attn_batch_host *host;
    uint32_t source; /* enum attn_kv_source: where its keys are */
};

/* Points a member at an array of the capture buffers; returns its host copy, or NULL if the host has none. */
const void *attn__set_capture(const struct attn__step_view *view, const struct attn__capture_array *array,
                              struct attn_buffer *out);
/* Fills the batch of a run from the whole step; *out_found is false if the step has nothing for it. */
int32_t attn__run_fill(const struct attn__step_view *view, uint32_t layer_class, struct attn__run *run,
                       bool *out_found, struct attn_error *err);
/*
 * If a prompt is longer than the window of its cache group, the builder assigns slots to its last tokens
 * alone: a run that reads the cache would not find the others.
 */
int32_t attn__step_check_window(const struct attn__state_core *core, const struct attn_step *step,
                                uint32_t layer_class, struct attn_error *err);
/* Sets the maxima of a batch, its cascade, and whether it has host copies. `problem` is the problem of the
 * class. */
void attn__run_finish(const struct attn__step_view *view, const struct attn_problem *problem,
                      struct attn__run *run);

#endif
