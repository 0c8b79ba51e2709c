/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How public functions take sized structs of callers, and refuse them. */
#ifndef ATTN_COMMON_ARGS_H
#define ATTN_COMMON_ARGS_H

#include "attn/types.h"

/* The smallest struct_size that is accepted: the size itself and one member. */
#define ATTN__ARGS_MIN (2 * sizeof(uint32_t))

/*
 * Copies a caller's sized struct into one of this version's size. Fails with ATTN_E_INVALID if source is
 * NULL, smaller than `min_size` bytes, or has a non-zero byte that this version does not know.
 */
int32_t attn__take(void *target, size_t size, const void *source, size_t min_size, const char *name,
                   struct attn_error *err);

/* Clears a caller's struct but for its size; refuses NULL, and a struct smaller than this version's. */
int32_t attn__args_clear(void *target, size_t size, const char *name, struct attn_error *err);

#endif
