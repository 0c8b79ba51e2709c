/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Collects keys and values of sequences into contiguous rows, and converts pages to another type or layout.
 */
#include "host.h"

#include "kv-resolve.h"

static int32_t launch_gather(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                             const struct attn_kv_desc *desc, void *stream, struct attn_error *err)
{
    const uint32_t heads = desc->kv_heads, limit = gpu_kv_heads(desc);
    struct gpu_kv_gather gather;
    int32_t status = ATTN_OK;

    for (uint32_t first = 0, count; first < heads && status == ATTN_OK; first += count) {
        count = heads - first < limit ? heads - first : limit;
        gpu_kv_gather_resolve(&gather, args, desc, first, count);
        const uint64_t ctas = gpu_kv_rows_ctas(gather.by_row, gather.tokens, gather.heads, gather.each);
        status = gpu_kv_launch(backend, GPU_KV_GATHER, ctas, 1, 2 * gather.shares, &gather, stream, err);
    }
    return status;
}

int32_t gpu_kv_gather_call(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                           const struct attn_kv_ref *cache, void *stream, struct attn_error *err)
{
    const struct attn_kv_desc *desc = NULL;
    int32_t status = attn__kv_resolve(cache, &desc, err);

    if (status == ATTN_OK)
        status = gpu_kv_gather_check(args, desc, err);
    if (status == ATTN_OK)
        status = gpu_enter(backend->context, err);
    if (status != ATTN_OK)
        return status;
    status = launch_gather(backend, args, desc, stream, err);
    return gpu_leave(backend->context, status);
}

static int32_t launch_convert(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                              const struct attn_kv_desc *from, const struct attn_kv_desc *to, void *stream,
                              struct attn_error *err)
{
    const uint32_t heads = from->kv_heads, one = gpu_kv_heads(from), two = gpu_kv_heads(to);
    const uint32_t limit = one < two ? one : two;
    struct gpu_kv_convert convert;
    int32_t status = ATTN_OK;

    for (uint32_t first = 0, count; first < heads && status == ATTN_OK; first += count) {
        count = heads - first < limit ? heads - first : limit;
        gpu_kv_convert_resolve(&convert, args, from, to, first, count);
        status = gpu_kv_launch(backend, GPU_KV_CONVERT, convert.count, 1, convert.parts * convert.sides,
                               &convert, stream, err);
    }
    return status;
}

int32_t gpu_kv_convert_call(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                            const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                            struct attn_error *err)
{
    const struct attn_kv_desc *source = NULL, *target = NULL;
    int32_t status = attn__kv_resolve(from, &source, err);

    if (status == ATTN_OK)
        status = attn__kv_resolve(to, &target, err);
    if (status == ATTN_OK)
        status = gpu_kv_convert_check(args, source, target, err);
    if (status == ATTN_OK)
        status = gpu_enter(backend->context, err);
    if (status != ATTN_OK)
        return status;
    status = launch_convert(backend, args, source, target, stream, err);
    return gpu_leave(backend->context, status);
}
