/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A hash of bytes. */
#include "base/hash.h"

uint64_t attn__hash(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}
