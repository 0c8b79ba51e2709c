/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The two halves of a plan with cascade: their problems, blocks and batches, and a run of both. */
#include "cascade.h"

#include <stdlib.h>

#include "kv-resolve.h"

/* ---------------------------------------------------------------- problems */

/*
 * Whether all queries of a step see all keys before their own, equally: then it does not matter to the result
 * with which others a key is computed. With det=1 it does, because the prefix depends on the companions.
 * Queries and results of 8 bits are left out for the scales that they have.
 */
static bool serves(const struct attn_problem *p)
{
    return p->cascade > 0 && p->det == 0 && p->addressing != ATTN_DENSE && p->kv_source != ATTN_KV_NEW &&
           p->window_left < 0 && p->align == ATTN_ALIGN_END && p->alibi == ATTN_ALIBI_NONE &&
           p->mask == ATTN_MASK_NONE && p->positions == 0 && p->cp == 0 && attn__dtype_size(p->q_dtype) > 1 &&
           attn__dtype_size(p->out_dtype) > 1;
}

static uint32_t rows_of(const struct attn_problem *p)
{
    return p->cascade < p->max_rows ? p->cascade : p->max_rows;
}

static struct attn_problem problem_of(const struct attn_problem *whole, enum gpu_half half)
{
    struct attn_problem p = *whole;

    p.cascade = 0;
    p.lse = 1;
    p.out_dtype = ATTN_F32;
    p.max_rows = rows_of(whole);
    p.index_dtype = p.addressing == ATTN_CSR ? p.index_dtype : (uint32_t)ATTN_INT32;
    p.addressing = ATTN_CSR;
    if (half == GPU_SUFFIX) {
        p.max_q = p.max_q < p.max_rows ? p.max_q : p.max_rows;
        return p;
    }
    p.causal = ATTN_CAUSAL_NO;
    p.window_right = -1;
    p.given = 0;
    p.seq_causal = p.sinks = 0;
    p.kv_source = ATTN_KV_CACHE;
    p.max_seqs = 1;
    p.max_q = p.max_rows;
    return p;
}

/* ---------------------------------------------------------------- blocks */

static int32_t find_sizes(const struct attn_plan_impl *plan, struct gpu_cascade *cascade,
                          struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    struct attn_plan_sizes *sizes = &cascade->sizes;
    const uint64_t pairs = (uint64_t)rows_of(p) * p->heads;
    uint64_t arrays;
    bool fits = gpu_plan_add_block(&sizes->schedule, &arrays, gpu_cascade_bytes(p->max_seqs));

    for (uint32_t i = 0; i < GPU_HALVES && fits; i++) {
        const struct attn_plan_sizes *own = &cascade->half[i]->sizes;
        struct gpu_blocks *at = &cascade->at[i];
        fits =
            gpu_plan_add_block(&sizes->schedule, &at->schedule, own->schedule) &&
            gpu_plan_add_block(&sizes->scratch, &at->scratch, own->scratch) &&
            gpu_plan_add_block(&sizes->counters, &at->counters, own->counters) &&
            gpu_plan_add_block(&sizes->scratch, &cascade->out[i], pairs * p->head_dim_vo * sizeof(float)) &&
            gpu_plan_add_block(&sizes->scratch, &cascade->lse[i], pairs * sizeof(float));
    }
    return fits ? ATTN_OK : gpu_plan_too_large(err);
}

void gpu_cascade_destroy(struct gpu_cascade *cascade)
{
    if (cascade == NULL)
        return;
    for (uint32_t i = 0; i < GPU_HALVES; i++)
        gpu_plan_destroy(cascade->half[i]);
    free(cascade);
}

int32_t gpu_cascade_create(struct attn_plan_impl *plan, struct attn_error *err)
{
    struct gpu_context *context = plan->backend->context;
    int32_t status = ATTN_OK;

    if (!serves(&plan->problem))
        return ATTN_OK;
    struct gpu_cascade *cascade = calloc(1, sizeof *cascade);
    if (cascade == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "plan", "no memory for the plan");
    plan->cascade = cascade;
    for (uint32_t i = 0; i < GPU_HALVES && status == ATTN_OK; i++) {
        const struct attn_problem half = problem_of(&plan->problem, (enum gpu_half)i);
        status = gpu_plan_create(plan->backend, &half, &cascade->half[i], err);
    }
    if (status == ATTN_OK)
        status = find_sizes(plan, cascade, err);
    if (status == ATTN_OK)
        status = gpu_enter(context, err);
    if (status != ATTN_OK)
        return status;
    status = gpu_module_function(context, GPU_MODULE_plan, "gpu_cascade", 0, &cascade->search, err);
    return gpu_leave(context, status);
}

/* ---------------------------------------------------------------- a step */

/* Entries from the first of a table's row to that of the next one. */
static uint64_t step_of(int64_t table_stride)
{
    return (uint64_t)table_stride / sizeof(int32_t);
}

const struct gpu_cascade *gpu_cascade_of(const struct attn_plan_impl *plan, const struct attn_batch *batch)
{
    if (plan->cascade == NULL || batch->cascade == 0 || batch->seqs == 0)
        return NULL;
    /* The first entries of sequences are counted in 31 bits. */
    const uint64_t step = step_of(batch->table_stride);
    const bool fits =
        batch->table_stride >= 0 && step <= INT32_MAX && step * batch->seqs + batch->table_width <= INT32_MAX;
    return plan->problem.addressing != ATTN_TABLE || fits ? plan->cascade : NULL;
}

