/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The objects behind the handles of the serving layer. */
#ifndef ATTN_CORE_LAYER_H
#define ATTN_CORE_LAYER_H

#include "attn/layer.h"
#include "core.h"

/* Lives in its builder; `impl` is NULL while there is no step. */
struct attn_metadata {
    struct attn_builder *builder;
    struct attn_metadata_impl *impl;
    uint64_t step; /* of the whole: counts the steps that its builder has made, built, restored or advanced */
};

struct attn_builder {
    uint32_t born;                          /* fork generation */
    struct attn_backend *backend;           /* held, or NULL */
    const struct attn_builder_table *table; /* the backend's or the common one */
    struct attn_builder_impl *impl;
    struct attn_metadata whole;
    struct attn_metadata prefill; /* parts of it */
    struct attn_metadata decode;
};

/* NULL handle, a child after fork, or a lost device. */
int32_t attn__builder_begin(const struct attn_builder *builder, const char *what, struct attn_error *err);
/* The same for metadata, which is to be of a step that has not ended. */
int32_t attn__metadata_begin(const struct attn_metadata *metadata, const char *what, struct attn_error *err);
/* How many prompts of a step have blocks that their rows of the block tables do not show. */
uint32_t attn__metadata_untabled(const struct attn_metadata *metadata);
/* What a table's call returned, as attn__call_end has it; without a backend as it is. */
int32_t attn__builder_end(const struct attn_builder *builder, int32_t status, struct attn_error *own,
                          const char *what, struct attn_error *err);

/* ---------------------------------------------------------------- layers */

struct attn_layer {
    struct attn_backend *backend; /* held */
    struct attn_problem problem;  /* resolved */
    struct attn_layer_class layer_class;
    struct attn_layer_desc desc;
};

/* ---------------------------------------------------------------- builders */

/* A sized argument in this library's size; what the builder's maker did not know must be zero. */
int32_t attn__builder_take(const void *given, void *copy, size_t size, uint32_t known, const char *name,
                           const void **out, struct attn_error *err);

#endif
