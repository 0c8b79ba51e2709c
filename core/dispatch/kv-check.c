/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks a cache description by itself, and against the problem that reads it. */
#include "dispatch/call.h"
#include "select/problem.h"

bool attn__kv_is_element(uint32_t dtype)
{
    return attn_dtype_size(dtype) != 0 && dtype != ATTN_INT32 && dtype != ATTN_INT64;
}

int32_t attn__kv_refuse_blocks(const struct attn_kv_desc *desc, const char *what, struct attn_error *err)
{
    const bool k = attn_block_bytes(desc->k_dtype) != 0;
    if (!k && (desc->v.data == NULL || attn_block_bytes(desc->v_dtype) == 0))
        return ATTN_OK;
    return attn__fail(
        err, ATTN_E_UNSUPPORTED, k ? ATTN_REASON_DTYPE_K : ATTN_REASON_DTYPE_V, k ? "k_dtype" : "v_dtype",
        "%s: the cache's %s is %s, whose blocks are only read; f32, f16, bf16 and 8-bit types are "
        "served",
        what, k ? "k_dtype" : "v_dtype", attn_dtype_name(k ? desc->k_dtype : desc->v_dtype));
}

static int32_t check_count(const char *name, uint32_t value, uint32_t most, struct attn_error *err)
{
    return value >= 1 && value <= most ? ATTN_OK
                                       : attn__fail(err, ATTN_E_INVALID, 0, name,
                                                    "kv desc.%s is %u; accepted: 1 to %u", name, value, most);
}

static int32_t check_counts(const struct attn_kv_desc *desc, struct attn_error *err)
{
    int32_t status = check_count("pages", desc->pages, ATTN__COUNT_MAX, err);
    if (status == ATTN_OK)
        status = check_count("block", desc->block, ATTN__COUNT_MAX, err);
    if (status == ATTN_OK)
        status = check_count("kv_heads", desc->kv_heads, ATTN__COUNT_MAX, err);
    if (status == ATTN_OK)
        status = check_count("head_dim", desc->head_dim, ATTN__HEAD_DIM_MAX, err);
    if (status == ATTN_OK && desc->head_dim_vo != 0)
        status = check_count("head_dim_vo", desc->head_dim_vo, ATTN__HEAD_DIM_MAX, err);
    if (status == ATTN_OK && desc->layout > ATTN_PAGED_X) {
        status = attn__fail(err, ATTN_E_INVALID, 0, "layout",
                            "kv desc.layout is %u; accepted: ATTN_STRIDED or ATTN_PAGED_X", desc->layout);
    }
    return status;
}

/* Keys or values of the cache. */
struct side {
    const char *name;
    const char *scale_name;
    uint32_t dtype;
    uint32_t dim;
    const struct attn_buffer *buffer;
    int64_t strides[3]; /* page, token, head */
    const struct attn_scale *scale;
};

/* Vectors of types that have blocks are whole ones, and contiguous. */
static int32_t check_blocks(const struct attn_kv_desc *desc, const struct side *side, struct attn_error *err)
{
    if (attn_block_bytes(side->dtype) == 0)
        return ATTN_OK;
    if (desc->layout == ATTN_PAGED_X) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "layout",
            "kv desc.layout is paged-x, but %s is %s, which has blocks along head_dim; accepted: "
            "ATTN_STRIDED",
            side->name, attn_dtype_name(side->dtype));
    }
    const bool k = side->buffer == &desc->k;
    return side->dim % ATTN_BLOCK_ELEMENTS == 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, k ? "head_dim" : "head_dim_vo",
                            "kv desc.%s is %u; with %s of %s multiples of %u are accepted",
                            k ? "head_dim" : "head_dim_vo", side->dim, side->name,
                            attn_dtype_name(side->dtype), ATTN_BLOCK_ELEMENTS);
}

