/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ATTN_LOG=trace: one line for each call that reaches a backend. */
#ifndef ATTN_TRACE_H
#define ATTN_TRACE_H

#include "core.h"

/* Nanoseconds of a clock that only goes forward; never 0. */
uint64_t attn__trace_now(void);

/* When the call into the plugin begins; 0 if the backend was opened without trace. */
static inline uint64_t attn__trace_begin(const struct attn_backend *backend)
{
    return __builtin_expect(backend->trace, 0) ? attn__trace_now() : 0;
}

/*
 * The lines of calls that attn__trace_begin gave a time; with 0 nothing happens. They take no memory but the
 * stack.
 */
void attn__trace_plan_line(const struct attn_plan *plan, uint64_t began, int32_t status, const char *call,
                           const struct attn_batch *batch);
/* `desc` is the cache that the call works on, or NULL; the format gives the sizes. */
void attn__trace_line(const struct attn_backend *backend, uint64_t began, int32_t status, const char *call,
                      const struct attn_kv_desc *desc, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

static inline void attn__trace_plan(const struct attn_plan *plan, uint64_t began, int32_t status,
                                    const char *call, const struct attn_batch *batch)
{
    if (__builtin_expect(began != 0, 0))
        attn__trace_plan_line(plan, began, status, call, batch);
}
/* A macro, so that the sizes are not evaluated without trace. */
#define attn__trace(backend, began, ...)                                                                     \
    do {                                                                                                     \
        if (__builtin_expect((began) != 0, 0))                                                               \
            attn__trace_line((backend), (began), __VA_ARGS__);                                               \
    } while (0)

#endif
