/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The mma family: which of its kernels a plan launches, how large its CTAs are, and what its schedules split.
 */
#include <stdio.h>

#include "families.h"
#include "mma/sizes.h"

/* Modules by the columns that they are compiled for, narrow ones first, and the rows of their largest tile.
 */
static const struct instance {
    const char *name;
    uint32_t dk, dv, kv_size, rows;
    enum gpu_module module;
} instances[] = {
#define MMA(name, dk, dv, kv_size, rows) {#name, dk, dv, kv_size, rows, GPU_MODULE_##name},
#include "instances.def"
};

enum { ROWS_SMALL = 8, ROWS_MEDIUM = 16, ROWS_DECODE = 64 };

static const struct instance *instance_of(const struct attn_problem *problem)
{
    const struct instance *own = instances;

    while (own->kv_size != attn__dtype_size(problem->k_dtype) || problem->head_dim > own->dk ||
           problem->head_dim_vo > own->dv)
        own++;
    return own;
}

static struct gpu_mma_shape shape_of(const struct attn_problem *problem, uint32_t rows)
{
    const struct instance *own = instance_of(problem);

    return (struct gpu_mma_shape){rows, own->dk, own->dv, own->kv_size};
}

/*
 * How scales are looked up: one for all, or from head granularity on key by key. Cached and new keys have one
 * each.
 */
static uint32_t scale_of(const struct attn_problem *problem, uint32_t granularity)
{
    return problem->kv_source == ATTN_KV_CACHE_NEW && granularity == ATTN_SCALES_TENSOR
               ? (uint32_t)ATTN_SCALES_HEAD
               : granularity;
}

static bool is_fnuz(uint32_t dtype)
{
    return dtype == ATTN_E4M3FNUZ || dtype == ATTN_E5M2FNUZ;
}

/*
 * Numbers that P is the sum of in products with V. The error of an 8-bit result is bounded code by code: what
 * is within the class of the kernel for a row as a whole is beyond it for some of its codes. P in f16 has
 * digits to spare in the class of 8-bit values, which is that of bf16, and P of f32 is not rounded.
 */
static uint32_t p_parts(const struct attn_problem *p)
{
    const bool f16 = attn__dtype_size(p->v_dtype) == 1 && !is_fnuz(p->v_dtype) &&
                     scale_of(p, p->v_scale) < ATTN_SCALES_HEAD;

    return attn__dtype_size(p->out_dtype) == 1 && !f16 && p->v_dtype != ATTN_F32 ? 2 : 1;
}

/* Whether warps divide the columns of values. */
static bool is_wide(const struct attn_problem *problem)
{
    return instance_of(problem)->dv > 256;
}

/*
 * Rows of the smallest decode tile that holds `tokens` query tokens. Medium tiles have no registers for P of
 * two parts unless warps divide its columns; of f32 there are no small ones.
 */
static uint32_t rows_for(const struct attn_problem *problem, uint32_t tokens)
{
    const uint64_t rows = (uint64_t)tokens * (problem->heads / problem->kv_heads);

    if (rows <= ROWS_SMALL && problem->k_dtype != ATTN_F32)
        return ROWS_SMALL;
    return rows <= ROWS_MEDIUM && (p_parts(problem) == 1 || is_wide(problem)) ? ROWS_MEDIUM : ROWS_DECODE;
}

/*
 * Rows of a prefill tile: the most for which the device has the shared memory. Tiles of 128 rows have no
 * registers for P of two parts.
 */
static uint32_t prefill_rows(const struct attn_plan_impl *plan)
{
    const struct attn_problem *p = &plan->problem;
    const uint32_t rows = instance_of(p)->rows;
    const uint32_t limit = gpu_vendor_shared(plan->backend->context->record->arch);

    if ((p_parts(p) == 1 || rows == ROWS_DECODE) && gpu_mma_shared_bytes(shape_of(p, rows)) <= limit)
        return rows;
    return is_wide(p) ? ROWS_MEDIUM : ROWS_DECODE;
}

/* det: a part's longest sequence, not that of the plan, decides. */
static uint32_t rows_of(const struct attn_plan_impl *plan, const struct gpu_part *part)
{
    if (part->phase == ATTN__PREFILL)
        return prefill_rows(plan);
    return plan->problem.det != 0 ? part->max_rows : rows_for(&plan->problem, plan->problem.max_q);
}

static uint32_t small_rows(const struct attn_problem *problem)
{
    return rows_for(problem, 1);
}

static uint32_t shared_of(const struct attn_problem *problem, uint32_t phases)
{
    const bool largest = phases == ATTN__PREFILL || problem->det != 0;
    const uint32_t rows = largest ? ROWS_DECODE : rows_for(problem, problem->max_q);

    return gpu_mma_shared_bytes(
        shape_of(problem, phases == ATTN__PREFILL && is_wide(problem) ? ROWS_MEDIUM : rows));
}

static int32_t create(const struct attn_plan_impl *plan, struct gpu_part *part, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const struct instance *own = instance_of(p);
    const struct gpu_mma_shape shape = shape_of(p, rows_of(plan, part));
    char name[64];

    part->threads = gpu_mma_threads(shape);
    part->shared_bytes = gpu_mma_shared_bytes(shape);
    part->ctas =
        plan->units * gpu_mma_resident_ctas(shape, gpu_vendor_shared(plan->backend->context->record->arch));
    part->split_rules = gpu_split_rules_of(p, part->phase, prefill_rows(plan));
    snprintf(name, sizeof name, "%s_r%u_%s", own->name, shape.rows,
             p->q_dtype == ATTN_F32   ? "f32"
             : p->q_dtype == ATTN_F16 ? "f16"
                                      : "bf16");
    if (shape.rows >= ROWS_DECODE) /* smaller ones have no kernel that combines splits */
        gpu_work_tiles_split_prefill(plan, part);
    if (shape.rows == ROWS_SMALL)
        gpu_work_tiles_split_evenly(plan, part);
    gpu_work_tiles_reserve(plan, part, shape.rows, shape.dv);
    struct gpu_context *context = plan->backend->context;
    const int32_t status =
        gpu_module_function(context, own->module, name, part->shared_bytes, &part->attention, err);
    if (status != ATTN_OK || part->split_rules.slots == 0)
        return status;
    snprintf(name, sizeof name, "%s_r%u_combine", own->name, shape.rows);
    return gpu_module_function(context, own->module, name, 0, &part->merge, err);
}

static int32_t launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                      const struct gpu_run *run, void *stream, struct attn_error *err)
{
    struct gpu_run own = *run;

    own.problem.k_scale = scale_of(&plan->problem, plan->problem.k_scale);
    own.problem.v_scale = scale_of(&plan->problem, plan->problem.v_scale);
    own.p_parts = p_parts(&plan->problem);
    return gpu_work_tiles_launch(plan, part, &own, rows_of(plan, part), instance_of(&plan->problem)->dv,
                                 stream, err);
}

const struct gpu_family cuda_mma = {
    .shared_of = shared_of, .small_rows = small_rows, .create = create, .launch = launch};
