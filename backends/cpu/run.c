/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs one layer: resolves addresses once, executes the work items, and combines splits. */
#include "graph.h"
#include "schedule.h"

/* What the tasks of a run share. */
struct layer {
    struct cpu_run run;
    const struct attn_plan_impl *plan;
    const struct attn_work_item *items;
    char *workers; /* scratch of worker i at i * worker_bytes */
    _Atomic uint32_t *counters;
};

/* One counter for each group of splits, behind the two tickets of a team. */
static _Atomic uint32_t *group_counters(const struct attn_scratch *scratch)
{
    return (_Atomic uint32_t *)(void *)(attn__address(&scratch->counters.buffer) + CPU_ALIGNMENT);
}

/* The last split to finish combines them all and sets the counter back to 0 for the next run. */
static void run_item(void *arg, uint32_t task, uint32_t worker)
{
    const struct layer *layer = arg;
    const struct attn_work_item *work = &layer->items[task];

    layer->plan->kernels[work->kernel]->run(&layer->run, work,
                                            layer->workers + worker * layer->plan->worker_bytes);
    if (work->splits < 2)
        return;
    _Atomic uint32_t *counter = &layer->counters[work->counter];
    if (atomic_fetch_add_explicit(counter, 1, memory_order_acq_rel) + 1 != work->splits)
        return;
    atomic_store_explicit(counter, 0, memory_order_relaxed);
    cpu_combine_splits(&layer->run, work);
}

static int32_t check_schedule(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                              const struct attn_span *span, struct attn_error *err)
{
    int32_t status = attn__span_align(span, CPU_ALIGNMENT, "schedule", err);

    if (status != ATTN_OK)
        return status;
    const struct cpu_schedule *schedule = (const void *)attn__address(&span->buffer);
    if (schedule->magic != CPU_SCHEDULE_MAGIC || schedule->items > plan->bounds.items ||
        schedule->problem != plan->hash)
        return attn__fail(err, ATTN_E_INVALID, 0, "schedule",
                          "this is no schedule that the plan prepared; call attn_plan_prepare first");
    if (schedule->seqs != batch->seqs || schedule->num_tokens != batch->num_tokens)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "schedule",
            "the schedule was prepared for %u sequences and %u query tokens, the batch has %u and %u; "
            "prepare it for this batch",
            schedule->seqs, schedule->num_tokens, batch->seqs, batch->num_tokens);
    if (schedule->lengths != cpu_lengths_hash(batch))
        return attn__fail(err, ATTN_E_INVALID, 0, "schedule",
                          "q_offsets, kv_lens or kv_offsets hold other numbers than when the schedule was "
                          "prepared; prepare it for this batch");
    return ATTN_OK;
}

/* Checks the alignment of all arguments, which a graph checks at capture. */
static int32_t check_alignment(const struct attn_plan_impl *plan, const struct attn_tensors *tensors,
                               const struct attn_kv_desc *bare, const struct attn_scratch *scratch,
                               struct attn_error *err)
{
    int32_t status = attn__span_align(&scratch->scratch, CPU_ALIGNMENT, "scratch", err);

    if (status == ATTN_OK)
        status = attn__span_align(&scratch->counters, CPU_ALIGNMENT, "counters", err);
    if (status == ATTN_OK)
        status = attn__run_align(&plan->problem, tensors, err);
    return status == ATTN_OK && bare != NULL ? attn__kv_align(bare, err) : status;
}

/* Checks the contents of mask_starts; for a graph that is done at the launch. */
static int32_t check_mask_starts(const struct attn_problem *problem, const struct attn_batch *batch,
                                 const struct attn_tensors *tensors, struct attn_error *err)
{
    const int64_t *starts = (const int64_t *)(const void *)attn__address(&tensors->mask_starts);
    const uint32_t dtype = attn__mask_dtype(problem->mask), size = dtype != 0 ? attn__dtype_size(dtype) : 1;

    for (uint32_t n = 0; problem->mask != ATTN_MASK_NONE && starts != NULL && n < batch->seqs; n++)
        if (starts[n] > 0 && starts[n] % size != 0)
            return attn__fail(err, ATTN_E_INVALID, 0, "tensors.mask",
                              "mask_starts[%u] is %lld; multiples of the mask's element size %u are accepted",
                              n, (long long)starts[n], size);
    return ATTN_OK;
}

static int32_t check_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                         const struct attn_tensors *tensors, const struct attn_kv_desc *desc, bool bare,
                         const struct attn_span *span, const struct attn_scratch *scratch,
                         struct attn_error *err)
{
    const bool cached = plan->problem.kv_source != ATTN_KV_NEW;
    int32_t status = check_schedule(plan, batch, span, err);

    if (status == ATTN_OK)
        status = check_alignment(plan, tensors, cached && bare ? desc : NULL, scratch, err);
    if (status == ATTN_OK)
        status = check_mask_starts(&plan->problem, batch, tensors, err);
    if (status != ATTN_OK || !cached)
        return status;
    const struct cpu_schedule *schedule = (const void *)attn__address(&span->buffer);
    const struct attn_extent extent = {schedule->max_kv, schedule->last_key};
    return cpu_extent_check(&plan->problem, batch, &extent, desc, err);
}

