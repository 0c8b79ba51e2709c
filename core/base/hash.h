/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A hash of bytes: keys of kept results, and what a record is checked with. */
#ifndef ATTN_HASH_H
#define ATTN_HASH_H

#include <stddef.h>
#include <stdint.h>

/* What a hash begins with. */
#define ATTN__HASH_START UINT64_C(0xcbf29ce484222325)

/* Adds bytes to a hash (FNV-1a). */
uint64_t attn__hash(uint64_t hash, const void *bytes, size_t size);

#endif
