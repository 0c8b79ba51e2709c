/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Moves tokens and pages between caches on the device, by one kernel that keeps the order of pairs.
 */
#include <string.h>

#include "host.h"

#include "kv-resolve.h"

static void move_init(struct gpu_kv_move *move, const struct attn_buffer *pairs, uint32_t count)
{
    memset(move, 0, sizeof *move);
    move->count = count;
    move->pairs = pairs != NULL ? gpu_address(pairs) : 0;
}

static int32_t launch_move(struct attn_backend_impl *backend, struct gpu_kv_move *move, void *stream,
                           struct attn_error *err)
{
    gpu_kv_move_cut(move);
    return gpu_kv_launch(backend, GPU_KV_MOVE, move->slices, 1, 1, move, stream, err);
}

static int32_t take_pair(const struct attn_kv_ref *from, const struct attn_kv_ref *to,
                         const struct attn_kv_desc **source, const struct attn_kv_desc **target,
                         struct attn_error *err)
{
    int32_t status = attn__kv_resolve(from, source, err);

    return status == ATTN_OK ? attn__kv_resolve(to, target, err) : status;
}

int32_t gpu_kv_copy_slots(struct attn_backend_impl *backend, const struct attn_kv_copy_slots_args *args,
                          const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                          struct attn_error *err)
{
    const struct attn_kv_desc *source = NULL, *target = NULL;
    struct gpu_kv_move move;
    int32_t status = take_pair(from, to, &source, &target, err);

    if (status == ATTN_OK)
        status = gpu_kv_scales_check(source, err);
    if (status == ATTN_OK)
        status = gpu_kv_scales_check(target, err);
    if (status == ATTN_OK)
        status = gpu_kv_pairs_check(&args->pairs, err);
    if (status == ATTN_OK)
        status = gpu_enter(backend->context, err);
    if (status != ATTN_OK)
        return status;
    move_init(&move, &args->pairs, args->count);
    gpu_kv_move_slots(&move, source, target);
    status = launch_move(backend, &move, stream, err);
    return gpu_leave(backend->context, status);
}

/* Checks all caches before anything is written. */
static int32_t check_caches(const struct attn_kv_copy_blocks_args *args, const struct attn_kv_ref *caches,
                            struct attn_error *err)
{
    int32_t status = gpu_kv_pairs_check(&args->pairs, err);

    for (uint32_t i = 0; i < args->layers && status == ATTN_OK; i++) {
        const struct attn_kv_desc *desc = NULL;
        status = attn__kv_resolve(&caches[i], &desc, err);
        if (status == ATTN_OK)
            status = gpu_kv_scales_check(desc, err);
    }
    return status;
}

int32_t gpu_kv_copy_blocks(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                           const struct attn_kv_ref *caches, void *stream, struct attn_error *err)
{
    struct gpu_kv_move move;
    int32_t status = check_caches(args, caches, err);

    if (status == ATTN_OK)
        status = gpu_enter(backend->context, err);
    if (status != ATTN_OK)
        return status;
    move_init(&move, &args->pairs, args->count);
    for (uint32_t i = 0; i < args->layers && status == ATTN_OK; i++) {
        const struct attn_kv_desc *desc = caches[i].kv != NULL ? &caches[i].kv->desc : caches[i].desc;
        if (move.plane_count + GPU_KV_PLANES_EACH > GPU_KV_PLANES) {
            status = launch_move(backend, &move, stream, err);
            move_init(&move, &args->pairs, args->count);
        }
        gpu_kv_move_pages(&move, desc, desc);
    }
    if (status == ATTN_OK)
        status = launch_move(backend, &move, stream, err);
    return gpu_leave(backend->context, status);
}

/* ---------------------------------------------------------------- swap */

/* The pairs are passed in the arguments of the launches. */
static int32_t move_pairs(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                          struct gpu_kv_move *move, void *stream, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    for (uint32_t first = 0; first < args->count && status == ATTN_OK; first += move->count) {
        const uint32_t left = args->count - first;
        move->count = left < GPU_KV_PAIRS ? left : GPU_KV_PAIRS;
        memcpy(move->here, args->pairs + 2 * (size_t)first, 2 * sizeof(int64_t) * move->count);
        status = launch_move(backend, move, stream, err);
    }
    return status;
}

int32_t gpu_kv_swap_blocks(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                           const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                           struct attn_error *err)
{
    const struct attn_kv_desc *source = NULL, *target = NULL;
    struct gpu_kv_move move;
    int32_t status = take_pair(from, to, &source, &target, err);

    if (status == ATTN_OK)
        status = gpu_enter(backend->context, err);
    if (status != ATTN_OK)
        return status;
    move_init(&move, NULL, args->count);
    gpu_kv_move_pages(&move, source, target);
    status = args->kind == ATTN_COPY_ON_DEVICE ? move_pairs(backend, args, &move, stream, err)
                                               : gpu_kv_swap_copy(backend, args, &move, stream, err);
    return gpu_leave(backend->context, status);
}
