/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Context-parallel decoding: gathers queries, runs the plan over this rank's keys, exchanges partial results,
 * and merges them.
 *
 * Exchanged tensors lie head after head, so that the heads of a rank are one block and the blocks of all
 * ranks are again a tensor with two strides. The LSEs of a head follow its partial out: one collective
 * carries both.
 */
#include <stdlib.h>

#include "parallel/cp.h"

/* Bytes of one head of `tokens` partial results: vectors, then LSEs. */
static uint64_t part_bytes(const struct attn_cp *cp, uint64_t tokens)
{
    return tokens * attn__cp_vector(cp->problem.out_dtype, cp->problem.head_dim_vo) +
           attn__cp_round(tokens * sizeof(float));
}

/* ---------------------------------------------------------------- buffers */

int32_t attn__decode_create(struct attn_cp *cp, struct attn_error *err)
{
    const struct attn_problem *p = &cp->problem;
    const uint64_t tokens = p->max_rows, part = part_bytes(cp, tokens);
    /* MLA's two parts of a query are rounded up each. */
    const uint64_t query =
        cp->split ? tokens * (attn__cp_vector(p->q_dtype, p->head_dim) + ATTN__CP_ALIGNMENT) : 0;
    const uint64_t queries = query * (cp->heads + p->heads), own_parts = part * p->heads,
                   parts = part * cp->heads * cp->net.size;
    const int32_t status = attn_memory_alloc(cp->backend, queries + own_parts + parts, &cp->memory, err);

    cp->queries = cp->memory;
    cp->own_parts = attn__cp_at(&cp->queries, queries);
    cp->parts = attn__cp_at(&cp->own_parts, own_parts);
    return status;
}

/* ---------------------------------------------------------------- collectives, now or in a graph */

typedef int32_t (*collective_fn)(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                                 uint64_t bytes, void *stream, struct attn_error *err);

/* A collective of host memory in a graph, which every launch makes. */
struct attn__cp_call {
    struct attn__cp_call *next;
    struct attn_cp *cp;
    collective_fn call;
    struct attn_buffer send, receive;
    uint64_t bytes;
};

void attn__decode_destroy(struct attn_cp *cp)
{
    while (cp->calls != NULL) {
        struct attn__cp_call *next = cp->calls->next;
        free(cp->calls);
        cp->calls = next;
    }
    if (cp->memory.data != NULL)
        attn_memory_free(cp->backend, &cp->memory);
}

static void make_host_call(void *arg)
{
    const struct attn__cp_call *made = arg;
    struct attn_cp *cp = made->cp;

    if (cp->ended.status == ATTN_OK)
        cp->ended.status =
            made->call(cp->net.arg, &made->send, &made->receive, made->bytes, NULL, &cp->ended);
}

static int32_t add_host_call(struct attn_cp *cp, struct attn_graph *graph, const struct attn__cp_call *call,
                             struct attn_error *err)
{
    struct attn__cp_call *kept = malloc(sizeof *kept);

    if (kept == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "graph", "no memory for a collective of a graph");
    *kept = *call;
    kept->next = cp->calls;
    cp->calls = kept;
    return attn_graph_add_host(graph, make_host_call, kept, err);
}

static int32_t collect(struct attn_cp *cp, struct attn_graph *graph, const struct attn__cp_call *call,
                       void *stream, struct attn_error *err)
{
    return graph != NULL && cp->net.device == 0
               ? add_host_call(cp, graph, call, err)
               : call->call(cp->net.arg, &call->send, &call->receive, call->bytes, stream, err);
}

/* ---------------------------------------------------------------- a run */

struct run {
    struct attn_cp *cp;
    struct attn_cp_run_args args;
    struct attn_tensors tensors; /* as the plan sees them */
    struct attn_tensor out, lse; /* of the caller */
    uint64_t tokens;
    void *stream;
};

