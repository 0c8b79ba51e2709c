/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Attention in double precision: section 1 of docs/definition.md, one function per rule. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

/* One run: what is the same for all its pairs, and vectors to work in. */
struct work {
    double *q;
    double *kv_row;
    double *scores; /* of the keys of a sequence, visible ones only */
    double *slopes; /* of the soft cap there */
    uint32_t *keys; /* their numbers */
    struct oracle_result *result;
};

static double slope_of(const struct oracle_sequence *sequence, uint32_t head)
{
    double slope;

    oracle_load(ATTN_F32, oracle_address(&sequence->tensors->alibi_slopes) + (size_t)head * 4, 1, &slope);
    return slope;
}

/* What is added after the soft cap; `mask` is what an additive mask holds for the pair. */
static double bias(const struct oracle_sequence *sequence, uint32_t head, uint32_t i, uint32_t j, double mask)
{
    int64_t away = oracle_alibi_position(sequence, j) - oracle_query_position(sequence, i);

    switch (sequence->problem->alibi) {
    case ATTN_ALIBI_KEY:
        return slope_of(sequence, head) * (double)away + mask;
    case ATTN_ALIBI_DISTANCE:
        return -slope_of(sequence, head) * (double)(away < 0 ? -away : away) + mask;
    case ATTN_ALIBI_MASK:
        return slope_of(sequence, head) * mask;
    default:
        return mask;
    }
}

/* s without its bias, from the vectors of `work`; *out_slope is that of the soft cap there, 0 without one. */
static double score(const struct work *work, const struct oracle_sequence *sequence, double *out_slope)
{
    double dot = 0;

    for (uint32_t d = 0; d < sequence->problem->head_dim; d++)
        dot += work->q[d] * work->kv_row[d];
    double s = (double)sequence->tensors->softmax_scale * dot;
    double cap = (double)sequence->problem->softcap;
    *out_slope = 0;
    if (!(cap > 0))
        return s;
    if (isfinite(s) && fabs(s) > work->result->largest_uncapped)
        work->result->largest_uncapped = fabs(s);
    double part = tanh(s / cap);
    *out_slope = (1 - part) * (1 + part);
    return cap * part;
}

/* Minus infinity where there is none: on ranks other than 0 another rank adds it. */
static double sink_of(const struct oracle_sequence *sequence, uint32_t head)
{
    const struct attn_problem *problem = sequence->problem;
    double sink;

    if (problem->sinks == 0 || (problem->cp != 0 && sequence->batch->cp_rank != 0))
        return -(double)INFINITY;
    uint32_t dtype = sequence->tensors->sinks_dtype == ATTN_BF16 ? ATTN_BF16 : ATTN_F32;
    oracle_load(dtype, oracle_address(&sequence->tensors->sinks) + (size_t)head * oracle_size(dtype), 1,
                &sink);
    return sink;
}

static double larger(double a, double b)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    return a > b ? a : b;
}

/* Scores of the visible keys; returns their number. */
static uint32_t find_scores(const struct work *work, const struct oracle_sequence *sequence, uint32_t i,
                            uint32_t head)
{
    uint32_t count = 0;

    for (uint32_t j = 0; j < sequence->kv_len; j++) {
        struct oracle_place place;
        double mask;
        if (!oracle_sees(sequence, head, i, j, &mask) || !oracle_locate(sequence, j, &place))
            continue;
        oracle_load_key(sequence, &place, oracle_kv_head(sequence->problem, head), work->kv_row);
        double s = score(work, sequence, &work->slopes[count]) + bias(sequence, head, i, j, mask);
        work->keys[count] = j;
        work->scores[count++] = s;
        if (isfinite(s) && fabs(s) > work->result->largest)
            work->result->largest = fabs(s);
    }
    return count;
}

static void compute_pair(const struct work *work, const struct oracle_sequence *sequence, uint32_t i,
                         uint32_t head)
{
    const struct attn_problem *problem = sequence->problem;
    size_t pair = ((size_t)sequence->first_row + i) * problem->heads + head;
    double *out = work->result->out + pair * problem->head_dim_vo;
    double sink = sink_of(sequence, head), max = sink;

    oracle_load_query(sequence, i, head, work->q);
    uint32_t count = find_scores(work, sequence, i, head);
    work->result->seen[pair] = count;
    if (work->result->slope != NULL)
        work->result->slope[pair] = 0;
    for (uint32_t d = 0; d < problem->head_dim_vo; d++)
        out[d] = 0;
    if (count == 0) {
        work->result->lse[pair] = sink;
        return;
    }
    for (uint32_t n = 0; n < count; n++)
        max = larger(max, work->scores[n]);
    double sum = exp(sink - max), slope = 0;
    for (uint32_t n = 0; n < count; n++) {
        struct oracle_place place;
        double weight = exp(work->scores[n] - max);
        oracle_locate(sequence, work->keys[n], &place);
        oracle_load_value(sequence, &place, oracle_kv_head(problem, head), work->kv_row);
        sum += weight;
        slope += weight * work->slopes[n];
        for (uint32_t d = 0; d < problem->head_dim_vo; d++)
            out[d] += weight * work->kv_row[d];
    }
    for (uint32_t d = 0; d < problem->head_dim_vo; d++)
        out[d] /= sum;
    work->result->lse[pair] = max + log(sum);
    if (work->result->slope != NULL)
        work->result->slope[pair] = slope / sum;
}

static void compute_sequence(const struct work *work, const struct oracle_sequence *sequence,
                             oracle_filter_fn filter, void *user)
{
    uint32_t heads = sequence->problem->heads;

    for (uint32_t i = 0; i < sequence->q_len; i++) {
        for (uint32_t head = 0; head < heads; head++) {
            uint32_t row = sequence->first_row + i;
            if (filter == NULL || filter(user, row, head))
                compute_pair(work, sequence, i, head);
            else
                work->result->seen[(size_t)row * heads + head] = ORACLE_SKIPPED;
        }
    }
}

bool oracle_attention(const struct attn_problem *problem, const struct attn_batch *batch,
                      const struct attn_tensors *tensors, const struct attn_kv_desc *kv,
                      oracle_filter_fn filter, void *user, struct oracle_result *result)
{
    uint32_t widest = problem->head_dim > problem->head_dim_vo ? problem->head_dim : problem->head_dim_vo;
    uint32_t longest = 1;
    struct oracle_sequence sequence;

    for (uint32_t n = 0; n < batch->seqs; n++) {
        oracle_sequence_init(&sequence, problem, batch, n);
        if (sequence.kv_len > longest)
            longest = sequence.kv_len;
    }
    struct work work = {.result = result};
    work.q = calloc(widest, sizeof *work.q);
    work.kv_row = calloc(widest, sizeof *work.kv_row);
    work.scores = calloc(longest, sizeof *work.scores);
    work.slopes = calloc(longest, sizeof *work.slopes);
    work.keys = calloc(longest, sizeof *work.keys);
    bool ready = work.q != NULL && work.kv_row != NULL && work.scores != NULL && work.slopes != NULL &&
                 work.keys != NULL;

    result->largest = result->largest_uncapped = 0;
    for (uint32_t n = 0; ready && n < batch->seqs; n++) {
        oracle_sequence_init(&sequence, problem, batch, n);
        sequence.tensors = tensors;
        sequence.kv = kv;
        compute_sequence(&work, &sequence, filter, user);
    }
    free(work.q);
    free(work.kv_row);
    free(work.scores);
    free(work.slopes);
    free(work.keys);
    return ready;
}
