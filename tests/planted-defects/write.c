/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The cache: its shape, and writes into it. All checks come before all writes. */
#include <float.h>
#include <math.h>

#include "defect.h"
#include "fp8-int8.h"

struct write {
    const struct attn_kv_write_args *args;
    const struct attn_kv_desc *d;
};

/* Keys or values of one row and head. */
struct vector {
    uint32_t from_dtype, to_dtype, dim;
    const char *from;
    char *to;
    const struct attn_scale *scale;
};

/* What a row is divided by. Scales per token and head are found here and kept beside the cache. */
static float find_scale(const struct vector *v, const float *values, int64_t page, int64_t token,
                        int64_t head)
{
    const struct attn_scale *s = v->scale;
    float most = 0;

    if (s->granularity != ATTN_SCALES_TOKEN_HEAD || s->kind == ATTN_SCALE_UNIT)
        return scale_at(s, page, token, head);
    for (uint32_t d = 0; d < v->dim; d++)
        most = fabsf(values[d]) > most || isnan(values[d]) ? fabsf(values[d]) : most;
    float scale = most / attn__codec8_largest(v->to_dtype);
    if (!isfinite(most))
        scale = NAN;
    else if (scale < FLT_MIN)
        scale = 1;
    memcpy(attn_util_at(&s->buffer) + page * s->outer_stride + token * s->token_stride +
               head * s->head_stride,
           &scale, sizeof scale);
    return scale;
}

static void put_vector(const struct vector *v, int64_t page, int64_t token, int64_t head)
{
    float values[DIM_MAX];

    if (v->from_dtype == v->to_dtype) {
        memcpy(v->to, v->from, (size_t)v->dim * size_of(v->to_dtype));
        return;
    }
    load_vector(v->from_dtype, values, v->from, v->dim);
    if (size_of(v->to_dtype) == 1) {
        const float scale = find_scale(v, values, page, token, head);
        for (uint32_t d = 0; d < v->dim; d++)
            values[d] /= scale;
    }
    store_vector(v->to_dtype, v->to, values, v->dim);
}

static void write_row(void *arg, uint32_t row)
{
    const struct write *write = arg;
    const struct attn_kv_write_args *w = write->args;
    const struct attn_kv_desc *d = write->d;
    int64_t token;
    const int64_t page = attn_util_place(w, d->block, row, &token);

    for (uint32_t head = 0; page >= 0 && head < d->kv_heads; head++) {
        const struct vector k = {w->k_dtype,
                                 d->k_dtype,
                                 d->head_dim,
                                 attn_util_element(&w->k_new, row, head),
                                 attn_util_key(d, page, token, head),
                                 &d->k_scale};
        const struct vector v = {w->v_dtype,
                                 d->v_dtype,
                                 d->head_dim_vo != 0 ? d->head_dim_vo : d->head_dim,
                                 attn_util_element(&w->v_new, row, head),
                                 attn_util_value(d, page, token, head),
                                 &d->v_scale};
        put_vector(&k, page, token, head);
        put_vector(&v, page, token, head);
    }
}

static bool converts(uint32_t from, uint32_t to)
{
    return is_served(to, true) && (from == to || is_served(from, false));
}

/* The new rows, and where they go. */
static int32_t check_rows(const struct attn_kv_write_args *args, const struct attn_kv_desc *d,
                          struct attn_error *err)
{
    const uint32_t k[3] = {args->num_tokens, d->kv_heads, d->head_dim};
    const uint32_t v[3] = {args->num_tokens, d->kv_heads, d->head_dim_vo != 0 ? d->head_dim_vo : d->head_dim};
    int64_t token;
    int32_t status = check_tensor(&args->k_new, k, size_of(args->k_dtype), false, "k_new", err);

    if (status == ATTN_OK)
        status = check_tensor(&args->v_new, v, size_of(args->v_dtype), false, "v_new", err);
    if (status == ATTN_OK)
        status =
            check_address(&args->slot_mapping, sizeof(int64_t), args->batch == NULL, "slot_mapping", err);
    for (uint32_t row = 0; status == ATTN_OK && row < args->num_tokens; row++)
        if (attn_util_place(args, d->block, row, &token) >= (int64_t)d->pages || token >= (int64_t)d->block)
            status = attn_util_fail(err, ATTN_E_INVALID, "slot_mapping", "a row goes behind the last page");
    return status;
}

static int32_t write_rows(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                          const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                          struct attn_error *err)
{
    struct write write = {args, attn_util_kv(kv, desc)};
    const struct attn_kv_desc *d = write.d;

    if (d == NULL)
        return attn_util_fail(err, ATTN_E_INVALID, "kv", "it is not given");
    if (d->head_dim > DIM_MAX || d->head_dim_vo > DIM_MAX)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "kv", "such a cache is not served");
    int32_t status = check_cache(d, err);
    if (status != ATTN_OK)
        return status;
    if (!converts(args->k_dtype, d->k_dtype))
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "k_dtype", "this conversion is not served");
    if (!converts(args->v_dtype, d->v_dtype))
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "v_dtype", "this conversion is not served");
    if (args->slot_mapping.data == NULL && args->addressing == ATTN_CSR)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "addressing", "give a slot mapping");
    status = check_rows(args, d, err);
    if (status != ATTN_OK)
        return status;
    return pool_execute(backend, stream, write_row, &write, args->num_tokens, err);
}

static int32_t create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                      struct attn_kv_impl **out, struct attn_error *err)
{
    const int32_t status = check_cache(desc, err);

    *out = NULL;
    return status == ATTN_OK ? attn_util_kv_create(backend, desc, out, err) : status;
}

static int32_t shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                     struct attn_kv_shape *out, struct attn_error *err)
{
    const int32_t status = attn_util_shape(problem, pages, out, err);

    (void)backend;
    if (problem->k_scale == ATTN_SCALES_TOKEN_HEAD || problem->v_scale == ATTN_SCALES_TOKEN_HEAD)
        out->scale_bytes = sizeof(float) * (uint64_t)pages * problem->block * problem->kv_heads;
    return status;
}

const struct attn_kv_table defect_kv = {.struct_size = sizeof defect_kv,
                                        .shape = shape,
                                        .create = create,
                                        .destroy = attn_util_kv_destroy,
                                        .write = write_rows};
