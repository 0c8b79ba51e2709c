/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* From one step of decoding to the next: the metadata of a builder advances in place. */
#ifndef ATTN_COMMON_STEP_H
#define ATTN_COMMON_STEP_H

#include "builder.h"

/* The next step: what the caller gave, and what the checks found out. */
struct attn__step {
    struct attn_builder_impl *b;
    const struct attn_advance_args *args;
    uint32_t seqs;
    uint32_t queries;
    uint32_t num_tokens;   /* query tokens of the next step */
    uint32_t max_q;        /* the most that a sequence has of them */
    const int32_t *starts; /* query_start_loc of the step to come; NULL = one token each */
};

/* What the original asserts, and what keeps the arrays in bounds. Fills the rest of `step`. */
int32_t attn__step_check(struct attn__step *step, struct attn_error *err);

/*
 * The whole of it. `kv` is the table of the backend, whose advance_step changes the arrays of a device with
 * memory of its own; NULL where there is no backend.
 */
int32_t attn__builder_advance(struct attn_builder_impl *builder, const struct attn_advance_args *args,
                              const struct attn_kv_table *kv, void *stream, struct attn_error *err);

#endif
