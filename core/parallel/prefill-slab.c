/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Slabs of keys that ranks pass: where their parts are, how they are read as a cache, and how this rank's
 * keys come into one. */
#include "parallel/prefill.h"

/* Bytes of the scales of tokens of one side; other scales are the caller's. */
static uint64_t scale_bytes(const struct attn_problem *p, uint32_t granularity, uint64_t keys)
{
    return granularity == ATTN_SCALES_TOKEN_HEAD ? attn__cp_round(keys * p->kv_heads * sizeof(float)) : 0;
}

struct attn__slab attn__slab_of(const struct attn_problem *p, uint64_t keys)
{
    const uint64_t k = keys * p->kv_heads * attn__cp_vector(p->k_dtype, p->head_dim);
    const uint64_t v = p->mla != 0 ? 0 : keys * p->kv_heads * attn__cp_vector(p->v_dtype, p->head_dim_vo);
    struct attn__slab slab = {.v = k, .k_scales = k + v};

    slab.v_scales = slab.k_scales + scale_bytes(p, p->k_scale, keys);
    slab.bytes = slab.v_scales + (p->mla != 0 ? 0 : scale_bytes(p, p->v_scale, keys));
    return slab;
}

/* Strides of what has `bytes` bytes for each key and head. */
struct strides {
    int64_t token, head, page;
};

static struct strides strides_of(const struct attn__prefill *own, const struct attn__slab_order *order,
                                 uint64_t bytes)
{
    const int64_t one = (int64_t)bytes, token = order->by_head ? one : one * order->heads;

    return (struct strides){token, order->by_head ? (int64_t)own->step.slab * one : one, token * order->page};
}

/* Scales of tokens are in the slab; others are the caller's. */
static void place_scale(struct attn_scale *scale, uint32_t granularity, const struct attn_buffer *memory,
                        uint64_t offset, const struct strides *strides)
{
    if (granularity != ATTN_SCALES_TOKEN_HEAD)
        return;
    scale->buffer = attn__cp_at(memory, offset);
    scale->token_stride = strides->token;
    scale->head_stride = strides->head;
    scale->outer_stride = strides->page;
}

struct attn_kv_desc attn__slab_desc(const struct attn__prefill_run *run, const struct attn_buffer *memory,
                                    const struct attn__slab_order *order)
{
    const struct attn__prefill *own = run->cp->prefill;
    const struct attn_problem *p = &own->problem;
    const struct attn__slab slab = attn__slab_of(p, own->step.slab);
    const struct strides k = strides_of(own, order, attn__cp_vector(p->k_dtype, p->head_dim)),
                         v = strides_of(own, order, attn__cp_vector(p->v_dtype, p->head_dim_vo)),
                         scale = strides_of(own, order, sizeof(float));
    struct attn_kv_desc desc = run->kv;

    desc.block = order->page;
    desc.pages = (uint32_t)(own->step.slab * (order->by_head ? p->kv_heads : 1) / order->page);
    desc.kv_heads = order->heads;
    desc.k = *memory;
    desc.k_token_stride = k.token;
    desc.k_head_stride = k.head;
    desc.k_page_stride = k.page;
    place_scale(&desc.k_scale, p->k_scale, memory, slab.k_scales, &scale);
    if (p->mla != 0)
        return desc;
    desc.v = attn__cp_at(memory, slab.v);
    desc.v_token_stride = v.token;
    desc.v_head_stride = v.head;
    desc.v_page_stride = v.page;
    place_scale(&desc.v_scale, p->v_scale, memory, slab.v_scales, &scale);
    return desc;
}

int32_t attn__prefill_pack(struct attn__prefill_run *run, const struct attn_kv_desc *to,
                           struct attn_error *err)
{
    struct attn__prefill *own = run->cp->prefill;
    struct attn_kv_gather_args args;

    ATTN_INIT(&args);
    args.tokens = (uint32_t)own->step.slab;
    args.k_dtype = own->problem.k_dtype;
    args.v_dtype = own->problem.v_dtype;
    args.addressing = ATTN_TABLE;
    args.index_dtype = ATTN_INT32;
    args.kv = run->tensors.kv;
    args.kv_desc = run->bare;
    args.batch = &own->step.packed;
    args.offsets = own->step.offsets;
    args.k = attn__rows_of(&to->k, to->k_token_stride, to->k_head_stride);
    if (own->problem.k_scale == ATTN_SCALES_TOKEN_HEAD)
        args.k_scales = attn__rows_of(&to->k_scale.buffer, to->k_scale.token_stride, to->k_scale.head_stride);
    if (own->problem.mla == 0)
        args.v = attn__rows_of(&to->v, to->v_token_stride, to->v_head_stride);
    if (own->problem.mla == 0 && own->problem.v_scale == ATTN_SCALES_TOKEN_HEAD)
        args.v_scales = attn__rows_of(&to->v_scale.buffer, to->v_scale.token_stride, to->v_scale.head_stride);
    return attn_kv_gather(run->cp->backend, &args, run->stream, err);
}
