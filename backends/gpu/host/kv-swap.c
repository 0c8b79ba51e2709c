/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Copies pages between host and device. What is contiguous on both sides is one copy, and all copies are one
 * call of the driver if it has such a call, which may reorder them.
 */
#include <stdlib.h>

#include "host.h"

#include "kv-resolve.h"

/* Largest number of copies in one call of the driver. */
#define MAX_COPIES 512u
/* Handles up to this one are the driver's default streams, which do not accept batches. */
#define OWN_STREAM_LAST 2u

struct copies {
    struct attn_backend_impl *backend;
    void *stream;
    uint32_t kind;
    bool together; /* one call may do all copies, in any order */
    uint32_t count;
    gpu_pointer to[MAX_COPIES];
    gpu_pointer from[MAX_COPIES];
    size_t size[MAX_COPIES];
};

static int32_t copy_one(const struct copies *p, uint32_t i, struct attn_error *err)
{
    struct gpu_context *context = p->backend->context;
    const struct gpu_driver *driver = context->driver;

    if (p->kind == ATTN_COPY_TO_DEVICE)
        return gpu_check(
            context,
            driver->memcpy_htod_async(p->to[i], (const void *)(uintptr_t)p->from[i], p->size[i], p->stream),
            "to", gpu_names.memcpy_htod_async, err);
    return gpu_check(
        context, driver->memcpy_dtoh_async((void *)(uintptr_t)p->to[i], p->from[i], p->size[i], p->stream),
        "from", gpu_names.memcpy_dtoh_async, err);
}

/* False if the driver refuses a batch: some kinds of memory are only copied one by one. */
static bool copy_together(struct copies *p, int32_t *status, struct attn_error *err)
{
    struct gpu_copy_attributes attributes = {.source_order = GPU_COPY_IN_STREAM_ORDER};
    struct gpu_context *context = p->backend->context;
    size_t first = 0, failed = 0;
    const gpu_result result = context->driver->memcpy_batch_async(p->to, p->from, p->size, p->count,
                                                                  &attributes, &first, 1, &failed, p->stream);

    if (result == GPU_INVALID_VALUE || result == GPU_NOT_SUPPORTED)
        return false;
    *status = gpu_check(context, result, p->kind == ATTN_COPY_TO_DEVICE ? "to" : "from",
                        gpu_names.memcpy_batch_async, err);
    return true;
}

static int32_t flush(struct copies *p, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    p->together = p->together && (p->count < 2 || copy_together(p, &status, err));
    if (!p->together || p->count == 1)
        for (uint32_t i = 0; i < p->count && status == ATTN_OK; i++)
            status = copy_one(p, i, err);
    p->count = 0;
    return status;
}

static int32_t add_copy(struct copies *p, uint64_t to, uint64_t from, uint64_t size, struct attn_error *err)
{
    const uint32_t last = p->count - 1;
    int32_t status = ATTN_OK;

    if (p->count > 0 && p->to[last] + p->size[last] == to && p->from[last] + p->size[last] == from) {
        p->size[last] += size;
        return ATTN_OK;
    }
    if (p->count == MAX_COPIES)
        status = flush(p, err);
    p->to[p->count] = to;
    p->from[p->count] = from;
    p->size[p->count++] = size;
    return status;
}

static int32_t add_page(struct copies *p, const struct gpu_kv_plane *plane, const int64_t *pair,
                        struct attn_error *err)
{
    const uint64_t run = plane->n0 * plane->unit, n2 = plane->units / (plane->n0 * plane->n1);
    const uint64_t from = plane->from.base + (uint64_t)(pair[0] * plane->from.page_stride);
    const uint64_t to = plane->to.base + (uint64_t)(pair[1] * plane->to.page_stride);
    int32_t status = ATTN_OK;

    for (uint64_t i = 0; i < n2; i++)
        for (uint64_t j = 0; j < plane->n1 && status == ATTN_OK; j++)
            status = add_copy(
                p, to + (uint64_t)((int64_t)i * plane->to.stride2 + (int64_t)j * plane->to.stride1),
                from + (uint64_t)((int64_t)i * plane->from.stride2 + (int64_t)j * plane->from.stride1), run,
                err);
    return status;
}

/* Makes keys and values one plane if they are contiguous in every page of both caches. */
static void join_planes(struct gpu_kv_move *move)
{
    struct gpu_kv_plane *k = &move->planes[0], *v = &move->planes[1];
    const uint64_t bytes = k->units * k->unit;

    if (move->plane_count != 2 || k->units != k->n0 || v->units != v->n0 || k->unit != v->unit ||
        v->from.base != k->from.base + bytes || v->to.base != k->to.base + bytes ||
        v->from.page_stride != k->from.page_stride || v->to.page_stride != k->to.page_stride)
        return;
    k->n0 += v->n0;
    k->units = k->n0;
    move->plane_count = 1;
}

/* Whether no target occurs twice; false too if that is not known. */
static bool has_own_targets(const struct attn_kv_swap_blocks_args *args, uint64_t places)
{
    unsigned char *seen = calloc(places / 8 + 1, 1);
    bool good = seen != NULL;

    for (uint32_t i = 0; i < args->count && good; i++) {
        const int64_t to = args->pairs[2 * (size_t)i + 1];
        if (args->pairs[2 * (size_t)i] < 0 || to < 0)
            continue;
        good = (uint64_t)to < places && (seen[to / 8] & 1u << to % 8) == 0;
        if (good)
            seen[to / 8] |= (unsigned char)(1u << to % 8);
    }
    free(seen);
    return good;
}

int32_t gpu_kv_swap_copy(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                         struct gpu_kv_move *move, void *stream, struct attn_error *err)
{
    struct copies p = {.backend = backend, .stream = stream, .kind = args->kind};
    bool captured = false;
    int32_t status = ATTN_OK;

    if (backend->context->driver->memcpy_batch_async != NULL && (uintptr_t)stream > OWN_STREAM_LAST) {
        status = gpu_stream_is_captured(backend->context, stream, &captured, err);
        p.together = !captured && has_own_targets(args, move->planes[0].to.places);
    }
    join_planes(move);
    for (uint32_t n = 0; n < move->plane_count; n++) {
        for (uint32_t i = 0; i < args->count && status == ATTN_OK; i++) {
            const int64_t *pair = args->pairs + 2 * (size_t)i;
            if (pair[0] >= 0 && pair[1] >= 0)
                status = add_page(&p, &move->planes[n], pair, err);
        }
    }
    return status == ATTN_OK ? flush(&p, err) : status;
}
