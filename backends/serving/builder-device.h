/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Steps whose arrays are on the device already. */
#ifndef ATTN_SERVING_BUILDER_DEVICE_H
#define ATTN_SERVING_BUILDER_DEVICE_H

#include "builder.h"

/* Remembers the arrays for the build. */
int32_t attn__builder_set_device(struct attn_builder_impl *builder,
                                 const struct attn_builder_device_args *args, struct attn_error *err);
/* Computes the missing arrays, and describes the step. */
int32_t attn__builder_build_device(struct attn_builder_impl *builder,
                                   const struct attn_builder_build_args *args, void *stream,
                                   struct attn_error *err);

#endif
