/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step on its way from metadata to batches. */
#ifndef ATTN_STATE_STEP_H
#define ATTN_STATE_STEP_H

#include "serving/state.h"

/* What all classes ask of a step. */
struct attn__step_view {
    const struct attn_state *state;
    const struct attn_metadata *metadata;
    int32_t *lens;       /* FlashInfer's lengths that are worked out */
    uint32_t num_tokens; /* query tokens of the step */
    uint32_t prompt_tokens;
    uint32_t prefills;
    uint32_t untabled; /* of which the block tables have no rows */
    uint32_t max_q;    /* 0 = not said */
    uint32_t decode_q; /* most query tokens of a decode; 0 = not said */
    struct attn_view starts;
};

/* One run of a class under construction, over the whole step. */
struct attn__run {
    struct attn_batch *batch;
    struct attn_batch_host *host;
    uint32_t source; /* enum attn_kv_source: where its keys are */
};

static inline int32_t attn__step_get(const struct attn__step_view *step, uint32_t field, uint32_t index,
                                     struct attn_view *out, struct attn_error *err)
{
    ATTN_INIT(out);
    return attn_metadata_get(step->metadata, field, index, out, err);
}

/* A number, 0 if the flavour has none. */
int32_t attn__step_number(const struct attn__step_view *step, uint32_t field, uint32_t index, int64_t *out,
                          struct attn_error *err);

/* The run's batch; *out_given is false if the step has nothing for it. */
int32_t attn__run_fill(const struct attn__step_view *step, uint32_t layer_class, struct attn__run *run,
                       bool *out_given, struct attn_error *err);
/* Says what holds of the finished batch. `problem` is that of the class. */
void attn__run_finish(const struct attn__step_view *step, const struct attn_problem *problem,
                      struct attn__run *run);

#endif