struct gpu_cascade_job gpu_cascade_job_of(const struct attn_plan_impl *plan, const struct gpu_batch *batch,
                                          uint64_t arrays)
{
    const bool is_table = batch->addressing == ATTN_TABLE;

    return (struct gpu_cascade_job){.arrays = arrays,
                                    .entries = is_table ? batch->table : batch->indices,
                                    .indptr = batch->indptr,
                                    .q_offsets = batch->q_offsets,
                                    .kv_lens = batch->kv_lens,
                                    .step = (uint32_t)step_of(batch->table_stride),
                                    .wide = !is_table && batch->index_dtype == ATTN_INT64,
                                    .seqs = batch->seqs,
                                    .max_seqs = plan->problem.max_seqs,
                                    .block = batch->block};
}

struct gpu_batch gpu_cascade_batch(const struct attn_plan_impl *plan, const struct gpu_batch *batch,
                                   uint64_t arrays, enum gpu_half half)
{
    const uint64_t suffix = arrays + GPU_CASCADE_SUFFIX * sizeof(int32_t);
    struct gpu_batch out = *batch;

    if (batch->addressing == ATTN_TABLE) {
        out.addressing = ATTN_CSR;
        out.index_dtype = ATTN_INT32;
        out.indices = batch->table;
        out.table = 0;
    }
    out.kv_lens = suffix;
    out.indptr = suffix + plan->problem.max_seqs * sizeof(int32_t);
    if (half == GPU_SUFFIX)
        return out;
    out.seqs = 1;
    out.max_q = out.num_tokens;
    out.q_offsets = arrays + GPU_CASCADE_QUERIES * sizeof(int32_t);
    out.kv_lens = arrays + GPU_CASCADE_KEYS * sizeof(int32_t);
    out.indptr = arrays + GPU_CASCADE_FIRST * sizeof(int32_t);
    out.seq_causal = 0;
    return out;
}

/* ---------------------------------------------------------------- a run */

static struct gpu_merge_part part_of(const struct attn_problem *p, const struct gpu_cascade *cascade,
                                     const struct gpu_blocks *blocks, uint32_t half)
{
    const int64_t head = (int64_t)(p->head_dim_vo * sizeof(float));

    return (struct gpu_merge_part){
        .out = {blocks->scratch + cascade->out[half], head * p->heads, head},
        .lse = {blocks->scratch + cascade->lse[half], (int64_t)(p->heads * sizeof(float)), sizeof(float)}};
}

static int32_t run_half(const struct attn_plan_impl *plan, const struct gpu_run *run,
                        const struct gpu_blocks *blocks, enum gpu_half half, void *stream,
                        struct attn_error *err)
{
    const struct gpu_cascade *cascade = plan->cascade;
    const struct attn_plan_impl *own = cascade->half[half];
    const struct gpu_merge_part part = part_of(&plan->problem, cascade, blocks, half);
    const struct gpu_blocks at = {blocks->schedule + cascade->at[half].schedule,
                                  blocks->scratch + cascade->at[half].scratch,
                                  blocks->counters + cascade->at[half].counters};
    struct gpu_run its = *run;

    its.problem = own->problem;
    its.batch = gpu_cascade_batch(plan, &run->batch, blocks->schedule, half);
    its.out = part.out;
    its.lse = part.lse;
    if (half == GPU_PREFIX) {
        its.sinks = 0;
        its.k_new = its.v_new = (struct gpu_cache){0};
    }
    return gpu_plan_launch(own, &its, &at, stream, err);
}

static int32_t merge_halves(const struct attn_plan_impl *plan, const struct gpu_run *run,
                            const struct gpu_blocks *blocks, void *stream, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    struct gpu_merge merge = {.out = run->out,
                              .lse = run->lse,
                              .count = GPU_HALVES,
                              .dtype = p->out_dtype,
                              .part_dtype = ATTN_F32,
                              .rows = run->batch.num_tokens,
                              .rows_at = blocks->schedule + (GPU_CASCADE_QUERIES + 1) * sizeof(int32_t),
                              .heads = p->heads,
                              .head_dim = p->head_dim_vo,
                              .wide = gpu_kv_wide_tensor(&run->out, p->head_dim_vo, p->out_dtype)};

    for (uint32_t i = 0; i < GPU_HALVES; i++)
        merge.parts[i] = part_of(p, plan->cascade, blocks, i);
    return gpu_kv_launch(plan->backend, GPU_KV_MERGE, (uint64_t)merge.rows * merge.heads,
                         GPU_KV_THREADS / 32u, 1, &merge, stream, err);
}

int32_t gpu_cascade_run(const struct attn_plan_impl *plan, const struct gpu_run *run,
                        const struct gpu_blocks *blocks, void *stream, struct attn_error *err)
{
    int32_t status = run_half(plan, run, blocks, GPU_PREFIX, stream, err);

    if (status == ATTN_OK)
        status = run_half(plan, run, blocks, GPU_SUFFIX, stream, err);
    return status == ATTN_OK ? merge_halves(plan, run, blocks, stream, err) : status;
}
