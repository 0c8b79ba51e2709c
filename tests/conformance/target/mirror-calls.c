/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The calls of the library as the rest of the checker makes them: the linker sends each attn_x to
 * __wrap_attn_x here, and __real_attn_x is the library's.
 */
#include <stdio.h>
#include <stdlib.h>

#include "attn/device.h"
#include "mirror.h"
#include "need.h"

/* A call that stops at its first failure. */
struct call {
    struct mirror *mirror;
    void *stream;
    int32_t status;
    struct attn_error own;
    struct attn_error *err;
};

static bool begin(struct call *call, const struct attn_backend *backend, void *stream, struct attn_error *err)
{
    mirror_lock();
    call->mirror = mirror_of(backend);
    if (call->mirror == NULL) {
        mirror_unlock();
        return false;
    }
    call->status = ATTN_OK;
    ATTN_INIT(&call->own);
    call->err = err != NULL ? err : &call->own;
    call->stream = mirror_stream(call->mirror, stream);
    return true;
}

static void buffer(struct call *call, struct attn_buffer *buffer)
{
    if (call->status == ATTN_OK)
        call->status = mirror_translate(call->mirror, buffer, call->err);
}

/* The capture that is under way, and the graph that came of it: the checker has one at a time. */
static struct {
    struct attn_backend *backend;
    const struct attn_graph *graph;
    void *stream; /* NULL unless it is captured */
} capture;

/* Calls that are captured move nothing yet: the launch does. */
static bool is_captured(const struct call *call)
{
    return capture.stream != NULL && call->stream == capture.stream;
}

static bool ready(struct call *call)
{
    if (call->status == ATTN_OK && !is_captured(call))
        call->status = mirror_push(call->mirror, call->stream, call->err);
    return call->status == ATTN_OK;
}

static int32_t end(struct call *call, int32_t status)
{
    if (call->status == ATTN_OK && is_captured(call)) {
        call->status = status;
    } else if (call->status == ATTN_OK) {
        call->status = mirror_pull(call->mirror, call->stream, call->err);
        call->status = status != ATTN_OK ? status : call->status;
    }
    mirror_unlock();
    return call->status;
}

/* ---------------------------------------------------------------- arguments */

static void scale(struct call *call, struct attn_scale *scale)
{
    if (scale->kind == ATTN_SCALE_DEVICE)
        buffer(call, &scale->buffer);
}

static void batch(struct call *call, struct attn_batch *batch)
{
    struct attn_buffer *const all[] = {&batch->q_offsets,      &batch->kv_lens,     &batch->kv_offsets,
                                       &batch->table,          &batch->csr_indptr,  &batch->csr_indices,
                                       &batch->last_page_lens, &batch->q_positions, &batch->seq_causal,
                                       &batch->kv_global_lens};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buffer(call, all[i]);
}

static void cache(struct call *call, struct attn_kv_desc *desc)
{
    buffer(call, &desc->k);
    buffer(call, &desc->v);
    scale(call, &desc->k_scale);
    scale(call, &desc->v_scale);
}

/* A copy of a bare cache; NULL stays NULL. */
static const struct attn_kv_desc *bare(struct call *call, const struct attn_kv_desc *from,
                                       struct attn_kv_desc *to)
{
    if (from == NULL)
        return NULL;
    *to = *from;
    cache(call, to);
    return to;
}

static void tensors(struct call *call, struct attn_tensors *tensors)
{
    struct attn_buffer *const all[] = {
        &tensors->q.buffer,   &tensors->q_rope.buffer, &tensors->k_new.buffer, &tensors->v_new.buffer,
        &tensors->out.buffer, &tensors->lse.buffer,    &tensors->alibi_slopes, &tensors->sinks,
        &tensors->mask,       &tensors->mask_starts};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buffer(call, all[i]);
    scale(call, &tensors->q_scale);
    scale(call, &tensors->k_new_scale);
    scale(call, &tensors->v_new_scale);
    scale(call, &tensors->out_scale);
}

/* ---------------------------------------------------------------- backends and plans */

enum { MOST_PLANS = 256 };