static int32_t check_plan(const struct attn_cp *cp, const struct attn_plan *plan, struct attn_error *err)
{
    if (plan->backend != cp->backend)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "plan",
            "the plan was made for %s and this rank for %s; both of one backend handle are accepted",
            plan->backend->entry->table.name, cp->backend->entry->table.name);
    const struct attn_problem *a = &plan->problem, *b = &cp->problem;
    if (a->heads == b->heads && a->head_dim == b->head_dim && a->head_dim_vo == b->head_dim_vo &&
        a->q_dtype == b->q_dtype && a->out_dtype == b->out_dtype && a->cp == b->cp && a->lse == b->lse)
        return ATTN_OK;
    return attn__fail(
        err, ATTN_E_INVALID, 0, "plan",
        "the plan is of another problem than this rank was made for: heads, head_dim, q, out, cp and "
        "lse must be the same");
}

static int32_t check_batch(const struct run *run, const struct attn_batch *batch, struct attn_error *err)
{
    const struct attn_cp *cp = run->cp;

    if (batch->cp_rank != cp->net.rank || batch->cp_world != cp->net.size)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_rank",
                          "the batch is of rank %u of %u; the collectives are of rank %u of %u",
                          batch->cp_rank, batch->cp_world, cp->net.rank, cp->net.size);
    return batch->num_tokens <= cp->problem.max_rows
               ? ATTN_OK
               : attn__fail(err, ATTN_E_SIZE, 0, "num_tokens",
                            "num_tokens is %u; this rank was made for max_rows=%u", batch->num_tokens,
                            cp->problem.max_rows);
}

static int32_t check_run(struct run *run, const struct attn_cp_run_args *given, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    struct attn_batch batch;
    int32_t status = attn__take(&run->args, sizeof run->args, given, sizeof run->args, "args", err);

    if (status == ATTN_OK)
        status = attn__plan_begin(run->args.plan, "attn_cp_run", err);
    if (status == ATTN_OK)
        status = check_plan(cp, run->args.plan, err);
    if (status == ATTN_OK)
        status = attn__take(&batch, sizeof batch, run->args.batch, ATTN__ARGS_MIN, "batch", err);
    if (status == ATTN_OK)
        status =
            attn__take(&run->tensors, sizeof run->tensors, run->args.tensors, ATTN__ARGS_MIN, "tensors", err);
    if (status == ATTN_OK)
        status = check_batch(run, &batch, err);
    if (status != ATTN_OK)
        return status;
    run->tokens = batch.num_tokens;
    const bool rope = run->tensors.q_rope.buffer.data != NULL && cp->problem.mla;
    return run->tokens > 0
               ? attn__cp_check_tensors(cp, &run->tensors, run->tokens,
                                        rope ? cp->problem.head_dim - cp->problem.head_dim_vo : 0, err)
               : ATTN_OK;
}

/* Whether vectors of `bytes` lie as they are sent: head after head, without gaps, and without what vectors
 * are rounded up by, which the last one may not have. */
static bool is_block(const struct attn_tensor *tensor, uint64_t tokens, uint32_t heads, uint64_t vector,
                     uint64_t bytes)
{
    return vector == bytes && (tokens == 1 || tensor->token_stride == (int64_t)vector) &&
           (heads == 1 || tensor->head_stride == (int64_t)(tokens * vector));
}

/*
 * The queries of all ranks in place of this rank's own, from byte `offset` of the buffer on. *sent: the
 * others now know that this rank has begun.
 */
static int32_t gather(struct run *run, struct attn_tensor *queries, uint32_t dim, uint64_t offset, bool *sent,
                      struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    const uint64_t vector = attn__cp_vector(cp->problem.q_dtype, dim),
                   bytes = cp->heads * run->tokens * vector;
    const struct attn_tensor own = {.buffer = attn__cp_at(&cp->queries, offset),
                                    .token_stride = (int64_t)vector,
                                    .head_stride = (int64_t)(run->tokens * vector)};
    struct attn_tensor all = own;
    struct attn__cp_call call = {
        .cp = cp, .call = cp->net.all_gather, .send = queries->buffer, .bytes = bytes};

    if (!is_block(queries, run->tokens, cp->heads, vector,
                  (uint64_t)dim * attn__element_size(cp->problem.q_dtype))) {
        const int32_t status =
            attn__cp_move(cp, queries, &own, run->tokens, cp->heads, dim, run->stream, err);
        if (status != ATTN_OK)
            return status;
        call.send = own.buffer;
    }
    all.buffer = call.receive = attn__cp_at(&own.buffer, bytes);
    *queries = all;
    *sent = true;
    return collect(cp, run->args.graph, &call, run->stream, err);
}

