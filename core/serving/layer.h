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
    uint64_t step; /* of `whole`: counts the steps that its builder has built, restored or advanced */
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

/* Refuses a NULL handle, a child after fork, and a lost device. */
int32_t attn__builder_begin(const struct attn_builder *builder, const char *what, struct attn_error *err);
/* The same for metadata; also refuses metadata of a step that has ended. */
int32_t attn__metadata_begin(const struct attn_metadata *metadata, const char *what, struct attn_error *err);
/* How many prompts of a step have blocks that no block table shows. */
uint32_t attn__metadata_prefills_without_table(const struct attn_metadata *metadata);
/* Passes on what a builder's function returned: through attn__call_end, or unchanged without a backend. */
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

/* Copies a sized struct into this version's size; members that the plugin's builder does not know must be
 * zero. */
int32_t attn__builder_take(const void *args, void *copy, size_t size, uint32_t known, const char *name,
                           const void **out, struct attn_error *err);

#endif
