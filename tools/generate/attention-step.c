/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One step through the attention layers: prepare once, then write and run per layer. */
#include "attention-impl.h"

#include <inttypes.h>
#include <math.h>

static void fill_host(struct attention *a, uint32_t past, uint32_t count)
{
    a->q_offsets[0] = 0;
    a->q_offsets[1] = (int32_t)count;
    a->kv_lens[0] = (int32_t)(past + count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t position = past + i;
        int64_t page = a->table[position / a->options.block];
        a->slots[i] = page * a->options.block + position % a->options.block;
    }
}

static void fill_batch(struct attention *a, uint32_t past, uint32_t count)
{
    ATTN_INIT(&a->host);
    a->host.q_offsets = a->q_offsets;
    a->host.kv_lens = a->kv_lens;
    a->host.table = a->table;
    ATTN_INIT(&a->batch);
    a->batch.given = ATTN_GIVEN_HOST_COPIES;
    a->batch.seqs = 1;
    a->batch.rows = count;
    a->batch.max_q = count;
    a->batch.max_kv = past + count;
    a->batch.q_offsets = a->d_q_offsets;
    a->batch.kv_lens = a->d_kv_lens;
    a->batch.table = a->d_table;
    a->batch.table_width = a->pages;
    a->batch.table_stride = (int64_t)(a->pages * sizeof *a->table);
    a->batch.pages = a->pages;
    a->batch.host = &a->host;
}

int attention_begin(struct attention *a, uint32_t past, uint32_t count, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (count == 0 || count > a->options.max_chunk || past > a->options.max_tokens ||
        count > a->options.max_tokens - past)
        return failure_set(err,
                           "%" PRIu32 " tokens behind %" PRIu32 "; accepted are steps of 1 to %" PRIu32
                           " and %" PRIu32 " tokens in all",
                           count, past, a->options.max_chunk, a->options.max_tokens);
    fill_host(a, past, count);
    fill_batch(a, past, count);
    if (attention_to_device(a, &a->d_q_offsets, a->q_offsets, sizeof a->q_offsets, err) < 0 ||
        attention_to_device(a, &a->d_kv_lens, a->kv_lens, sizeof a->kv_lens, err) < 0 ||
        attention_to_device(a, &a->d_slots, a->slots, count * sizeof *a->slots, err) < 0)
        return -1;
    if (attn_plan_prepare(a->plan, &a->batch, &a->schedule, a->staging.size ? &a->staging : NULL, NULL,
                          &error) < 0)
        return attention_fail(err, "prepare", &error);
    return 0;
}

/* A contiguous view [token, head, dim] of floats. */
static struct attn_tensor view(struct attn_buffer buffer, uint32_t heads, uint32_t dim)
{
    int64_t head_stride = (int64_t)(dim * sizeof(float));
    return (struct attn_tensor){
        .buffer = buffer, .token_stride = heads * head_stride, .head_stride = head_stride};
}

int attention_write(struct attention *a, uint32_t layer, const float *k, const float *v, struct failure *err)
{
    const struct attention_shape *s = &a->shape;
    uint64_t bytes = (uint64_t)a->batch.rows * s->kv_heads * s->head_dim * sizeof(float);
    struct attn_kv_write_args args;
    struct attn_error error;
    ATTN_INIT(&args);
    ATTN_INIT(&error);
    if (attention_to_device(a, &a->d_k, k, bytes, err) < 0 ||
        attention_to_device(a, &a->d_v, v, bytes, err) < 0)
        return -1;
    args.k_dtype = ATTN_F32;
    args.v_dtype = ATTN_F32;
    args.rows = a->batch.rows;
    args.k_new = view(a->d_k, s->kv_heads, s->head_dim);
    args.v_new = view(a->d_v, s->kv_heads, s->head_dim);
    args.kv = a->caches[layer].kv;
    args.slot_mapping = a->d_slots;
    if (attn_kv_write(a->backend, &args, NULL, &error) < 0)
        return attention_fail(err, "cache write", &error);
    return 0;
}

int attention_run(struct attention *a, uint32_t layer, const float *q, float *out, struct failure *err)
{
    const struct attention_shape *s = &a->shape;
    uint64_t bytes = (uint64_t)a->batch.rows * s->heads * s->head_dim * sizeof(float);
    struct attn_tensors tensors;
    struct attn_error error;
    ATTN_INIT(&tensors);
    ATTN_INIT(&error);
    if (attention_to_device(a, &a->d_q, q, bytes, err) < 0)
        return -1;
    tensors.softmax_scale = 1.0f / sqrtf((float)s->head_dim);
    tensors.q = view(a->d_q, s->heads, s->head_dim);
    tensors.out = view(a->d_out, s->heads, s->head_dim);
    tensors.kv = a->caches[layer].kv;
    if (attn_plan_run(a->plan, &a->batch, &tensors, &a->schedule, &a->scratch, NULL, &error) < 0) {
        a->scratch.counters_dirty = 1;
        return attention_fail(err, "run", &error);
    }
    a->scratch.counters_dirty = 0;
    return attention_to_host(a, out, &a->d_out, bytes, err);
}
