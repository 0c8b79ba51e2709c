/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The mma family: which of its kernels a plan launches, how large its CTAs are, and what its schedules split.
 */
#include <stdio.h>

#include "driver-values.h"
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

enum { ROWS_SMALL = 8, ROWS_MEDIUM = 16, ROWS_DECODE = 64, ROWS_PREFILL = 128 };
enum {
    LARGEST_MIN_ROWS = 4096,
    LARGEST_MIN_TILES = 2
}; /* query rows of a sequence; its tiles for each CTA */

/* Whether queries, keys and values become f32 when they are loaded: of several types, or of one with blocks.
 * Those of 8 bits have other kernels. */
static bool becomes_f32(const struct attn_problem *p)
{
    return attn__dtype_size(p->q_dtype) > 1 &&
           (p->k_dtype != p->v_dtype || (attn__dtype_size(p->k_dtype) != 1 && p->k_dtype != p->q_dtype));
}

/* Bytes of an element of keys and values that a kernel copies. */
static uint32_t kv_size_of(const struct attn_problem *p)
{
    return becomes_f32(p) ? sizeof(float) : attn__dtype_size(p->k_dtype);
}

static const struct instance *instance_of(const struct attn_problem *problem)
{
    const struct instance *own = instances;

    while (own->kv_size != kv_size_of(problem) || problem->head_dim > own->dk ||
           problem->head_dim_vo > own->dv)
        own++;
    return own;
}

static struct gpu_mma_shape shape_of(const struct attn_problem *problem, uint32_t rows)
{
    const struct instance *own = instance_of(problem);

    return (struct gpu_mma_shape){rows, own->dk, own->dv, own->kv_size, 0, 0, 0};
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

    return attn__dtype_size(p->out_dtype) == 1 && !f16 && kv_size_of(p) != sizeof(float) ? 2 : 1;
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

    if (rows <= ROWS_SMALL && kv_size_of(problem) != sizeof(float))
        return ROWS_SMALL;
    return rows <= ROWS_MEDIUM && (p_parts(problem) == 1 || is_wide(problem)) ? ROWS_MEDIUM : ROWS_DECODE;
}

