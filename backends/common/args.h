/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How public functions of this folder take sized structs and refuse them: they run without the core. */
#ifndef ATTN_COMMON_ARGS_H
#define ATTN_COMMON_ARGS_H

#include "attn/types.h"

/*
 * Copies the caller's struct `source` into `target`, a struct of `size` bytes. Refuses NULL, a size that was
 * never set, and bytes that this version does not know unless they are 0.
 */
int32_t attn__args_take(void *target, size_t size, const void *source, const char *name,
                        struct attn_error *err);

/* Refuses a struct to be written that is NULL or smaller than this version's; keeps its size, clears the
 * rest. */
int32_t attn__args_clear(void *target, size_t size, const char *name, struct attn_error *err);

#endif
