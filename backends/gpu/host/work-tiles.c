/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The launch of kernels whose CTAs take work tiles, and the sizes that a plan reserves for it. */
#include "host.h"

/* Tiles of rows in the split workspace. Decode without det: every CTA has two, its first and its last one. */
static uint64_t partials_of(const struct attn_plan_impl *plan, const struct gpu_part *part)
{
    const struct attn_problem *p = &plan->problem;

    if (part->phase != ATTN__DECODE)
        return gpu_prefill_split_limit(&part->split_rules) * p->kv_heads;
    return p->det != 0 ? (uint64_t)p->max_seqs * p->kv_heads * GPU_MAX_SPLITS : 2 * (uint64_t)part->ctas;
}

/* Prefill: whether a sequence of so many keys can have two splits. */
static bool may_split(uint32_t kv_len)
{
    return kv_len > (2 * GPU_MIN_PREFILL_SPLIT_TILES - 1) * GPU_TILE;
}

void gpu_work_tiles_split_prefill(const struct attn_plan_impl *plan, struct gpu_part *part)
{
    const struct attn_problem *p = &plan->problem;

    if (part->phase == ATTN__PREFILL && GPU_MAY_TAKE(part->phase, p->max_q, p->heads / p->kv_heads) &&
        p->det == 0 && may_split(p->max_kv))
        part->split_rules.slots = part->ctas / p->kv_heads;
}

void gpu_work_tiles_reserve(const struct attn_plan_impl *plan, struct gpu_part *part, uint32_t rows,
                            uint32_t columns)
{
    const struct attn_problem *p = &plan->problem;

    if (GPU_MAY_TAKE(part->phase, p->max_q,
                     p->heads / p->kv_heads)) /* otherwise the kernel is never launched */
        part->schedule_bytes = gpu_plan_bytes(p->max_seqs);
    part->plan_kind = GPU_PLAN_MMA;
    part->scratch_bytes = partials_of(plan, part) * rows * (columns + UINT64_C(2)) * sizeof(float);
    if (part->phase != ATTN__DECODE) {
        part->splits = part->split_rules.slots;
        part->counters_bytes = partials_of(plan, part) * sizeof(uint32_t);
        return;
    }
    part->splits = p->det != 0 ? GPU_MAX_SPLITS : part->ctas;
    part->counters_bytes = (uint64_t)p->max_seqs * p->kv_heads * sizeof(uint32_t);
}

/* CTAs of a launch. Decode: as many as fit the device at once. Prefill: one for each possible work tile. */
static uint64_t ctas_of(const struct attn_plan_impl *plan, const struct gpu_part *part,
                        const struct gpu_run *run, uint32_t rows)
{
    if (part->phase == ATTN__DECODE)
        return part->ctas;
    const uint64_t row_tiles = (uint64_t)run->batch.num_tokens * run->group / rows + run->batch.seqs;
    const uint64_t slots = may_split(run->batch.max_kv) ? part->split_rules.slots : 0;
    const uint64_t split = (row_tiles < slots ? row_tiles : slots) + slots;

    return (row_tiles > split ? row_tiles : split) * plan->problem.kv_heads;
}

int32_t gpu_work_tiles_launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                              const struct gpu_run *run, uint32_t rows, uint32_t columns, void *stream,
                              struct attn_error *err)
{
    const uint64_t ctas = ctas_of(plan, part, run, rows);
    const uint32_t grid[] = {(uint32_t)ctas, 1, 1};
    struct gpu_run own = *run;

    /* A step without prefill needs no launch for it. */
    if (!GPU_MAY_TAKE(part->phase, run->batch.max_q, run->group))
        return ATTN_OK;
    if (ctas > INT32_MAX)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "batch.num_tokens",
                          "batch.num_tokens is %u: more tiles of rows than a launch has CTAs (%d)",
                          run->batch.num_tokens, INT32_MAX);
    own.partial_out = run->scratch;
    own.partial_lse = run->scratch + partials_of(plan, part) * rows * columns * sizeof(float);
    return gpu_launch(plan->backend->context, part->attention, grid, part->threads, part->shared_bytes, &own,
                      part->kernel->caps.name, stream, err);
}
