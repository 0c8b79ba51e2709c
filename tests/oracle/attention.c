/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Attention in double precision: section 1 of docs/definition.md, one function per rule. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

static bool is_float(uint32_t dtype)
{
    return oracle_size(dtype) != 0;
}

static bool is_unset(uint32_t value, uint32_t none)
{
    return value == 0 || value == none;
}

bool oracle_covers(const struct attn_problem *problem, const char **out_key)
{
    const struct {
        bool covered;
        const char *key;
    } rules[] = {
        {problem->type == ATTN_DECODER, "type"},
        {is_float(problem->q_dtype), "q"},
        {is_float(problem->k_dtype), "k"},
        {is_float(problem->v_dtype), "v"},
        {is_float(problem->out_dtype), "out"},
        {is_unset(problem->alibi, ATTN_ALIBI_NONE), "alibi"},
        {problem->sinks == 0, "sinks"},
        {is_unset(problem->mask, ATTN_MASK_NONE), "mask"},
        {is_unset(problem->kv_source, ATTN_KV_CACHE), "kv_source"},
        {is_unset(problem->layout, ATTN_STRIDED), "layout"},
        {is_unset(problem->q_scale, ATTN_SCALES_NONE), "q_scale"},
        {is_unset(problem->k_scale, ATTN_SCALES_NONE), "k_scale"},
        {is_unset(problem->v_scale, ATTN_SCALES_NONE), "v_scale"},
        {is_unset(problem->out_scale, ATTN_SCALES_NONE), "out_scale"},
        {problem->mla == 0, "mla"},
        {problem->cp == 0, "cp"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!rules[i].covered) {
            *out_key = rules[i].key;
            return false;
        }
    }
    return true;
}

static int64_t element(const struct attn_buffer *buffer, uint64_t index, uint32_t dtype)
{
    const unsigned char *at = oracle_address(buffer);

    if (dtype == ATTN_INT64) {
        int64_t wide;
        memcpy(&wide, at + index * 8, sizeof wide);
        return wide;
    }
    int32_t narrow;
    memcpy(&narrow, at + index * 4, sizeof narrow);
    return narrow;
}

void oracle_sequence_init(struct oracle_sequence *sequence, const struct attn_problem *problem,
                          const struct attn_batch *batch, uint32_t index)
{
    int64_t first = element(&batch->q_offsets, index, ATTN_INT32);

    sequence->problem = problem;
    sequence->batch = batch;
    sequence->index = index;
    sequence->first_row = (uint32_t)first;
    sequence->q_len = (uint32_t)(element(&batch->q_offsets, (uint64_t)index + 1, ATTN_INT32) - first);
    sequence->kv_len = (uint32_t)element(&batch->kv_lens, index, ATTN_INT32);
    sequence->causal = problem->causal == ATTN_CAUSAL_YES;
    if (problem->seq_causal != 0)
        sequence->causal = oracle_address(&batch->seq_causal)[index] != 0;
    sequence->left = (problem->given & ATTN_GIVEN_WINDOW_LEFT) != 0 ? problem->window_left : -1;
    if ((problem->given & ATTN_GIVEN_WINDOW_RIGHT) != 0)
        sequence->right = problem->window_right;
    else
        sequence->right = sequence->causal ? 0 : sequence->left;
}

bool oracle_locate(const struct oracle_sequence *sequence, uint32_t j, int64_t *out_page, int64_t *out_token)
{
    const struct attn_batch *batch = sequence->batch;
    uint32_t block = sequence->problem->block;

    switch (sequence->problem->addressing) {
    case ATTN_DENSE:
        *out_page = sequence->index;
        *out_token = j;
        if (batch->kv_offsets.data != NULL) {
            *out_page = 0;
            *out_token = element(&batch->kv_offsets, sequence->index, ATTN_INT32) + j;
        }
        return true;
    case ATTN_TABLE: {
        struct attn_buffer row = batch->table;
        /* Unsigned arithmetic wraps, so a negative stride is right too. */
        row.byte_offset += (uint64_t)((int64_t)sequence->index * batch->table_stride);
        *out_page = element(&row, j / block, ATTN_INT32);
        break;
    }
    default: {
        int64_t begin = element(&batch->csr_indptr, sequence->index, ATTN_INT32);
        *out_page = element(&batch->csr_indices, (uint64_t)begin + j / block, sequence->problem->index_dtype);
        break;
    }
    }
    *out_token = j % block;
    return *out_page >= 0;
}

/* p: where query token i stands in the numbering of the keys. */
static int64_t position(const struct oracle_sequence *sequence, uint32_t i)
{
    const struct attn_batch *batch = sequence->batch;

    if (sequence->problem->positions != 0)
        return element(&batch->q_positions, (uint64_t)sequence->first_row + i, batch->position_dtype);
    if (sequence->problem->align == ATTN_ALIGN_START)
        return i;
    return (int64_t)i + sequence->kv_len - sequence->q_len;
}

bool oracle_visible(const struct oracle_sequence *sequence, uint32_t i, uint32_t j)
{
    int64_t p = position(sequence, i);
    int64_t key = j;
    int64_t page, token;

    if (j >= sequence->kv_len)
        return false;
    if (sequence->causal && key > p)
        return false;
    if (sequence->left >= 0 && key < p - sequence->left)
        return false;
    if (sequence->right >= 0 && key > p + sequence->right)
        return false;
    return oracle_locate(sequence, j, &page, &token);
}

