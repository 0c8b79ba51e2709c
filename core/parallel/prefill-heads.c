/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One layer of a prefill whose ranks get a share of the heads each: queries, keys and values go where their
 * heads are, and results come back, all by all-to-all. A rank attends to all keys, so that nothing is merged.
 *
 * What is exchanged lies head after head, and the heads of a rank are one block. What arrives has a block of
 * each rank, with the tokens of that rank: a batch for the queries of each, over the keys of all, whose pages
 * are as many keys as a rank has in turn.
 */
#include "parallel/prefill.h"

bool attn__heads_can_be(const struct attn_problem *p, uint32_t size)
{
    return size > 1 && p->mla == 0 && p->heads % size == 0 && p->kv_heads % size == 0 && attn__keys_can_be(p);
}

/* Bytes of one head in an exchange. */
struct sizes {
    uint64_t query, result, k, v, scale; /* result: vectors, then LSEs */
};

static struct sizes sizes_of(const struct attn__prefill *own)
{
    const struct attn_problem *p = &own->problem;
    const uint64_t block = own->step.block, slab = own->step.slab;

    return (struct sizes){.query = block * attn__cp_vector(p->q_dtype, p->head_dim),
                          .result = block * attn__cp_vector(p->out_dtype, p->head_dim_vo) +
                                    attn__cp_round(block * sizeof(float)),
                          .k = slab * attn__cp_vector(p->k_dtype, p->head_dim),
                          .v = slab * attn__cp_vector(p->v_dtype, p->head_dim_vo),
                          .scale = slab * sizeof(float)};
}

/* All-to-all of `heads` heads for each rank, of so many bytes. */
static int32_t exchange(struct attn__prefill_run *run, const struct attn_buffer *send,
                        const struct attn_buffer *receive, uint64_t heads, uint64_t bytes,
                        struct attn_error *err)
{
    const struct attn_collectives *net = &run->cp->net;

    return net->all_to_all(net->arg, send, receive, heads * bytes, run->stream, err);
}

/* ---------------------------------------------------------------- keys */

static int32_t exchange_keys(struct attn__prefill_run *run, uint64_t heads, struct attn_error *err)
{
    struct attn__prefill *own = run->cp->prefill;
    const struct attn_problem *p = &own->problem;
    const struct attn__slab slab = attn__slab_of(p, own->step.slab);
    const struct sizes sizes = sizes_of(own);
    const struct {
        uint64_t offset, bytes;
        bool there;
    } parts[] = {{0, sizes.k, true},
                 {slab.v, sizes.v, true},
                 {slab.k_scales, sizes.scale, p->k_scale == ATTN_SCALES_TOKEN_HEAD},
                 {slab.v_scales, sizes.scale, p->v_scale == ATTN_SCALES_TOKEN_HEAD}};
    const struct attn__slab_order lies = {p->kv_heads, p->block, true};
    const struct attn_kv_desc packed = attn__slab_desc(run, &own->slabs[0], &lies);
    int32_t status = attn__prefill_pack(run, &packed, err);

    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == ATTN_OK; i++) {
        const struct attn_buffer send = attn__cp_at(&own->slabs[0], parts[i].offset),
                                 receive = attn__cp_at(&own->slabs[1], parts[i].offset);
        if (parts[i].there)
            status = exchange(run, &send, &receive, heads, parts[i].bytes, err);
    }
    return status;
}

/* ---------------------------------------------------------------- queries and results */

static struct attn_tensor queries_at(const struct attn__prefill *own, uint64_t offset)
{
    const struct attn_buffer at = attn__cp_at(&own->queries, offset);

    return attn__rows_of(&at, (int64_t)attn__cp_vector(own->problem.q_dtype, own->problem.head_dim),
                         (int64_t)sizes_of(own).query);
}

static struct attn_merge_part results_at(const struct attn__prefill *own, const struct attn_buffer *from,
                                         uint64_t offset)
{
    const int64_t vector = (int64_t)attn__cp_vector(own->problem.out_dtype, own->problem.head_dim_vo),
                  head = (int64_t)sizes_of(own).result;
    const struct attn_buffer at = attn__cp_at(from, offset),
                             lse = attn__cp_at(&at, own->step.block * (uint64_t)vector);

    return (struct attn_merge_part){.out = attn__rows_of(&at, vector, head),
                                    .lse = attn__rows_of(&lse, sizeof(float), head)};
}