static struct {
    const struct attn_plan *plan;
    struct attn_backend *backend;
} plans[MOST_PLANS];

static struct attn_backend *backend_of(const struct attn_plan *plan)
{
    struct attn_backend *backend = NULL;

    mirror_lock();
    for (uint32_t i = 0; i < MOST_PLANS; i++) {
        if (plans[i].plan == plan && plan != NULL)
            backend = plans[i].backend;
    }
    mirror_unlock();
    return backend;
}

#define WRAP(type, name, ...)                                                                                \
    type __real_##name(__VA_ARGS__);                                                                         \
    type __wrap_##name(__VA_ARGS__);                                                                         \
    type __wrap_##name(__VA_ARGS__)

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
    for (uint32_t i = 0; i < MOST_PLANS; i++) {
        if (plans[i].plan == plan)
            plans[i].plan = NULL;
    }
    mirror_unlock();
    __real_attn_plan_destroy(plan);
}

WRAP(int32_t, attn_plan_prepare, const struct attn_plan *plan, const struct attn_batch *from,
     const struct attn_span *schedule, const struct attn_span *staging, void *stream, struct attn_error *err)
{
    struct attn_batch copy;
    struct attn_span place;
    struct call call;

    if (from == NULL || schedule == NULL || !begin(&call, backend_of(plan), stream, err))
        return __real_attn_plan_prepare(plan, from, schedule, staging, stream, err);
    copy = *from;
    place = *schedule;
    batch(&call, &copy);
    buffer(&call, &place.buffer);
    return end(&call, ready(&call) ? __real_attn_plan_prepare(plan, &copy, &place, staging, call.stream, err)
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
        !begin(&call, backend_of(many[0]), stream, err))
        return __real_attn_plan_prepare_many(many, batches, schedules, n, staging, stream, err);
    for (uint32_t i = 0; i < n; i++) {
        copies[i] = *batches[i];
        pointers[i] = &copies[i];
        places[i] = schedules[i];
        batch(&call, &copies[i]);
        buffer(&call, &places[i].buffer);
    }
    return end(&call, ready(&call) ? __real_attn_plan_prepare_many(many, pointers, places, n, staging,
                                                                   call.stream, err)
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
        !begin(&call, backend_of(plan), stream, err))
        return __real_attn_plan_run(plan, from_batch, from_tensors, schedule, from_scratch, stream, err);
    copy = *from_batch;
    moved = *from_tensors;
    place = *schedule;
    scratch = *from_scratch;
    batch(&call, &copy);
    tensors(&call, &moved);
    moved.kv_desc = bare(&call, moved.kv_desc, &desc);
    buffer(&call, &place.buffer);
    buffer(&call, &scratch.scratch.buffer);
    buffer(&call, &scratch.counters.buffer);
    return end(&call, ready(&call)
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
        capture.backend = backend;
        capture.graph = *out;
        capture.stream = stream;
    }
    mirror_unlock();
    return status;
}

WRAP(int32_t, attn_graph_end, struct attn_graph *graph, struct attn_error *err)
{
    mirror_lock();
    if (capture.graph == graph)
        capture.stream = NULL;
    mirror_unlock();
    return __real_attn_graph_end(graph, err);
}

WRAP(int32_t, attn_graph_launch, struct attn_graph *graph, void *stream, struct attn_error *err)
{
    struct call call;

    if (capture.graph != graph || !begin(&call, capture.backend, stream, err))
        return __real_attn_graph_launch(graph, stream, err);
    return end(&call, ready(&call) ? __real_attn_graph_launch(graph, call.stream, err) : ATTN_OK);
}

WRAP(void, attn_graph_destroy, struct attn_graph *graph)
{
    mirror_lock();
    if (capture.graph == graph) {
        capture.graph = NULL;
        capture.stream = NULL;
    }
    mirror_unlock();
    __real_attn_graph_destroy(graph);
}

/* ---------------------------------------------------------------- caches */

/* Shapes are tried on memory that no case uses: addresses of no arena stay as they are. */
WRAP(int32_t, attn_kv_create, struct attn_backend *backend, const struct attn_kv_desc *desc,
     struct attn_kv **out, struct attn_error *err)
{
    struct attn_kv_desc copy;
    struct call call;

