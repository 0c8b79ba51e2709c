/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The parts of cache_ops.json that have a file of their own. */
#ifndef GOLDEN_CACHE_CODES_H
#define GOLDEN_CACHE_CODES_H

#include "golden.h"

/* Copies of pages within several layers. */
void check_copy(struct golden *g, struct attn_backend *backend, const json_t *row);
/* Every code of each 8-bit type as a number, and numbers as codes. */
void check_codes(struct golden *g, struct attn_backend *backend, const json_t *types);

#endif
