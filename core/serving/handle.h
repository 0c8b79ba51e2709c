/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The objects behind the handles of the serving layer: what a plugin's builder, state or layer made, and its
 * table. */
#ifndef ATTN_SERVING_HANDLE_H
#define ATTN_SERVING_HANDLE_H

#include "attn/layer.h"
#include "dispatch/call.h"

/* Metadata of a builder's step, or of a state's capture. */
struct attn_metadata {
    const struct attn_builder_table *table; /* its functions read impl */
    struct attn_metadata_impl *impl;        /* NULL while there is no step */
    struct attn_builder *builder;           /* that made it, or NULL */
    struct attn_backend *backend;           /* of builder or state; NULL: of a builder without one */
    uint32_t born;                          /* fork generation */
};

struct attn_builder {
    uint32_t born;                          /* fork generation */
    struct attn_backend *backend;           /* held, or NULL */
    const struct attn_builder_table *table; /* the backend's, or that of libattn-serving */
    struct attn_builder_impl *impl;
    struct attn_metadata whole;
    struct attn_metadata prefill; /* parts of it */
    struct attn_metadata decode;
};

struct attn_state {
    struct attn_backend *backend; /* held */
    const struct attn_state_table *table;
    struct attn_state_impl *impl;
    struct attn_metadata
        *capture; /* of a clone: its own; of a state: what the next clone is made of; or NULL */
};

struct attn_layer {
    struct attn_backend *backend; /* held */
    const struct attn_layer_table *table;
    struct attn_layer_impl *impl;
    struct attn_problem problem; /* resolved */
};

/* Refuses a NULL handle, a child after fork, and a lost device. builder.c */
int32_t attn__builder_begin(const struct attn_builder *builder, const char *what, struct attn_error *err);
/* The same for metadata; also refuses metadata of a step that has ended. builder.c */
int32_t attn__metadata_begin(const struct attn_metadata *metadata, const char *what, struct attn_error *err);
/* The same for states. state.c */
int32_t attn__state_begin(const struct attn_state *state, const char *what, struct attn_error *err);
/* Refuses metadata that the state's plugin cannot read. state.c */
int32_t attn__state_reads(const struct attn_state *state, const struct attn_metadata *metadata,
                          struct attn_error *err);
/* Passes on what a builder's function returned: through attn__call_end, or unchanged without a backend. */
int32_t attn__builder_end(const struct attn_builder *builder, int32_t status, struct attn_error *own,
                          const char *what, struct attn_error *err);
/*
 * Passes on what a function of a state or layer returned, with its message unchanged: messages of calls back
 * into libattn name the backend already. state.c
 */
int32_t attn__serving_end(struct attn_backend *backend, int32_t status, struct attn_error *own,
                          const char *what, struct attn_error *err);

/*
 * Copies a sized struct into this version's size; members that the plugin's part does not know must be zero.
 * builder.c
 */
int32_t attn__serving_take(const void *args, void *copy, size_t size, uint32_t known, const char *name,
                           const void **out, struct attn_error *err);

/* What a plugin's state or layer may call. host.c */
void attn__serving_host(struct attn_backend *backend, struct attn_serving_host *out);

#endif
