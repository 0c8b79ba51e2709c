/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The functions of libattn that states and layers of plugins may call. */
#include "attn/device.h"
#include "attn/parallel.h"
#include "dispatch/plan.h"
#include "select/problem.h"
#include "serving/handle.h"

static int32_t resolve(struct attn_backend *backend, const struct attn_problem *in, struct attn_problem *out,
                       struct attn_error *err)
{
    return attn__problem_take(backend->context, in, out, err);
}

static int32_t ask(struct attn_backend *backend, const struct attn_problem *problem, struct attn_error *err)
{
    struct attn_plan_info info;

    return attn__plan_ask(backend, problem, &info, err);
}

void attn__serving_host(struct attn_backend *backend, struct attn_serving_host *out)
{
    *out = (struct attn_serving_host){.struct_size = sizeof *out,
                                      .device_type = backend->device.type,
                                      .backend = backend,
                                      .name = backend->entry->table.name,
                                      .impl = backend->impl,
                                      .memory = &backend->entry->memory,
                                      .kv = &backend->entry->kv,
                                      .problem_resolve = resolve,
                                      .problem_ask = ask,
                                      .plan_create = attn_plan_create,
                                      .plan_destroy = attn_plan_destroy,
                                      .plan_get_sizes = attn_plan_get_sizes,
                                      .plan_prepare_many = attn_plan_prepare_many,
                                      .plan_run = attn_plan_run,
                                      .kv_write = attn_kv_write,
                                      .memory_alloc = attn_memory_alloc,
                                      .memory_free = attn_memory_free,
                                      .memory_copy = attn_memory_copy,
                                      .memory_alloc_pinned = attn_memory_alloc_pinned,
                                      .memory_free_pinned = attn_memory_free_pinned,
                                      .stream_synchronize = attn_stream_synchronize,
                                      .event_create = attn_event_create,
                                      .event_record = attn_event_record,
                                      .event_query = attn_event_query,
                                      .event_destroy = attn_event_destroy,
                                      .cp_create = attn_cp_create,
                                      .cp_destroy = attn_cp_destroy,
                                      .cp_run = attn_cp_run,
                                      .cp_wait = attn_cp_wait};
}
