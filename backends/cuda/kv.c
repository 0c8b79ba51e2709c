/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Caches: their tables, shapes and handles, and the write of new rows. */
#include <stdlib.h>

#include "cuda.h"

#include "../gpu/kv-resolve.h"

static int32_t shape_flash_attn(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                uint32_t pages, struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn__kv_shape(ATTN_FLASH_ATTN, problem, pages, out, err);
}

static int32_t shape_flashinfer(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                uint32_t pages, struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn__kv_shape(ATTN_FLASHINFER, problem, pages, out, err);
}

static int32_t create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                      struct attn_kv_impl **out, struct attn_error *err)
{
    int32_t status = attn__kv_check(desc, err);

    (void)backend;
    *out = NULL;
    if (status != ATTN_OK)
        return status;
    struct attn_kv_impl *kv = malloc(sizeof *kv);
    if (kv == NULL)
        return cuda_fail(err, ATTN_E_MEMORY, 0, "kv", "no memory for the cache's description");
    kv->desc = *desc;
    *out = kv;
    return ATTN_OK;
}

static void destroy(struct attn_kv_impl *kv)
{
    free(kv);
}

int32_t cuda_kv_take(const struct attn_kv_ref *ref, const struct attn_kv_desc **out, struct attn_error *err)
{
    return gpu_kv_take(ref->kv != NULL ? &ref->kv->desc : NULL, ref->desc, out, err);
}

static int32_t launch_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                            const struct attn_kv_desc *desc, void *stream, struct attn_error *err)
{
    struct gpu_kv_share share = gpu_kv_share_first(desc);
    struct gpu_kv_write write;
    int32_t status;

    do {
        gpu_kv_write_resolve(&write, args, desc, &share);
        const uint64_t ctas = gpu_kv_rows_ctas(write.by_row, write.rows, write.heads, write.each);
        status =
            cuda_kv_launch(backend, CUDA_KV_WRITE, ctas, 1, write.halves * write.shares, &write, stream, err);
    } while (status == ATTN_OK && gpu_kv_share_next(desc, &share));
    return status;
}

static int32_t write_rows(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                          const struct attn_kv_impl *kv, const struct attn_kv_desc *bare, void *stream,
                          struct attn_error *err)
{
    const struct attn_kv_ref ref = {kv, bare};
    const struct attn_kv_desc *desc = NULL;
    int32_t status = cuda_kv_take(&ref, &desc, err);

    if (status == ATTN_OK)
        status = gpu_kv_write_check(args, desc, err);
    if (status == ATTN_OK)
        status = cuda_enter(backend->context, err);
    if (status != ATTN_OK)
        return status;
    status = launch_write(backend, args, desc, stream, err);
    return cuda_leave(backend->context, status);
}

int32_t cuda_kv_slot_mapping(struct attn_backend_impl *backend, const struct attn_kv_slot_mapping_args *args,
                             void *stream, struct attn_error *err)
{
    struct gpu_kv_slots slots;
    int32_t status = gpu_kv_slots_check(args, err);

    if (status == ATTN_OK)
        status = cuda_enter(backend->context, err);
    if (status != ATTN_OK)
        return status;
    gpu_kv_slots_resolve(&slots, args);
    status =
        cuda_kv_launch(backend, CUDA_KV_SLOTS, args->batch->rows, GPU_KV_THREADS, 1, &slots, stream, err);
    return cuda_leave(backend->context, status);
}

#define TABLE(shape_)                                                                                        \
    {                                                                                                        \
        .struct_size = sizeof(struct attn_kv_table), .shape = (shape_), .create = create,                    \
        .destroy = destroy, .write = write_rows, .slot_mapping = cuda_kv_slot_mapping,                       \
        .copy_slots = cuda_kv_copy_slots, .copy_blocks = cuda_kv_copy_blocks,                                \
        .swap_blocks = cuda_kv_swap_blocks, .gather = cuda_kv_gather, .convert = cuda_kv_convert,            \
        .advance_step = cuda_kv_advance_step                                                                 \
    }

const struct attn_kv_table cuda_kv_flash_attn = TABLE(shape_flash_attn);
const struct attn_kv_table cuda_kv_flashinfer = TABLE(shape_flashinfer);