static int32_t exchange_queries(struct attn__prefill_run *run, uint64_t heads, struct attn_error *err)
{
    struct attn__prefill *own = run->cp->prefill;
    const struct attn_problem *p = &own->problem;
    const uint64_t all = p->heads * sizes_of(own).query;
    const struct attn_tensor mine = queries_at(own, 0);
    const struct attn_buffer receive = attn__cp_at(&own->queries, all);
    int32_t status = ATTN_OK;

    if (own->step.tokens > 0)
        status = attn__cp_move(run->cp, &run->tensors.q, &mine, own->step.tokens, p->heads, p->head_dim,
                               run->stream, err);
    return status == ATTN_OK ? exchange(run, &own->queries, &receive, heads, sizes_of(own).query, err)
                             : status;
}

/* What is given for each head: of this rank's. */
static void take_share(struct attn__prefill_run *run, struct attn_kv_desc *kv, struct attn_tensors *tensors)
{
    const struct attn_cp *cp = run->cp;
    const struct attn_problem *p = &cp->prefill->problem;
    const uint64_t first = cp->net.rank * (p->heads / cp->net.size),
                   first_kv = cp->net.rank * (p->kv_heads / cp->net.size);

    if (p->sinks != 0)
        tensors->sinks.byte_offset += first * (tensors->sinks_dtype == ATTN_BF16 ? 2 : sizeof(float));
    if (p->alibi != ATTN_ALIBI_NONE)
        tensors->alibi_slopes.byte_offset += first * sizeof(float);
    if (p->k_scale == ATTN_SCALES_HEAD)
        kv->k_scale.buffer.byte_offset += first_kv * (uint64_t)kv->k_scale.head_stride;
    if (p->v_scale == ATTN_SCALES_HEAD)
        kv->v_scale.buffer.byte_offset += first_kv * (uint64_t)kv->v_scale.head_stride;
}

/* Attends for the query tokens of each rank. */
static int32_t attend(struct attn__prefill_run *run, uint64_t heads, uint64_t kv_heads,
                      struct attn_error *err)
{
    struct attn__prefill *own = run->cp->prefill;
    const struct sizes sizes = sizes_of(own);
    const struct attn__slab_order lies = {(uint32_t)kv_heads, own->interleave, true};
    struct attn_kv_desc kv = attn__slab_desc(run, &own->slabs[1], &lies);
    struct attn_tensors tensors = run->tensors;
    int32_t status = ATTN_OK;

    take_share(run, &kv, &tensors);
    tensors.kv = NULL;
    tensors.kv_desc = &kv;
    for (uint32_t rank = 0; rank < run->cp->net.size && status == ATTN_OK; rank++) {
        const struct attn_merge_part part = results_at(own, &own->own_parts, rank * heads * sizes.result);
        tensors.q = queries_at(own, (own->problem.heads + rank * heads) * sizes.query);
        tensors.out = part.out;
        tensors.lse = part.lse;
        if (own->batches[rank].num_tokens > 0)
            status = attn__prefill_attend(run, rank, &tensors, err);
    }
    return status;
}

int32_t attn__pass_heads(struct attn__prefill_run *run, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    struct attn__prefill *own = cp->prefill;
    const uint64_t heads = own->problem.heads / cp->net.size, kv_heads = own->problem.kv_heads / cp->net.size;
    int32_t status = exchange_queries(run, heads, err);

    if (status == ATTN_OK)
        status = exchange_keys(run, kv_heads, err);
    if (status == ATTN_OK)
        status = attend(run, heads, kv_heads, err);
    if (status == ATTN_OK)
        status = exchange(run, &own->own_parts, &own->parts, heads, sizes_of(own).result, err);
    if (status != ATTN_OK || own->step.tokens == 0)
        return status;
    cp->merged[0] = results_at(own, &own->parts, 0);
    return attn__cp_merge(cp, 1, &run->tensors.out, &run->tensors.lse, own->step.tokens, run->stream, err);
}
