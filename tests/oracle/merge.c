/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merge and rescale in double precision: section 3 of docs/definition.md. */
#include "oracle.h"

#include <math.h>

static const unsigned char *tensor_at(const struct attn_tensor *tensor, uint32_t row, uint32_t head)
{
    return oracle_address(&tensor->buffer) + (int64_t)row * tensor->token_stride +
           (int64_t)head * tensor->head_stride;
}

/* A natural lse. */
static double load_lse(const struct attn_tensor *tensor, uint32_t row, uint32_t head, uint32_t base)
{
    double lse;

    oracle_load(ATTN_F32, tensor_at(tensor, row, head), 1, &lse);
    return base == ATTN_LSE_BASE2 ? lse * log(2) : lse;
}

static double load_out(const struct attn_tensor *tensor, uint32_t dtype, uint32_t row, uint32_t head,
                       uint32_t d)
{
    double value;

    oracle_load(dtype, tensor_at(tensor, row, head) + (size_t)d * oracle_size(dtype), 1, &value);
    return value;
}

/* What the lses of one (row, head) say together. */
struct weights {
    double max;
    double sum; /* of exp(lse_k - max) */
    double largest;
    uint32_t parts; /* that are not empty */
    bool nan;
};

static void weigh(struct weights *weights, double lse)
{
    if (isnan(lse)) {
        weights->nan = true;
        return;
    }
    if (isinf(lse))
        return;
    if (weights->parts == 0 || lse > weights->max) {
        weights->sum = weights->parts == 0 ? 0 : weights->sum * exp(weights->max - lse);
        weights->max = lse;
    }
    weights->sum += exp(lse - weights->max);
    if (fabs(lse) > weights->largest)
        weights->largest = fabs(lse);
    weights->parts++;
}

static double total(const struct weights *weights)
{
    if (weights->nan)
        return (double)NAN;
    return weights->parts == 0 ? -(double)INFINITY : weights->max + log(weights->sum);
}

/* One (row, head): out[head_dim], and largest[head_dim], max |out_k| of each column. */
static void merge_pair(const struct attn_merge_args *args, const struct weights *weights, uint32_t row,
                       uint32_t head, double *out, double *largest)
{
    for (uint32_t d = 0; d < args->head_dim; d++) {
        double sum = 0, most = 0;
        for (uint32_t k = 0; k < args->count; k++) {
            double lse = load_lse(&args->parts[k].lse, row, head, args->lse_base);
            if (!isfinite(lse))
                continue;
            double value = load_out(&args->parts[k].out, args->dtype, row, head, d);
            sum += exp(lse - weights->max) * value;
            if (fabs(value) > most)
                most = fabs(value);
        }
        out[d] = weights->nan ? (double)NAN : weights->parts == 0 ? 0 : sum / weights->sum;
        if (largest != NULL)
            largest[d] = most;
    }
}

void oracle_merge(const struct attn_merge_args *args, const struct oracle_merged *merged)
{
    for (uint32_t row = 0; row < args->num_tokens; row++) {
        for (uint32_t head = 0; head < args->heads; head++) {
            size_t pair = (size_t)row * args->heads + head, first = pair * args->head_dim;
            struct weights weights = {0};
            for (uint32_t k = 0; k < args->count; k++)
                weigh(&weights, load_lse(&args->parts[k].lse, row, head, args->lse_base));
            merge_pair(args, &weights, row, head, merged->out + first,
                       merged->largest_out != NULL ? merged->largest_out + first : NULL);
            merged->lse[pair] = total(&weights);
            if (merged->largest_lse != NULL)
                merged->largest_lse[pair] = weights.largest;
            if (merged->parts != NULL)
                merged->parts[pair] = weights.parts;
        }
    }
}

void oracle_rescale(const struct attn_rescale_args *args, double *out)
{
    for (uint32_t row = 0; row < args->num_tokens; row++) {
        for (uint32_t head = 0; head < args->heads; head++) {
            size_t pair = (size_t)row * args->heads + head;
            struct weights weights = {0};
            double own = load_lse(&args->own, row, head, args->lse_base);
            for (uint32_t k = 0; k < args->count; k++)
                weigh(&weights, load_lse(&args->all[k], row, head, args->lse_base));
            double share = exp(own - total(&weights));
            for (uint32_t d = 0; d < args->head_dim; d++) {
                double value = load_out(&args->out, args->dtype, row, head, d);
                out[pair * args->head_dim + d] = isinf(own) ? 0 : value * share;
            }
        }
    }
}
