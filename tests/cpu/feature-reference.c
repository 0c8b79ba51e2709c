/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Attention of one row in double precision: the formulas of docs/definition.md, one after the other. */
#include <math.h>

#include "feature-case.h"

bool reference_is_new(const struct feature_case *c, uint32_t seq, uint32_t j)
{
    int32_t q_len = c->q_offsets[seq + 1] - c->q_offsets[seq];

    return c->problem.kv_source == ATTN_KV_NEW ||
           (c->problem.kv_source == ATTN_KV_CACHE_NEW && (int32_t)j >= c->kv_lens[seq] - q_len);
}

bool reference_locate(const struct feature_case *c, uint32_t seq, uint32_t j, int64_t *page, int64_t *token)
{
    if (reference_is_new(c, seq, j)) {
        *page = 0;
        *token = c->kv_offsets[seq + 1] - c->kv_lens[seq] + (int64_t)j;
        return true;
    }
    *page = c->problem.addressing == ATTN_DENSE ? (int64_t)seq : c->table[seq][j / c->problem.block];
    *token = c->problem.addressing == ATTN_DENSE ? j : j % c->problem.block;
    return *page >= 0;
}

static int64_t query_position(const struct feature_case *c, uint32_t seq, uint32_t i)
{
    int64_t q_len = c->q_offsets[seq + 1] - c->q_offsets[seq];

    if (c->problem.positions != 0)
        return c->positions[c->q_offsets[seq] + (int32_t)i];
    return c->problem.align == ATTN_ALIGN_START ? (int64_t)i : (int64_t)i + c->kv_lens[seq] - q_len;
}

/* Causal and window. */
static bool plain_rules(const struct feature_case *c, uint32_t seq, int64_t p, int64_t j)
{
    const struct attn_problem *problem = &c->problem;
    bool causal = problem->seq_causal != 0 ? c->seq_causal[seq] != 0 : problem->causal == ATTN_CAUSAL_YES;
    int64_t left = problem->window_left, right = causal ? 0 : left;

    if ((problem->given & ATTN_GIVEN_WINDOW_RIGHT) != 0)
        right = problem->window_right;
    return (!causal || j <= p) && (left < 0 || j >= p - left) && (right < 0 || j <= p + right);
}

/* ALiBi of a query at p and a key at j, or of what a mask adds. */
static double bias_of(const struct feature_case *c, uint32_t h, int64_t p, int64_t j, double added)
{
    double slope = (double)c->slopes[h];

    switch (c->problem.alibi) {
    case ATTN_ALIBI_KEY:
        return added + slope * (double)(j - p);
    case ATTN_ALIBI_DISTANCE:
        return added - slope * fabs((double)(j - p));
    case ATTN_ALIBI_MASK:
        return slope * added;
    default:
        return added;
    }
}

bool reference_sees(const struct feature_case *c, uint32_t seq, uint32_t i, uint32_t h, uint32_t j,
                    double *bias)
{
    const int64_t p = query_position(c, seq, i);
    const bool square = c->problem.span == ATTN_SPAN_SQUARE;
    bool masked = c->problem.mask != ATTN_MASK_NONE &&
                  (c->tensors.mask_starts.data == NULL || c->mask_starts[seq] >= 0);
    int64_t page, token, at = (int64_t)j, q_len = c->q_offsets[seq + 1] - c->q_offsets[seq];
    int64_t column = square ? at - (c->kv_lens[seq] - q_len) : at;
    double added = 0;

    if (!reference_locate(c, seq, j, &page, &token))
        return false;
    masked = masked && column >= 0 && column < c->columns[seq];
    if (masked)
        added = c->mask[(((size_t)seq * CASE_HEADS + h) * CASE_ROWS + i) * c->most_columns + (size_t)column];
    if (added == -INFINITY)
        return false;
    if (!(masked && square) && !plain_rules(c, seq, p, at))
        return false;
    if (masked && square && c->problem.positions != 0)
        at = c->positions[c->q_offsets[seq] + column];
    *bias = bias_of(c, h, p, at, added);
    return true;
}

static double score(const struct feature_case *c, const double *q, const double *k)
{
    double s = 0, cap = (double)c->problem.softcap;

    for (uint32_t d = 0; d < c->problem.head_dim; d++)
        s += q[d] * k[d];
    s *= (double)c->tensors.softmax_scale;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

void reference_row(const struct feature_case *c, uint32_t seq, uint32_t i, uint32_t h,
                   struct reference_row *out)
{
    const struct attn_problem *problem = &c->problem;
    uint32_t g = h * problem->kv_heads / problem->heads;
    const double *q = c->q + (((size_t)c->q_offsets[seq] + i) * problem->heads + h) * problem->head_dim;
    double z = 0, sum[64] = {0};
    const double shift = 20; /* scores of a case are below 40: no overflow, no running maximum */

    out->largest = 1;
    for (uint32_t j = 0; j < (uint32_t)c->kv_lens[seq]; j++) {
        size_t key = ((size_t)seq * c->most_keys + j) * problem->kv_heads + g;
        double bias;
        if (!reference_sees(c, seq, i, h, j, &bias))
            continue;
        double p = exp(score(c, q, c->k + key * problem->head_dim) + bias - shift);
        z += p;
        for (uint32_t d = 0; d < problem->head_dim_vo; d++)
            out->largest = fmax(out->largest, fabs(c->v[key * problem->head_dim_vo + d]));
        for (uint32_t d = 0; d < problem->head_dim_vo; d++)
            sum[d] += p * c->v[key * problem->head_dim_vo + d];
    }
    if (problem->sinks != 0)
        z += exp(c->sinks[h] - shift);
    out->lse = z > 0 ? log(z) + shift : -INFINITY;
    for (uint32_t d = 0; d < problem->head_dim_vo; d++)
        out->out[d] = z > 0 ? sum[d] / z : 0;
}
