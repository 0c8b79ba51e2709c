/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The family of kernels for latent caches: which of them a plan launches, how large their blocks are, and
 * what their schedules share out. */
#include "latent.h"

#include <stdio.h>

#include "families.h"

static const struct {
    uint32_t rows;
    enum gpu_module module;
} sizes[] = {{16, GPU_MODULE_latent_16}, {32, GPU_MODULE_latent_32}, {64, GPU_MODULE_latent_64}};

/*
 * Rows of a CTA: as few as hold the longest sequence. With det=1 maxima decide nothing. The kernel with most
 * rows has no registers left for what changes a score.
 */
static uint32_t size_of(const struct attn_problem *problem)
{
    const uint64_t most = (uint64_t)problem->max_q * problem->heads;
    const bool special =
        problem->softcap > 0 || problem->alibi > ATTN_ALIBI_NONE || problem->mask > ATTN_MASK_NONE;

    if (problem->det != 0)
        return special ? 1 : 2;
    return most <= sizes[0].rows ? 0 : most <= sizes[1].rows || special ? 1 : 2;
}

/* Tiles of keys in shared memory. Devices of sm_80 have 163 KiB of it, those with 227 KiB hold three. */
static uint32_t stages_of(const struct attn_plan_impl *plan, uint32_t size)
{
    const uint32_t shared = gpu_vendor_shared(plan->backend->context->record->arch);

    return sizes[size].rows <= 32 && GPU_LATENT_SHARED(sizes[size].rows, 3) <= shared ? 3 : 2;
}

/* det: tiles of rows of a sequence whose keys are cut, and parts of these. */
static uint32_t tiles_of(const struct attn_problem *p)
{
    const uint64_t most = (uint64_t)p->max_q * p->heads;
    const uint32_t rows = sizes[size_of(p)].rows;

    return ((most < GPU_LATENT_DET_ROWS ? (uint32_t)most : GPU_LATENT_DET_ROWS) + rows - 1) / rows;
}

static uint32_t cuts_of(const struct attn_problem *p)
{
    const uint64_t cuts = ((uint64_t)p->max_kv + GPU_TILE * GPU_CUT_TILES - 1) / (GPU_TILE * GPU_CUT_TILES);

    return cuts < GPU_CUTS ? (uint32_t)cuts : GPU_CUTS;
}

/* Partial results that there can be at once. */
static uint64_t slots_of(const struct attn_plan_impl *plan, const struct gpu_part *part)
{
    const struct attn_problem *p = &plan->problem;

    return p->det != 0 ? (uint64_t)p->max_seqs * tiles_of(p) * cuts_of(p) : UINT64_C(2) * part->ctas;
}

static int32_t create(const struct attn_plan_impl *plan, struct gpu_part *part, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const uint32_t i = size_of(p);
    struct gpu_context *context = plan->backend->context;
    char name[64];

    part->threads = GPU_LATENT_THREADS;
    part->shared_bytes = GPU_LATENT_SHARED(sizes[i].rows, stages_of(plan, i));
    part->ctas = plan->units;
    part->splits = p->det != 0 ? GPU_CUTS : part->ctas;
    part->schedule_bytes = gpu_plan_bytes(p->max_seqs);
    part->plan_kind = GPU_PLAN_LATENT;
    part->cuts = gpu_cuts_of(p, GPU_ALL_ROWS, sizes[i].rows);
    part->scratch_bytes =
        slots_of(plan, part) * sizes[i].rows * (GPU_LATENT_VO + UINT64_C(2)) * sizeof(float);
    snprintf(name, sizeof name, "latent_%u_%s", sizes[i].rows, p->q_dtype == ATTN_BF16 ? "bf16" : "f16");
    const int32_t status =
        gpu_module_function(context, sizes[i].module, name, part->shared_bytes, &part->attention, err);
    return status == ATTN_OK
               ? gpu_module_function(context, GPU_MODULE_latent_merge, "latent_merge", 0, &part->merge, err)
               : status;
}

static int32_t launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                      const struct gpu_run *run, void *stream, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const uint32_t grid[] = {part->ctas, 1, 1}, i = size_of(p), rows = sizes[i].rows;
    const bool fixed = p->det != 0;
    const uint32_t merges[] = {fixed ? run->batch.seqs : part->ctas, fixed ? tiles_of(p) : 1,
                               rows / (GPU_LATENT_THREADS / 32)};
    struct gpu_run own = *run;

    own.stages = stages_of(plan, i);
    own.part_out = run->scratch;
    own.part_lse = run->scratch + slots_of(plan, part) * rows * GPU_LATENT_VO * sizeof(float);
    const int32_t status = gpu_launch(plan->backend->context, part->attention, grid, part->threads,
                                      part->shared_bytes, &own, part->kernel->name, stream, err);
    if (status != ATTN_OK || (fixed && cuts_of(p) == 1))
        return status;
    own.rows = rows;
    return gpu_launch(plan->backend->context, part->merge, merges, GPU_LATENT_THREADS, 0, &own,
                      "latent_merge", stream, err);
}

static uint32_t shared_of(const struct attn_problem *problem, uint32_t phases)
{
    (void)problem;
    (void)phases;
    return GPU_LATENT_SHARED(64u, 2u);
}

const struct gpu_family cuda_latent = {.shared_of = shared_of, .create = create, .launch = launch};
