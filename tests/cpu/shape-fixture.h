/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The CPU plugin behind the library, at one kernel level, and a whole run in one call. */
#ifndef TEST_CPU_SHAPE_FIXTURE_H
#define TEST_CPU_SHAPE_FIXTURE_H

#include "attn/attn.h"

struct shape_fixture {
    struct attn_context *context;
    struct attn_backend *backend;
    int scratch_byte; /* what scratch is full of; at first NaN */
};

/* flags: ATTN_CPU_FLAGS, or NULL. */
void fixture_open(struct shape_fixture *fixture, const char *flags);
void fixture_close(struct shape_fixture *fixture);
/* Plan, prepare, run; the first status that is no ATTN_OK. */
int32_t fixture_run(const struct shape_fixture *fixture, const struct attn_problem *problem,
                    const struct attn_batch *batch, const struct attn_tensors *tensors,
                    struct attn_error *err);
/* A problem with maxima that hold every batch of these tests. */
void fixture_problem(const char *text, struct attn_problem *out);

static inline struct attn_tensor fixture_tensor(void *data, size_t token, size_t head)
{
    struct attn_tensor tensor = {.buffer = {data, 0}};

    tensor.token_stride = (int64_t)token;
    tensor.head_stride = (int64_t)head;
    return tensor;
}

#endif
