/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the calls of a plan share. */
#ifndef ATTN_PLAN_H
#define ATTN_PLAN_H

#include "dispatch/call.h"

/* Refuses a NULL handle, a child after fork, and a lost device. */
static inline int32_t attn__plan_begin(const struct attn_plan *plan, const char *what, struct attn_error *err)
{
    if (plan == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "plan", "%s: the handle is NULL; a plan is accepted", what);
    return attn__call_begin(plan->backend, what, err);
}

/* Checks that a block has at least `needed` bytes; with 0 it is not looked at. */
static inline int32_t attn__span_check(const struct attn_span *span, uint64_t needed, const char *name,
                                       struct attn_error *err)
{
    if (needed == 0)
        return ATTN_OK;
    if (span == NULL || span->size < needed) {
        return attn__fail(err, ATTN_E_SIZE, 0, name, "%s has %llu bytes; the plan needs %llu", name,
                          span != NULL ? (unsigned long long)span->size : 0, (unsigned long long)needed);
    }
    return span->buffer.data != NULL ? ATTN_OK
                                     : attn__fail(err, ATTN_E_INVALID, 0, name,
                                                  "%s has size %llu, but no buffer; an address is needed",
                                                  name, (unsigned long long)span->size);
}

/* Asks the backend's query; a refusal is ATTN_E_UNSUPPORTED with the first reason. In plan.c. */
int32_t attn__plan_ask(struct attn_backend *backend, const struct attn_problem *problem,
                       struct attn_plan_info *out_answer, struct attn_error *err);

/* Takes a batch in this library's size, and checks all but the contents of its arrays. */
static inline int32_t attn__batch_take(const struct attn_plan *plan, const struct attn_batch *batch,
                                       struct attn_batch *copy, const struct attn_batch **out,
                                       struct attn_error *err)
{
    const void *known;
    const int32_t status =
        attn__argument(plan->backend, batch, copy, sizeof *copy,
                       plan->backend->entry->plugin->table.batch_size, "batch", &known, err);
    *out = known;
    return status == ATTN_OK ? attn__batch_check(&plan->problem, *out, err) : status;
}

#endif