static int32_t check_strides(const struct attn_kv_desc *desc, const struct side *side, struct attn_error *err)
{
    const bool blocks = attn_block_bytes(side->dtype) != 0;
    const uint32_t size = blocks ? (uint32_t)sizeof(uint16_t) : attn__element_size(side->dtype);
    const bool paged_x = desc->layout == ATTN_PAGED_X;
    const int32_t status = check_blocks(desc, side, err);
    if (status != ATTN_OK)
        return status;
    if (paged_x && side->buffer == &desc->k && side->dim % (16 / size) != 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, "head_dim",
                          "kv desc.head_dim is %u; layout paged-x accepts multiples of %u with k of %s",
                          side->dim, 16 / size, attn_dtype_name(side->dtype));
    }
    const int64_t token = paged_x ? (int64_t)side->dim * size : side->strides[1]; /* of a page without gaps */
    if (((side->strides[0] | token | side->strides[2]) & (int64_t)(size - 1)) != 0) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, side->name,
            "kv desc: strides of %s are %lld, %lld, %lld bytes (page, token, head); accepted: multiples of "
            "%u, the size of its elements or of a block's scale",
            side->name, (long long)side->strides[0], (long long)side->strides[1], (long long)side->strides[2],
            size);
    }
    const int64_t strides[] = {side->strides[0], token, side->strides[2]};
    const uint64_t counts[] = {desc->pages, desc->block, desc->kv_heads};
    if (!attn__extent_fits(strides, counts, 3, attn_row_bytes(side->dtype, side->dim))) {
        return attn__fail(err, ATTN_E_INVALID, 0, side->name,
                          "kv desc: %s does not fit 63 bits: %u pages at stride %lld, %u tokens at %lld, %u "
                          "heads at %lld; smaller ones are accepted",
                          side->name, desc->pages, (long long)side->strides[0], desc->block,
                          (long long)side->strides[1], desc->kv_heads, (long long)side->strides[2]);
    }
    return ATTN_OK;
}

static int32_t check_side_scale(const struct attn_kv_desc *desc, const struct side *side,
                                struct attn_error *err)
{
    const struct attn_scale *scale = side->scale;
    if (attn_block_bytes(side->dtype) != 0 && scale->kind == ATTN_SCALE_UNIT)
        return attn__scale_check(scale, ATTN_SCALES_UNIT, side->scale_name, err);
    if (attn_dtype_size(side->dtype) != 1)
        return attn__scale_check(scale, ATTN_SCALES_NONE, side->scale_name, err);
    const bool unit = scale->kind == ATTN_SCALE_UNIT;
    const uint32_t granularity = unit ? (uint32_t)ATTN_SCALES_UNIT : scale->granularity;
    if (scale->kind != 0 && !unit &&
        (granularity < ATTN_SCALES_TENSOR || granularity > ATTN_SCALES_TOKEN_HEAD)) {
        return attn__fail(err, ATTN_E_INVALID, 0, side->scale_name,
                          "kv desc.%s has granularity %u; accepted: tensor, head or token-head",
                          side->scale_name, granularity);
    }
    if (scale->kind == 0) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, side->scale_name,
            "kv desc.%s is not given, but %s is %s; say kind ATTN_SCALE_UNIT if its values are not scaled",
            side->scale_name, side->name, attn_dtype_name(side->dtype));
    }
    const int64_t strides[] = {scale->outer_stride, scale->token_stride, scale->head_stride};
    const uint64_t counts[] = {desc->pages, desc->block, desc->kv_heads};
    if (!unit && !attn__extent_fits(strides, counts, 3, sizeof(float))) {
        return attn__fail(err, ATTN_E_INVALID, 0, side->scale_name,
                          "kv desc: strides of %s are %lld, %lld, %lld bytes (page, token, head), which do "
                          "not fit 63 bits; smaller ones are accepted",
                          side->scale_name, (long long)strides[0], (long long)strides[1],
                          (long long)strides[2]);
    }
    return attn__scale_check(scale, granularity, side->scale_name, err);
}

static int32_t check_side(const struct attn_kv_desc *desc, const struct side *side, struct attn_error *err)
{
    if (side->buffer->data == NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, side->name,
                          "kv desc.%s has no buffer; an address is needed", side->name);
    }
    const int32_t status = check_strides(desc, side, err);
    return status == ATTN_OK ? check_side_scale(desc, side, err) : status;
}