/* s, from the two vectors. */
static double score(const struct attn_problem *problem, const struct attn_tensors *tensors, const double *q,
                    const double *k)
{
    double dot = 0;

    for (uint32_t d = 0; d < problem->head_dim; d++)
        dot += q[d] * k[d];
    double s = (double)tensors->softmax_scale * dot;
    double cap = (double)problem->softcap;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

/* One run: what is the same for all its pairs, and vectors to work in. */
struct work {
    const struct attn_problem *problem;
    const struct attn_tensors *tensors;
    const struct attn_kv_desc *kv;
    double *q;
    double *kv_row;
    double *scores; /* of the keys of a sequence, visible ones only */
    uint32_t *keys; /* their numbers */
    struct oracle_result *result;
};

static const unsigned char *tensor_at(const struct attn_tensor *tensor, uint32_t row, uint32_t head)
{
    return oracle_address(&tensor->buffer) + (int64_t)row * tensor->token_stride +
           (int64_t)head * tensor->head_stride;
}

static void load_key(const struct work *work, int64_t page, int64_t token, uint32_t head)
{
    const struct attn_kv_desc *kv = work->kv;

    oracle_load(kv->k_dtype,
                oracle_address(&kv->k) + page * kv->k_page_stride + token * kv->k_token_stride +
                    (int64_t)head * kv->k_head_stride,
                work->problem->head_dim, work->kv_row);
}

static void load_value(const struct work *work, int64_t page, int64_t token, uint32_t head)
{
    const struct attn_kv_desc *kv = work->kv;

    oracle_load(kv->v_dtype,
                oracle_address(&kv->v) + page * kv->v_page_stride + token * kv->v_token_stride +
                    (int64_t)head * kv->v_head_stride,
                work->problem->head_dim_vo, work->kv_row);
}

/* Scores of the visible keys; returns their number and their maximum, NaN if one is NaN. */
static uint32_t find_scores(const struct work *work, const struct oracle_sequence *sequence, uint32_t i,
                            uint32_t kv_head, double *out_max)
{
    uint32_t count = 0;
    double max = -(double)INFINITY;

    for (uint32_t j = 0; j < sequence->kv_len; j++) {
        int64_t page, token;
        if (!oracle_visible(sequence, i, j) || !oracle_locate(sequence, j, &page, &token))
            continue;
        load_key(work, page, token, kv_head);
        double s = score(work->problem, work->tensors, work->q, work->kv_row);
        work->keys[count] = j;
        work->scores[count++] = s;
        if (isnan(s) || isnan(max))
            max = (double)NAN;
        else if (s > max)
            max = s;
        if (fabs(s) > work->result->largest)
            work->result->largest = fabs(s);
    }
    *out_max = max;
    return count;
}

static void compute_pair(const struct work *work, const struct oracle_sequence *sequence, uint32_t i,
                         uint32_t head)
{
    const struct attn_problem *problem = work->problem;
    uint32_t row = sequence->first_row + i;
    uint32_t kv_head = (uint32_t)((uint64_t)head * problem->kv_heads / problem->heads);
    size_t pair = (size_t)row * problem->heads + head;
    double *out = work->result->out + pair * problem->head_dim_vo;
    double max, sum = 0;

    oracle_load(problem->q_dtype, tensor_at(&work->tensors->q, row, head), problem->head_dim, work->q);
    uint32_t count = find_scores(work, sequence, i, kv_head, &max);
    work->result->seen[pair] = count;
    for (uint32_t d = 0; d < problem->head_dim_vo; d++)
        out[d] = 0;
    if (count == 0) {
        work->result->lse[pair] = -(double)INFINITY;
        return;
    }
    for (uint32_t n = 0; n < count; n++) {
        int64_t page, token;
        double weight = exp(work->scores[n] - max);
        oracle_locate(sequence, work->keys[n], &page, &token);
        load_value(work, page, token, kv_head);
        sum += weight;
        for (uint32_t d = 0; d < problem->head_dim_vo; d++)
            out[d] += weight * work->kv_row[d];
    }
    for (uint32_t d = 0; d < problem->head_dim_vo; d++)
        out[d] /= sum;
    work->result->lse[pair] = max + log(sum);
}

static void compute_sequence(const struct work *work, const struct oracle_sequence *sequence,
                             oracle_filter_fn filter, void *user)
{
    uint32_t heads = work->problem->heads;

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
    struct work work = {.problem = problem, .tensors = tensors, .kv = kv, .result = result};
    work.q = calloc(widest, sizeof *work.q);
    work.kv_row = calloc(widest, sizeof *work.kv_row);
    work.scores = calloc(longest, sizeof *work.scores);
    work.keys = calloc(longest, sizeof *work.keys);
    bool ready = work.q != NULL && work.kv_row != NULL && work.scores != NULL && work.keys != NULL;

    result->largest = 0;
    for (uint32_t n = 0; ready && n < batch->seqs; n++) {
        oracle_sequence_init(&sequence, problem, batch, n);
        compute_sequence(&work, &sequence, filter, user);
    }
    free(work.q);
    free(work.kv_row);
    free(work.scores);
    free(work.keys);
    return ready;
}
