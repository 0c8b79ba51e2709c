/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The prefill part and the decode part of a step: slices of the arrays of the whole. */
#ifndef ATTN_SERVING_BUILDER_PART_H
#define ATTN_SERVING_BUILDER_PART_H

#include "builder.h"

/*
 * Writes decode_starts from the query starts of the step; with NULL every decode has one token. To be called
 * before the arrays are copied to the device.
 */
void attn__parts_prepare(struct attn_builder_impl *builder, const int32_t *starts);

/* A part (enum attn_part), or NULL if the step has no sequences of the kind. */
int32_t attn__builder_part(struct attn_builder_impl *builder, uint32_t part, struct attn_metadata_impl **out,
                           struct attn_error *err);

#endif
