/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks of what a caller gives: blocks, tensors, caches. */
#include "defect.h"

int32_t check_address(const struct attn_buffer *buffer, uint32_t alignment, bool needed, const char *name,
                      struct attn_error *err)
{
    const uintptr_t address = (uintptr_t)attn_util_at(buffer);

    if (address == 0 && needed)
        return attn_util_fail(err, ATTN_E_INVALID, name, "it is not given");
    if (address % alignment != 0)
        return attn_util_fail(err, ATTN_E_INVALID, name, "its address is not aligned");
    return ATTN_OK;
}

int32_t check_span(const struct attn_span *span, uint64_t size, const char *name, struct attn_error *err)
{
    if (size == 0)
        return ATTN_OK;
    if (span->size < size)
        return attn_util_fail(err, ATTN_E_SIZE, name, "it is smaller than the plan's sizes say");
    return check_address(&span->buffer, ALIGNMENT, true, name, err);
}

/* Bytes from the first to the last of `count` elements, added to *sum; false beyond 63 bits. */
static bool extend(uint64_t *sum, int64_t stride, uint64_t count)
{
    const uint64_t size = stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
    uint64_t bytes;

    if (count < 2)
        return true;
    return !__builtin_mul_overflow(size, count - 1, &bytes) && !__builtin_add_overflow(*sum, bytes, sum) &&
           *sum <= INT64_MAX / 2;
}

/* Rows that are written lie one behind the other, whichever dimension is the inner one. */
static bool is_apart(const struct attn_tensor *t, uint64_t rows, uint64_t heads, uint64_t bytes)
{
    const bool row_inner = rows > 1 && (heads < 2 || t->token_stride < t->head_stride);
    const int64_t inner = row_inner ? t->token_stride : t->head_stride;
    const int64_t outer = row_inner ? t->head_stride : t->token_stride;
    const uint64_t inner_count = row_inner ? rows : heads, outer_count = row_inner ? heads : rows;

    if (inner_count > 1 && (inner < 0 || (uint64_t)inner < bytes))
        return false;
    return outer_count < 2 || (outer > 0 && (uint64_t)outer >= (inner_count - 1) * (uint64_t)inner + bytes);
}

int32_t check_tensor(const struct attn_tensor *t, const uint32_t shape[3], uint32_t size, bool written,
                     const char *name, struct attn_error *err)
{
    const uint32_t rows = shape[0], heads = shape[1];
    uint64_t sum = 0;

    if (rows == 0)
        return ATTN_OK;
    const int32_t status = check_address(&t->buffer, size, true, name, err);
    if (status != ATTN_OK)
        return status;
    if ((rows > 1 && t->token_stride % size != 0) || (heads > 1 && t->head_stride % size != 0))
        return attn_util_fail(err, ATTN_E_INVALID, name, "its strides are not aligned");
    if (!extend(&sum, t->token_stride, rows) || !extend(&sum, t->head_stride, heads))
        return attn_util_fail(err, ATTN_E_INVALID, name, "its strides reach beyond 63 bits");
    if (written && !is_apart(t, rows, heads, (uint64_t)shape[2] * size))
        return attn_util_fail(err, ATTN_E_INVALID, name, "its rows overlap");
    return ATTN_OK;
}

/* Keys or values of a cache. */
static int32_t check_half(const struct attn_kv_desc *d, const struct attn_buffer *buffer, uint32_t dtype,
                          const int64_t strides[3], const char *name, struct attn_error *err)
{
    const uint32_t size = size_of(dtype);
    uint64_t sum = 0;
    const int32_t status = check_address(buffer, size, true, name, err);

    if (status != ATTN_OK)
        return status;
    if ((strides[0] | strides[1] | strides[2]) % (int64_t)size != 0)
        return attn_util_fail(err, ATTN_E_INVALID, name, "its strides are not aligned");
    if (!extend(&sum, strides[0], d->pages) || !extend(&sum, strides[1], d->block) ||
        !extend(&sum, strides[2], d->kv_heads))
        return attn_util_fail(err, ATTN_E_INVALID, name, "its strides reach beyond 63 bits");
    return ATTN_OK;
}

int32_t check_cache(const struct attn_kv_desc *d, struct attn_error *err)
{
    const int64_t k[3] = {d->k_page_stride, d->k_token_stride, d->k_head_stride};
    const int64_t v[3] = {d->v_page_stride, d->v_token_stride, d->v_head_stride};

    if (d->layout > ATTN_STRIDED)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "layout", "only strided is served");
    if (!is_served(d->k_dtype, true))
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "k_dtype", "this type is not served");
    if (!is_served(d->v_dtype, true))
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "v_dtype", "this type is not served");
    if (d->block == 0 || d->kv_heads == 0 || d->head_dim == 0)
        return attn_util_fail(err, ATTN_E_INVALID,
                              d->block == 0      ? "block"
                              : d->kv_heads == 0 ? "kv_heads"
                                                 : "head_dim",
                              "0 is not accepted");
    if (d->v.data == NULL)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "v", "MLA caches are not served");
    const int32_t status = check_half(d, &d->k, d->k_dtype, k, "k", err);
    return status != ATTN_OK ? status : check_half(d, &d->v, d->v_dtype, v, "v", err);
}

int32_t check_cache_fits(const struct attn_kv_desc *d, const struct attn_problem *p, struct attn_error *err)
{
    const struct {
        const char *name;
        uint32_t is, wanted;
    } members[] = {{"k_dtype", d->k_dtype, p->k_dtype},
                   {"v_dtype", d->v_dtype, p->v_dtype},
                   {"kv_heads", d->kv_heads, p->kv_heads},
                   {"head_dim", d->head_dim, p->head_dim},
                   {"head_dim_vo", d->head_dim_vo != 0 ? d->head_dim_vo : d->head_dim, p->head_dim_vo},
                   {"block", p->addressing == ATTN_DENSE ? p->block : d->block, p->block}};

    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (members[i].is != members[i].wanted)
            return attn_util_fail(err, ATTN_E_INVALID, members[i].name, "the cache's is not the plan's");
    return ATTN_OK;
}
