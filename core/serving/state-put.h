/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A graph's step on its way into the capture buffers. */
#ifndef ATTN_STATE_PUT_H
#define ATTN_STATE_PUT_H

#include "serving/state-step.h"

/* A step on its way into the buffers. */
struct attn__put {
    const struct attn_state *clone;
    struct attn__step_view step;
    char *image;      /* NULL: from device to device */
    bool on_host;     /* all values are known there */
    uint64_t end;     /* of the buffers that it fills */
    uint64_t indices; /* FlashInfer's of the groups so far */
    void *stream;
};

/* Whether everything fits, and whether the host knows all values. */
int32_t attn__put_check(struct attn__put *put, struct attn_error *err);
/* Into the image, or from device to device. */
int32_t attn__put_move(struct attn__put *put, struct attn_error *err);

#endif
