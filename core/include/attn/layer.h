/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The serving layer: everything between a scheduler's batch and a kernel.
 *
 *   1. attn_builder_create   once per model and thread of steps: buffers for the largest step.
 *   2. attn_builder_reset    a new step; rows of the block tables stay.
 *   3. attn_builder_add      once per sequence, prompts first.
 *   4. attn_builder_build    the metadata of the step.
 *   5. attn_metadata_get     any field of it, as a view.
 *
 * From step 2 on nothing is allocated. Errors, ownership and handles are as in attn.h. One thread at a time
 * uses a builder and its metadata; different builders are used in parallel.
 */
#ifndef ATTN_LAYER_H
#define ATTN_LAYER_H

#include "attn/attn.h"
#include "attn/compat.h"
#include "attn/layer-types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attn_builder;
struct attn_metadata;

/* "flash-attn", static; NULL for a number that is no enum attn_flavour. */
ATTN_API const char *attn_flavour_name(uint32_t flavour);

/* ---------------------------------------------------------------- builder */

/*
 * Makes a builder. `backend` may be NULL: then everything lies in host memory, and params->flavour must be
 * given. ATTN_E_INVALID names the parameter; ATTN_E_MEMORY.
 */
ATTN_API int32_t attn_builder_create(struct attn_backend *backend, const struct attn_builder_params *params,
                                     struct attn_builder **out, struct attn_error *err);
/* Its metadata goes with it. */
ATTN_API void attn_builder_destroy(struct attn_builder *builder);

/*
 * Begins a step: no sequences. The metadata of the step before ends here. Rows of the block tables keep their
 * cells, so that an add says what of its row is unchanged.
 */
ATTN_API int32_t attn_builder_reset(struct attn_builder *builder, struct attn_error *err);

/*
 * Adds a sequence. What it points to must stay until attn_builder_build. A failing call adds nothing.
 * ATTN_E_INVALID: a length, list or row that cannot be, in the words of the original where it has some.
 * ATTN_E_SIZE: more than the builder was made for.
 */
ATTN_API int32_t attn_builder_add(struct attn_builder *builder, const struct attn_builder_add_args *args,
                                  struct attn_error *err);

/*
 * Ends a step and gives its metadata, which belongs to the builder and lives until reset, destroy, or the
 * next build. `args` may be NULL: no graph. Copies to the device are in order of `stream`. A failing call
 * leaves the step as it was.
 */
ATTN_API int32_t attn_builder_build(struct attn_builder *builder, const struct attn_builder_build_args *args,
                                    void *stream, struct attn_metadata **out, struct attn_error *err);

/* ---------------------------------------------------------------- metadata */

/* "seq_lens_tensor", static; NULL for a number that is no enum attn_field. */
ATTN_API const char *attn_field_name(uint32_t field);

/*
 * One field. `index` is the cache group or the modality of fields that exist once for each, else 0. A field
 * without a value has kind ATTN_VIEW_NULL and is no error. Views show what later calls change in place.
 */
ATTN_API int32_t attn_metadata_get(const struct attn_metadata *metadata, uint32_t field, uint32_t index,
                                   struct attn_view *out, struct attn_error *err);

#ifdef __cplusplus
}
#endif
#endif