/* Rows of a tile of decode. det: a part's longest sequence, not that of the plan, decides. */
static uint32_t decode_rows(const struct attn_plan_impl *plan, const struct gpu_part *part)
{
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

/* Whether no rule changes a score but by hiding keys. */
static bool is_plain(const struct attn_problem *p)
{
    return p->mask == ATTN_MASK_NONE && !(p->softcap > 0) && p->alibi == ATTN_ALIBI_NONE && p_parts(p) == 1;
}

/* Whether keys of 16 bits have scales: those that were converted. */
static bool has_key_scales(const struct attn_problem *p)
{
    return kv_size_of(p) == 2 && p->k_scale > ATTN_SCALES_TENSOR;
}

/*
 * What the kernel has no code for, in its name: of tiles of these rows there are kernels without masks, soft
 * cap, ALiBi and P of two parts, where the largest tile has 128 rows; of 8-bit keys and values for one type,
 * up to 128 columns. Keys of 16 bits that have scales have no others. NULL: there is none for the problem.
 */
static const char *plain_name(const struct attn_problem *p, uint32_t rows)
{
    if (!is_plain(p) || (rows != ROWS_SMALL && rows < ROWS_PREFILL) || kv_size_of(p) > 2 ||
        instance_of(p)->rows < ROWS_PREFILL)
        return NULL;
    if (kv_size_of(p) == 2)
        return has_key_scales(p) ? "_scaled" : "_plain";
    if (rows == ROWS_PREFILL || p->k_dtype != p->v_dtype || instance_of(p)->dk > 128)
        return NULL;
    return p->k_dtype == ATTN_E4M3 ? "_e4m3" : p->k_dtype == ATTN_INT8 ? "_int8" : NULL;
}

static const char e4m3[] = "_e4m3"; /* prefill with products of e4m3 */

/*
 * The kernel of tiles of `rows` rows, and its shape. The driver takes code for the device out of an image of
 * several: whether that multiplies by warp groups, the threads that it is compiled for tell.
 */
static int32_t find_kernel(struct gpu_context *context, const struct attn_problem *p, uint32_t rows,
                           const char *plain, gpu_handle *out, struct gpu_mma_shape *shape,
                           struct attn_error *err)
{
    const struct instance *own = instance_of(p);
    const uint32_t dtype = p->k_dtype; /* that of 16 and 32 bits is the type of products */
    int threads = 0;
    char name[64];

    snprintf(name, sizeof name, "%s_r%u%s%s", own->name, rows, plain != NULL ? plain : "",
             own->kv_size == 1 || becomes_f32(p) ? "" /* of all types */
             : dtype == ATTN_F32                 ? "_f32"
             : dtype == ATTN_F16                 ? "_f16"
                                                 : "_bf16");
    int32_t status = gpu_module_function(context, own->module, name, 0, out, err);
    if (status == ATTN_OK)
        status = gpu_check(context, context->driver->func_get_attribute(&threads, FUNCTION_MAX_THREADS, *out),
                           "kernel", gpu_names.func_get_attribute, err);
    *shape =
        (struct gpu_mma_shape){rows, own->dk, own->dv, own->kv_size, 1, has_key_scales(p), plain == e4m3};
    shape->wgmma = rows >= ROWS_PREFILL && threads == (int)gpu_mma_threads(*shape);
    return status;
}

/* Whether prefill can have tiles of this shape. Those of 128 rows have no registers for P of two parts, nor,
 * unless warp groups multiply, for more than 128 columns. */
static bool serves_prefill(const struct gpu_context *context, const struct attn_problem *p,
                           struct gpu_mma_shape shape)
{
    if (shape.rows == ROWS_PREFILL && (p_parts(p) > 1 || (shape.dk > 128 && !shape.wgmma)))
        return false;
    return gpu_mma_shared_bytes(shape) <= gpu_vendor_shared(context->record->arch);
}

/*
 * Buffers of queries of warp groups. A second one hides how long queries take, and leaves a CTA 28 KB of L1
 * cache in place of 60, which rows of a mask and what the code of rare rules spills need more.
 */
static uint32_t query_buffers(const struct attn_problem *p, struct gpu_mma_shape shape)
{
    return p->mask != ATTN_MASK_NONE || p->softcap > 0 ? 1 : gpu_mma_query_stages(shape);
}

/* Whether prefill has its keys and values converted, for a kernel: where warp groups multiply those. */
static int32_t converts_for(const struct attn_plan_impl *plan, bool for_e4m3, bool *out,
                            struct attn_error *err)
{
    const struct attn_problem p = cuda_converted_problem(&plan->problem, for_e4m3);
    struct gpu_mma_shape shape;
    gpu_handle kernel;

    *out = false;
    if (!cuda_may_convert(plan, is_plain(&plan->problem), for_e4m3) || instance_of(&p)->rows < ROWS_PREFILL)
        return ATTN_OK;
    const int32_t status = find_kernel(plan->backend->context, &p, ROWS_PREFILL,
                                       for_e4m3 ? e4m3 : plain_name(&p, ROWS_PREFILL), &kernel, &shape, err);
    *out = status == ATTN_OK && shape.wgmma != 0;
    return status;
}

/* Blocks become f32 where rounding of theirs is not in the class. */
static int32_t converts(const struct attn_plan_impl *plan, bool *out, struct attn_error *err)
{
    *out = false;
    return becomes_f32(&plan->problem) ? ATTN_OK : converts_for(plan, false, out, err);
}

static int32_t converts_blocks(const struct attn_plan_impl *plan, bool *out, struct attn_error *err)
{
    return converts_for(plan, false, out, err);
}

static int32_t converts_e4m3(const struct attn_plan_impl *plan, bool *out, struct attn_error *err)
{
    return converts_for(plan, true, out, err);
}

/* Whether a part multiplies in e4m3. */
static bool multiplies_e4m3(const struct gpu_part *part)
{
    return part->conversion == GPU_CONVERTED && cuda_is_e4m3(part->kernel);
}

/* The problem that a part computes: masks that are ranges are none. */
static struct attn_problem problem_of(const struct attn_plan_impl *plan, const struct gpu_part *part)
{
    struct attn_problem p = plan->problem;

    if (part->masks == GPU_MASKS_RANGES)
        p.mask = ATTN_MASK_NONE;
    return part->conversion == GPU_CONVERTED ? cuda_converted_problem(&p, cuda_is_e4m3(part->kernel)) : p;
}

/*
 * Whether prefill has the largest tiles, those of 192 rows where there are some: for problems without rules
 * whose longest sequence has rows enough, and two of such tiles for each CTA. Of fewer rows more is
 * multiplied that no row sees than these tiles save, and of fewer tiles CTAs are idle.
 */
static bool has_largest_tiles(const struct attn_plan_impl *plan, const struct attn_problem *p)
{
    const uint64_t most = instance_of(p)->rows, rows = (uint64_t)p->max_q * (p->heads / p->kv_heads);

    return most <= ROWS_PREFILL || (is_plain(p) && !has_key_scales(p) && rows >= LARGEST_MIN_ROWS &&
                                    rows * p->kv_heads >= LARGEST_MIN_TILES * most * plan->units);
}

/* The kernel of a part: in prefill that of the largest tiles that the device has shared memory for. */
static int32_t find_part_kernel(const struct attn_plan_impl *plan, struct gpu_part *part,
                                struct gpu_mma_shape *shape, struct attn_error *err)
{
    struct gpu_context *context = plan->backend->context;
    const struct attn_problem own = problem_of(plan, part), *p = &own;
    const bool prefill = part->phase == ATTN__PREFILL;
    const uint32_t rows = !prefill                     ? decode_rows(plan, part)
                          : has_largest_tiles(plan, p) ? instance_of(p)->rows
                                                       : (uint32_t)ROWS_PREFILL;
    const char *plain = multiplies_e4m3(part) ? e4m3 : plain_name(p, rows);
    int32_t status = find_kernel(context, p, rows, plain, &part->attention, shape, err);

    /* Elsewhere than where warp groups multiply, prefill has none. */
    if (status == ATTN_OK && plain != NULL && rows >= ROWS_PREFILL && shape->wgmma == 0)
        status = find_kernel(context, p, ROWS_PREFILL, NULL, &part->attention, shape, err);
    if (status == ATTN_OK && prefill && !serves_prefill(context, p, *shape))
        status = find_kernel(context, p, is_wide(p) ? ROWS_MEDIUM : ROWS_DECODE, NULL, &part->attention,
                             shape, err);
    part->rows = shape->rows;
    part->threads = gpu_mma_threads(*shape);
    part->persistent = shape->wgmma != 0;
    part->query_buffers = query_buffers(p, *shape);
    part->shared_bytes =
        gpu_mma_first_bytes(*shape) + (part->query_buffers - 1) * gpu_mma_query_bytes(*shape);
    return status == ATTN_OK
               ? gpu_vendor_function_init(plan->backend->context, part->attention, part->shared_bytes, err)
               : status;
}

static int32_t create(const struct attn_plan_impl *plan, struct gpu_part *part, struct attn_error *err)
{
    const struct attn_problem its = problem_of(plan, part), *p = &its;
    const struct instance *own = instance_of(p);
    struct gpu_context *context = plan->backend->context;
    struct gpu_mma_shape shape;
    char name[64];

    int32_t status = find_part_kernel(plan, part, &shape, err);
    if (status != ATTN_OK)
        return status;
    part->ctas = plan->units * gpu_mma_resident_ctas(shape, gpu_vendor_shared(context->record->arch));
    part->split_rules = gpu_split_rules_of(p, part->phase, shape.rows);
    if (shape.rows >= ROWS_DECODE) /* smaller ones have no kernel that combines splits */
        gpu_work_tiles_split_prefill(plan, part);
    if (shape.rows == ROWS_SMALL)
        gpu_work_tiles_split_evenly(plan, part);
    gpu_work_tiles_reserve(plan, part, shape.rows, shape.dv);
    if (part->conversion != GPU_AS_CACHED)
        status = cuda_convert_reserve(
            plan, part,
            gpu_mma_sets_aside_in_scratch(shape) ? (uint64_t)part->ctas * gpu_mma_aside_bytes(shape) : 0,
            err);
    if (status != ATTN_OK || (part->split_rules.slots == 0 &&
                              (part->phase != ATTN__DECODE || p->det != 0 || shape.rows == ROWS_SMALL)))
        return status;
    snprintf(name, sizeof name, "%s_r%u_combine", own->name, shape.rows);
    return gpu_module_function(context, own->module, name, 0, &part->merge, err);
}

/* Whether rows go straight from registers to the output, as mma_stores_directly (mma/epilogue.h) decides it.
 * Others are gathered in shared memory, where a second buffer of queries may lie in their place. */
static bool stores_directly(const struct gpu_run *run)
{
    const struct attn_problem *p = &run->problem;
    const uint64_t address = run->out.base | (uint64_t)run->out.token_stride | (uint64_t)run->out.head_stride;

    return attn__dtype_size(p->out_dtype) >= 2 && p->out_scale <= ATTN_SCALES_UNIT &&
           p->head_dim_vo % 8 == 0 && address % 16 == 0;
}

static int32_t launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                      const struct gpu_run *run, void *stream, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    /* Of steps that have no such sequence nothing is launched. */
    if (!gpu_part_may_take(part, run->batch.max_q, run->group) || cuda_converts_all(plan, part, run))
        return ATTN_OK;
    const struct attn_problem p = problem_of(plan, part);
    struct gpu_mma_shape shape = shape_of(&p, part->rows);
    struct gpu_run own = *run;
    shape.wgmma = part->persistent;
    own.problem.k_scale = scale_of(&p, p.k_scale);
    own.problem.v_scale = scale_of(&p, p.v_scale);
    if (run->problem.v_scale <= ATTN_SCALES_TENSOR) /* the same of all sequences */
        own.v.scale.outer_stride = 0;
    own.p_parts = p_parts(&p);
    own.query_buffers = stores_directly(run) ? part->query_buffers : 1;
    if (part->conversion == GPU_CONVERTED)
        status = cuda_convert(plan, part, &p, &own, stream, err);
    if (status == ATTN_OK && part->persistent) /* warp groups copy boxes */
        status = multiplies_e4m3(part) ? cuda_tensor_maps_e4m3(plan->backend->context, &own, err)
                                       : cuda_tensor_maps(plan->backend->context, &own, GPU_TILE, err);
    if (status == ATTN_OK && part->persistent && (attn__dtype_size(p.k_dtype) == 2 || multiplies_e4m3(part)))
        status = cuda_query_map(plan->backend->context, &own, gpu_mma_query_box(shape), false, err);
    if (status != ATTN_OK)
        return status;
    return gpu_work_tiles_launch(plan, part, &own, part->rows, shape.dv, stream, err);
}

