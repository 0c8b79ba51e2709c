/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step, the simple way and the full way. */
#include "pair-memory.h"
#include "pair.h"

#include <math.h>
#include <stdlib.h>

#include "../graph/tap.h"

/* ---------------------------------------------------------------- lengths and tables */

static int is_given(const int32_t *lens, uint32_t count, int32_t without)
{
    for (uint32_t i = 0; i < count; i++)
        if (lens[i] != without)
            return 1;
    return 0;
}

static int32_t keys_of(const struct pair_step *step, uint32_t i)
{
    return is_given(step->kv_lens, step->seqs, 0) ? step->kv_lens[i] : step->q_lens[i];
}

/* Pages in an order of their own. */
static const int32_t *make_table(void)
{
    static int32_t table[PAIR_SEQS * PAIR_WIDTH];
    for (int i = 0; i < PAIR_SEQS * PAIR_WIDTH; i++)
        table[i] = i * 7 % (PAIR_SEQS * PAIR_WIDTH);
    return table;
}

/* ---------------------------------------------------------------- tensors */

static void fill_extras(const struct pair *pair, struct attn_tensors *extras)
{
    const struct attn_problem *p = &pair->problem;
    ATTN_INIT(extras);
    if (p->sinks) {
        extras->sinks = pair->sinks;
        extras->sinks_dtype = ATTN_F32;
    }
    if (p->alibi == ATTN_ALIBI_KEY)
        extras->alibi_slopes = pair->slopes;
    if (p->mask == ATTN_MASK_F32) {
        extras->mask = pair->mask;
        extras->mask_row_stride = PAIR_KEYS * 4;
    }
}

static struct attn_tensor view(const struct pair *pair, const struct attn_buffer *buffer, uint32_t dtype,
                               uint32_t heads, uint32_t dim)
{
    struct attn_tensor tensor = attn_tensor_of(buffer->data, dtype, heads, dim);
    tensor.buffer.byte_offset = buffer->byte_offset + pair->row * (uint64_t)tensor.token_stride;
    return tensor;
}

static void fill_views(const struct pair *pair, const struct pair_side *side, struct attn_tensors *to)
{
    const struct attn_problem *p = &pair->problem;
    to->q = view(pair, &pair->q, p->q_dtype, p->heads, p->head_dim);
    to->out = view(pair, &side->out, p->out_dtype, p->heads, p->head_dim_vo);
    if (p->lse)
        to->lse = view(pair, &side->lse, ATTN_F32, p->heads, 1);
    if (pair->sample.no_keys)
        return;
    to->k_new = view(pair, &pair->k, pair_key_dtype(pair), p->kv_heads, p->head_dim);
    if (!p->mla)
        to->v_new = view(pair, &pair->v, pair_key_dtype(pair), p->kv_heads, p->head_dim_vo);
}

void pair_args(struct pair *pair, const struct pair_step *step, struct attn_forward_args *args)
{
    static struct attn_tensors extras;
    struct attn_tensors views;
    ATTN_INIT(&views);
    ATTN_INIT(args);
    fill_extras(pair, &extras);
    fill_views(pair, &pair->simple, &views);
    args->seqs = step->seqs;
    args->q_lens = is_given(step->q_lens, step->seqs, 1) ? step->q_lens : NULL;
    args->kv_lens = is_given(step->kv_lens, step->seqs, 0) ? step->kv_lens : NULL;
    args->softmax_scale = pair->sample.scale;
    args->q = views.q;
    args->k = views.k_new;
    args->v = views.v_new;
    args->out = views.out;
    args->lse = views.lse;
    args->extras = pair->sample.no_extras ? NULL : &extras;
    if (pair->problem.kv_source == ATTN_KV_NEW)
        return;
    if (pair->problem.addressing == ATTN_TABLE) {
        args->table = make_table();
        args->table_width = PAIR_WIDTH;
    }
    args->pages = pair_cache_pages(pair);
    args->block = pair_cache_block(pair);
    if (pair->sample.handle)
        args->kv = pair->simple.kv;
    else {
        args->k_cache = pair->simple.k_cache;
        args->v_cache = pair->simple.v_cache;
    }
}

int32_t pair_forward(struct pair *pair, const struct pair_step *step)
{
    struct attn_forward_args args;
    pair_args(pair, step, &args);
    return attn_forward(pair->session, &args, pair->stream, &err);
}

/* ---------------------------------------------------------------- the full way */

static void raise(uint32_t limit, uint32_t needed, uint32_t *maximum, int *larger)
{
    uint32_t power = 1;
    if (limit != 0 || (*maximum != 0 && needed <= *maximum))
        return;
    while (power < needed)
        power *= 2;
    *maximum = power;
    *larger = 1;
}

static void make_plan(struct pair *pair, const struct attn_batch *batch)
{
    int larger = pair->plan == NULL;
    raise(pair->problem.max_seqs, batch->seqs, &pair->maxima.max_seqs, &larger);
    raise(pair->problem.max_q, batch->max_q, &pair->maxima.max_q, &larger);
    raise(pair->problem.max_kv, batch->max_kv, &pair->maxima.max_kv, &larger);
    raise(pair->problem.max_rows, batch->num_tokens, &pair->maxima.max_rows, &larger);
    if (!larger)
        return;
    pair_drop_plan(pair);
    must(attn_plan_create(pair->backend, &pair->maxima, &pair->plan, &err));
    ATTN_INIT(&pair->sizes);
    must(attn_plan_get_sizes(pair->plan, &pair->sizes, &err));
    ATTN_INIT(&pair->scratch);
    pair->schedule = (struct attn_span){pair_zeros(pair, pair->sizes.schedule), pair->sizes.schedule};
    pair->scratch.scratch = (struct attn_span){pair_zeros(pair, pair->sizes.scratch), pair->sizes.scratch};
    pair->scratch.counters = (struct attn_span){pair_zeros(pair, pair->sizes.counters), pair->sizes.counters};
    pair->staging = (struct attn_span){{aligned_alloc(256, (pair->sizes.staging / 256 + 1) * 256), 0},
                                       pair->sizes.staging};
}

