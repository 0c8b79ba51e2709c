/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The family of MLA kernels: which of them a plan launches, how large their CTAs are, and the sizes of their
 * schedules and split workspace. */
#include "mla/sizes.h"

#include <stdio.h>

#include "families.h"

static const struct {
    const char *name;
    uint32_t rows, kv_size;
    enum gpu_module module;
} instances[] = {
#define MLA(name, rows, kv_size) {#name, rows, kv_size, GPU_MODULE_##name},
#include "instances.def"
};

enum {
    INSTANCES = sizeof instances / sizeof instances[0],
    MLA_MANY_SEQS = 32 /* from so many on, warp groups take 16 rows in less time */
};

/* Where code for Hopper runs, if there is such. */
static bool is_hopper(const struct attn_plan_impl *plan)
{
    return plan->backend->context->record->arch / 10 == 9;
}

/*
 * The instance with the fewest rows that hold the longest sequence, of those that implement the problem's
 * masks, ALiBi and soft cap. With det=1 the choice does not depend on the maxima. On Hopper a tile of 64 rows
 * by warp groups takes less time than one of 16 by others; with few sequences what goes before and after the
 * tiles takes more.
 */
static uint32_t instance_of(const struct attn_plan_impl *plan)
{
    const struct attn_problem *problem = &plan->problem;
    const uint32_t kv_size = attn__dtype_size(problem->k_dtype);
    const uint64_t own = (uint64_t)problem->max_q * problem->heads;
    const bool score_rules =
        problem->softcap > 0 || problem->alibi > ATTN_ALIBI_NONE || problem->mask > ATTN_MASK_NONE;
    const bool groups = is_hopper(plan) && mla_has_groups(MLA_GROUP_ROWS, kv_size) && !score_rules &&
                        (own > instances[0].rows || problem->max_seqs >= MLA_MANY_SEQS);
    const uint64_t rows = problem->det != 0 || groups ? UINT64_MAX : own;
    uint32_t i = 0;

    while (instances[i].kv_size != kv_size)
        i++;
    while (i + 1 < INSTANCES && instances[i + 1].kv_size == kv_size && instances[i].rows < rows &&
           (!score_rules || instances[i + 1].rows <= MLA_SMALL_ROWS))
        i++;
    return i;
}

/* Stages of KV tiles: as many as the device's shared memory holds. */
static uint32_t stages_of(const struct attn_plan_impl *plan, uint32_t i)
{
    const uint32_t shared = gpu_vendor_shared(plan->backend->context->record->arch);
    const uint32_t rows = instances[i].rows, kv_size = instances[i].kv_size;
    uint32_t stages = mla_max_stages(rows, kv_size);

    while (stages > mla_min_stages(kv_size) && mla_shared_bytes(rows, kv_size, stages) > shared)
        stages--;
    return stages;
}

/* Whether the instance may be warp groups, which copy boxes. */
static bool has_groups(const struct attn_plan_impl *plan, uint32_t i)
{
    return mla_has_groups(instances[i].rows, instances[i].kv_size) && is_hopper(plan);
}

/* Shared memory of a CTA. Code for Hopper takes more for warp groups; that for other devices leaves it
 * unused. */
static uint32_t shared_bytes_of(const struct attn_plan_impl *plan, uint32_t i)
{
    const uint32_t rows = instances[i].rows, kv_size = instances[i].kv_size;
    const uint32_t bytes = mla_shared_bytes(rows, kv_size, stages_of(plan, i)), groups = mla_group_bytes();

    if (!mla_has_groups(rows, kv_size) || bytes >= groups ||
        gpu_vendor_shared(plan->backend->context->record->arch) < groups)
        return bytes;
    return groups;
}

/*
 * Whether P carries the scales of single keys: cached and new ones have one each. f16 does not hold the
 * products.
 */
static bool scale_per_key(const struct attn_problem *p)
{
    return p->k_scale >= ATTN_SCALES_HEAD ||
           (p->k_scale == ATTN_SCALES_TENSOR && p->kv_source == ATTN_KV_CACHE_NEW);
}

static bool check(const struct attn_problem *p, struct attn_reason *why)
{
    if (p->q_dtype != ATTN_F16 || !scale_per_key(p))
        return true;
    if (p->k_scale == ATTN_SCALES_TENSOR)
        attn__caps_refuse(why, ATTN_REASON_KV_SOURCE, "kv_source", "cache+new with scales", "cache, new");
    else
        attn__caps_refuse(why, ATTN_REASON_SCALES, "scales",
                          p->k_scale == ATTN_SCALES_HEAD ? "head" : "token-head", "unit, tensor");
    return false;
}

