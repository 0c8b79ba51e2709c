/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One rank of context parallelism: making it, waiting for it, and steps that its runs share. */
#include "parallel/cp.h"

#include <stdlib.h>
#include <time.h>

#include "select/problem.h"
#include "visible.h"

/* A wait looks at its stream without a pause for so long, then between pauses, in nanoseconds. */
#define SPIN  UINT64_C(1000000)
#define PAUSE INT64_C(20000)

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
    if (cp->split && attn__element_size(p->q_dtype) < 2 && p->head_dim % ATTN__CP_ALIGNMENT != 0)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "head_dim",
                          "head_dim is %u with q=%s, which is not copied; accepted of heads that are split: "
                          "multiples of %u, or ATTN_CP_HEADS_ALL",
                          p->head_dim, attn_dtype_name(p->q_dtype), ATTN__CP_ALIGNMENT);
    return cp->backend->entry->merge.merge != NULL
               ? ATTN_OK
               : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "merge", "%s offers no merge",
                            cp->backend->entry->table.name);
}

static int32_t take_params(struct attn_cp *cp, const struct attn_cp_params *given, struct attn_error *err)
{
    struct attn_cp_params params;
    int32_t status = attn__take(&params, sizeof params, given, sizeof params, "params", err);

    if (status == ATTN_OK && (params.queries == 0 || params.queries > ATTN_CP_TOKENS))
        status =
            attn__fail(err, ATTN_E_INVALID, 0, "queries",
                       "queries is %u; accepted: ATTN_CP_HEADS_SPLIT, ATTN_CP_HEADS_ALL or ATTN_CP_TOKENS",
                       params.queries);
    if (status == ATTN_OK)
        status = attn__take(&cp->net, sizeof cp->net, params.collectives, sizeof cp->net, "collectives", err);
    if (status == ATTN_OK)
        status = attn__problem_take(cp->backend->context, params.problem, &cp->problem, err);
    if (status != ATTN_OK)
        return status;
    cp->split = params.queries == ATTN_CP_HEADS_SPLIT;
    status = check_collectives(cp, err);
    if (status == ATTN_OK)
        status = check_problem(cp, err);
    cp->heads = cp->split ? cp->problem.heads / cp->net.size : cp->problem.heads;
    if (status != ATTN_OK)
        return status;
    return params.queries == ATTN_CP_TOKENS ? attn__prefill_create(cp, &params, err)
                                            : attn__decode_create(cp, err);
}

static int32_t allocate(struct attn_cp *cp, struct attn_error *err)
{
    const float zero = 0;
    const struct attn_buffer from = {(void *)(uintptr_t)&zero, 0};

    cp->merged = calloc(cp->net.size, sizeof *cp->merged);
    if (cp->merged == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "cp", "no memory for the parts of %u ranks", cp->net.size);
    int32_t status = attn_memory_alloc(cp->backend, sizeof zero, &cp->zero, err);
    if (status == ATTN_OK)
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

void attn_cp_destroy(struct attn_cp *cp)
{
    if (cp == NULL)
        return;
    attn__prefill_destroy(cp);
    attn__decode_destroy(cp);
    free(cp->merged);
    attn_event_destroy(cp->backend, cp->event);
    if (cp->zero.data != NULL)
        attn_memory_free(cp->backend, &cp->zero);
    attn__backend_drop(cp->backend);
    free(cp);
}

/* ---------------------------------------------------------------- steps of a run */

int32_t attn__cp_move(const struct attn_cp *cp, const struct attn_tensor *from, const struct attn_tensor *to,
                      uint64_t tokens, uint32_t heads, uint32_t dim, void *stream, struct attn_error *err)
{
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
    args.num_tokens = (uint32_t)tokens;
    args.heads = heads;
    args.head_dim = dim;
    args.out = *to;
    return attn_merge(cp->backend, &args, stream, err);
}

int32_t attn__cp_merge(const struct attn_cp *cp, uint32_t count, const struct attn_tensor *out,
                       const struct attn_tensor *lse, uint64_t tokens, void *stream, struct attn_error *err)
{
    struct attn_merge_args args;

    ATTN_INIT(&args);
    args.count = count;
    args.parts = cp->merged;
    args.dtype = cp->problem.out_dtype;
    args.lse_base = ATTN_LSE_NATURAL;
    args.num_tokens = (uint32_t)tokens;
    args.heads = cp->heads;
    args.head_dim = cp->problem.head_dim_vo;
    args.out = *out;
    args.lse = *lse;
    return attn_merge(cp->backend, &args, stream, err);
}

/* What plans check is checked of the caller's tensors here: plans see others. */
int32_t attn__cp_check_tensors(const struct attn_cp *cp, const struct attn_tensors *tensors, uint64_t tokens,
                               uint32_t rope, struct attn_error *err)
{
    const struct attn_problem *p = &cp->problem;
    int32_t status =
        attn__tensor_check(&tensors->q, p->q_dtype, tokens, cp->heads, p->head_dim - rope, "q", err);

    if (status == ATTN_OK && rope > 0)
        status = attn__tensor_check(&tensors->q_rope, p->q_dtype, tokens, cp->heads, rope, "q_rope", err);
    if (status == ATTN_OK)
        status =
            attn__output_check(&tensors->out, p->out_dtype, tokens, cp->heads, p->head_dim_vo, "out", err);
    return status == ATTN_OK && tensors->lse.buffer.data != NULL
               ? attn__output_check(&tensors->lse, ATTN_F32, tokens, cp->heads, 1, "lse", err)
               : status;
}

int32_t attn__cp_end(const struct attn_cp *cp, int32_t status, bool sent, const struct attn_error *own,
                     struct attn_error *err)
{
    if (status == ATTN_OK)
        return ATTN_OK;
    if (sent && status != ATTN_E_PEER)
        cp->net.abort(cp->net.arg, own->message);
    return attn__fail(err, status, own->reason, own->field, "%s", own->message);
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
    const struct timespec pause = {0, PAUSE};

    for (;;) {
        int32_t status = cp->net.check != NULL ? cp->net.check(cp->net.arg, err) : ATTN_OK;
        if (status == ATTN_OK)
            status = attn_event_query(cp->backend, cp->event, err);
        if (status != ATTN_E_BUSY)
            return status;
        const uint64_t waited = now_ns() - began;
        if (waited > cp->net.timeout_ns)
            return attn__fail(
                err, ATTN_E_PEER, 0, "stream",
                "the work of rank %u of %u did not end within %.3g s: another rank did not come",
                cp->net.rank, cp->net.size, (double)cp->net.timeout_ns * 1e-9);
        if (waited > SPIN)
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