/* Arrays of a step on the host; on the device they are one behind the other. */
struct arrays {
    int32_t q_offsets[PAIR_SEQS + 1], kv_lens[PAIR_SEQS], kv_offsets[PAIR_SEQS + 1],
        table[PAIR_SEQS * PAIR_WIDTH];
};

static struct attn_buffer at(const struct attn_buffer *base, size_t offset)
{
    return (struct attn_buffer){base->data, base->byte_offset + offset};
}

static void make_batch(struct pair *pair, const struct pair_step *step, const struct attn_buffer *device,
                       struct arrays *arrays, struct attn_batch *batch, struct attn_batch_host *host)
{
    const int cached = pair->problem.kv_source != ATTN_KV_NEW;
    const int has_keys = cached || is_given(step->kv_lens, step->seqs, 0);
    memset(arrays, 0, sizeof *arrays);
    ATTN_INIT(batch);
    ATTN_INIT(host);
    for (uint32_t i = 0; i < step->seqs; i++) {
        const uint32_t queries = (uint32_t)step->q_lens[i], keys = (uint32_t)keys_of(step, i);
        arrays->q_offsets[i + 1] = arrays->q_offsets[i] + step->q_lens[i];
        arrays->kv_lens[i] = keys_of(step, i);
        arrays->kv_offsets[i + 1] = arrays->kv_offsets[i] + keys_of(step, i);
        batch->max_q = queries > batch->max_q ? queries : batch->max_q;
        batch->max_kv = keys > batch->max_kv ? keys : batch->max_kv;
    }
    memcpy(arrays->table, make_table(), sizeof arrays->table);
    batch->given = ATTN_GIVEN_HOST_COPIES;
    batch->host = host;
    batch->seqs = step->seqs;
    batch->num_tokens = (uint32_t)arrays->q_offsets[step->seqs];
    batch->q_offsets = at(device, offsetof(struct arrays, q_offsets));
    host->q_offsets = arrays->q_offsets;
    if (has_keys) {
        batch->kv_lens = at(device, offsetof(struct arrays, kv_lens));
        host->kv_lens = arrays->kv_lens;
    }
    if (has_keys && !cached) {
        batch->kv_offsets = at(device, offsetof(struct arrays, kv_offsets));
        host->kv_offsets = arrays->kv_offsets;
    }
    if (!cached || pair->problem.addressing != ATTN_TABLE)
        return;
    batch->table = at(device, offsetof(struct arrays, table));
    batch->table_stride = PAIR_WIDTH * 4;
    batch->table_width = PAIR_WIDTH;
    batch->pages = pair_cache_pages(pair);
    host->table = arrays->table;
}

static void write_keys(struct pair *pair, const struct attn_batch *batch, const struct attn_tensors *views,
                       const struct attn_kv_desc *desc)
{
    struct attn_kv_write_args write;
    ATTN_INIT(&write);
    write.k_dtype = write.v_dtype = pair_key_dtype(pair);
    write.num_tokens = batch->num_tokens;
    write.k_new = views->k_new;
    write.v_new = views->v_new;
    write.kv = pair->full.kv;
    write.kv_desc = pair->full.kv == NULL ? desc : NULL;
    write.addressing = pair->problem.addressing;
    write.batch = batch;
    must(attn_kv_write(pair->backend, &write, pair->stream, &err));
}

void pair_run(struct pair *pair, const struct pair_step *step)
{
    const int cached = pair->problem.kv_source != ATTN_KV_NEW;
    struct arrays arrays;
    struct attn_buffer device = pair_zeros(pair, sizeof arrays);
    struct attn_batch batch;
    struct attn_batch_host host;
    struct attn_kv_desc desc;
    struct attn_tensors tensors;
    make_batch(pair, step, &device, &arrays, &batch, &host);
    pair_copy_in(pair, &device, &arrays, sizeof arrays);
    make_plan(pair, &batch);
    must(attn_plan_prepare(pair->plan, &batch, &pair->schedule, &pair->staging, pair->stream, &err));
    fill_extras(pair, &tensors);
    fill_views(pair, &pair->full, &tensors);
    pair_describe(pair, &pair->full, &desc);
    if (cached && !pair->sample.no_keys)
        write_keys(pair, &batch, &tensors, &desc);
    if (pair->problem.kv_source == ATTN_KV_CACHE)
        tensors.k_new = tensors.v_new = (struct attn_tensor){.dtype = 0};
    tensors.softmax_scale =
        pair->sample.scale > 0 ? pair->sample.scale : 1.0F / sqrtf((float)pair->problem.head_dim);
    tensors.kv = pair->full.kv;
    tensors.kv_desc = cached && pair->full.kv == NULL ? &desc : NULL;
    must(attn_plan_run(pair->plan, &batch, &tensors, &pair->schedule, &pair->scratch, pair->stream, &err));
    must(attn_stream_synchronize(pair->backend, pair->stream, &err));
    attn_memory_free(pair->backend, &device);
}
