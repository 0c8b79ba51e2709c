/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Metadata that was recorded by its fields alone, made again by a builder. */
#ifndef GOLDEN_TRACE_STEP_H
#define GOLDEN_TRACE_STEP_H

#include "attn/layer.h"
#include "golden.h"

/* What else a state has to know of it. */
struct trace_step {
    struct attn_builder_group group;
    struct attn_builder_group cross;
    bool has_cross;
    uint32_t seqs;
    uint32_t max_len; /* tokens of a sequence, or of an encoder's */
    uint32_t tokens;
};

/* `block` is the cache's tokens per block. The builder is made even if the build fails. */
int32_t trace_build(const json_t *meta, uint32_t flavour, int64_t block, struct attn_backend *backend,
                    struct trace_step *step, struct attn_builder **builder, struct attn_metadata **out,
                    struct attn_error *err);

#endif
