/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The prefill part and the decode part of a step: views of slices of the arrays of the whole. */
#ifndef ATTN_SERVING_PARTS_H
#define ATTN_SERVING_PARTS_H

#include "builder.h"

/* Writes query_start_loc of the decode part. To be called before the arrays are copied to the device. */
void attn__parts_prepare(struct attn_builder_impl *builder);

/* A part (enum attn_part), or NULL if the step has no sequences of the kind. */
int32_t attn__builder_part(struct attn_builder_impl *builder, uint32_t part, struct attn_metadata_impl **out,
                           struct attn_error *err);

/* The decodes of a step, of a part or of a capture; NULL if there are none. */
int32_t attn__metadata_decodes(const struct attn_metadata_impl *metadata,
                               const struct attn_metadata_impl **out, struct attn_error *err);

/* Empties both parts, because the whole has changed. */
void attn__parts_drop(struct attn_builder_impl *builder);

#endif
