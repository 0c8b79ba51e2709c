/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One layer of a prefill whose query tokens are spread over ranks.
 *
 * Either keys go round a ring, and a rank attends to those of one rank after the other; or all ranks gather
 * the queries, attend with each to their own keys, and send the parts back. Parts are merged in the order of
 * ranks. A rank's tokens lie one behind the other in what is exchanged, each with all heads, and the LSEs of
 * a token follow its partial results. Shares of heads: prefill-heads.c.
 */
#include "parallel/prefill.h"

/* ---------------------------------------------------------------- a layer */

static int32_t check_run(struct attn__prefill_run *run, const struct attn_tensors *given,
                         struct attn_error *err)
{
    const struct attn_cp *cp = run->cp;
    int32_t status = attn__take(&run->tensors, sizeof run->tensors, given, ATTN__ARGS_MIN, "tensors", err);

    if (status != ATTN_OK)
        return status;
    const struct attn_tensors *t = &run->tensors;
    if (t->q_rope.buffer.data != NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "q_rope",
                          "q_rope is given; accepted with ATTN_CP_TOKENS: q with all of its columns");
    if ((t->kv != NULL) == (t->kv_desc != NULL))
        return attn__fail(err, ATTN_E_INVALID, 0, "kv",
                          "kv and kv_desc are %s given; one of them is accepted",
                          t->kv != NULL ? "both" : "not");
    if (t->kv != NULL)
        run->kv = t->kv->desc;
    else
        status = attn__take(&run->kv, sizeof run->kv, t->kv_desc, ATTN__ARGS_MIN, "kv_desc", err);
    run->bare = t->kv != NULL ? NULL : &run->kv;
    return status == ATTN_OK && cp->prefill->step.tokens > 0
               ? attn__cp_check_tensors(cp, t, cp->prefill->step.tokens, 0, err)
               : status;
}

/* Partial results of rank `rank`: of the keys of that rank, or of its queries. */
static struct attn_merge_part part_at(const struct attn__prefill_run *run, const struct attn_buffer *parts,
                                      uint64_t rank)
{
    const struct attn__prefill *own = run->cp->prefill;
    const struct attn_problem *p = &own->problem;
    const uint64_t vector = attn__cp_vector(p->out_dtype, p->head_dim_vo),
                   token = attn__prefill_part_bytes(p);
    const struct attn_buffer from = attn__cp_at(parts, rank * own->step.block * token);

    return (struct attn_merge_part){
        .out = {.buffer = from, .token_stride = (int64_t)token, .head_stride = (int64_t)vector},
        .lse = {.buffer = attn__cp_at(&from, p->heads * vector),
                .token_stride = (int64_t)token,
                .head_stride = sizeof(float)}};
}

int32_t attn__prefill_attend(struct attn__prefill_run *run, uint32_t number,
                             const struct attn_tensors *tensors, struct attn_error *err)
{
    struct attn__prefill *own = run->cp->prefill;
    struct attn__prefill_plan *plan = &own->plans[own->step.plan];
    const int32_t status = attn_plan_run(plan->plan, &own->batches[number], tensors, &plan->schedules[number],
                                         &plan->scratch, run->stream, err);

    plan->scratch.counters_dirty = status != ATTN_OK;
    return status;
}

/* Attends with batch `number` of the step; what is given replaces q, out and the cache of the caller. */
static int32_t attend(struct attn__prefill_run *run, uint32_t number, const struct attn_tensor *q,
                      const struct attn_merge_part *part, const struct attn_kv_desc *kv,
                      struct attn_error *err)
{
    struct attn_tensors tensors = run->tensors;

    tensors.q = *q;
    tensors.out = part->out;
    tensors.lse = part->lse;
    if (kv != NULL) {
        tensors.kv = NULL;
        tensors.kv_desc = kv;
    }
    return attn__prefill_attend(run, number, &tensors, err);
}

static int32_t merge(struct attn__prefill_run *run, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;

    for (uint32_t i = 0; i < cp->net.size; i++)
        cp->merged[i] = part_at(run, &cp->prefill->parts, i);
    return cp->prefill->step.tokens > 0
               ? attn__cp_merge(cp, cp->net.size, &run->tensors.out, &run->tensors.lse,
                                cp->prefill->step.tokens, run->stream, err)
               : ATTN_OK;
}