    if (desc == NULL || !begin(&call, backend, NULL, err))
        return __real_attn_kv_create(backend, desc, out, err);
    copy = *desc;
    cache(&call, &copy);
    if (call.status == ATTN_E_INVALID) {
        copy = *desc;
        call.status = ATTN_OK;
    }
    mirror_unlock();
    return call.status == ATTN_OK ? __real_attn_kv_create(backend, &copy, out, err) : call.status;
}

WRAP(int32_t, attn_kv_write, struct attn_backend *backend, const struct attn_kv_write_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_write_args copy;
    struct attn_kv_desc desc;
    struct attn_batch moved;
    struct call call;

    if (args == NULL || !begin(&call, backend, stream, err))
        return __real_attn_kv_write(backend, args, stream, err);
    copy = *args;
    buffer(&call, &copy.k_new.buffer);
    buffer(&call, &copy.v_new.buffer);
    buffer(&call, &copy.k_rope.buffer);
    buffer(&call, &copy.slot_mapping);
    copy.kv_desc = bare(&call, copy.kv_desc, &desc);
    if (copy.batch != NULL) {
        moved = *copy.batch;
        batch(&call, &moved);
        copy.batch = &moved;
    }
    return end(&call, ready(&call) ? __real_attn_kv_write(backend, &copy, call.stream, err) : ATTN_OK);
}

WRAP(int32_t, attn_kv_slot_mapping, struct attn_backend *backend,
     const struct attn_kv_slot_mapping_args *args, void *stream, struct attn_error *err)
{
    struct attn_kv_slot_mapping_args copy;
    struct attn_batch moved;
    struct call call;

    if (args == NULL || args->batch == NULL || !begin(&call, backend, stream, err))
        return __real_attn_kv_slot_mapping(backend, args, stream, err);
    copy = *args;
    moved = *args->batch;
    batch(&call, &moved);
    copy.batch = &moved;
    buffer(&call, &copy.slots);
    return end(&call, ready(&call) ? __real_attn_kv_slot_mapping(backend, &copy, call.stream, err) : ATTN_OK);
}

WRAP(int32_t, attn_kv_copy_slots, struct attn_backend *backend, const struct attn_kv_copy_slots_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_copy_slots_args copy;
    struct attn_kv_desc from, to;
    struct call call;

    if (args == NULL || !begin(&call, backend, stream, err))
        return __real_attn_kv_copy_slots(backend, args, stream, err);
    copy = *args;
    copy.from_desc = bare(&call, copy.from_desc, &from);
    copy.to_desc = bare(&call, copy.to_desc, &to);
    buffer(&call, &copy.pairs);
    return end(&call, ready(&call) ? __real_attn_kv_copy_slots(backend, &copy, call.stream, err) : ATTN_OK);
}

WRAP(int32_t, attn_kv_copy_blocks, struct attn_backend *backend, const struct attn_kv_copy_blocks_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_copy_blocks_args copy;
    struct call call;

    if (args == NULL || !begin(&call, backend, stream, err))
        return __real_attn_kv_copy_blocks(backend, args, stream, err);
    copy = *args;
    struct attn_kv_desc *descs = need(calloc((size_t)args->layers + 1, sizeof *descs));
    const struct attn_kv_desc **pointers = need(calloc((size_t)args->layers + 1, sizeof *pointers));
    for (uint32_t i = 0; i < args->layers && args->kv_descs != NULL; i++)
        pointers[i] = bare(&call, args->kv_descs[i], &descs[i]);
    copy.kv_descs = args->kv_descs != NULL ? pointers : NULL;
    buffer(&call, &copy.pairs);
    int32_t status =
        end(&call, ready(&call) ? __real_attn_kv_copy_blocks(backend, &copy, call.stream, err) : ATTN_OK);
    free(pointers);
    free(descs);
    return status;
}

