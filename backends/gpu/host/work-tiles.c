/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The launch of kernels whose CTAs take work tiles, and the sizes that a plan reserves for it. */
#include "host.h"

/* Rows in the split workspace. Without det every CTA has two tiles: its first and its last work tile. */
static uint64_t partial_rows_of(const struct attn_plan_impl *plan, const struct gpu_part *part, uint32_t rows)
{
    const struct attn_problem *p = &plan->problem;

    return p->det != 0 ? (uint64_t)p->max_seqs * p->kv_heads * GPU_SPLIT_ROWS
                       : 2 * (uint64_t)part->ctas * rows;
}

void gpu_work_tiles_reserve(const struct attn_plan_impl *plan, struct gpu_part *part, uint32_t rows,
                            uint32_t columns)
{
    const struct attn_problem *p = &plan->problem;

    /* Otherwise the kernel is never launched. */
    if (gpu_part_may_take(part, p->max_q, p->heads / p->kv_heads))
        part->schedule_bytes = gpu_plan_bytes(p->max_seqs);
    part->plan_kind = GPU_PLAN_MMA;
    if (part->phase != ATTN__DECODE)
        return;
    part->split_rules.min_rows = part->min_rows;
    part->split_rules.max_rows = part->max_rows;
    part->split_rules.max_splits = gpu_max_splits(rows, part->ctas, p->kv_heads);
    part->splits = p->det != 0 ? part->split_rules.max_splits : part->ctas;
    part->scratch_bytes = partial_rows_of(plan, part, rows) * (columns + UINT64_C(2)) * sizeof(float);
    part->counters_bytes = (uint64_t)p->max_seqs * p->kv_heads * sizeof(uint32_t);
}

/* CTAs of a launch. Decode: as many as fit the device at once. Prefill: one for each possible row tile. */
static uint64_t ctas_of(const struct attn_plan_impl *plan, const struct gpu_part *part,
                        const struct gpu_run *run, uint32_t rows)
{
    if (part->phase == ATTN__DECODE)
        return part->ctas;
    return ((uint64_t)run->batch.num_tokens * run->group / rows + run->batch.seqs) * plan->problem.kv_heads;
}

int32_t gpu_work_tiles_launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                              const struct gpu_run *run, uint32_t rows, uint32_t columns, void *stream,
                              struct attn_error *err)
{
    const uint64_t ctas = ctas_of(plan, part, run, rows);
    const uint32_t grid[] = {(uint32_t)ctas, 1, 1};
    struct gpu_run own = *run;

    /* A step without long sequences needs no launch for them. */
    if (!gpu_part_may_take(part, run->batch.max_q, run->group))
        return ATTN_OK;
    if (ctas > INT32_MAX)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "batch.num_tokens",
                          "batch.num_tokens is %u: more tiles of rows than a launch has CTAs (%d)",
                          run->batch.num_tokens, INT32_MAX);
    if (part->phase == ATTN__DECODE) {
        own.partial_out = run->scratch;
        own.partial_lse = run->scratch + partial_rows_of(plan, part, rows) * columns * sizeof(float);
    }
    return gpu_launch(plan->backend->context, part->attention, grid, part->threads, part->shared_bytes, &own,
                      part->kernel->caps.name, stream, err);
}
