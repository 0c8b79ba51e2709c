/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One layer: resolve addresses once, execute the works, merge what was split. */
#include "graph.h"
#include "schedule.h"

/* What the tasks of a run share. */
struct layer {
    struct cpu_run run;
    const struct attn_plan_impl *plan;
    const struct attn_work *works;
    char *lanes; /* scratch of lane i at i * lane_bytes */
    _Atomic uint32_t *counters;
};

/* One word per group behind the two tickets of a team. */
static _Atomic uint32_t *group_counters(const struct attn_scratch *scratch)
{
    return (_Atomic uint32_t *)(void *)(cpu_address(&scratch->counters.buffer) + CPU_ALIGNMENT);
}

/* The last finisher of a group merges; its counter is zero again for the next run. */
static void do_work(void *arg, uint32_t task, uint32_t lane)
{
    const struct layer *layer = arg;
    const struct attn_work *work = &layer->works[task];

    layer->plan->kernels[work->kernel]->run(&layer->run, work, layer->lanes + lane * layer->plan->lane_bytes);
    if (work->parts < 2)
        return;
    _Atomic uint32_t *counter = &layer->counters[work->counter];
    if (atomic_fetch_add_explicit(counter, 1, memory_order_acq_rel) + 1 != work->parts)
        return;
    atomic_store_explicit(counter, 0, memory_order_relaxed);
    cpu_merge_parts(&layer->run, work);
}

static int32_t check_kv(const struct attn_problem *problem, const struct attn_kv_desc *desc,
                        struct attn_error *err)
{
    /* The values of a latent cache are columns of its keys. */
    const uint32_t vo = problem->mla != 0        ? problem->head_dim_vo
                        : desc->head_dim_vo != 0 ? desc->head_dim_vo
                                                 : desc->head_dim;
    const struct {
        const char *name;
        uint32_t got, wanted;
    } members[] = {
        {"kv.k_dtype", desc->k_dtype, problem->k_dtype},
        {"kv.v_dtype", problem->mla != 0 ? problem->v_dtype : desc->v_dtype, problem->v_dtype},
        {"kv.kv_heads", desc->kv_heads, problem->kv_heads},
        {"kv.head_dim", desc->head_dim, problem->head_dim},
        {"kv.head_dim_vo", vo, problem->head_dim_vo},
        {"kv.layout", desc->layout != 0 ? desc->layout : (uint32_t)ATTN_STRIDED, problem->layout},
        {"kv.block", problem->addressing == ATTN_DENSE ? problem->block : desc->block, problem->block}};

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (members[i].got == members[i].wanted)
            continue;
        if (i < 2)
            return cpu_fail(err, ATTN_E_INVALID, 0, members[i].name,
                            "%s is %s, the plan's is %s; they must be equal", members[i].name,
                            cpu_type_name(members[i].got), cpu_type_name(members[i].wanted));
        return cpu_fail(err, ATTN_E_INVALID, 0, members[i].name,
                        "%s is %u, the plan's is %u; they must be equal", members[i].name, members[i].got,
                        members[i].wanted);
    }
    if (cpu_address(&desc->v) == NULL && problem->mla == 0)
        return cpu_fail(err, ATTN_E_INVALID, 0, "kv.v",
                        "kv.v is not given; the plan needs values of their own");
    return ATTN_OK;
}

/* An array of the run: given, and aligned to its elements. */
static int32_t check_array(const struct attn_buffer *buffer, uint32_t size, const char *name,
                           struct attn_error *err)
{
    uintptr_t address = (uintptr_t)cpu_address(buffer);

    if (address == 0)
        return cpu_fail(err, ATTN_E_INVALID, 0, name, "%s is not given; the plan needs it", name);
    if (address % size != 0)
        return cpu_fail(err, ATTN_E_INVALID, 0, name, "the address of %s is no multiple of %u", name, size);
    return ATTN_OK;
}

/* Every element of an additive mask is aligned. */
static int32_t check_mask_bits(const struct attn_problem *p, uint64_t bits, struct attn_error *err)
{
    uint32_t size = p->mask == ATTN_MASK_BITS ? 1 : cpu_size(cpu_mask_dtype(p->mask));

    return (bits & (size - 1)) == 0
               ? ATTN_OK
               : cpu_fail(err, ATTN_E_INVALID, 0, "tensors.mask",
                          "strides and starts of the mask must be multiples of its element size %u", size);
}

