/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The launch of kernels whose CTAs take work tiles, and the sizes that a plan reserves for it. */
#include "host.h"

/* Rows in the split workspace. Decode without det: every CTA has two tiles, its first and its last one. */
static uint64_t partial_rows_of(const struct attn_plan_impl *plan, const struct gpu_part *part, uint32_t rows)
{
    const struct attn_problem *p = &plan->problem;

    if (part->phase != ATTN__DECODE)
        return gpu_prefill_split_limit(&part->split_rules) * p->kv_heads * rows;
    return p->det != 0 ? (uint64_t)p->max_seqs * p->kv_heads * GPU_SPLIT_ROWS
                       : 2 * (uint64_t)part->ctas * rows;
}

/* Prefill: whether a sequence of so many keys can have two splits. */
static bool may_split(uint32_t kv_len)
{
    return kv_len > (GPU_MIN_PREFILL_SPLIT_TILES + GPU_MIN_PREFILL_SAVED_TILES - 1) * GPU_TILE;
}

void gpu_work_tiles_split_prefill(const struct attn_plan_impl *plan, struct gpu_part *part)
{
    const struct attn_problem *p = &plan->problem;

    if (part->phase == ATTN__PREFILL && gpu_part_may_take(part, p->max_q, p->heads / p->kv_heads) &&
        p->det == 0 && may_split(p->max_kv))
        part->split_rules.slots = part->ctas / p->kv_heads;
}

void gpu_work_tiles_split_evenly(const struct attn_plan_impl *plan, struct gpu_part *part)
{
    if (part->phase == ATTN__DECODE && plan->problem.det == 0)
        part->split_rules.even_slots = part->ctas / plan->problem.kv_heads;
}

void gpu_work_tiles_reserve(const struct attn_plan_impl *plan, struct gpu_part *part, uint32_t rows,
                            uint32_t columns)
{
    const struct attn_problem *p = &plan->problem;

    /* Otherwise the kernel is never launched. */
    if (gpu_part_may_take(part, p->max_q, p->heads / p->kv_heads))
        part->schedule_bytes = gpu_plan_bytes(p->max_seqs);
    part->plan_kind = GPU_PLAN_MMA;
    part->scratch_bytes = partial_rows_of(plan, part, rows) * (columns + UINT64_C(2)) * sizeof(float);
    part->split_rules.min_rows = part->min_rows;
    part->split_rules.max_rows = part->max_rows;
    if (part->phase != ATTN__DECODE) {
        part->splits = part->split_rules.slots;
        part->counters_bytes = part->persistent ? sizeof(uint32_t) : 0;
        return;
    }
    part->split_rules.max_splits = gpu_max_splits(rows, part->ctas, p->kv_heads);
    part->splits = p->det != 0 ? part->split_rules.max_splits : part->ctas;
    part->counters_bytes = (uint64_t)p->max_seqs * p->kv_heads * sizeof(uint32_t);
}

/* Prefill: row tiles for each KV head that a step can have. */
static uint64_t row_tiles_of(const struct gpu_run *run, uint32_t rows)
{
    return (uint64_t)run->batch.num_tokens * run->group / rows + run->batch.seqs;
}

/* Prefill: CTAs for all work tiles of a step that splits keys; 0 if it cannot. */
static uint64_t split_ctas_of(const struct attn_plan_impl *plan, const struct gpu_part *part,
                              const struct gpu_run *run, uint32_t rows)
{
    const uint64_t row_tiles = row_tiles_of(run, rows), slots = part->split_rules.slots;

    if (slots == 0 || !may_split(run->batch.max_kv))
        return 0;
    return ((row_tiles < slots ? row_tiles : slots) + slots) * plan->problem.kv_heads;
}

/* CTAs of a launch: as many as fit the device at once, or one for each possible work tile of prefill. */
static uint64_t ctas_of(const struct attn_plan_impl *plan, const struct gpu_part *part,
                        const struct gpu_run *run, uint32_t rows)
{
    if (part->phase == ATTN__DECODE)
        return part->ctas;
    const uint64_t whole = row_tiles_of(run, rows) * plan->problem.kv_heads,
                   split = split_ctas_of(plan, part, run, rows);
    const uint64_t tiles = whole > split ? whole : split;

    return part->persistent && part->ctas < tiles ? part->ctas : tiles;
}

bool gpu_all_have_max_q(const struct attn_plan_impl *plan, const struct gpu_batch *batch)
{
    return plan->problem.graph != ATTN_GRAPH_ALWAYS &&
           (uint64_t)batch->seqs * batch->max_q == batch->num_tokens;
}

/* Whether every sequence of a step has more rows than a part takes. */
static bool takes_none(const struct attn_plan_impl *plan, const struct gpu_part *part,
                       const struct gpu_run *run)
{
    return gpu_all_have_max_q(plan, &run->batch) && (uint64_t)run->batch.max_q * run->group > part->max_rows;
}

/*
 * Decode: whether splits are combined by a kernel of its own. The CTA that finishes last combines them faster
 * than another launch, unless it has many: of few sequences and heads with many keys and rows.
 */
static bool combines_apart(const struct attn_plan_impl *plan, const struct gpu_part *part,
                           const struct gpu_run *run, uint32_t tile_rows)
{
    const uint64_t tiles = (run->batch.max_kv + GPU_TILE - 1) / GPU_TILE;
    const uint64_t ctas = part->ctas / ((uint64_t)run->batch.seqs * plan->problem.kv_heads);
    const uint64_t splits = tiles < ctas ? tiles : ctas, rows = (uint64_t)run->batch.max_q * run->group;

    return part->phase == ATTN__DECODE && part->merge != NULL && splits >= GPU_MANY_SPLITS &&
           splits * (rows < tile_rows ? rows : tile_rows) >= GPU_MANY_PARTIALS;
}

int32_t gpu_work_tiles_launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                              const struct gpu_run *run, uint32_t rows, uint32_t columns, void *stream,
                              struct attn_error *err)
{
    const uint64_t ctas = ctas_of(plan, part, run, rows);
    const uint32_t grid[] = {(uint32_t)ctas, 1, 1};
    struct gpu_run own = *run;

    /* A step without long sequences, or without short ones, needs no launch for them. */
    if (!gpu_part_may_take(part, run->batch.max_q, run->group) || takes_none(plan, part, run))
        return ATTN_OK;
    if (ctas > INT32_MAX)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "batch.num_tokens",
                          "batch.num_tokens is %u: more tiles of rows than a launch has CTAs (%d)",
                          run->batch.num_tokens, INT32_MAX);
    own.partial_out = run->scratch;
    own.partial_lse = run->scratch + partial_rows_of(plan, part, rows) * columns * sizeof(float);
    own.combines_apart = combines_apart(plan, part, run, rows);
    const int32_t status = gpu_launch(plan->backend->context, part->attention, grid, part->threads,
                                      part->shared_bytes, &own, part->kernel->caps.name, stream, err);
    const uint32_t combine_grid[] = {
        own.combines_apart != 0 ? grid[0] : (uint32_t)split_ctas_of(plan, part, run, rows), 1, 1};
    if (status != ATTN_OK || combine_grid[0] == 0)
        return status;
    return gpu_launch(plan->backend->context, part->merge, combine_grid, GPU_COMBINE_THREADS, 0, &own,
                      part->kernel->caps.name, stream, err);
}