/* An MLA cache has no v: none of its members may be set. */
static int32_t check_mla(const struct attn_kv_desc *desc, struct attn_error *err)
{
    if (desc->v_dtype != 0 && desc->v_dtype != desc->k_dtype) {
        return attn__fail(err, ATTN_E_INVALID, 0, "v_dtype",
                          "kv desc.v_dtype is %s; without v that of k, %s, is accepted, or 0",
                          attn_dtype_name(desc->v_dtype), attn_dtype_name(desc->k_dtype));
    }
    if (desc->head_dim_vo > desc->head_dim) {
        return attn__fail(err, ATTN_E_INVALID, 0, "head_dim_vo",
                          "kv desc.head_dim_vo is %u; accepted without v: up to head_dim, %u",
                          desc->head_dim_vo, desc->head_dim);
    }
    return desc->v_scale.kind == 0
               ? ATTN_OK
               : attn__fail(
                     err, ATTN_E_INVALID, 0, "v_scale",
                     "kv desc.v_scale is given, but without v the values have k_scale; leave its kind 0");
}

static int32_t check_type(const char *name, uint32_t dtype, struct attn_error *err)
{
    return attn__kv_is_element(dtype) || attn_block_bytes(dtype) != 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, name,
                            "kv desc.%s is 0x%x; accepted: f32, f16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz, "
                            "int8, q8_0, q4_0, q4_1, q5_0, q5_1 or iq4_nl",
                            name, dtype);
}

int32_t attn__kv_check(const struct attn_kv_desc *desc, struct attn_error *err)
{
    const bool mla = desc->v.data == NULL;
    int32_t status = check_type("k_dtype", desc->k_dtype, err);
    if (status == ATTN_OK && !(mla && desc->v_dtype == 0))
        status = check_type("v_dtype", desc->v_dtype, err);
    if (status == ATTN_OK && mla)
        status = check_mla(desc, err);
    if (status == ATTN_OK)
        status = check_counts(desc, err);
    if (status != ATTN_OK)
        return status;
    const struct side k = {"k",           "k_scale",
                           desc->k_dtype, desc->head_dim,
                           &desc->k,      {desc->k_page_stride, desc->k_token_stride, desc->k_head_stride},
                           &desc->k_scale};
    const int32_t of_k = check_side(desc, &k, err);
    if (of_k != ATTN_OK || mla)
        return of_k;
    const struct side v = {"v",           "v_scale",
                           desc->v_dtype, desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim,
                           &desc->v,      {desc->v_page_stride, desc->v_token_stride, desc->v_head_stride},
                           &desc->v_scale};
    return check_side(desc, &v, err);
}

/* ---------------------------------------------------------------- against a problem */

static int32_t unlike(struct attn_error *err, const char *name, uint32_t got, uint32_t wanted)
{
    return attn__fail(err, ATTN_E_INVALID, 0, name, "the cache's %s is %u, but the plan's problem says %u",
                      name, got, wanted);
}

static int32_t unlike_type(struct attn_error *err, const char *name, uint32_t got, uint32_t wanted)
{
    return attn__fail(err, ATTN_E_INVALID, 0, name, "the cache's %s is %s, but the plan's problem says %s",
                      name, attn_dtype_name(got), attn_dtype_name(wanted));
}

static uint32_t granularity_of(const struct attn_scale *scale)
{
    if (scale->kind == 0)
        return ATTN_SCALES_NONE;
    return scale->kind == ATTN_SCALE_UNIT ? (uint32_t)ATTN_SCALES_UNIT : scale->granularity;
}