static int32_t check_mask(const struct attn_problem *p, const struct attn_tensors *tensors,
                          struct attn_error *err)
{
    uint32_t size = p->mask == ATTN_MASK_BITS ? 1 : cpu_size(cpu_mask_dtype(p->mask));
    bool starts = cpu_address(&tensors->mask_starts) != NULL;
    uint64_t bits = (uint64_t)tensors->mask_head_stride | (uint64_t)tensors->mask_row_stride;
    int32_t status = check_array(&tensors->mask, size, "tensors.mask", err);

    if (status == ATTN_OK && starts)
        status = check_array(&tensors->mask_starts, sizeof(int64_t), "tensors.mask_starts", err);
    bits |= starts ? 0 : (uint64_t)tensors->mask_seq_stride;
    return status == ATTN_OK ? check_mask_bits(p, bits, err) : status;
}

/* What the array of starts holds; a graph's has its contents at the launch. */
static int32_t check_mask_starts(const struct attn_problem *p, const struct attn_batch *batch,
                                 const struct attn_tensors *tensors, struct attn_error *err)
{
    const int64_t *starts = (const int64_t *)(const void *)cpu_address(&tensors->mask_starts);
    uint64_t bits = 0;

    for (uint32_t n = 0; p->mask != ATTN_MASK_NONE && starts != NULL && n < batch->seqs; n++)
        bits |= starts[n] >= 0 ? (uint64_t)starts[n] : 0;
    return p->mask != ATTN_MASK_NONE ? check_mask_bits(p, bits, err) : ATTN_OK;
}

static int32_t check_extras(const struct attn_problem *p, const struct attn_tensors *tensors,
                            struct attn_error *err)
{
    if (p->mask != ATTN_MASK_NONE) {
        int32_t status = check_mask(p, tensors, err);
        if (status != ATTN_OK)
            return status;
    }
    if (p->alibi != ATTN_ALIBI_NONE) {
        int32_t status = check_array(&tensors->alibi_slopes, sizeof(float), "tensors.alibi_slopes", err);
        if (status != ATTN_OK)
            return status;
    }
    if (p->sinks != 0 && tensors->sinks_dtype != ATTN_F32 && tensors->sinks_dtype != ATTN_BF16)
        return cpu_fail(err, ATTN_E_INVALID, 0, "tensors.sinks_dtype",
                        "sinks are %s; f32 and bf16 are served", cpu_type_name(tensors->sinks_dtype));
    if (p->sinks != 0)
        return check_array(&tensors->sinks, cpu_size(tensors->sinks_dtype), "tensors.sinks", err);
    return ATTN_OK;
}

static int32_t check_tensors(const struct attn_problem *p, const struct attn_batch *batch,
                             const struct attn_tensors *tensors, struct attn_error *err)
{
    uint32_t rows = batch->rows, size = cpu_size(p->q_dtype);
    bool pieces = cpu_address(&tensors->q_rope.buffer) != NULL;
    int32_t status = cpu_tensor_check(&tensors->q, rows, p->heads, pieces ? p->head_dim_vo : p->head_dim,
                                      size, 0, "tensors.q", err);

    if (status == ATTN_OK && pieces)
        status = cpu_tensor_check(&tensors->q_rope, rows, p->heads, p->head_dim - p->head_dim_vo, size, 0,
                                  "tensors.q_rope", err);
    if (status == ATTN_OK)
        status = cpu_tensor_check(&tensors->out, rows, p->heads, p->head_dim_vo, cpu_size(p->out_dtype), 1,
                                  "tensors.out", err);
    if (status == ATTN_OK && p->lse != 0)
        status = cpu_tensor_check(&tensors->lse, rows, p->heads, 1, sizeof(float), 1, "tensors.lse", err);
    if (status == ATTN_OK)
        status = cpu_scale_check(&tensors->q_scale, p->q_dtype, "tensors.q_scale", err);
    if (status == ATTN_OK)
        status = cpu_scale_check(&tensors->out_scale, p->out_dtype, "tensors.out_scale", err);
    return status == ATTN_OK ? check_extras(p, tensors, err) : status;
}

