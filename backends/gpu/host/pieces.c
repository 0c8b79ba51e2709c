/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pieces of sequences that the CTAs of matrix kernels share out, in tiles of rows: what they need of a plan,
 * and their launch. */
#include "host.h"

static uint64_t slots_of(const struct attn_plan_impl *plan, const struct gpu_part *part)
{
    const struct attn_problem *p = &plan->problem;

    return p->det != 0 ? (uint64_t)p->max_seqs * p->kv_heads * GPU_CUTS : 2 * (uint64_t)part->ctas;
}

void gpu_pieces_reserve(const struct attn_plan_impl *plan, struct gpu_part *part, uint32_t rows,
                        uint32_t columns)
{
    const struct attn_problem *p = &plan->problem;

    if (GPU_MAY_TAKE(part->phase, p->max_q, p->heads / p->kv_heads)) /* else the kernel is never launched */
        part->schedule_bytes = gpu_plan_bytes(p->max_seqs);
    part->plan_kind = GPU_PLAN_MMA;
    if (part->phase != GPU_FEW_ROWS)
        return;
    part->splits = p->det != 0 ? GPU_CUTS : part->ctas;
    part->scratch_bytes = slots_of(plan, part) * rows * (columns + UINT64_C(2)) * sizeof(float);
    part->counters_bytes = (uint64_t)p->max_seqs * p->kv_heads * sizeof(uint32_t);
}

/* CTAs of a launch: those that fit the device, or for sequences of many rows as many as there can be tiles.
 */
static uint64_t ctas_of(const struct attn_plan_impl *plan, const struct gpu_part *part,
                        const struct gpu_run *run, uint32_t rows)
{
    if (part->phase == GPU_FEW_ROWS)
        return part->ctas;
    return ((uint64_t)run->batch.rows * run->group / rows + run->batch.seqs) * plan->problem.kv_heads;
}

int32_t gpu_pieces_launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                          const struct gpu_run *run, uint32_t rows, uint32_t columns, void *stream,
                          struct attn_error *err)
{
    const uint64_t ctas = ctas_of(plan, part, run, rows);
    const uint32_t grid[] = {(uint32_t)ctas, 1, 1};
    struct gpu_run own = *run;

    /* A step without sequences of many rows needs no launch for them. */
    if (!GPU_MAY_TAKE(part->phase, run->batch.max_q, run->group))
        return ATTN_OK;
    if (ctas > INT32_MAX)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "batch.num_tokens",
                          "batch.num_tokens is %u: more tiles of rows than a launch has CTAs (%d)",
                          run->batch.rows, INT32_MAX);
    if (part->phase == GPU_FEW_ROWS) {
        own.part_out = run->scratch;
        own.part_lse = run->scratch + slots_of(plan, part) * rows * columns * sizeof(float);
    }
    return gpu_launch(plan->backend->context, part->attention, grid, part->threads, part->shared_bytes, &own,
                      part->kernel->caps.name, stream, err);
}
