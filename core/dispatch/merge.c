/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merges and rescales partial results: checks, then calls the plugin. */
#include "dispatch/call.h"
#include "dispatch/trace.h"
#include "select/problem.h"

/* The dimensions that both calls have. */
struct shape {
    uint32_t dtype;
    uint32_t lse_base;
    uint32_t count;
    uint32_t rows;
    uint32_t heads;
    uint32_t head_dim;
};

static int32_t check_shape(const struct shape *shape, struct attn_error *err)
{
    if (shape->dtype != ATTN_F32 && shape->dtype != ATTN_F16 && shape->dtype != ATTN_BF16) {
        return attn__fail(err, ATTN_E_INVALID, 0, "dtype", "dtype is 0x%x; accepted: f32, f16 or bf16",
                          shape->dtype);
    }
    if (shape->lse_base != ATTN_LSE_NATURAL && shape->lse_base != ATTN_LSE_BASE2) {
        return attn__fail(err, ATTN_E_INVALID, 0, "lse_base",
                          "lse_base is %u; accepted: ATTN_LSE_NATURAL or ATTN_LSE_BASE2", shape->lse_base);
    }
    if (shape->count == 0 || shape->count > ATTN__COUNT_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "count", "count is %u; accepted: 1 to %u", shape->count,
                          ATTN__COUNT_MAX);
    }
    if (shape->rows > ATTN__COUNT_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "num_tokens", "num_tokens is %u; accepted: up to %u",
                          shape->rows, ATTN__COUNT_MAX);
    }
    if (shape->heads == 0 || shape->heads > ATTN__COUNT_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "heads", "heads is %u; accepted: 1 to %u", shape->heads,
                          ATTN__COUNT_MAX);
    }
    if (shape->head_dim == 0 || shape->head_dim > ATTN__HEAD_DIM_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "head_dim", "head_dim is %u; accepted: 1 to %u",
                          shape->head_dim, ATTN__HEAD_DIM_MAX);
    }
    return ATTN_OK;
}

static int32_t check_out(const struct shape *shape, const struct attn_tensor *tensor, const char *name,
                         struct attn_error *err)
{
    return attn__tensor_check(tensor, shape->dtype, shape->rows, shape->heads, shape->head_dim, name, err);
}

static int32_t check_lse(const struct shape *shape, const struct attn_tensor *tensor, const char *name,
                         struct attn_error *err)
{
    return attn__tensor_check(tensor, ATTN_F32, shape->rows, shape->heads, 1, name, err);
}

static int32_t check_result(const struct shape *shape, const struct attn_tensor *tensor,
                            struct attn_error *err)
{
    return attn__output_check(tensor, shape->dtype, shape->rows, shape->heads, shape->head_dim, "out", err);
}

static int32_t unsupported(const struct attn_backend *backend, const char *what, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_UNSUPPORTED, 0, what, "%s offers no %s", backend->entry->table.name, what);
}

static int32_t check_merge(const struct attn_merge_args *args, struct attn_error *err)
{
    const struct shape shape = {args->dtype,      args->lse_base, args->count,
                                args->num_tokens, args->heads,    args->head_dim};
    int32_t status = check_shape(&shape, err);
    if (status == ATTN_OK && args->parts == NULL) {
        status = attn__fail(err, ATTN_E_INVALID, 0, "parts",
                            "parts is NULL, but count is %u; an array of as many is needed", args->count);
    }
    for (uint32_t i = 0; status == ATTN_OK && i < args->count; i++) {
        status = check_out(&shape, &args->parts[i].out, "parts.out", err);
        if (status == ATTN_OK)
            status = check_lse(&shape, &args->parts[i].lse, "parts.lse", err);
    }
    if (status == ATTN_OK)
        status = check_result(&shape, &args->out, err);
    return status == ATTN_OK && args->lse.buffer.data != NULL
               ? attn__output_check(&args->lse, ATTN_F32, shape.rows, shape.heads, 1, "lse", err)
               : status;
}

int32_t attn_merge(struct attn_backend *backend, const struct attn_merge_args *args, void *stream,
                   struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_merge", err);
    if (status != ATTN_OK)
        return status;
    struct attn_merge_args copy;
    const void *known = NULL;
    status = attn__argument(backend, args, &copy, sizeof copy, backend->entry->plugin->table.merge_size,
                            "args", &known, err);
    if (status == ATTN_OK)
        status = check_merge(known, err);
    if (status != ATTN_OK)
        return status;
    if (backend->entry->merge.merge == NULL)
        return unsupported(backend, "merge", err);
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const struct attn_merge_args *own = known;
    const uint64_t began = attn__trace_begin(backend);
    status = backend->entry->merge.merge(backend->impl, own, stream, &plugin_err);
    attn__trace(backend, began, status, "merge", NULL, "parts=%u tokens=%u heads=%u head_dim=%u", own->count,
                own->num_tokens, own->heads, own->head_dim);
    return attn__call_end(backend, status, &plugin_err, "merge", err);
}

static int32_t check_rescale(const struct attn_rescale_args *args, struct attn_error *err)
{
    const struct shape shape = {args->dtype,      args->lse_base, args->count,
                                args->num_tokens, args->heads,    args->head_dim};
    int32_t status = check_shape(&shape, err);
    if (status == ATTN_OK && args->all == NULL) {
        status = attn__fail(err, ATTN_E_INVALID, 0, "all",
                            "all is NULL, but count is %u; an array of as many is needed", args->count);
    }
    for (uint32_t i = 0; status == ATTN_OK && i < args->count; i++)
        status = check_lse(&shape, &args->all[i], "all", err);
    if (status == ATTN_OK)
        status = check_lse(&shape, &args->own, "own", err);
    return status == ATTN_OK ? check_result(&shape, &args->out, err) : status;
}

int32_t attn_rescale(struct attn_backend *backend, const struct attn_rescale_args *args, void *stream,
                     struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_rescale", err);
    if (status != ATTN_OK)
        return status;
    struct attn_rescale_args copy;
    const void *known = NULL;
    status = attn__argument(backend, args, &copy, sizeof copy, backend->entry->plugin->table.rescale_size,
                            "args", &known, err);
    if (status == ATTN_OK)
        status = check_rescale(known, err);
    if (status != ATTN_OK)
        return status;
    if (backend->entry->merge.rescale == NULL)
        return unsupported(backend, "rescale", err);
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const struct attn_rescale_args *own = known;
    const uint64_t began = attn__trace_begin(backend);
    status = backend->entry->merge.rescale(backend->impl, own, stream, &plugin_err);
    attn__trace(backend, began, status, "rescale", NULL, "parts=%u tokens=%u heads=%u head_dim=%u",
                own->count, own->num_tokens, own->heads, own->head_dim);
    return attn__call_end(backend, status, &plugin_err, "rescale", err);
}