int32_t attn__kv_fits(const struct attn_kv_desc *desc, const struct attn_problem *problem,
                      struct attn_error *err)
{
    if (desc->k_dtype != problem->k_dtype)
        return unlike_type(err, "k_dtype", desc->k_dtype, problem->k_dtype);
    if (desc->v_dtype != problem->v_dtype && !problem->mla)
        return unlike_type(err, "v_dtype", desc->v_dtype, problem->v_dtype);
    if (desc->kv_heads != problem->kv_heads)
        return unlike(err, "kv_heads", desc->kv_heads, problem->kv_heads);
    if (desc->head_dim != problem->head_dim)
        return unlike(err, "head_dim", desc->head_dim, problem->head_dim);
    const uint32_t vo = desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim;
    if (vo != problem->head_dim_vo && !problem->mla)
        return unlike(err, "head_dim_vo", vo, problem->head_dim_vo);
    if (problem->addressing != ATTN_DENSE && desc->block != problem->block)
        return unlike(err, "block", desc->block, problem->block);
    const uint32_t layout = desc->layout != 0 ? desc->layout : (uint32_t)ATTN_STRIDED;
    if (layout != problem->layout)
        return unlike(err, "layout", layout, problem->layout);
    if (desc->v.data == NULL && !problem->mla) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "v",
            "the cache has no v, but the plan's problem says mla=0; give a cache with v, or plan with mla=1");
    }
    if (granularity_of(&desc->k_scale) != problem->k_scale)
        return unlike(err, "k_scale", granularity_of(&desc->k_scale), problem->k_scale);
    if (granularity_of(&desc->v_scale) != problem->v_scale && !problem->mla)
        return unlike(err, "v_scale", granularity_of(&desc->v_scale), problem->v_scale);
    return ATTN_OK;
}

/* ---------------------------------------------------------------- against another cache */

static int32_t differ(struct attn_error *err, const char *name, uint32_t from, uint32_t to)
{
    return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is %u in from and %u in to; accepted: equal", name,
                      from, to);
}

int32_t attn__kv_same_vectors(const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                              struct attn_error *err)
{
    const uint32_t from_vo = from->head_dim_vo != 0 ? from->head_dim_vo : from->head_dim;
    const uint32_t to_vo = to->head_dim_vo != 0 ? to->head_dim_vo : to->head_dim;
    if (from->kv_heads != to->kv_heads)
        return differ(err, "kv_heads", from->kv_heads, to->kv_heads);
    if (from->head_dim != to->head_dim)
        return differ(err, "head_dim", from->head_dim, to->head_dim);
    if (from_vo != to_vo)
        return differ(err, "head_dim_vo", from_vo, to_vo);
    return (from->v.data != NULL) == (to->v.data != NULL)
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "v",
                            "%s has v, the other cache has none; accepted: equal",
                            from->v.data != NULL ? "from" : "to");
}

int32_t attn__kv_alike(const struct attn_kv_desc *from, const struct attn_kv_desc *to, struct attn_error *err)
{
    const bool paged_x[] = {from->layout == ATTN_PAGED_X, to->layout == ATTN_PAGED_X};
    const bool mla = from->v.data == NULL;
    if (from->k_dtype != to->k_dtype || (!mla && from->v_dtype != to->v_dtype)) {
        const bool of_k = from->k_dtype != to->k_dtype;
        const char *name = of_k ? "k_dtype" : "v_dtype";
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s is %s in from and %s in to; accepted: equal (attn_kv_convert changes it)", name,
                          attn_dtype_name(of_k ? from->k_dtype : from->v_dtype),
                          attn_dtype_name(of_k ? to->k_dtype : to->v_dtype));
    }
    if (paged_x[0] != paged_x[1]) {
        return attn__fail(err, ATTN_E_INVALID, 0, "layout",
                          "layout is %s in from and %s in to; accepted: equal (attn_kv_convert changes it)",
                          paged_x[0] ? "paged-x" : "strided", paged_x[1] ? "paged-x" : "strided");
    }
    if (granularity_of(&from->k_scale) != granularity_of(&to->k_scale))
        return differ(err, "k_scale", granularity_of(&from->k_scale), granularity_of(&to->k_scale));
    if (granularity_of(&from->v_scale) != granularity_of(&to->v_scale))
        return differ(err, "v_scale", granularity_of(&from->v_scale), granularity_of(&to->v_scale));
    return attn__kv_same_vectors(from, to, err);
}
