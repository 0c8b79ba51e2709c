/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Allocates and frees the memory of a builder. */
#ifndef ATTN_SERVING_BUILDER_MEMORY_H
#define ATTN_SERVING_BUILDER_MEMORY_H

#include "builder.h"

/* Allocates arrays and tables for the builder's maxima. attn__builder_destroy frees, after failures
 * too. */
int32_t attn__builder_allocate(struct attn_builder_impl *builder, struct attn_error *err);

#endif
