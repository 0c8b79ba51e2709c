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

/* Bytes from a vector of n elements to the next one: blocks are whole, and begin at even addresses. */
static uint64_t vector_bytes(uint32_t k_dtype, uint32_t v_dtype, uint32_t n)
{
    const bool k_blocks = attn_block_bytes(k_dtype) != 0, v_blocks = attn_block_bytes(v_dtype) != 0;
    const uint64_t whole =
        ((uint64_t)n + ATTN_BLOCK_ELEMENTS - 1) / ATTN_BLOCK_ELEMENTS * ATTN_BLOCK_ELEMENTS;
    const uint64_t k = attn_row_bytes(k_dtype, k_blocks ? whole : n);
    const uint64_t v = attn_row_bytes(v_dtype, v_blocks ? whole : n), most = k > v ? k : v;

    return k_blocks || v_blocks ? most + most % sizeof(uint16_t) : most;
}

/* Refuses types that no cache has, and blocks where a cache has none. */
static int32_t check_types(const struct attn_problem *p, struct attn_error *err)
{
    const struct {
        const char *key;
        uint32_t reason, dtype, dim;
    } sides[] = {{"k", ATTN_REASON_DTYPE_K, p->k_dtype, p->head_dim},
                 {"v", ATTN_REASON_DTYPE_V, p->v_dtype, p->head_dim_vo}};

    for (uint32_t i = 0; i < 2; i++) {
        const bool blocks = attn_block_bytes(sides[i].dtype) != 0;
        if (!blocks && attn__dtype_size(sides[i].dtype) == 0)
            return attn__fail(err, ATTN_E_UNSUPPORTED, sides[i].reason, sides[i].key,
                              "%s is %s; f32, f16, bf16, 8-bit types and blocks are served", sides[i].key,
                              attn__dtype_name(sides[i].dtype));
        if (blocks && (sides[i].dim % ATTN_BLOCK_ELEMENTS != 0 || p->layout == ATTN_PAGED_X))
            return attn__fail(err, ATTN_E_INVALID, 0, p->layout == ATTN_PAGED_X ? "layout" : "head_dim",
                              "%s is %s: layout strided and head dims that are multiples of %u are accepted",
                              sides[i].key, attn__dtype_name(sides[i].dtype), ATTN_BLOCK_ELEMENTS);
    }
    return ATTN_OK;
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
    const uint32_t k_size = attn__dtype_size(p->k_dtype);
    const int32_t status = check_types(p, err);

    if (status != ATTN_OK)
        return status;
    if (p->layout == ATTN_PAGED_X && p->head_dim % (ATTN__PAGED_X_BYTES / k_size) != 0)
        return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_HEAD_DIM, "head_dim",
                          "head_dim is %u; layout paged-x serves multiples of %u with k of %s", p->head_dim,
                          ATTN__PAGED_X_BYTES / k_size, attn__dtype_name(p->k_dtype));
    /* If keys and values differ in size, both take that of the larger, so that the cache is one array. */
    plane->dim = p->head_dim > p->head_dim_vo ? p->head_dim : p->head_dim_vo;
    plane->head = vector_bytes(p->k_dtype, p->v_dtype, plane->dim);
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
