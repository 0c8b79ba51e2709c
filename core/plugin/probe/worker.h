/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How the worker of a probe finds what a plugin does wrong in its calls, memory accesses and side effects. */
#ifndef ATTN_PLUGIN_WORKER_H
#define ATTN_PLUGIN_WORKER_H

#include "core.h"

/* Sanitizers have an allocator with fences and a layout of the address space of their own. */
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
 * fence.c. Makes the memory on both sides of the place inaccessible where the next file of that size is
 * mapped, and until fence_end the memory behind each block that calloc returns: damaged addresses and indices
 * of a file lead there.
 */
void fence_begin(uint64_t file_size);
void fence_end(void);

/*
 * outputs.c. Memory for what calls of the plugin fill in: begin forgets all that was given out, add gives out
 * `size` zeroed bytes, and are_alone is false if anything between them was written.
 */
void outputs_begin(void);
void *outputs_add(size_t size);
bool outputs_are_alone(void);

/* side-effects.c. Also turns stdout and stderr into a file in memory, so that output is seen. */
void side_effects_begin(void);
/* Says every difference; attn-check's kind side-effects has the details. */
void side_effects_end(void (*say)(const char *text));

#endif
