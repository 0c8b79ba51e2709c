/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Advances the metadata of a builder to the next decode step, in place. */
#ifndef ATTN_SERVING_BUILDER_ADVANCE_H
#define ATTN_SERVING_BUILDER_ADVANCE_H

#include "builder.h"

/* The next step: the caller's arguments, and what attn__next_step_check derives from them. */
struct attn__next_step {
    struct attn_builder_impl *b;
    const struct attn_advance_args *args;
    uint32_t seqs;
    uint32_t queries;
    uint32_t num_tokens;   /* query tokens of the next step */
    uint32_t max_q;        /* the largest number of them that a sequence has */
    const int32_t *starts; /* query_start_loc of the next step; NULL: one token each */
};

/* Checks vLLM's assertions and the bounds of all arrays, and fills the rest of `next`. */
int32_t attn__next_step_check(struct attn__next_step *next, struct attn_error *err);

/* attn_metadata_advance_step. Arrays in a device's memory are advanced by the backend's advance_step. */
int32_t attn__builder_advance(struct attn_builder_impl *builder, const struct attn_advance_args *args,
                              void *stream, struct attn_error *err);

#endif
