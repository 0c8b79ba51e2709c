/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Vectors of queries, keys and values as they are computed with: every layout, stored value times scale. */
#include "oracle.h"

enum { PAGED_X_BYTES = 16 };

double oracle_scale(const struct attn_scale *scale, uint32_t granularity, int64_t outer, int64_t token,
                    int64_t head)
{
    double value;

    if (granularity == 0 || granularity == ATTN_SCALES_NONE || granularity == ATTN_SCALES_UNIT ||
        scale->kind == ATTN_SCALE_UNIT)
        return 1;
    oracle_load(ATTN_F32,
                oracle_address(&scale->buffer) + outer * scale->outer_stride + token * scale->token_stride +
                    head * scale->head_stride,
                1, &value);
    return value;
}

static void multiply(double *vector, uint32_t count, double scale)
{
    for (uint32_t d = 0; d < count; d++)
        vector[d] *= scale;
}

static const unsigned char *tensor_at(const struct attn_tensor *tensor, int64_t token, int64_t head)
{
    return oracle_address(&tensor->buffer) + token * tensor->token_stride + head * tensor->head_stride;
}

uint32_t oracle_kv_head(const struct attn_problem *problem, uint32_t head)
{
    return (uint32_t)((uint64_t)head * problem->kv_heads / problem->heads);
}

void oracle_load_query(const struct oracle_sequence *sequence, uint32_t i, uint32_t head, double *to)
{
    const struct attn_problem *problem = sequence->problem;
    const struct attn_tensors *tensors = sequence->tensors;
    int64_t row = (int64_t)sequence->first_row + i;
    uint32_t first = problem->head_dim;
    uint32_t group = problem->q_scale == ATTN_SCALES_KV_HEAD ? oracle_kv_head(problem, head) : head;

    if (tensors->q_rope.buffer.data != NULL) { /* latent columns, then rope columns */
        first = problem->head_dim_vo;
        oracle_load(problem->q_dtype, tensor_at(&tensors->q_rope, row, head), problem->head_dim - first,
                    to + first);
    }
    oracle_load(problem->q_dtype, tensor_at(&tensors->q, row, head), first, to);
    multiply(to, problem->head_dim,
             oracle_scale(&tensors->q_scale, problem->q_scale, sequence->index, row, group));
}

double oracle_out_scale(const struct oracle_sequence *sequence, uint32_t i, uint32_t head)
{
    return oracle_scale(&sequence->tensors->out_scale, sequence->problem->out_scale, sequence->index,
                        (int64_t)sequence->first_row + i, head);
}

/* `count` columns of a key, as stored. */
static void load_stored_key(const struct oracle_sequence *sequence, const struct oracle_place *place,
                            uint32_t head, uint32_t count, double *to)
{
    const struct attn_problem *problem = sequence->problem;
    const struct attn_kv_desc *kv = sequence->kv;

    if (place->is_new) {
        oracle_load(problem->k_dtype, tensor_at(&sequence->tensors->k_new, place->token, head), count, to);
        return;
    }
    const unsigned char *at =
        oracle_address(&kv->k) + place->page * kv->k_page_stride + (int64_t)head * kv->k_head_stride;
    if (problem->layout != ATTN_PAGED_X) {
        oracle_load(kv->k_dtype, at + place->token * kv->k_token_stride, count, to);
        return;
    }
    uint32_t size = oracle_size(kv->k_dtype), x = PAGED_X_BYTES / size;
    for (uint32_t d = 0; d < count; d++) {
        int64_t cell = ((int64_t)(d / x) * kv->block + place->token) * x + d % x;
        oracle_load(kv->k_dtype, at + cell * size, 1, to + d);
    }
}

static void load_stored_value(const struct oracle_sequence *sequence, const struct oracle_place *place,
                              uint32_t head, double *to)
{
    const struct attn_problem *problem = sequence->problem;
    const struct attn_kv_desc *kv = sequence->kv;
    uint32_t count = problem->head_dim_vo;

    if (place->is_new) {
        oracle_load(problem->v_dtype, tensor_at(&sequence->tensors->v_new, place->token, head), count, to);
        return;
    }
    const unsigned char *at =
        oracle_address(&kv->v) + place->page * kv->v_page_stride + (int64_t)head * kv->v_head_stride;
    if (problem->layout != ATTN_PAGED_X) {
        oracle_load(kv->v_dtype, at + place->token * kv->v_token_stride, count, to);
        return;
    }
    for (uint32_t d = 0; d < count; d++) {
        int64_t cell = (int64_t)d * kv->block + place->token;
        oracle_load(kv->v_dtype, at + cell * oracle_size(kv->v_dtype), 1, to + d);
    }
}

static double key_scale(const struct oracle_sequence *sequence, const struct oracle_place *place,
                        uint32_t head)
{
    return oracle_scale(place->is_new ? &sequence->tensors->k_new_scale : &sequence->kv->k_scale,
                        sequence->problem->k_scale, place->page, place->token, head);
}

void oracle_load_key(const struct oracle_sequence *sequence, const struct oracle_place *place, uint32_t head,
                     double *to)
{
    load_stored_key(sequence, place, head, sequence->problem->head_dim, to);
    multiply(to, sequence->problem->head_dim, key_scale(sequence, place, head));
}

void oracle_load_value(const struct oracle_sequence *sequence, const struct oracle_place *place,
                       uint32_t head, double *to)
{
    const struct attn_problem *problem = sequence->problem;

    if (problem->mla != 0) {
        load_stored_key(sequence, place, head, problem->head_dim_vo, to);
        multiply(to, problem->head_dim_vo, key_scale(sequence, place, head));
        return;
    }
    load_stored_value(sequence, place, head, to);
    multiply(to, problem->head_dim_vo,
             oracle_scale(place->is_new ? &sequence->tensors->v_new_scale : &sequence->kv->v_scale,
                          problem->v_scale, place->page, place->token, head));
}