/* Scores of keys that are rounded would show in an LSE. */
static bool check_blocks(const struct attn_problem *p, struct attn_reason *why)
{
    if (p->lse != 0)
        attn__caps_refuse(why, ATTN_REASON_LSE, "lse", "1", "0");
    return p->lse == 0;
}

/* What products of e4m3 have no kernel for, beside what the row of the table tells: a row of queries has one
 * scale, and so have the keys of a sequence and KV head, and its values, but not where pages may have theirs.
 */
static bool check_e4m3(const struct attn_problem *p, struct attn_reason *why)
{
    const bool of_heads = p->k_scale == ATTN_SCALES_HEAD || p->v_scale == ATTN_SCALES_HEAD;
    char got[24];

    snprintf(got, sizeof got, "%u/%u", p->head_dim, p->head_dim_vo);
    if (p->lse != 0)
        attn__caps_refuse(why, ATTN_REASON_LSE, "lse", "1", "0");
    else if (instance_of(p)->dk != gpu_e4m3_columns(p->head_dim))
        attn__caps_refuse(why, ATTN_REASON_HEAD_DIM, "head_dim", got,
                          "65 to 128; more than 192, or values of more than 128 columns");
    else if (p->q_scale == ATTN_SCALES_TOKEN_HEAD)
        attn__caps_refuse(why, ATTN_REASON_SCALES, "q_scale", "token-head", "unit, tensor, head, kv-head");
    else if (of_heads && p->kv_source == ATTN_KV_CACHE && p->addressing != ATTN_DENSE)
        attn__caps_refuse(why, ATTN_REASON_SCALES, "scales", "head, of pages", "unit, tensor");
    else
        return true;
    return false;
}

const struct gpu_family cuda_mma = {.shared_of = shared_of,
                                    .small_rows = small_rows,
                                    .converts = converts,
                                    .takes_ranges = true,
                                    .create = create,
                                    .launch = launch};

const struct gpu_family cuda_mma_e4m3 = {.check = check_e4m3,
                                         .shared_of = shared_of,
                                         .small_rows = small_rows,
                                         .converts = converts_e4m3,
                                         .create = create,
                                         .launch = launch};

const struct gpu_family cuda_mma_blocks = {.check = check_blocks,
                                           .shared_of = shared_of,
                                           .small_rows = small_rows,
                                           .converts = converts_blocks,
                                           .takes_ranges = true,
                                           .create = create,
                                           .launch = launch};
