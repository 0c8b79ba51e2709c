/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory of a builder. */
#ifndef ATTN_COMMON_BUILDER_ROOM_H
#define ATTN_COMMON_BUILDER_ROOM_H

#include "builder.h"

/* Allocates arrays, tables and views for the builder's maxima; after a failure attn__builder_destroy frees.
 */
int32_t attn__builder_room(struct attn_builder_impl *builder, struct attn_error *err);

#endif
