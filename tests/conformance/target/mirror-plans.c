/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Wrapped calls of backends, plans and graphs. */
#include <stdio.h>
#include <stdlib.h>

#include "mirror-call.h"
#include "need.h"

enum { MOST_PLANS = 256 };

static struct {
    const struct attn_plan *plan;
    struct attn_backend *backend;
} plans[MOST_PLANS];

struct attn_backend *call_backend_of(const struct attn_plan *plan)
{
    struct attn_backend *backend = NULL;

    mirror_lock();
    for (uint32_t i = 0; i < MOST_PLANS; i++)
        if (plans[i].plan == plan && plan != NULL)
            backend = plans[i].backend;
    mirror_unlock();
    return backend;
}

WRAP(int32_t, attn_backend_open, struct attn_context *context, const struct attn_decision *decision,
     const struct attn_open_config *config, struct attn_backend **out, struct attn_error *err)
{
    struct attn_error own;
    int32_t status = __real_attn_backend_open(context, decision, config, out, err);

    if (status != ATTN_OK || !mirror_wanted(attn_backend_get_device(*out)))
        return status;
    ATTN_INIT(&own);
    mirror_lock();
    status = mirror_enable(*out, err != NULL ? err : &own);
    mirror_unlock();
    if (status != ATTN_OK) {
        attn_backend_destroy(*out);
        *out = NULL;
    }
    return status;
}

WRAP(void, attn_backend_destroy, struct attn_backend *backend)
{
    mirror_lock();
    mirror_disable(backend);
    mirror_unlock();
    __real_attn_backend_destroy(backend);
}

WRAP(int32_t, attn_plan_create, struct attn_backend *backend, const struct attn_problem *problem,
     struct attn_plan **out, struct attn_error *err)
{
    int32_t status = __real_attn_plan_create(backend, problem, out, err);
    uint32_t i = 0;

    if (status != ATTN_OK)
        return status;
    mirror_lock();
    bool mirrored = mirror_of(backend) != NULL;
    while (mirrored && i < MOST_PLANS && plans[i].plan != NULL)
        i++;
    if (mirrored && i < MOST_PLANS) {
        plans[i].plan = *out;
        plans[i].backend = backend;
    }
    mirror_unlock();
    return status;
}

WRAP(void, attn_plan_destroy, struct attn_plan *plan)
{
    mirror_lock();
    for (uint32_t i = 0; i < MOST_PLANS; i++)
        if (plans[i].plan == plan)
            plans[i].plan = NULL;
    mirror_unlock();
    __real_attn_plan_destroy(plan);
}

WRAP(int32_t, attn_plan_prepare, const struct attn_plan *plan, const struct attn_batch *from,
     const struct attn_span *schedule, const struct attn_span *staging, void *stream, struct attn_error *err)
{
    struct attn_batch copy;
    struct attn_span place;
    struct call call;

    if (from == NULL || schedule == NULL || !call_begin(&call, call_backend_of(plan), stream, err))
        return __real_attn_plan_prepare(plan, from, schedule, staging, stream, err);
    copy = *from;
    place = *schedule;
    call_batch(&call, &copy);
    call_buffer(&call, &place.buffer);
    return call_end(&call, call_ready(&call)
                               ? __real_attn_plan_prepare(plan, &copy, &place, staging, call.stream, err)
                               : ATTN_OK);
}

WRAP(int32_t, attn_plan_prepare_many, const struct attn_plan *const *many,
     const struct attn_batch *const *batches, const struct attn_span *schedules, uint32_t n,
     const struct attn_span *staging, void *stream, struct attn_error *err)
{
    enum { MOST = 8 };
    struct attn_batch copies[MOST];
    const struct attn_batch *pointers[MOST];
    struct attn_span places[MOST];
    struct call call;

    if (n > MOST || n == 0 || many == NULL || batches == NULL || schedules == NULL ||
        !call_begin(&call, call_backend_of(many[0]), stream, err))
        return __real_attn_plan_prepare_many(many, batches, schedules, n, staging, stream, err);
    for (uint32_t i = 0; i < n; i++) {
        copies[i] = *batches[i];
        pointers[i] = &copies[i];
        places[i] = schedules[i];
        call_batch(&call, &copies[i]);
        call_buffer(&call, &places[i].buffer);
    }
    return call_end(&call, call_ready(&call) ? __real_attn_plan_prepare_many(many, pointers, places, n,
                                                                             staging, call.stream, err)
                                             : ATTN_OK);
}

WRAP(int32_t, attn_plan_run, const struct attn_plan *plan, const struct attn_batch *from_batch,
     const struct attn_tensors *from_tensors, const struct attn_span *schedule,
     const struct attn_scratch *from_scratch, void *stream, struct attn_error *err)
{
    struct attn_batch copy;
    struct attn_tensors moved;
    struct attn_kv_desc desc;
    struct attn_span place;
    struct attn_scratch scratch;
    struct call call;

    if (from_batch == NULL || from_tensors == NULL || schedule == NULL || from_scratch == NULL ||
        !call_begin(&call, call_backend_of(plan), stream, err))
        return __real_attn_plan_run(plan, from_batch, from_tensors, schedule, from_scratch, stream, err);
    copy = *from_batch;
    moved = *from_tensors;
    place = *schedule;
    scratch = *from_scratch;
    call_batch(&call, &copy);
    call_tensors(&call, &moved);
    moved.kv_desc = call_bare(&call, moved.kv_desc, &desc);
    call_buffer(&call, &place.buffer);
    call_buffer(&call, &scratch.scratch.buffer);
    call_buffer(&call, &scratch.counters.buffer);
    return call_end(&call, call_ready(&call)
                               ? __real_attn_plan_run(plan, &copy, &moved, &place, &scratch, call.stream, err)
                               : ATTN_OK);
}

/* ---------------------------------------------------------------- graphs */

WRAP(int32_t, attn_graph_begin, struct attn_backend *backend, void *stream, struct attn_graph **out,
     struct attn_error *err)
{
    int32_t status = __real_attn_graph_begin(backend, stream, out, err);

    mirror_lock();
    if (status == ATTN_OK && mirror_of(backend) != NULL) {
        call_capture.backend = backend;
        call_capture.graph = *out;
        call_capture.stream = stream;
    }
    mirror_unlock();
    return status;
}

WRAP(int32_t, attn_graph_end, struct attn_graph *graph, struct attn_error *err)
{
    mirror_lock();
    if (call_capture.graph == graph)
        call_capture.stream = NULL;
    mirror_unlock();
    return __real_attn_graph_end(graph, err);
}

WRAP(int32_t, attn_graph_launch, struct attn_graph *graph, void *stream, struct attn_error *err)
{
    struct call call;

    if (call_capture.graph != graph || !call_begin(&call, call_capture.backend, stream, err))
        return __real_attn_graph_launch(graph, stream, err);
    return call_end(&call, call_ready(&call) ? __real_attn_graph_launch(graph, call.stream, err) : ATTN_OK);
}

WRAP(void, attn_graph_destroy, struct attn_graph *graph)
{
    mirror_lock();
    if (call_capture.graph == graph) {
        call_capture.graph = NULL;
        call_capture.stream = NULL;
    }
    mirror_unlock();
    __real_attn_graph_destroy(graph);
}
