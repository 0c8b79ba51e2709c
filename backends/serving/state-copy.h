/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies a step into the buffers that its graph was captured with. */
#ifndef ATTN_STATE_COPY_H
#define ATTN_STATE_COPY_H

#include "state-step.h"

/* One copy. */
struct attn__step_copy {
    const struct attn_state_impl *clone;
    const struct attn_step *step;
    char *image;         /* target on the host; NULL: the arrays are copied from device to device */
    uint32_t seqs;       /* of the step; the clone's, or fewer where the copy pads */
    uint32_t num_tokens; /* of these sequences */
    bool on_host;        /* the host has all values of the step */
    uint64_t end;        /* end of what the step fills */
    uint64_t indices;    /* page indices of the groups so far */
    void *stream;
};

/* Checks that all arrays fit the buffers, and sets seqs and on_host. */
int32_t attn__step_copy_check(struct attn__step_copy *copy, struct attn_error *err);
/* Copies the arrays, which have been checked. */
int32_t attn__step_copy_run(struct attn__step_copy *copy, struct attn_error *err);

/* Of a graph of any mix: refuses a step that one run over the cache cannot serve, and copies its query starts
 * (capture-mix.c). */
int32_t attn__mix_check_step(const struct attn__step_copy *copy, struct attn_error *err);
void attn__mix_copy(const struct attn__step_copy *copy);

/* Checks that the step has an array of `count` elements of `size` bytes. */
int32_t attn__copy_check_shape(const char *name, const struct attn_step_array *array, uint64_t count,
                               uint32_t size, struct attn_error *err);

#endif