/* det: row tiles of a sequence whose keys are split. */
static uint32_t split_tiles_of(const struct attn_plan_impl *plan)
{
    const uint64_t max_rows = (uint64_t)plan->problem.max_q * plan->problem.heads;
    const uint32_t rows = instances[instance_of(plan)].rows;

    return ((max_rows < MLA_DET_ROWS ? (uint32_t)max_rows : MLA_DET_ROWS) + rows - 1) / rows;
}

/* det: the largest number of splits of a row tile. */
static uint32_t splits_of(const struct attn_problem *p)
{
    const uint64_t splits =
        ((uint64_t)p->max_kv + GPU_TILE * GPU_MIN_SPLIT_TILES - 1) / (GPU_TILE * GPU_MIN_SPLIT_TILES);

    return splits < GPU_MAX_SPLITS ? (uint32_t)splits : GPU_MAX_SPLITS;
}

/* Row tiles of partial O and LSE that there can be at once. */
static uint64_t partials_of(const struct attn_plan_impl *plan, const struct gpu_part *part)
{
    const struct attn_problem *p = &plan->problem;

    return p->det != 0 ? (uint64_t)p->max_seqs * split_tiles_of(plan) * splits_of(p)
                       : UINT64_C(2) * part->ctas;
}

/* Bytes in front of them, where the CTAs note row tiles whose keys are split. */
static uint64_t notes_bytes(const struct gpu_part *part)
{
    return (part->ctas * (uint64_t)MLA_NOTE_BYTES + 255) / 256 * 256;
}

static int32_t create(const struct attn_plan_impl *plan, struct gpu_part *part, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const uint32_t i = instance_of(plan), rows = instances[i].rows;
    struct gpu_context *context = plan->backend->context;
    char name[64];

    part->threads = MLA_THREADS;
    part->shared_bytes = shared_bytes_of(plan, i);
    /* Two may share a stretch of the work list. */
    part->ctas = plan->units > 1 ? plan->units : 2;
    part->splits = p->det != 0 ? GPU_MAX_SPLITS : part->ctas;
    part->schedule_bytes = gpu_plan_mla_bytes(p->max_seqs);
    part->plan_kind = GPU_PLAN_MLA;
    part->split_rules = gpu_split_rules_of(p, GPU_ALL_PHASES, rows);
    part->scratch_bytes =
        notes_bytes(part) + partials_of(plan, part) * rows * (MLA_VO_DIM + UINT64_C(2)) * sizeof(float);
    snprintf(name, sizeof name, "%s_%s", instances[i].name, p->q_dtype == ATTN_BF16 ? "bf16" : "f16");
    const int32_t status =
        gpu_module_function(context, instances[i].module, name, part->shared_bytes, &part->attention, err);
    return status == ATTN_OK
               ? gpu_module_function(context, GPU_MODULE_mla_combine, "mla_combine", 0, &part->merge, err)
               : status;
}

static int32_t launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                      const struct gpu_run *run, void *stream, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const uint32_t i = instance_of(plan), rows = instances[i].rows, grid[] = {part->ctas, 1, 1};
    const bool fixed = p->det != 0;
    const uint32_t tiles = fixed ? run->batch.seqs : mla_most_split(p, rows, part->ctas);
    const uint32_t combine_grid[] = {tiles * mla_combine_ctas(p, rows, part->ctas),
                                     fixed ? split_tiles_of(plan) : 1, 1};
    struct gpu_run own = *run;

    own.stages = stages_of(plan, i);
    own.problem.k_scale = scale_per_key(p) ? (uint32_t)ATTN_SCALES_HEAD : p->k_scale;
    own.partial_out = run->scratch + notes_bytes(part);
    own.partial_lse = own.partial_out + partials_of(plan, part) * rows * MLA_VO_DIM * sizeof(float);
    int32_t status = ATTN_OK;
    if (has_groups(plan, i))
        status = cuda_tensor_maps(plan->backend->context, &own, MLA_BOX_TOKENS, err);
    if (status == ATTN_OK && has_groups(plan, i))
        status = cuda_query_map(plan->backend->context, &own, rows, true, err);
    if (status != ATTN_OK)
        return status;
    status = gpu_launch(plan->backend->context, part->attention, grid, part->threads, part->shared_bytes,
                        &own, part->kernel->caps.name, stream, err);
    if (status != ATTN_OK || (fixed && splits_of(p) == 1))
        return status;
    own.rows = rows;
    own.units = part->ctas;
    return gpu_launch(plan->backend->context, part->merge, combine_grid, MLA_THREADS, 0, &own, "mla_combine",
                      stream, err);
}

static uint32_t shared_of(const struct attn_problem *problem, uint32_t phases)
{
    const uint32_t rows = instances[INSTANCES - 1].rows, kv_size = attn__dtype_size(problem->k_dtype);

    (void)phases;
    return mla_shared_bytes(rows, kv_size, mla_min_stages(kv_size));
}

const struct gpu_family cuda_mla = {
    .check = check, .shared_of = shared_of, .create = create, .launch = launch};