static int32_t check_schedule(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                              const struct attn_span *span, struct attn_error *err)
{
    int32_t status = cpu_check_span(span, plan->sizes.schedule, "schedule", err);

    if (status != ATTN_OK)
        return status;
    const struct cpu_schedule *schedule = (const void *)cpu_address(&span->buffer);
    if (schedule->magic != CPU_SCHEDULE_MAGIC || schedule->works > plan->bounds.works ||
        schedule->problem != plan->hash)
        return cpu_fail(err, ATTN_E_INVALID, 0, "schedule",
                        "this is no schedule that the plan prepared; call attn_plan_prepare first");
    if (schedule->seqs != batch->seqs || schedule->rows != batch->rows)
        return cpu_fail(err, ATTN_E_INVALID, 0, "schedule",
                        "the schedule was prepared for %u sequences and %u rows, the batch has %u and %u; "
                        "prepare it for this batch",
                        schedule->seqs, schedule->rows, batch->seqs, batch->rows);
    return ATTN_OK;
}

static int32_t check_new(const struct attn_problem *p, const struct attn_tensors *tensors, uint64_t tokens,
                         struct attn_error *err)
{
    int32_t status = cpu_tensor_check(&tensors->k_new, tokens, p->kv_heads, p->head_dim, cpu_size(p->k_dtype),
                                      0, "tensors.k_new", err);

    if (status == ATTN_OK)
        status = cpu_scale_check(&tensors->k_new_scale, p->k_dtype, "tensors.k_new_scale", err);
    if (status != ATTN_OK || p->mla != 0)
        return status;
    status = cpu_tensor_check(&tensors->v_new, tokens, p->kv_heads, p->head_dim_vo, cpu_size(p->v_dtype), 0,
                              "tensors.v_new", err);
    return status == ATTN_OK ? cpu_scale_check(&tensors->v_new_scale, p->v_dtype, "tensors.v_new_scale", err)
                             : status;
}

static int32_t check_cache(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                           const struct cpu_extent *extent, const struct attn_kv_desc *desc, bool bare,
                           struct attn_error *err)
{
    int32_t status = ATTN_OK;

    if (desc == NULL)
        return cpu_fail(err, ATTN_E_INVALID, 0, "tensors.kv",
                        "neither a cache nor a description is given; one of them is needed");
    if (bare)
        status = cpu_kv_check(desc, err);
    if (status == ATTN_OK)
        status = check_kv(&plan->problem, desc, err);
    return status == ATTN_OK ? cpu_extent_check(&plan->problem, batch, extent, desc, err) : status;
}

static int32_t check_scratch(const struct attn_plan_impl *plan, const struct attn_scratch *scratch,
                             struct attn_error *err)
{
    if (scratch == NULL)
        return cpu_fail(err, ATTN_E_INVALID, 0, "scratch",
                        "scratch is not given; what attn_plan_get_sizes says is needed");
    int32_t status = cpu_check_span(&scratch->scratch, plan->sizes.scratch, "scratch", err);
    return status == ATTN_OK ? cpu_check_span(&scratch->counters, plan->sizes.counters, "counters", err)
                             : status;
}

static int32_t check_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                         const struct attn_tensors *tensors, const struct attn_kv_desc *desc, bool bare,
                         const struct attn_span *span, const struct attn_scratch *scratch,
                         struct attn_error *err)
{
    int32_t status = check_schedule(plan, batch, span, err);

    if (status == ATTN_OK)
        status = check_scratch(plan, scratch, err);
    if (status == ATTN_OK)
        status = check_tensors(&plan->problem, batch, tensors, err);
    if (status == ATTN_OK)
        status = check_mask_starts(&plan->problem, batch, tensors, err);
    if (status != ATTN_OK)
        return status;
    const struct cpu_schedule *schedule = (const void *)cpu_address(&span->buffer);
    const struct cpu_extent extent = {schedule->max_kv, schedule->last_key};
    if (plan->problem.kv_source == ATTN_KV_NEW) /* the highest token is one of the new rows */
        return check_new(&plan->problem, tensors, (uint64_t)(extent.last_key + 1), err);
    if (plan->problem.kv_source == ATTN_KV_CACHE_NEW)
        status = check_new(&plan->problem, tensors, batch->rows, err);
    return status == ATTN_OK ? check_cache(plan, batch, &extent, desc, bare, err) : status;
}

