/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes new rows, and maps new tokens to slots. */
#include "host.h"

#include "kv-resolve.h"

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
            gpu_kv_launch(backend, GPU_KV_WRITE, ctas, 1, write.sides * write.shares, &write, stream, err);
    } while (status == ATTN_OK && gpu_kv_share_next(desc, &share));
    return status;
}

int32_t gpu_kv_write_rows(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                          const struct attn_kv_impl *kv, const struct attn_kv_desc *bare, void *stream,
                          struct attn_error *err)
{
    const struct attn_kv_ref ref = {kv, bare};
    const struct attn_kv_desc *desc = NULL;
    int32_t status = attn__kv_resolve(&ref, &desc, err);

    if (status == ATTN_OK)
        status = gpu_kv_write_check(args, desc, err);
    if (status == ATTN_OK)
        status = gpu_enter(backend->context, err);
    if (status != ATTN_OK)
        return status;
    status = launch_write(backend, args, desc, stream, err);
    return gpu_leave(backend->context, status);
}

int32_t gpu_kv_slot_mapping(struct attn_backend_impl *backend, const struct attn_kv_slot_mapping_args *args,
                            void *stream, struct attn_error *err)
{
    struct gpu_kv_slots slots;
    int32_t status = gpu_kv_slots_check(args, err);

    if (status == ATTN_OK)
        status = gpu_enter(backend->context, err);
    if (status != ATTN_OK)
        return status;
    gpu_kv_slots_resolve(&slots, args);
    status =
        gpu_kv_launch(backend, GPU_KV_SLOTS, args->batch->num_tokens, GPU_KV_THREADS, 1, &slots, stream, err);
    return gpu_leave(backend->context, status);
}