static int32_t gather_queries(struct run *run, bool *sent, struct attn_error *err)
{
    const struct attn_problem *p = &run->cp->problem;
    const bool rope = run->tensors.q_rope.buffer.data != NULL;
    const uint32_t dim = rope ? p->head_dim_vo : p->head_dim;
    const uint64_t used = (run->cp->heads + p->heads) * run->tokens * attn__cp_vector(p->q_dtype, dim);
    int32_t status = gather(run, &run->tensors.q, dim, 0, sent, err);

    return status == ATTN_OK && rope ? gather(run, &run->tensors.q_rope, p->head_dim - dim, used, sent, err)
                                     : status;
}

/* A head's vectors, and its LSEs behind them. */
static struct attn_merge_part part_at(const struct run *run, const struct attn_buffer *buffer)
{
    const struct attn_problem *p = &run->cp->problem;
    const uint64_t vector = attn__cp_vector(p->out_dtype, p->head_dim_vo);
    const int64_t head = (int64_t)part_bytes(run->cp, run->tokens);

    return (struct attn_merge_part){
        .out = {.buffer = *buffer, .token_stride = (int64_t)vector, .head_stride = head},
        .lse = {.buffer = attn__cp_at(buffer, run->tokens * vector),
                .token_stride = sizeof(float),
                .head_stride = head}};
}

static int32_t exchange(struct run *run, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    const struct attn__cp_call call = {.cp = cp,
                                       .call = cp->split ? cp->net.all_to_all : cp->net.all_gather,
                                       .send = cp->own_parts,
                                       .receive = cp->parts,
                                       .bytes = cp->heads * part_bytes(cp, run->tokens)};

    return collect(cp, run->args.graph, &call, run->stream, err);
}

static int32_t merge(struct run *run, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    const uint64_t block = cp->heads * part_bytes(cp, run->tokens);

    for (uint32_t i = 0; i < cp->net.size; i++) {
        const struct attn_buffer buffer = attn__cp_at(&cp->parts, i * block);
        cp->merged[i] = part_at(run, &buffer);
    }
    return attn__cp_merge(cp, cp->net.size, &run->out, &run->lse, run->tokens, run->stream, err);
}

static int32_t run_parts(struct run *run, bool *sent, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    const struct attn_merge_part own = part_at(run, &cp->own_parts);
    int32_t status = cp->split ? gather_queries(run, sent, err) : ATTN_OK;

    run->out = run->tensors.out;
    run->lse = run->tensors.lse;
    run->tensors.out = own.out;
    run->tensors.lse = own.lse;
    if (status == ATTN_OK)
        status = attn_plan_run(run->args.plan, run->args.batch, &run->tensors, run->args.schedule,
                               run->args.scratch, run->stream, err);
    if (status != ATTN_OK)
        return status;
    *sent = true;
    status = exchange(run, err);
    return status == ATTN_OK ? merge(run, err) : status;
}

int32_t attn_cp_run(struct attn_cp *cp, const struct attn_cp_run_args *args, void *stream,
                    struct attn_error *err)
{
    if (cp == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp", "attn_cp_run: the handle is NULL");
    if (cp->ended.status != ATTN_OK)
        return attn__fail(err, cp->ended.status, 0, cp->ended.field, "%s", cp->ended.message);
    if (cp->prefill != NULL)
        return attn__fail(
            err, ATTN_E_STATE, 0, "cp",
            "attn_cp_run: the rank was made with ATTN_CP_TOKENS; attn_cp_prefill_run is accepted");
    struct run run = {.cp = cp, .stream = stream};
    struct attn_error own;
    bool sent = false;
    attn__error_open(&own);
    int32_t status = check_run(&run, args, &own);
    if (status == ATTN_OK && run.tokens > 0)
        status = run_parts(&run, &sent, &own);
    return attn__cp_end(cp, status, sent, &own, err);
}