/* ---------------------------------------------------------------- keys go round */

/* The keys of rank r - 1 arrive, then those of r - 2, ... */
static int32_t pass_keys(struct attn__prefill_run *run, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    struct attn__prefill *own = cp->prefill;
    const uint32_t size = cp->net.size;
    const uint64_t bytes = attn__slab_of(&own->problem, own->step.slab).bytes;
    const struct attn__slab_order lies = {own->problem.kv_heads, own->problem.block, false};
    const struct attn_kv_desc packed = attn__slab_desc(run, &own->slabs[0], &lies);
    int32_t status = size > 1 && bytes > 0 ? attn__prefill_pack(run, &packed, err) : ATTN_OK;

    for (uint32_t i = 0; i < size && status == ATTN_OK; i++) {
        const uint32_t from = (cp->net.rank + size - i) % size;
        const struct attn_merge_part part = part_at(run, &own->parts, from);
        const struct attn_kv_desc kv = attn__slab_desc(run, &own->slabs[i % 2], &lies);
        if (i > 0)
            status = cp->net.shift(cp->net.arg, &own->slabs[(i - 1) % 2], &own->slabs[i % 2], bytes,
                                   run->stream, err);
        if (status == ATTN_OK && own->step.tokens > 0)
            status = attend(run, from, &run->tensors.q, &part, i > 0 ? &kv : NULL, err);
    }
    return status == ATTN_OK ? merge(run, err) : status;
}

/* ---------------------------------------------------------------- queries are gathered */

static int32_t gather_queries(struct attn__prefill_run *run, struct attn_tensor *all, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    struct attn__prefill *own = cp->prefill;
    const struct attn_problem *p = &own->problem;
    const uint64_t token = attn__prefill_query_bytes(p), bytes = own->step.block * token;
    const int64_t vector = (int64_t)attn__cp_vector(p->q_dtype, p->head_dim);
    const struct attn_tensor mine = attn__rows_of(&own->queries, (int64_t)token, vector);
    const struct attn_buffer receive = attn__cp_at(&own->queries, bytes);
    const int32_t status = own->step.tokens > 0 ? attn__cp_move(cp, &run->tensors.q, &mine, own->step.tokens,
                                                                p->heads, p->head_dim, run->stream, err)
                                                : ATTN_OK;

    *all = attn__rows_of(&receive, (int64_t)token, vector);
    return status == ATTN_OK
               ? cp->net.all_gather(cp->net.arg, &own->queries, &receive, bytes, run->stream, err)
               : status;
}

static int32_t pass_queries(struct attn__prefill_run *run, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    struct attn__prefill *own = cp->prefill;
    const struct attn_merge_part parts = part_at(run, &own->own_parts, 0);
    struct attn_tensor all;
    int32_t status = gather_queries(run, &all, err);

    if (status == ATTN_OK)
        status = attend(run, 0, &all, &parts, NULL, err);
    if (status == ATTN_OK)
        status =
            cp->net.all_to_all(cp->net.arg, &own->own_parts, &own->parts,
                               own->step.block * attn__prefill_part_bytes(&own->problem), run->stream, err);
    return status == ATTN_OK ? merge(run, err) : status;
}

int32_t attn_cp_prefill_run(struct attn_cp *cp, const struct attn_tensors *tensors, void *stream,
                            struct attn_error *err)
{
    struct attn__prefill_run run = {.cp = cp, .stream = stream};
    struct attn_error own;

    int32_t status = attn__prefill_take(cp, "attn_cp_prefill_run", true, err);

    if (status != ATTN_OK)
        return status;
    attn__error_open(&own);
    status = check_run(&run, tensors, &own);
    run.sent = status == ATTN_OK;
    const uint32_t pass = cp->prefill->step.info.pass;
    if (status == ATTN_OK && cp->prefill->step.block > 0)
        status = pass == ATTN_CP_PASS_KEYS      ? pass_keys(&run, &own)
                 : pass == ATTN_CP_PASS_QUERIES ? pass_queries(&run, &own)
                                                : attn__pass_heads(&run, &own);
    return attn__cp_end(cp, status, run.sent, &own, err);
}
