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
#include <time.h>

#include "attn/parallel.h"
#include "dispatch/plan.h"
#include "select/problem.h"
#include "visible.h"

/* Of every vector and of every head's LSEs, as kernels load them best. */
#define ALIGNMENT 16u
/* Between two looks at a stream, in nanoseconds. */
#define LOOK INT64_C(20000)

struct attn_cp {
    struct attn_backend *backend; /* held */
    struct attn_problem problem;  /* resolved */
    struct attn_collectives net;
    bool split;
    uint32_t heads; /* of this rank */
    struct attn_buffer memory;
    struct attn_buffer zero;        /* the LSE of vectors that a merge only moves */
    struct attn_buffer queries;     /* own ones, where the caller's lie otherwise; then those of all ranks */
    struct attn_buffer own_parts;   /* what the plan writes: all heads */
    struct attn_buffer parts;       /* of all ranks: own heads, or all */
    struct attn_merge_part *merged; /* [ranks] */
    void *event;
    struct host_call *calls; /* of captured graphs */
    struct attn_error ended; /* why calls in a graph do nothing any more; status 0 = they do */
};

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t vector_bytes(uint32_t dtype, uint32_t dim)
{
    return rounded((uint64_t)dim * attn__element_size(dtype));
}

/* Bytes of one head of `tokens` partial results: vectors, then LSEs. */
static uint64_t part_bytes(const struct attn_cp *cp, uint64_t tokens)
{
    return tokens * vector_bytes(cp->problem.out_dtype, cp->problem.head_dim_vo) +
           rounded(tokens * sizeof(float));
}

static struct attn_buffer at(const struct attn_buffer *buffer, uint64_t offset)
{
    return (struct attn_buffer){buffer->data, buffer->byte_offset + offset};
}

/* ---------------------------------------------------------------- creating */

static int32_t check_collectives(const struct attn_cp *cp, struct attn_error *err)
{
    const struct attn_collectives *net = &cp->net;

    if (net->size == 0 || net->rank >= net->size)
        return attn__fail(err, ATTN_E_INVALID, 0, "collectives.rank",
                          "rank is %u of %u; accepted: below size", net->rank, net->size);
    if (net->timeout_ns == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "collectives.timeout_ns",
                          "timeout_ns is 0; accepted: nanoseconds, 1 at least");
    if (net->all_gather == NULL || net->all_to_all == NULL || net->abort == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "collectives", "%s is NULL; a function is accepted",
                          net->all_gather == NULL   ? "all_gather"
                          : net->all_to_all == NULL ? "all_to_all"
                                                    : "abort");
    if (net->device == 0 && cp->backend->device.type != ATTN_DEVICE_CPU)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "collectives.device",
                          "the collectives work on host memory, and %s computes in that of %s; accepted: "
                          "collectives with device=1",
                          cp->backend->entry->table.name, cp->backend->device_name);
    return ATTN_OK;
}

static int32_t check_problem(const struct attn_cp *cp, struct attn_error *err)
{
    const struct attn_problem *p = &cp->problem;

    if (p->cp == 0 || p->lse == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, p->cp == 0 ? "cp" : "lse",
                          "%s of the problem is 0; accepted: 1, as parts of ranks are merged by their LSE",
                          p->cp == 0 ? "cp" : "lse");
    if (p->max_rows == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "max_rows",
                          "max_rows of the problem is not given; accepted: query tokens of the largest step");
    if (p->out_dtype != ATTN_F32 && p->out_dtype != ATTN_F16 && p->out_dtype != ATTN_BF16)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "out",
                          "out is %s; parts are merged in f32, f16 or bf16", attn_dtype_name(p->out_dtype));
    if (cp->split && p->heads % cp->net.size != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "heads",
                          "heads is %u for %u ranks; accepted: a multiple, or ATTN_CP_HEADS_ALL", p->heads,
                          cp->net.size);
    return cp->backend->entry->merge.merge != NULL
               ? ATTN_OK
               : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "merge", "%s offers no merge",
                            cp->backend->entry->table.name);
}

