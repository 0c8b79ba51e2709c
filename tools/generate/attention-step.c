/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One step through the attention layers: prepare once, then write and run per layer. */
#include "attention-impl.h"

#include <inttypes.h>
#include <math.h>

static int check_parts(const struct attention *a, const struct attention_part *parts, uint32_t count,
                       struct failure *err)
{
    const struct attention_options *o = &a->options;
    uint64_t rows = 0;
    if (count == 0 || count > o->max_seqs)
        return failure_set(err, "a step of %" PRIu32 " sequences; accepted are 1 to %" PRIu32, count,
                           o->max_seqs);
    for (uint32_t i = 0; i < count; i++) {
        const struct attention_part *p = &parts[i];
        if ((!p->blocks && count > 1) || p->count == 0 || p->count > o->max_chunk ||
            p->past > o->max_tokens || p->count > o->max_tokens - p->past)
            return failure_set(err,
                               "part %" PRIu32 ": %" PRIu32 " tokens behind %" PRIu32
                               " %s blocks; accepted are steps of 1 to %" PRIu32 " tokens, %" PRIu32
                               " tokens in all, and no blocks for a part that is alone",
                               i, p->count, p->past, p->blocks ? "with" : "without", o->max_chunk,
                               o->max_tokens);
        rows += p->count;
    }
    if (rows > o->max_rows)
        return failure_set(err, "a step of %" PRIu64 " tokens; accepted are 1 to %" PRIu32, rows,
                           o->max_rows);
    return 0;
}

/* Page of a block of a part; the table and the slots hold nothing else. */
static int32_t page_of(const struct attention *a, const struct attention_part *part, uint32_t index)
{
    return a->page[part->blocks ? (uint32_t)part->blocks[index] : index];
}

static void fill_host(struct attention *a, const struct attention_part *parts, uint32_t count)
{
    uint32_t block = a->options.block;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct attention_part *p = &parts[i];
        a->q_offsets[i] = (int32_t)rows;
        a->kv_lens[i] = (int32_t)(p->past + p->count);
        for (uint32_t k = 0; k < p->count; k++)
            a->slots[rows++] = (int64_t)page_of(a, p, (p->past + k) / block) * block + (p->past + k) % block;
    }
    a->q_offsets[count] = (int32_t)rows;
}

static void fill_batch(struct attention *a, const struct attention_part *parts, uint32_t count)
{
    struct attn_batch *b = &a->batch;
    ATTN_INIT(&a->host);
    a->host.q_offsets = a->q_offsets;
    a->host.kv_lens = a->kv_lens;
    a->host.table = a->table;
    ATTN_INIT(b);
    b->given = ATTN_GIVEN_HOST_COPIES;
    b->seqs = count;
    b->rows = (uint32_t)a->q_offsets[count];
    for (uint32_t i = 0; i < count; i++) {
        b->max_q = parts[i].count > b->max_q ? parts[i].count : b->max_q;
        b->max_kv = (uint32_t)a->kv_lens[i] > b->max_kv ? (uint32_t)a->kv_lens[i] : b->max_kv;
    }
    b->table_width = (b->max_kv - 1) / a->options.block + 1;
    b->table_stride = (int64_t)(b->table_width * sizeof *a->table);
    for (uint32_t i = 0; i < count; i++) {
        int32_t *row = a->table + (size_t)i * b->table_width;
        uint32_t held = ((uint32_t)a->kv_lens[i] - 1) / a->options.block + 1;
        for (uint32_t j = 0; j < b->table_width; j++)
            row[j] = j < held ? page_of(a, &parts[i], j) : -1;
    }
    b->q_offsets = a->d_q_offsets;
    b->kv_lens = a->d_kv_lens;
    b->table = a->d_table;
    b->pages = a->pages;
    b->host = &a->host;
}

int attention_begin(struct attention *a, const struct attention_part *parts, uint32_t count,
                    struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (check_parts(a, parts, count, err) < 0)
        return -1;
    fill_host(a, parts, count);
    fill_batch(a, parts, count);
    const struct {
        const struct attn_buffer *to;
        const void *from;
        uint64_t size;
    } list[] = {
        {&a->d_q_offsets, a->q_offsets, (count + 1) * sizeof *a->q_offsets},
        {&a->d_kv_lens, a->kv_lens, count * sizeof *a->kv_lens},
        {&a->d_slots, a->slots, a->batch.rows * sizeof *a->slots},
        {&a->d_table, a->table, count * (uint64_t)a->batch.table_stride},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (attention_to_device(a, list[i].to, list[i].from, list[i].size, err) < 0)
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
