/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files share that make the batches of a step from its metadata. */
#ifndef ATTN_SERVING_STATE_STEP_H
#define ATTN_SERVING_STATE_STEP_H

#include "state.h"

/* The metadata of a step, and the numbers that all classes read. */
struct attn__step_view {
    const struct attn_state_impl *state;
    const struct attn_metadata_impl *metadata;
    int32_t *lens;       /* out: FlashInfer's sequence lengths */
    uint32_t num_tokens; /* query tokens of the step */
    uint32_t prompt_tokens;
    uint32_t prefills;
    uint32_t prefills_without_table; /* prefills whose blocks no block table shows */
    uint32_t max_q;                  /* 0: the metadata does not tell */
    uint32_t decode_q; /* largest number of query tokens of a decode; 0: the metadata does not tell */
    struct attn_view starts;
};

/* One run of a class while its batch is filled. */
struct attn__run {
    struct attn_batch *batch;
    struct attn_batch_host *host;
    uint32_t source; /* enum attn_kv_source: where its keys are */
};

static inline int32_t attn__step_get(const struct attn__step_view *step, uint32_t field, uint32_t index,
                                     struct attn_view *out, struct attn_error *err)
{
    ATTN_INIT(out);
    return attn__metadata_get(step->metadata, field, index, out, err);
}

/* The value of a field that is a number; 0 if the flavour has no such field. */
int32_t attn__step_number(const struct attn__step_view *step, uint32_t field, uint32_t index, int64_t *out,
                          struct attn_error *err);
/* Refuses padding of FlashInfer where keys of the step are read. */
int32_t attn__fail_padding(struct attn_error *err);
/* The most query tokens of a sequence, at least 1, as the numbers of the metadata say. */
int32_t attn__step_tokens(const struct attn__step_view *step, uint32_t *out, struct attn_error *err);

/* Fills the batch of a run from the whole step; *out_found is false if the step has nothing for it. */
int32_t attn__run_fill(const struct attn__step_view *step, uint32_t layer_class, struct attn__run *run,
                       bool *out_found, struct attn_error *err);
/* Sets the maxima of a batch and whether it has host copies. `problem` is the problem of the class. */
void attn__run_finish(const struct attn__step_view *step, const struct attn_problem *problem,
                      struct attn__run *run);

#endif