static int32_t take_params(struct attn_cp *cp, const struct attn_cp_params *given, struct attn_error *err)
{
    struct attn_cp_params params;
    int32_t status = attn__take(&params, sizeof params, given, sizeof params, "params", err);

    if (status == ATTN_OK && params.heads != ATTN_CP_HEADS_SPLIT && params.heads != ATTN_CP_HEADS_ALL)
        status = attn__fail(err, ATTN_E_INVALID, 0, "heads",
                            "heads is %u; accepted: ATTN_CP_HEADS_SPLIT or ATTN_CP_HEADS_ALL", params.heads);
    if (status == ATTN_OK)
        status = attn__take(&cp->net, sizeof cp->net, params.collectives, sizeof cp->net, "collectives", err);
    if (status == ATTN_OK)
        status = attn__problem_take(cp->backend->context, params.problem, &cp->problem, err);
    if (status != ATTN_OK)
        return status;
    cp->split = params.heads == ATTN_CP_HEADS_SPLIT;
    status = check_collectives(cp, err);
    if (status == ATTN_OK)
        status = check_problem(cp, err);
    cp->heads = cp->split ? cp->problem.heads / cp->net.size : cp->problem.heads;
    return status;
}

/* One block for all buffers. */
static int32_t allocate(struct attn_cp *cp, struct attn_error *err)
{
    const struct attn_problem *p = &cp->problem;
    const uint64_t tokens = p->max_rows, part = part_bytes(cp, tokens);
    /* MLA's two parts of a query are rounded up each. */
    const uint64_t query = cp->split ? tokens * (vector_bytes(p->q_dtype, p->head_dim) + ALIGNMENT) : 0;
    const uint64_t queries = query * (cp->heads + p->heads), own_parts = part * p->heads,
                   parts = part * cp->heads * cp->net.size;
    const float zero = 0;
    cp->merged = calloc(cp->net.size, sizeof *cp->merged);
    if (cp->merged == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "cp", "no memory for the parts of %u ranks", cp->net.size);
    int32_t status =
        attn_memory_alloc(cp->backend, ALIGNMENT + queries + own_parts + parts, &cp->memory, err);

    if (status != ATTN_OK)
        return status;
    cp->zero = cp->memory;
    cp->queries = at(&cp->memory, ALIGNMENT);
    cp->own_parts = at(&cp->queries, queries);
    cp->parts = at(&cp->own_parts, own_parts);
    const struct attn_buffer from = {(void *)(uintptr_t)&zero, 0};
    status = attn_memory_copy(cp->backend, &cp->zero, &from, sizeof zero, ATTN_COPY_TO_DEVICE, NULL, err);
    if (status == ATTN_OK)
        status = attn_stream_synchronize(cp->backend, NULL, err);
    return status == ATTN_OK && cp->net.device != 0 ? attn_event_create(cp->backend, &cp->event, err)
                                                    : status;
}

