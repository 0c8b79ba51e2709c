/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Caches: the shapes of all flavours, and the check of a description. */
#include "check.h"
#include "kv-view.h"

/* a * b * c * d, or false. */
static bool product(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out) && !__builtin_mul_overflow(*out, c, out) &&
           !__builtin_mul_overflow(*out, d, out);
}

/* What the shape of a cache is made of. */
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
    /* Where keys and values differ in size, both take the room of the larger, so that it stays one array. */
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
 * [2, pages, block, kv heads, dim] or [pages, 2, block, kv heads, dim]; a latent cache has no axis of two.
 * With layout paged-x, and always in the rocm-flash flavour, the last three axes are one.
 */
static void set_dims(enum attn_flavour flavour, const struct attn_problem *p, const struct plane *plane,
                     uint32_t pages, struct attn_kv_shape *out)
{
    bool first = flavour != ATTN_FLASHINFER;

    if (p->mla == 0)
        out->dims[out->rank++] = first ? 2 : pages;
    out->dims[out->rank++] = p->mla != 0 || first ? pages : 2;
    if (p->layout == ATTN_PAGED_X || flavour == ATTN_ROCM_FLASH) {
        out->dims[out->rank++] = (uint64_t)plane->block * p->kv_heads * plane->dim;
        return;
    }
    out->dims[out->rank++] = plane->block;
    if (p->mla == 0)
        out->dims[out->rank++] = p->kv_heads;
    out->dims[out->rank++] = plane->dim;
}

int32_t attn__kv_shape(enum attn_flavour flavour, const struct attn_problem *problem, uint32_t pages,
                       struct attn_kv_shape *out, struct attn_error *err)
{
    struct plane plane = {0};
    bool paged_x = problem->layout == ATTN_PAGED_X, pairs = flavour == ATTN_FLASHINFER && problem->mla == 0;
    int32_t status = plane_init(&plane, problem, pages, err);

    if (status != ATTN_OK)
        return status;
    ATTN_INIT(out);
    set_dims(flavour, problem, &plane, pages, out);
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

/* Keys or values: type, address, strides. */
static int32_t check_half(const struct attn_kv_desc *desc, bool values, struct attn_error *err)
{
    const struct attn_buffer *buffer = values ? &desc->v : &desc->k;
    const char *name = values ? "kv.v" : "kv.k";
    uint32_t dtype = values ? desc->v_dtype : desc->k_dtype, size = attn__dtype_size(dtype);
    uint32_t dim = values && desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim;
    bool pieces = desc->layout == ATTN_PAGED_X;
    /* In pieces the tokens of a head take as much as without gaps. */
    const int64_t token = values ? desc->v_token_stride : desc->k_token_stride;
    const int64_t strides[] = {values ? desc->v_page_stride : desc->k_page_stride,
                               pieces ? (int64_t)dim * size : token,
                               values ? desc->v_head_stride : desc->k_head_stride};
    const uint64_t counts[] = {desc->pages, desc->block, desc->kv_heads};
    uintptr_t bits = (uintptr_t)attn__address(buffer);

    if (size == 0)
        return attn__fail(err, ATTN_E_UNSUPPORTED, values ? ATTN_REASON_DTYPE_V : ATTN_REASON_DTYPE_K,
                          values ? "kv.v_dtype" : "kv.k_dtype",
                          "%s is not served; f32, f16, bf16 and 8-bit types are", attn__dtype_name(dtype));
    if (pieces && !values && dim % (ATTN__PAGED_X_BYTES / size) != 0)
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_HEAD_DIM, "kv.head_dim",
                          "kv.head_dim is %u; layout paged-x of %s accepts multiples of %u", dim,
                          attn__dtype_name(dtype), ATTN__PAGED_X_BYTES / size);
    if (bits == 0 && desc->pages > 0)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not given; a cache needs it", name);
    for (uint32_t i = 0; i < 3; i++)
        bits |= counts[i] > 1 ? (uintptr_t)strides[i] : 0;
    if ((bits & (size - 1)) != 0)
        return attn__fail(
            err, ATTN_E_INVALID, 0, name,
            "address and strides of %s (page %lld, token %lld, head %lld bytes) must be multiples "
            "of its element size %u",
            name, (long long)strides[0], (long long)strides[1], (long long)strides[2], size);
    if (!attn__strides_fit(strides, counts, 3))
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "strides of %s (page %lld, token %lld, head %lld bytes) reach beyond 64-bit "
                          "addresses; smaller ones are accepted",
                          name, (long long)strides[0], (long long)strides[1], (long long)strides[2]);
    return attn__scale_check(values ? &desc->v_scale : &desc->k_scale, dtype,
                             values ? "kv.v_scale" : "kv.k_scale", err);
}

int32_t attn__kv_check(const struct attn_kv_desc *desc, struct attn_error *err)
{
    if (desc->layout > ATTN_PAGED_X)
        return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_LAYOUT, "kv.layout",
                          "layout %u is not served; strided (1) and paged-x (2) are", desc->layout);
    if (desc->block == 0 || desc->kv_heads == 0 || desc->head_dim == 0)
        return attn__fail(err, ATTN_E_INVALID, 0,
                          desc->block == 0      ? "kv.block"
                          : desc->kv_heads == 0 ? "kv.kv_heads"
                                                : "kv.head_dim",
                          "block is %u, kv_heads %u, head_dim %u; each must be at least 1", desc->block,
                          desc->kv_heads, desc->head_dim);
    int32_t status = check_half(desc, false, err);
    if (status != ATTN_OK || attn__address(&desc->v) == NULL)
        return status; /* without v it is a latent cache */
    return check_half(desc, true, err);
}
