/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The family of matrix kernels: which of them a plan launches, with how many threads and how much memory. */
#include "tile.h"

#include <stdbool.h>
#include <stdio.h>

#include "families.h"
#include "tile-tuning.h"

static const struct instance {
    const char *name;
    enum gpu_module module;
    uint32_t dk, dv, kv_size;
} instances[] = {
#define TILE(name, dk, dv, kv_size) {#name, GPU_MODULE_##name, dk, dv, kv_size},
#include "instances.def"
};

/* Query rows of a work-group, of which there are kernels. */
enum { ROWS_DECODE = 16, ROWS_MAX = 64 };

/* The first that is large enough; there is one, because the table of kernels has accepted the problem. */
static const struct instance *instance_of(const struct attn_problem *problem)
{
    const uint32_t kv_size = attn__dtype_size(problem->k_dtype);
    const struct instance *i = instances;

    while (problem->head_dim > i->dk || problem->head_dim_vo > i->dv || i->kv_size != kv_size)
        i++;
    return i;
}

static uint32_t shared_bytes(const struct attn_problem *problem, uint32_t rows)
{
    const struct instance *i = instance_of(problem);

    return hip_tile_shared_bytes(rows, i->dk, i->dv);
}

/* The small kernel if all sequences fit into its rows; never with det=1, where the batch must not decide. */
static uint32_t rows_of(const struct attn_problem *problem, uint32_t phase)
{
    const uint64_t max_rows = (uint64_t)problem->max_q * (problem->heads / problem->kv_heads);

    return phase == ATTN__DECODE && problem->det == 0 && max_rows <= ROWS_DECODE ? ROWS_DECODE : ROWS_MAX;
}

static uint32_t shared_of(const struct attn_problem *problem, uint32_t phases)
{
    return shared_bytes(problem, rows_of(problem, phases == ATTN__PREFILL ? ATTN__PREFILL : ATTN__DECODE));
}

static int32_t create(const struct attn_plan_impl *plan, struct gpu_part *part, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const struct instance *i = instance_of(p);
    const uint32_t rows = rows_of(p, part->phase), arch = plan->backend->context->record->arch;
    const uint32_t wave_size = hip_tile_wave_size(arch);
    char name[64];

    part->threads = hip_tile_threads(i->dv, wave_size);
    part->shared_bytes = shared_bytes(p, rows);
    part->ctas = plan->units * hip_tile_occupancy(i->dv, wave_size, hip_tile_large_registers(arch));
    part->split_rules = gpu_split_rules_of(p, part->phase, ROWS_MAX);
    snprintf(name, sizeof name, "%s_r%u_%s", i->name, rows, p->q_dtype == ATTN_BF16 ? "bf16" : "f16");
    gpu_work_tiles_reserve(plan, part, rows, i->dv);
    return gpu_module_function(plan->backend->context, i->module, name, part->shared_bytes, &part->attention,
                               err);
}

/* Whether a cache of layout paged-x can be loaded in whole words (HIP_TILE_PAGED_X). */
static bool is_paged_x(const struct gpu_run *run)
{
    const struct gpu_cache *k = &run->k, *v = &run->v;
    const uint64_t max_stride = 1 << 24;
    const uint64_t keys = k->base | (uint64_t)k->page_stride | (uint64_t)k->head_stride |
                          (uint64_t)k->x_stride | k->dim * k->size;
    const uint64_t values = v->base | (uint64_t)v->page_stride | (uint64_t)v->head_stride |
                            (uint64_t)v->x_stride | run->batch.block * v->size;

    return run->batch.addressing != ATTN_DENSE && run->k_new.base == 0 && k->x_bytes == 16 &&
           k->token_stride == 16 && v->x_bytes == v->size && v->token_stride == v->size && keys % 16 == 0 &&
           values % (4 * v->size) == 0 && v->dim % 8 == 0 && (uint64_t)k->x_stride <= max_stride &&
           (uint64_t)v->x_stride <= max_stride;
}

static int32_t launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                      const struct gpu_run *run, void *stream, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    struct gpu_run own = *run;

    if (is_paged_x(run))
        own.kv_aligned = HIP_TILE_PAGED_X;
    return gpu_work_tiles_launch(plan, part, &own, rows_of(p, part->phase), instance_of(p)->dv, stream, err);
}

const struct gpu_family hip_tile = {.shared_of = shared_of, .create = create, .launch = launch};
