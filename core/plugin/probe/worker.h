/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How the worker of a probe sees what a plugin does wrong: its calls, its reach in memory, its side effects.
 */
#ifndef ATTN_PLUGIN_WORKER_H
#define ATTN_PLUGIN_WORKER_H

#include "core.h"

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
 * call-check.c. After each call of a checked function the registers that belong to the caller and the stack
 * pointer must be as they were. For one thread; the worker has no other. `tell` gets a sentence and must not
 * return.
 */
void call_check_begin(void (*tell)(const char *text));
/* The checked form of a function; attn__check_call_fn. */
attn__function call_check_add(attn__function function, const char *table, const char *name);

/*
 * fence.c. Leaves the next file of that size a hole between two areas that nobody may touch, and what is
 * allocated with calloc until fence_end an end that nobody may cross: damaged addresses and indices of a file
 * lead there.
 */
void fence_begin(uint64_t file_size);
void fence_end(void);

/* side-effects.c. Also turns stdout and stderr into a file in memory, so that output is seen. */
void side_effects_begin(void);
/* Says every difference; attn-check's kind side-effects has the details. */
void side_effects_end(void (*say)(const char *text));

#endif
