/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the GPU of a rank, for programs whose ranks are threads. */
#ifndef PARALLEL_GPU_OPEN_H
#define PARALLEL_GPU_OPEN_H

#include <stdio.h>
#include <stdlib.h>

#include "attn/attn.h"
#include "attn/device.h"

/* A failure of a rank leaves others waiting, so that the program ends. */
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        if ((call) != ATTN_OK) {                                                                             \
            printf("Bail out! rank %u: %s: %s\n", rank->number, #call, rank->err.message);                   \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* Device `number` of CUDA, by the backend that serves a problem, and a stream of it. */
static inline int32_t gpu_open(struct attn_context *context, const char *text, uint32_t number,
                               struct attn_backend **out_backend, void **out_stream, struct attn_error *err)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    struct attn_problem problem;
    char device[32];

    ATTN_INIT(&options);
    snprintf(device, sizeof device, "cuda:%u", number);
    options.device = device;
    int32_t status = attn_problem_parse(text, &problem, err);
    if (status == ATTN_OK)
        status = attn_select(context, &problem, 1, &options, &decision, err);
    if (status == ATTN_OK)
        status = attn_backend_open(context, decision, NULL, out_backend, err);
    attn_decision_destroy(decision);
    return status == ATTN_OK ? attn_stream_create(*out_backend, out_stream, err) : status;
}

#endif
