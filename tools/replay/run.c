/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Plans, prepares and runs a record on a backend. */
#include <string.h>

#include "attn/device.h"
#include "replay.h"

/* What a plan asks for. */
struct blocks {
    struct attn_span schedule;
    struct attn_span staging;
    struct attn_scratch scratch;
};

static int32_t allocate(struct rerun *rerun, uint64_t size, struct attn_span *out, struct attn_error *err)
{
    out->size = size;
    return size > 0 ? attn_memory_alloc(rerun->backend, size, &out->buffer, err) : (int32_t)ATTN_OK;
}

static int32_t blocks_make(struct rerun *rerun, struct blocks *blocks, struct attn_error *err)
{
    struct attn_plan_sizes sizes;

    memset(blocks, 0, sizeof *blocks);
    ATTN_INIT(&sizes);
    ATTN_INIT(&blocks->scratch);
    int32_t status = attn_plan_get_sizes(rerun->plan, &sizes, err);
    if (status == ATTN_OK)
        status = allocate(rerun, sizes.schedule, &blocks->schedule, err);
    if (status == ATTN_OK)
        status = allocate(rerun, sizes.scratch, &blocks->scratch.scratch, err);
    if (status == ATTN_OK)
        status = allocate(rerun, sizes.counters, &blocks->scratch.counters, err);
    blocks->scratch.counters_dirty = sizes.counters > 0;
    blocks->staging.size = sizes.staging;
    if (status == ATTN_OK && sizes.staging > 0)
        status = attn_memory_alloc_pinned(rerun->backend, sizes.staging, &blocks->staging.buffer.data, err);
    return status;
}

static void blocks_free(struct rerun *rerun, struct blocks *blocks)
{
    attn_memory_free(rerun->backend, &blocks->schedule.buffer);
    attn_memory_free(rerun->backend, &blocks->scratch.scratch.buffer);
    attn_memory_free(rerun->backend, &blocks->scratch.counters.buffer);
    attn_memory_free_pinned(rerun->backend, blocks->staging.buffer.data);
}

/* The class of the roughest kernel that may run. */
static int32_t ask(struct rerun *rerun, struct attn_error *err)
{
    struct attn_kernel_info kernels[16];
    struct attn_query query;

    ATTN_INIT(&query);
    memset(kernels, 0, sizeof kernels);
    query.kernels = kernels;
    query.kernel_capacity = sizeof kernels / sizeof kernels[0];
    const int32_t status = attn_backend_query(rerun->backend, &rerun->record->problem, &query, err);
    for (uint32_t i = 0; status == ATTN_OK && i < query.kernel_count && i < query.kernel_capacity; i++)
        rerun->numerics = kernels[i].numerics > rerun->numerics ? kernels[i].numerics : rerun->numerics;
    return status;
}

static int32_t run(struct rerun *rerun, struct blocks *blocks, struct attn_error *err)
{
    struct attn_tensors *tensors = &rerun->device.tensors;
    const bool cached = rerun->record->problem.kv_source != ATTN_KV_NEW;
    struct attn_kv *kv = NULL;
    int32_t status = ATTN_OK;

    if (cached && rerun->record->call.kv_handle != 0)
        status = attn_kv_create(rerun->backend, &rerun->device.desc, &kv, err);
    if (status == ATTN_OK)
        status = attn_plan_prepare(rerun->plan, &rerun->device.batch, &blocks->schedule,
                                   blocks->staging.size > 0 ? &blocks->staging : NULL, rerun->stream, err);
    if (status == ATTN_OK) {
        tensors->kv = kv;
        tensors->kv_desc = cached && kv == NULL ? &rerun->device.desc : NULL;
        rerun->status = attn_plan_run(rerun->plan, &rerun->device.batch, tensors, &blocks->schedule,
                                      &blocks->scratch, rerun->stream, &rerun->err);
        status = attn_stream_synchronize(rerun->backend, rerun->stream, err);
    }
    attn_kv_destroy(kv);
    return status;
}

static int32_t fetch(struct rerun *rerun, uint32_t kind, struct attn_error *err)
{
    return rerun->images[kind].part.form == ATTN__PART_ABSENT
               ? (int32_t)ATTN_OK
               : image_copy(rerun, kind, ATTN_COPY_TO_HOST, err);
}

int32_t rerun_make(struct rerun *rerun, const struct record *record, struct attn_backend *backend,
                   struct attn_error *err)
{
    struct blocks blocks = {.schedule = {{NULL, 0}, 0}};

    memset(rerun, 0, sizeof *rerun);
    ATTN_INIT(&rerun->info);
    ATTN_INIT(&rerun->err);
    rerun->record = record;
    rerun->backend = backend;
    if (attn_stream_create(backend, &rerun->stream, NULL) != ATTN_OK)
        rerun->stream = NULL; /* a backend without streams of its own takes NULL */
    int32_t status = attn_plan_create(backend, &record->problem, &rerun->plan, err);
    if (status == ATTN_OK)
        status = attn_plan_describe(rerun->plan, &rerun->info, err);
    if (status == ATTN_OK)
        status = ask(rerun, err);
    if (status == ATTN_OK)
        status = layout_make(rerun, err);
    if (status == ATTN_OK)
        status = blocks_make(rerun, &blocks, err);
    if (status == ATTN_OK)
        status = run(rerun, &blocks, err);
    if (status == ATTN_OK)
        status = fetch(rerun, ATTN__PART_out, err);
    if (status == ATTN_OK)
        status = fetch(rerun, ATTN__PART_lse, err);
    if (status == ATTN_OK)
        status = attn_stream_synchronize(backend, rerun->stream, err);
    blocks_free(rerun, &blocks);
    return status;
}

void rerun_finish(struct rerun *rerun)
{
    layout_free(rerun);
    attn_plan_destroy(rerun->plan);
    if (rerun->stream != NULL)
        attn_stream_destroy(rerun->backend, rerun->stream);
}