int32_t attn_cp_create(struct attn_backend *backend, const struct attn_cp_params *params,
                       struct attn_cp **out, struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_cp_create", err);

    if (status == ATTN_OK && out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL; a place for the handle is accepted");
    if (status != ATTN_OK)
        return status;
    *out = NULL;
    struct attn_cp *cp = calloc(1, sizeof *cp);
    if (cp == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "cp", "no memory for a rank");
    attn__error_open(&cp->ended);
    cp->backend = backend;
    attn__backend_hold(backend);
    status = take_params(cp, params, err);
    if (status == ATTN_OK)
        status = allocate(cp, err);
    if (status == ATTN_OK)
        *out = cp;
    else
        attn_cp_destroy(cp);
    return status;
}

/* ---------------------------------------------------------------- collectives, now or in a graph */

typedef int32_t (*collective_fn)(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                                 uint64_t bytes, void *stream, struct attn_error *err);

/* A collective of host memory in a graph, which every launch makes. */
struct host_call {
    struct host_call *next;
    struct attn_cp *cp;
    collective_fn call;
    struct attn_buffer send, receive;
    uint64_t bytes;
};

static void make_host_call(void *arg)
{
    const struct host_call *made = arg;
    struct attn_cp *cp = made->cp;

    if (cp->ended.status == ATTN_OK)
        cp->ended.status =
            made->call(cp->net.arg, &made->send, &made->receive, made->bytes, NULL, &cp->ended);
}

static int32_t add_host_call(struct attn_cp *cp, struct attn_graph *graph, const struct host_call *call,
                             struct attn_error *err)
{
    struct host_call *kept = malloc(sizeof *kept);

    if (kept == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "graph", "no memory for a collective of a graph");
    *kept = *call;
    kept->next = cp->calls;
    cp->calls = kept;
    return attn_graph_add_host(graph, make_host_call, kept, err);
}

static int32_t collect(struct attn_cp *cp, struct attn_graph *graph, const struct host_call *call,
                       void *stream, struct attn_error *err)
{
    return graph != NULL && cp->net.device == 0
               ? add_host_call(cp, graph, call, err)
               : call->call(cp->net.arg, &call->send, &call->receive, call->bytes, stream, err);
}

void attn_cp_destroy(struct attn_cp *cp)
{
    if (cp == NULL)
        return;
    while (cp->calls != NULL) {
        struct host_call *next = cp->calls->next;
        free(cp->calls);
        cp->calls = next;
    }
    free(cp->merged);
    attn_event_destroy(cp->backend, cp->event);
    attn_memory_free(cp->backend, &cp->memory);
    attn__backend_drop(cp->backend);
    free(cp);
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

/* What the plan checks is checked of the caller's tensors here: the plan sees others. */
static int32_t check_tensors(const struct run *run, struct attn_error *err)
{
    const struct attn_cp *cp = run->cp;
    const struct attn_problem *p = &cp->problem;
    const struct attn_tensors *t = &run->tensors;
    const uint32_t rope = t->q_rope.buffer.data != NULL && p->mla ? p->head_dim - p->head_dim_vo : 0;
    int32_t status =
        attn__tensor_check(&t->q, p->q_dtype, run->tokens, cp->heads, p->head_dim - rope, "q", err);

    if (status == ATTN_OK && rope > 0)
        status = attn__tensor_check(&t->q_rope, p->q_dtype, run->tokens, cp->heads, rope, "q_rope", err);
    if (status == ATTN_OK)
        status =
            attn__output_check(&t->out, p->out_dtype, run->tokens, cp->heads, p->head_dim_vo, "out", err);
    return status == ATTN_OK && t->lse.buffer.data != NULL
               ? attn__output_check(&t->lse, ATTN_F32, run->tokens, cp->heads, 1, "lse", err)
               : status;
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
    return run->tokens > 0 ? check_tensors(run, err) : ATTN_OK;
}

/* Whether vectors lie as they are sent: head after head, without gaps. */
static bool is_block(const struct attn_tensor *tensor, uint64_t tokens, uint32_t heads, uint64_t vector)
{
    return (tokens == 1 || tensor->token_stride == (int64_t)vector) &&
           (heads == 1 || tensor->head_stride == (int64_t)(tokens * vector));
}

/* Copies vectors: a merge of one part. */
static int32_t move(const struct run *run, const struct attn_tensor *from, const struct attn_tensor *to,
                    uint32_t dim, struct attn_error *err)
{
    const struct attn_cp *cp = run->cp;
    const struct attn_merge_part part = {.out = *from, .lse = {.buffer = cp->zero}};
    struct attn_merge_args args;

    if (attn__element_size(cp->problem.q_dtype) < 2)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "q",
            "q has strides of %lld (token) and %lld (head) bytes; accepted of %s that is split: "
            "head after head, %llu and %llu",
            (long long)from->token_stride, (long long)from->head_stride, attn_dtype_name(cp->problem.q_dtype),
            (unsigned long long)to->token_stride, (unsigned long long)to->head_stride);
    ATTN_INIT(&args);
    args.count = 1;
    args.parts = &part;
    args.dtype = cp->problem.q_dtype;
    args.lse_base = ATTN_LSE_NATURAL;
    args.num_tokens = (uint32_t)run->tokens;
    args.heads = cp->heads;
    args.head_dim = dim;
    args.out = *to;
    return attn_merge(cp->backend, &args, run->stream, err);
}

/*
 * The queries of all ranks in place of this rank's own, from byte `offset` of the buffer on. *sent: the
 * others now know that this rank has begun.
 */
static int32_t gather(struct run *run, struct attn_tensor *queries, uint32_t dim, uint64_t offset, bool *sent,
                      struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    const uint64_t vector = vector_bytes(cp->problem.q_dtype, dim), bytes = cp->heads * run->tokens * vector;
    const struct attn_tensor own = {.buffer = at(&cp->queries, offset),
                                    .token_stride = (int64_t)vector,
                                    .head_stride = (int64_t)(run->tokens * vector)};
    struct attn_tensor all = own;
    struct host_call call = {.cp = cp, .call = cp->net.all_gather, .send = queries->buffer, .bytes = bytes};

    if (!is_block(queries, run->tokens, cp->heads, vector)) {
        const int32_t status = move(run, queries, &own, dim, err);
        if (status != ATTN_OK)
            return status;
        call.send = own.buffer;
    }
    all.buffer = call.receive = at(&own.buffer, bytes);
    *queries = all;
    *sent = true;
    return collect(cp, run->args.graph, &call, run->stream, err);
}

static int32_t gather_queries(struct run *run, bool *sent, struct attn_error *err)
{
    const struct attn_problem *p = &run->cp->problem;
    const bool rope = run->tensors.q_rope.buffer.data != NULL;
    const uint32_t dim = rope ? p->head_dim_vo : p->head_dim;
    const uint64_t used = (run->cp->heads + p->heads) * run->tokens * vector_bytes(p->q_dtype, dim);
    int32_t status = gather(run, &run->tensors.q, dim, 0, sent, err);

    return status == ATTN_OK && rope ? gather(run, &run->tensors.q_rope, p->head_dim - dim, used, sent, err)
                                     : status;
}

/* A head's vectors, and its LSEs behind them. */
static struct attn_merge_part part_at(const struct run *run, const struct attn_buffer *buffer)
{
    const struct attn_problem *p = &run->cp->problem;
    const uint64_t vector = vector_bytes(p->out_dtype, p->head_dim_vo);
    const int64_t head = (int64_t)part_bytes(run->cp, run->tokens);

    return (struct attn_merge_part){
        .out = {.buffer = *buffer, .token_stride = (int64_t)vector, .head_stride = head},
        .lse = {
            .buffer = at(buffer, run->tokens * vector), .token_stride = sizeof(float), .head_stride = head}};
}

static int32_t exchange(struct run *run, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    const struct host_call call = {.cp = cp,
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
    struct attn_merge_args args;

    for (uint32_t i = 0; i < cp->net.size; i++) {
        const struct attn_buffer buffer = at(&cp->parts, i * block);
        cp->merged[i] = part_at(run, &buffer);
    }
    ATTN_INIT(&args);
    args.count = cp->net.size;
    args.parts = cp->merged;
    args.dtype = cp->problem.out_dtype;
    args.lse_base = ATTN_LSE_NATURAL;
    args.num_tokens = (uint32_t)run->tokens;
    args.heads = cp->heads;
    args.head_dim = cp->problem.head_dim_vo;
    args.out = run->out;
    args.lse = run->lse;
    return attn_merge(cp->backend, &args, run->stream, err);
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
    struct run run = {.cp = cp, .stream = stream};
    struct attn_error own;
    bool sent = false;
    attn__error_open(&own);
    int32_t status = check_run(&run, args, &own);
    if (status == ATTN_OK && run.tokens > 0)
        status = run_parts(&run, &sent, &own);
    if (status == ATTN_OK)
        return ATTN_OK;
    if (sent && status != ATTN_E_PEER)
        cp->net.abort(cp->net.arg, own.message);
    return attn__fail(err, status, own.reason, own.field, "%s", own.message);
}

/* ---------------------------------------------------------------- waiting */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Looks until the event has come, a collective has failed, or the limit has passed. */
static int32_t await(struct attn_cp *cp, struct attn_error *err)
{
    const uint64_t began = now_ns();
    const struct timespec pause = {0, LOOK};

    for (;;) {
        int32_t status = cp->net.check != NULL ? cp->net.check(cp->net.arg, err) : ATTN_OK;
        if (status == ATTN_OK)
            status = attn_event_query(cp->backend, cp->event, err);
        if (status != ATTN_E_BUSY)
            return status;
        if (now_ns() - began > cp->net.timeout_ns)
            return attn__fail(
                err, ATTN_E_PEER, 0, "stream",
                "the work of rank %u of %u did not end within %.3g s: another rank did not come",
                cp->net.rank, cp->net.size, (double)cp->net.timeout_ns * 1e-9);
        nanosleep(&pause, NULL);
    }
}

int32_t attn_cp_wait(struct attn_cp *cp, void *stream, struct attn_error *err)
{
    if (cp == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp", "attn_cp_wait: the handle is NULL");
    if (cp->ended.status == ATTN_OK && cp->net.device != 0) {
        int32_t status = attn_event_record(cp->backend, cp->event, stream, &cp->ended);
        if (status == ATTN_OK)
            status = await(cp, &cp->ended);
        cp->ended.status = status;
        if (status != ATTN_OK)
            cp->net.abort(cp->net.arg, cp->ended.message);
    }
    return cp->ended.status == ATTN_OK
               ? ATTN_OK
               : attn__fail(err, cp->ended.status, 0, cp->ended.field, "%s", cp->ended.message);
}

int64_t attn_cp_count(uint32_t rank, uint32_t size, uint32_t interleave, int64_t keys)
{
    const struct attn_cp_shard shard = {rank, size, interleave};

    return rank < size && interleave > 0 && keys >= 0 ? attn__cp_count(&shard, keys) : -1;
}
