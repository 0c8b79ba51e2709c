/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Creates plans: chooses the kernels, and computes sizes from the maxima. */
#include <stdio.h>
#include <stdlib.h>

#include "cpu.h"
#include "schedule.h"

static uint64_t round_block(uint64_t size)
{
    return (size + CPU_ALIGNMENT - 1) / CPU_ALIGNMENT * CPU_ALIGNMENT;
}

/* Counts are below 2^32, rows of a kernel's scratch below 2^40: only the last product could overflow. */
static bool find_sizes(struct attn_plan_impl *plan)
{
    const struct attn_problem *problem = &plan->problem;
    uint64_t decode = plan->kernels[0]->scratch_bytes(problem);
    uint64_t prefill = plan->kernels[1]->scratch_bytes(problem);
    uint64_t lse_bytes = (uint64_t)plan->bounds.split_rows * sizeof(float);
    uint64_t all_workers;

    plan->partial_lse_offset = round_block(lse_bytes * problem->head_dim_vo);
    plan->workers_offset = plan->partial_lse_offset + round_block(lse_bytes);
    plan->worker_bytes = round_block(decode > prefill ? decode : prefill);
    if (__builtin_mul_overflow(plan->worker_bytes, plan->backend->threads, &all_workers))
        return false;
    ATTN_INIT(&plan->sizes);
    plan->sizes.alignment = CPU_ALIGNMENT;
    plan->sizes.schedule = round_block(sizeof(struct cpu_schedule) +
                                       (uint64_t)plan->bounds.items * sizeof(struct attn_work_item));
    plan->sizes.counters = CPU_ALIGNMENT + round_block((uint64_t)plan->bounds.counters * sizeof(uint32_t));
    return !__builtin_add_overflow(plan->workers_offset, all_workers, &plan->sizes.scratch);
}

/* FNV-1a. */
static uint32_t find_hash(const struct attn_problem *problem)
{
    const unsigned char *bytes = (const unsigned char *)problem;
    uint32_t hash = UINT32_C(2166136261);

    for (size_t i = 0; i < sizeof *problem; i++)
        hash = (hash ^ bytes[i]) * UINT32_C(16777619);
    return hash;
}

int32_t cpu_plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                        struct attn_plan_impl **out, struct attn_error *err)
{
    *out = NULL;
    struct attn_plan_impl *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "plan", "no memory for the plan");
    atomic_init(&plan->refs, 1);
    plan->backend = backend;
    plan->problem = *problem;
    plan->kernels[0] = cpu_dispatch(backend->instance, problem, ATTN__DECODE);
    plan->kernels[1] = cpu_dispatch(backend->instance, problem, ATTN__PREFILL);
    plan->hash = find_hash(problem);
    struct attn_planner planner = cpu_planner(&plan->problem, backend->threads);
    if (!attn__planner_get_bounds(&planner, &plan->bounds) || !find_sizes(plan)) {
        free(plan);
        return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_MEMORY, "max_rows",
                          "the maxima need blocks beyond 64-bit sizes");
    }
    *out = plan;
    return ATTN_OK;
}

void cpu_plan_destroy(struct attn_plan_impl *plan)
{
    if (plan != NULL && atomic_fetch_sub_explicit(&plan->refs, 1, memory_order_acq_rel) == 1)
        free(plan);
}

int32_t cpu_plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    *out = plan->sizes;
    return ATTN_OK;
}

int32_t cpu_plan_describe(const struct attn_plan_impl *plan, struct attn_plan_info *out)
{
    attn__plan_info_init(out, &plan->problem);
    out->graph_level = ATTN_GRAPH_ALWAYS;
    out->splits = plan->bounds.splits;
    out->split_keys = ATTN_SPLIT_KEYS;
    if (plan->kernels[0] == plan->kernels[1])
        snprintf(out->kernels, sizeof out->kernels, "%s", plan->kernels[0]->caps.name);
    else
        snprintf(out->kernels, sizeof out->kernels, "%s,%s", plan->kernels[0]->caps.name,
                 plan->kernels[1]->caps.name);
    return ATTN_OK;
}
