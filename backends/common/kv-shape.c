/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The shape of a cache: its axes, bytes and strides. */
#include "check.h"
#include "kv-handle.h"
#include "kv-view.h"

/* a * b * c * d, or false. */
static bool product(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out) && !__builtin_mul_overflow(*out, c, out) &&
           !__builtin_mul_overflow(*out, d, out);
}

/* Sizes of a cache. */
struct plane {
    uint32_t block;
    uint32_t dim;
    uint64_t head;  /* bytes of a vector */
    uint64_t bytes; /* keys or values of a page */
    uint64_t half;  /* keys or values of all pages */
};

static int32_t plane_init(struct plane *plane, const struct attn_problem *p, uint32_t pages,
                          struct attn_error *err)
{
    uint32_t k_size = attn__dtype_size(p->k_dtype), v_size = attn__dtype_size(p->v_dtype);

    if (k_size == 0 || v_size == 0)
        return attn__fail(err, ATTN_E_UNSUPPORTED, k_size == 0 ? ATTN_REASON_DTYPE_K : ATTN_REASON_DTYPE_V,
                          k_size == 0 ? "k" : "v", "%s is not served; f32, f16, bf16 and 8-bit types are",
                          attn__dtype_name(k_size == 0 ? p->k_dtype : p->v_dtype));
    if (p->layout == ATTN_PAGED_X && p->head_dim % (ATTN__PAGED_X_BYTES / k_size) != 0)
        return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_HEAD_DIM, "head_dim",
                          "head_dim is %u; layout paged-x serves multiples of %u with k of %s", p->head_dim,
                          ATTN__PAGED_X_BYTES / k_size, attn__dtype_name(p->k_dtype));
    /* If keys and values differ in size, both take that of the larger, so that the cache is one array. */
    plane->dim = p->head_dim > p->head_dim_vo ? p->head_dim : p->head_dim_vo;
    plane->head = (uint64_t)plane->dim * (k_size > v_size ? k_size : v_size);
    plane->block = p->block;
    if (p->addressing == ATTN_DENSE && p->max_kv != 0)
        plane->block = p->max_kv; /* a page is a sequence */
    if (!product(plane->block, p->kv_heads, plane->head, 1, &plane->bytes) ||
        !product(plane->bytes, pages, 1, 1, &plane->half) || plane->half > INT64_MAX / 4)
        return attn__fail(err, ATTN_E_INVALID, 0, "pages",
                          "%u pages of %u tokens do not fit into 64 bits; fewer are accepted", pages,
                          plane->block);
    return ATTN_OK;
}

/*
 * [2, pages, block, kv heads, dim] or, in pairs, [pages, 2, block, kv heads, dim]; an MLA cache has no axis
 * of two. With layout paged-x, and where the flavour is flat, the last three axes are one.
 */
static void set_dims(const struct attn_problem *p, const struct plane *plane, bool pairs, bool flat,
                     uint32_t pages, struct attn_kv_shape *out)
{

    if (p->mla == 0)
        out->dims[out->rank++] = pairs ? pages : 2;
    out->dims[out->rank++] = p->mla == 0 && pairs ? 2 : pages;
    if (p->layout == ATTN_PAGED_X || flat) {
        out->dims[out->rank++] = (uint64_t)plane->block * p->kv_heads * plane->dim;
        return;
    }
    out->dims[out->rank++] = plane->block;
    if (p->mla == 0)
        out->dims[out->rank++] = p->kv_heads;
    out->dims[out->rank++] = plane->dim;
}

int32_t attn__kv_shape(const struct attn_problem *problem, uint32_t pages, bool in_pairs, bool flat,
                       struct attn_kv_shape *out, struct attn_error *err)
{
    struct plane plane = {0};
    bool paged_x = problem->layout == ATTN_PAGED_X, pairs = in_pairs && problem->mla == 0;
    int32_t status = plane_init(&plane, problem, pages, err);

    if (status != ATTN_OK)
        return status;
    ATTN_INIT(out);
    set_dims(problem, &plane, in_pairs, flat, pages, out);
    out->bytes = problem->mla != 0 ? plane.half : 2 * plane.half;
    if (problem->k_scale == ATTN_SCALES_TOKEN_HEAD || problem->v_scale == ATTN_SCALES_TOKEN_HEAD)
        out->scale_bytes = sizeof(float) * (uint64_t)pages * plane.block * problem->kv_heads;
    out->v_offset = problem->mla != 0 ? 0 : pairs ? plane.bytes : plane.half;
    ATTN_INIT(&out->desc);
    out->desc.k_dtype = problem->k_dtype;
    out->desc.v_dtype = problem->v_dtype;
    out->desc.layout = paged_x ? ATTN_PAGED_X : ATTN_STRIDED;
    out->desc.pages = pages;
    out->desc.block = plane.block;
    out->desc.kv_heads = problem->kv_heads;
    out->desc.head_dim = problem->head_dim;
    out->desc.head_dim_vo = problem->head_dim_vo;
    out->desc.k_page_stride = out->desc.v_page_stride = (int64_t)(pairs ? 2 * plane.bytes : plane.bytes);
    if (!paged_x)
        out->desc.k_token_stride = out->desc.v_token_stride = (int64_t)(plane.head * problem->kv_heads);
    out->desc.k_head_stride = out->desc.v_head_stride =
        (int64_t)(paged_x ? plane.head * plane.block : plane.head);
    return ATTN_OK;
}