/* What can be told before there is a schedule; a launch checks the rest. */
static int32_t record(struct attn_graph_impl *graph, const struct attn_plan_impl *plan,
                      const struct attn_batch *batch, const struct attn_tensors *tensors,
                      const struct attn_kv_desc *desc, bool bare, const struct attn_span *span,
                      const struct attn_scratch *scratch, struct attn_error *err)
{
    const struct cpu_extent none = {.last_key = -1};
    const bool cached = plan->problem.kv_source != ATTN_KV_NEW;
    int32_t status = cpu_check_span(span, plan->sizes.schedule, "schedule", err);

    if (status == ATTN_OK)
        status = check_scratch(plan, scratch, err);
    if (status == ATTN_OK)
        status = check_tensors(&plan->problem, batch, tensors, err);
    if (status == ATTN_OK && cached)
        status = check_cache(plan, batch, &none, desc, bare, err);
    if (status != ATTN_OK)
        return status;
    return cpu_record_run(graph, plan, batch, tensors, cached ? desc : NULL, span, scratch, err);
}

static void resolve_mask(struct cpu_run *run, const struct attn_tensors *tensors)
{
    run->mask = cpu_address(&tensors->mask);
    run->mask_dtype = cpu_mask_dtype(run->problem->mask);
    run->mask_packed = tensors->mask_packed;
    run->mask_starts = (const int64_t *)(const void *)cpu_address(&tensors->mask_starts);
    run->mask_seq = tensors->mask_seq_stride;
    run->mask_head = tensors->mask_head_stride;
    run->mask_row = tensors->mask_row_stride;
}

static void resolve(struct cpu_run *run, const struct attn_plan_impl *plan, const struct attn_batch *batch,
                    const struct attn_tensors *tensors, const struct attn_kv_desc *desc,
                    const struct attn_scratch *scratch)
{
    char *block = cpu_address(&scratch->scratch.buffer);

    *run = (struct cpu_run){.problem = &plan->problem, .batch = batch};
    run->scale = tensors->softmax_scale;
    run->softcap = plan->problem.softcap;
    run->group = plan->problem.heads / plan->problem.kv_heads;
    run->q = cpu_address(&tensors->q.buffer);
    run->q_token = tensors->q.token_stride;
    run->q_head = tensors->q.head_stride;
    if (plan->problem.mla != 0) {
        run->q_rope = cpu_address(&tensors->q_rope.buffer);
        run->q_rope_token = tensors->q_rope.token_stride;
        run->q_rope_head = tensors->q_rope.head_stride;
    }
    run->out = cpu_address(&tensors->out.buffer);
    run->out_token = tensors->out.token_stride;
    run->out_head = tensors->out.head_stride;
    if (plan->problem.lse != 0) {
        run->lse = cpu_address(&tensors->lse.buffer);
        run->lse_token = tensors->lse.token_stride;
        run->lse_head = tensors->lse.head_stride;
    }
    run->q_scale = cpu_scale_of(&tensors->q_scale);
    run->q_scale_group = plan->problem.q_scale == ATTN_SCALES_KV_HEAD ? run->group : 1;
    run->out_scale = cpu_scale_of(&tensors->out_scale);
    if (plan->problem.mask != ATTN_MASK_NONE)
        resolve_mask(run, tensors);
    if (plan->problem.alibi != ATTN_ALIBI_NONE)
        run->slopes = (const float *)(const void *)cpu_address(&tensors->alibi_slopes);
    if (plan->problem.sinks != 0) {
        run->sinks = cpu_address(&tensors->sinks);
        run->sinks_dtype = tensors->sinks_dtype;
    }
    if (plan->problem.kv_source != ATTN_KV_NEW)
        cpu_walk_init(run, &plan->problem, batch, desc);
    if (plan->problem.kv_source != ATTN_KV_CACHE)
        cpu_walk_new(run, &plan->problem, batch, tensors);
    run->part_out = (float *)(void *)block;
    run->part_lse = (float *)(void *)(block + plan->part_lse_offset);
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
    struct cpu_schedule *header = (struct cpu_schedule *)(void *)cpu_address(&schedule->buffer);
    char *counters = cpu_address(&scratch->counters.buffer);
    resolve(&layer.run, plan, batch, tensors, desc, scratch);
    layer.works = cpu_schedule_works(header);
    layer.lanes = cpu_address(&scratch->scratch.buffer) + plan->lanes_offset;
    layer.counters = group_counters(scratch);
    if (scratch->counters_dirty != 0) {
        if (cpu_is_first(&executor))
            memset(counters, 0, plan->sizes.counters);
        cpu_join(&executor);
    }
    status =
        cpu_execute(&executor, (_Atomic uint32_t *)(void *)counters, header->works, do_work, &layer, err);
    if (status != ATTN_OK) /* only the caller's parallel_for can fail: some works are missing */
        memset(counters, 0, plan->sizes.counters);
    return status;
}
