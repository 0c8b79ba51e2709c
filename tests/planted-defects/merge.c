/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merge and rescale of partial results, one row and head a task, weights in double. */
#include <math.h>

#include "defect.h"

#define LN2     0.69314718055994530942
#define COLUMNS 64u

/* Natural logarithm; minus infinity for an empty partial result. */
static double load_lse(const struct attn_tensor *tensor, uint32_t row, uint32_t head, uint32_t base)
{
    float lse;

    memcpy(&lse, attn_util_element(tensor, row, head), sizeof lse);
    if (isinf(lse))
        return -(double)INFINITY;
    return base == ATTN_LSE_BASE2 ? (double)lse * LN2 : (double)lse;
}

/* ln of the sum of exp of both. */
static double add_lse(double a, double b)
{
    const double most = a > b || isnan(a) ? a : b;

    return most == -(double)INFINITY ? most : most + log(exp(a - most) + exp(b - most));
}

static void merge_pair(void *arg, uint32_t pair)
{
    const struct attn_merge_args *args = arg;
    const uint32_t row = pair / args->heads, head = pair % args->heads, size = size_of(args->dtype);
    double all = -(double)INFINITY, sum[COLUMNS];
    float values[COLUMNS];

    for (uint32_t k = 0; k < args->count; k++)
        all = add_lse(all, load_lse(&args->parts[k].lse, row, head, args->lse_base));
    for (uint32_t d = 0; d < args->head_dim; d += COLUMNS) {
        const uint32_t count = args->head_dim - d < COLUMNS ? args->head_dim - d : COLUMNS;
        memset(sum, 0, sizeof sum);
        for (uint32_t k = 0; k < args->count; k++) {
            const double lse = load_lse(&args->parts[k].lse, row, head, args->lse_base);
            if (lse == -(double)INFINITY)
                continue;
            load_vector(args->dtype, values,
                        attn_util_element(&args->parts[k].out, row, head) + (size_t)d * size, count);
            for (uint32_t c = 0; c < count; c++)
                sum[c] += exp(lse - all) * (double)values[c];
        }
        for (uint32_t c = 0; c < count; c++)
            values[c] = (float)sum[c];
        /* Only now: the result may lie where a partial result lies. */
        store_vector(args->dtype, attn_util_element(&args->out, row, head) + (size_t)d * size, values, count);
    }
    if (args->lse.buffer.data != NULL) {
        const float lse = (float)all;
        memcpy(attn_util_element(&args->lse, row, head), &lse, sizeof lse);
    }
}

static void rescale_pair(void *arg, uint32_t pair)
{
    const struct attn_rescale_args *args = arg;
    const uint32_t row = pair / args->heads, head = pair % args->heads, size = size_of(args->dtype);
    const double own = load_lse(&args->own, row, head, args->lse_base);
    double all = -(double)INFINITY;
    float values[COLUMNS];

    for (uint32_t k = 0; k < args->count; k++)
        all = add_lse(all, load_lse(&args->all[k], row, head, args->lse_base));
    for (uint32_t d = 0; d < args->head_dim; d += COLUMNS) {
        const uint32_t count = args->head_dim - d < COLUMNS ? args->head_dim - d : COLUMNS;
        char *at = attn_util_element(&args->out, row, head) + (size_t)d * size;
        load_vector(args->dtype, values, at, count);
        for (uint32_t c = 0; c < count; c++)
            values[c] = own == -(double)INFINITY ? 0 : (float)((double)values[c] * exp(own - all));
        store_vector(args->dtype, at, values, count);
    }
}

static int32_t check_common(uint32_t count, uint32_t dtype, uint32_t base, uint32_t rows, uint32_t heads,
                            struct attn_error *err)
{
    if (count == 0)
        return attn_util_fail(err, ATTN_E_INVALID, "count", "at least 1 is needed");
    if (!is_served(dtype, false))
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "dtype", "only f32, f16 and bf16 are served");
    if (base != ATTN_LSE_NATURAL && base != ATTN_LSE_BASE2)
        return attn_util_fail(err, ATTN_E_INVALID, "lse_base", "it is neither natural nor base 2");
    if ((uint64_t)rows * heads > UINT32_MAX)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "rows", "too many rows for one call");
    return ATTN_OK;
}

static int32_t merge(struct attn_backend_impl *backend, const struct attn_merge_args *args, void *stream,
                     struct attn_error *err)
{
    struct attn_merge_args copy = *args;
    const uint32_t out[3] = {args->num_tokens, args->heads, args->head_dim},
                   lse[3] = {args->num_tokens, args->heads, 1};
    const uint32_t size = size_of(args->dtype);
    int32_t status =
        check_common(args->count, args->dtype, args->lse_base, args->num_tokens, args->heads, err);

    for (uint32_t k = 0; status == ATTN_OK && k < args->count; k++) {
        status = check_tensor(&args->parts[k].out, out, size, false, "parts.out", err);
        if (status == ATTN_OK)
            status = check_tensor(&args->parts[k].lse, lse, sizeof(float), false, "parts.lse", err);
    }
    if (status == ATTN_OK)
        status = check_tensor(&args->out, out, size, true, "out", err);
    if (status == ATTN_OK && args->lse.buffer.data != NULL)
        status = check_tensor(&args->lse, lse, sizeof(float), true, "lse", err);
    if (status != ATTN_OK)
        return status;
    return pool_execute(backend, stream, merge_pair, &copy, args->num_tokens * args->heads, err);
}

static int32_t rescale(struct attn_backend_impl *backend, const struct attn_rescale_args *args, void *stream,
                       struct attn_error *err)
{
    struct attn_rescale_args copy = *args;
    const uint32_t out[3] = {args->num_tokens, args->heads, args->head_dim},
                   lse[3] = {args->num_tokens, args->heads, 1};
    int32_t status =
        check_common(args->count, args->dtype, args->lse_base, args->num_tokens, args->heads, err);

    if (status == ATTN_OK)
        status = check_tensor(&args->out, out, size_of(args->dtype), true, "out", err);
    if (status == ATTN_OK)
        status = check_tensor(&args->own, lse, sizeof(float), false, "own", err);
    for (uint32_t k = 0; status == ATTN_OK && k < args->count; k++)
        status = check_tensor(&args->all[k], lse, sizeof(float), false, "all", err);
    if (status != ATTN_OK)
        return status;
    return pool_execute(backend, stream, rescale_pair, &copy, args->num_tokens * args->heads, err);
}

const struct attn_merge_table defect_merge = {
    .struct_size = sizeof defect_merge, .merge = merge, .rescale = rescale};
