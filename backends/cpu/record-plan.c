/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls on plans in a graph, and copies of arguments that other calls have too. */
#include "graph.h"

const struct attn_batch *cpu_keep_batch(struct attn_graph_impl *graph, const struct attn_batch *batch)
{
    struct attn_batch *kept = cpu_graph_take(graph, sizeof *kept);

    if (kept == NULL)
        return NULL;
    *kept = *batch;
    kept->given &= ~ATTN_GIVEN_HOST_COPIES;
    kept->host = NULL;
    return kept;
}

/* Values of a host scale are read during the call, so a kept call needs its own; strides say how many. */
static bool keep_scale(struct attn_graph_impl *graph, struct attn_scale *scale, uint64_t outers,
                       uint64_t heads)
{
    uint64_t count;

    if (scale->kind != ATTN_SCALE_HOST || scale->granularity == ATTN_SCALES_TOKEN_HEAD)
        return true;
    outers = scale->outer_stride != 0 ? outers : 1;
    heads = scale->head_stride != 0 ? heads : 1;
    if (__builtin_mul_overflow(outers, heads, &count) || count > INT64_MAX / sizeof(float))
        count = INT64_MAX / sizeof(float);
    float *values = cpu_graph_take(graph, count * sizeof(float));
    if (values == NULL)
        return false;
    const char *from = attn__address(&scale->buffer);
    for (uint64_t outer = 0; outer < outers; outer++) {
        for (uint64_t head = 0; head < heads; head++)
            memcpy(&values[outer * heads + head],
                   from + (int64_t)outer * scale->outer_stride + (int64_t)head * scale->head_stride,
                   sizeof(float));
    }
    scale->buffer = (struct attn_buffer){values, 0};
    scale->outer_stride = outers > 1 ? (int64_t)(heads * sizeof(float)) : 0;
    scale->head_stride = heads > 1 ? (int64_t)sizeof(float) : 0;
    return true;
}

const struct attn_kv_impl *cpu_keep_kv(struct attn_graph_impl *graph, const struct attn_kv_desc *desc)
{
    struct attn_kv_impl *kept = cpu_graph_take(graph, sizeof *kept);

    if (kept == NULL)
        return NULL;
    kept->desc = *desc;
    if (!keep_scale(graph, &kept->desc.k_scale, desc->pages, desc->kv_heads) ||
        !keep_scale(graph, &kept->desc.v_scale, desc->pages, desc->kv_heads))
        return NULL;
    return kept;
}

/* ---------------------------------------------------------------- prepare */

struct prepare_call {
    const struct attn_plan_impl *plan;
    const struct attn_batch *batch;
    struct attn_span schedule;
};

static int32_t prepare_again(struct attn_backend_impl *backend, const void *args, void *stream,
                             struct attn_error *err)
{
    const struct prepare_call *call = args;

    (void)backend;
    return cpu_prepare(call->plan, call->batch, &call->schedule, NULL, stream, err);
}

/* The graph counts as a user of the plan. */
static struct attn_plan_impl *shared(const struct attn_plan_impl *plan)
{
    return (struct attn_plan_impl *)(uintptr_t)plan;
}

int32_t cpu_record_prepare(struct attn_graph_impl *graph, const struct attn_plan_impl *plan,
                           const struct attn_batch *batch, const struct attn_span *schedule,
                           struct attn_error *err)
{
    struct prepare_call *call = cpu_graph_take(graph, sizeof *call);

    if (call != NULL) {
        *call = (struct prepare_call){plan, cpu_keep_batch(graph, batch), *schedule};
        call = call->batch != NULL ? call : NULL;
    }
    return cpu_graph_add(graph, prepare_again, call, shared(plan), err);
}

/* ---------------------------------------------------------------- run */

struct run_call {
    const struct attn_plan_impl *plan;
    const struct attn_batch *batch;
    const struct attn_kv_impl *kv; /* or NULL: no cache is read */
    struct attn_tensors tensors;
    struct attn_span schedule;
    struct attn_scratch scratch;
};

static int32_t run_again(struct attn_backend_impl *backend, const void *args, void *stream,
                         struct attn_error *err)
{
    const struct run_call *call = args;

    (void)backend;
    return cpu_run_layer(call->plan, call->batch, &call->tensors, call->kv, NULL, &call->schedule,
                         &call->scratch, stream, err);
}

/* A scale of every token would be an array that changes from step to step. */
static int32_t check_scales(const struct attn_tensors *tensors, struct attn_error *err)
{
    const struct {
        const struct attn_scale *scale;
        const char *name;
    } scales[] = {{&tensors->q_scale, "tensors.q_scale"},
                  {&tensors->k_new_scale, "tensors.k_new_scale"},
                  {&tensors->v_new_scale, "tensors.v_new_scale"},
                  {&tensors->out_scale, "tensors.out_scale"}};

    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        if (scales[i].scale->kind == ATTN_SCALE_HOST &&
            (scales[i].scale->granularity == ATTN_SCALES_TOKEN_HEAD || scales[i].scale->token_stride != 0))
            return cpu_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_SCALES, scales[i].name,
                            "a graph keeps no host scales of single tokens; kind ATTN_SCALE_DEVICE is read "
                            "at every launch");
    }
    return ATTN_OK;
}

static bool keep_tensors(struct attn_graph_impl *graph, const struct attn_problem *p, uint32_t seqs,
                         struct attn_tensors *kept)
{
    uint32_t q_heads = p->q_scale == ATTN_SCALES_KV_HEAD ? p->kv_heads : p->heads;

    kept->kv = NULL;
    kept->kv_desc = NULL;
    return keep_scale(graph, &kept->q_scale, seqs, q_heads) &&
           keep_scale(graph, &kept->k_new_scale, seqs, p->kv_heads) &&
           keep_scale(graph, &kept->v_new_scale, seqs, p->kv_heads) &&
           keep_scale(graph, &kept->out_scale, seqs, p->heads);
}

int32_t cpu_record_run(struct attn_graph_impl *graph, const struct attn_plan_impl *plan,
                       const struct attn_batch *batch, const struct attn_tensors *tensors,
                       const struct attn_kv_desc *desc, const struct attn_span *schedule,
                       const struct attn_scratch *scratch, struct attn_error *err)
{
    int32_t status = check_scales(tensors, err);

    if (status != ATTN_OK)
        return status;
    struct run_call *call = cpu_graph_take(graph, sizeof *call);
    if (call != NULL) {
        *call = (struct run_call){.plan = plan,
                                  .batch = cpu_keep_batch(graph, batch),
                                  .kv = desc != NULL ? cpu_keep_kv(graph, desc) : NULL,
                                  .tensors = *tensors,
                                  .schedule = *schedule,
                                  .scratch = *scratch};
        if (!keep_tensors(graph, &plan->problem, batch->seqs, &call->tensors) || call->batch == NULL ||
            (desc != NULL && call->kv == NULL))
            call = NULL;
    }
    return cpu_graph_add(graph, run_again, call, shared(plan), err);
}
