/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes attn-probe's worker crash where a damaged plugin file reaches beyond its own memory. */
#ifndef ATTN_PLUGIN_FENCE_H
#define ATTN_PLUGIN_FENCE_H

#include <stdint.h>

/* Sanitizers have an allocator of their own, with fences, and a plan of the address space. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FENCE_IS_LEFT_TO_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FENCE_IS_LEFT_TO_SANITIZER 1
#endif
#endif
#ifndef FENCE_IS_LEFT_TO_SANITIZER
#define FENCE_IS_LEFT_TO_SANITIZER 0
#endif

/*
 * Leaves the next file of that size a hole between two areas that nobody may touch, and what is allocated
 * with calloc until fence_end an end that nobody may cross: damaged addresses and indices of a file lead
 * there.
 */
void fence_begin(uint64_t file_size);
void fence_end(void);

#endif