/* One of the two caches may be the host's. */
WRAP(int32_t, attn_kv_swap_blocks, struct attn_backend *backend, const struct attn_kv_swap_blocks_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_swap_blocks_args copy;
    struct attn_kv_desc from, to;
    struct call call;

    if (args == NULL || !begin(&call, backend, stream, err))
        return __real_attn_kv_swap_blocks(backend, args, stream, err);
    copy = *args;
    if (copy.kind != ATTN_COPY_TO_DEVICE)
        copy.from_desc = bare(&call, copy.from_desc, &from);
    if (copy.kind != ATTN_COPY_TO_HOST)
        copy.to_desc = bare(&call, copy.to_desc, &to);
    return end(&call, ready(&call) ? __real_attn_kv_swap_blocks(backend, &copy, call.stream, err) : ATTN_OK);
}

WRAP(int32_t, attn_kv_gather, struct attn_backend *backend, const struct attn_kv_gather_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_gather_args copy;
    struct attn_kv_desc desc;
    struct attn_batch moved;
    struct call call;

    if (args == NULL || args->batch == NULL || !begin(&call, backend, stream, err))
        return __real_attn_kv_gather(backend, args, stream, err);
    copy = *args;
    moved = *args->batch;
    batch(&call, &moved);
    copy.batch = &moved;
    copy.kv_desc = bare(&call, copy.kv_desc, &desc);
    buffer(&call, &copy.offsets);
    buffer(&call, &copy.starts);
    buffer(&call, &copy.k.buffer);
    buffer(&call, &copy.v.buffer);
    buffer(&call, &copy.k_scales.buffer);
    buffer(&call, &copy.v_scales.buffer);
    return end(&call, ready(&call) ? __real_attn_kv_gather(backend, &copy, call.stream, err) : ATTN_OK);
}

WRAP(int32_t, attn_kv_convert, struct attn_backend *backend, const struct attn_kv_convert_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_convert_args copy;
    struct attn_kv_desc from, to;
    struct call call;

    if (args == NULL || !begin(&call, backend, stream, err))
        return __real_attn_kv_convert(backend, args, stream, err);
    copy = *args;
    copy.from_desc = bare(&call, copy.from_desc, &from);
    copy.to_desc = bare(&call, copy.to_desc, &to);
    buffer(&call, &copy.pairs);
    return end(&call, ready(&call) ? __real_attn_kv_convert(backend, &copy, call.stream, err) : ATTN_OK);
}

/* ---------------------------------------------------------------- merge */

WRAP(int32_t, attn_merge, struct attn_backend *backend, const struct attn_merge_args *args, void *stream,
     struct attn_error *err)
{
    struct attn_merge_args copy;
    struct call call;

    if (args == NULL || !begin(&call, backend, stream, err))
        return __real_attn_merge(backend, args, stream, err);
    copy = *args;
    struct attn_merge_part *parts = need(calloc((size_t)args->count + 1, sizeof *parts));
    for (uint32_t i = 0; i < args->count; i++) {
        parts[i] = args->parts[i];
        buffer(&call, &parts[i].out.buffer);
        buffer(&call, &parts[i].lse.buffer);
    }
    copy.parts = parts;
    buffer(&call, &copy.out.buffer);
    buffer(&call, &copy.lse.buffer);
    int32_t status = end(&call, ready(&call) ? __real_attn_merge(backend, &copy, call.stream, err) : ATTN_OK);
    free(parts);
    return status;
}

WRAP(int32_t, attn_rescale, struct attn_backend *backend, const struct attn_rescale_args *args, void *stream,
     struct attn_error *err)
{
    struct attn_rescale_args copy;
    struct call call;

    if (args == NULL || !begin(&call, backend, stream, err))
        return __real_attn_rescale(backend, args, stream, err);
    copy = *args;
    struct attn_tensor *all = need(calloc((size_t)args->count + 1, sizeof *all));
    for (uint32_t i = 0; i < args->count; i++) {
        all[i] = args->all[i];
        buffer(&call, &all[i].buffer);
    }
    copy.all = all;
    buffer(&call, &copy.out.buffer);
    buffer(&call, &copy.own.buffer);
    int32_t status =
        end(&call, ready(&call) ? __real_attn_rescale(backend, &copy, call.stream, err) : ATTN_OK);
    free(all);
    return status;
}