/* Records a run in a graph: checks what does not depend on the schedule; a launch checks the rest. */
static int32_t record(struct attn_graph_impl *graph, const struct attn_plan_impl *plan,
                      const struct attn_batch *batch, const struct attn_tensors *tensors,
                      const struct attn_kv_desc *desc, bool bare, const struct attn_span *span,
                      const struct attn_scratch *scratch, struct attn_error *err)
{
    const bool cached = plan->problem.kv_source != ATTN_KV_NEW;
    int32_t status = attn__span_align(span, CPU_ALIGNMENT, "schedule", err);

    if (status == ATTN_OK)
        status = check_alignment(plan, tensors, cached && bare ? desc : NULL, scratch, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_kv_ref cache = {NULL, desc};
    const struct cpu_run_args args = {*tensors, *span, *scratch};
    const struct cpu_call call = {CPU_CALL_RUN,    .args = &args,  .args_size = sizeof args,
                                  .plan = plan,    .batch = batch, .caches = cached ? &cache : NULL,
                                  .cache_count = 1};
    return cpu_record(graph, &call, err);
}

static void resolve_mask(struct cpu_run *run, const struct attn_tensors *tensors)
{
    run->mask = attn__address(&tensors->mask);
    run->mask_dtype = attn__mask_dtype(run->problem->mask);
    run->mask_packed = tensors->mask_packed;
    run->mask_starts = (const int64_t *)(const void *)attn__address(&tensors->mask_starts);
    run->mask_seq = tensors->mask_seq_stride;
    run->mask_head = tensors->mask_head_stride;
    run->mask_row = tensors->mask_row_stride;
}

static void resolve(struct cpu_run *run, const struct attn_plan_impl *plan, const struct attn_batch *batch,
                    const struct attn_tensors *tensors, const struct attn_kv_desc *desc,
                    const struct attn_scratch *scratch)
{
    char *block = attn__address(&scratch->scratch.buffer);

    *run = (struct cpu_run){.problem = &plan->problem, .batch = batch};
    run->far = plan->backend->instance->far;
    run->scale = tensors->softmax_scale;
    run->softcap = plan->problem.softcap;
    run->group = plan->problem.heads / plan->problem.kv_heads;
    run->q = attn__address(&tensors->q.buffer);
    run->q_token = tensors->q.token_stride;
    run->q_head = tensors->q.head_stride;
    if (plan->problem.mla != 0) {
        run->q_rope = attn__address(&tensors->q_rope.buffer);
        run->q_rope_token = tensors->q_rope.token_stride;
        run->q_rope_head = tensors->q_rope.head_stride;
    }
    run->store = plan->kernels[1]->store;
    run->out = attn__address(&tensors->out.buffer);
    run->out_token = tensors->out.token_stride;
    run->out_head = tensors->out.head_stride;
    if (plan->problem.lse != 0) {
        run->lse = attn__address(&tensors->lse.buffer);
        run->lse_token = tensors->lse.token_stride;
        run->lse_head = tensors->lse.head_stride;
    }
    run->q_scale = cpu_scale_of(&tensors->q_scale);
    run->q_scale_group = plan->problem.q_scale == ATTN_SCALES_KV_HEAD ? run->group : 1;
    run->out_scale = cpu_scale_of(&tensors->out_scale);
    if (plan->problem.mask != ATTN_MASK_NONE)
        resolve_mask(run, tensors);
    if (plan->problem.alibi != ATTN_ALIBI_NONE)
        run->slopes = (const float *)(const void *)attn__address(&tensors->alibi_slopes);
    if (plan->problem.sinks != 0) {
        run->sinks = attn__address(&tensors->sinks);
        run->sinks_dtype = tensors->sinks_dtype;
    }
    if (plan->problem.kv_source != ATTN_KV_NEW)
        cpu_walk_init(run, &plan->problem, batch, desc);
    if (plan->problem.kv_source != ATTN_KV_CACHE)
        cpu_walk_new(run, &plan->problem, batch, tensors);
    run->partial_out = (float *)(void *)block;
    run->partial_lse = (float *)(void *)(block + plan->partial_lse_offset);
}

int32_t cpu_run_layer(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                      const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                      const struct attn_kv_desc *desc, const struct attn_span *schedule,
                      const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    struct cpu_executor executor;
    struct layer layer = {.plan = plan};
    int32_t status = cpu_executor_init(&executor, plan->backend, stream, err);

    if (kv != NULL)
        desc = &kv->desc;
    if (status == ATTN_OK && executor.recording != NULL)
        return record(executor.recording, plan, batch, tensors, desc, kv == NULL, schedule, scratch, err);
    if (status == ATTN_OK)
        status = check_run(plan, batch, tensors, desc, kv == NULL, schedule, scratch, err);
    if (status != ATTN_OK)
        return status;
    struct cpu_schedule *header = (struct cpu_schedule *)(void *)attn__address(&schedule->buffer);
    char *counters = attn__address(&scratch->counters.buffer);
    resolve(&layer.run, plan, batch, tensors, desc, scratch);
    layer.items = cpu_schedule_items(header);
    layer.workers = attn__address(&scratch->scratch.buffer) + plan->workers_offset;
    layer.counters = group_counters(scratch);
    if (scratch->counters_dirty != 0) {
        if (cpu_is_first(&executor))
            memset(counters, 0, plan->sizes.counters);
        cpu_join(&executor);
    }
    status =
        cpu_execute(&executor, (_Atomic uint32_t *)(void *)counters, header->items, run_item, &layer, err);
    if (status != ATTN_OK) /* only the caller's parallel_for can fail; some work items are then missing */
        memset(counters, 0, plan->sizes.counters);
    return status;
}
