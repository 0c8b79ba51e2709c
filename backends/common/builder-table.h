/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The builder of plugins that bring none of their own. */
#ifndef ATTN_COMMON_BUILDER_TABLE_H
#define ATTN_COMMON_BUILDER_TABLE_H

#include "attn/plugin.h"

extern const struct attn_builder_table attn__common_builder;

#endif
