/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Creates plans: chooses kernels, finds their functions, and computes sizes from the maxima. */
#include <stdio.h>
#include <stdlib.h>

#include "cascade.h"

static uint64_t round_block(uint64_t size)
{
    return (size + GPU_ALIGNMENT - 1) / GPU_ALIGNMENT * GPU_ALIGNMENT;
}

static struct gpu_part *add_part(struct attn_plan_impl *plan, const struct gpu_kernel *kernel, uint32_t phase,
                                 uint32_t min_rows, uint32_t max_rows)
{
    struct gpu_part *part = &plan->parts[plan->part_count++];

    *part = (struct gpu_part){.kernel = kernel, .phase = phase, .min_rows = min_rows, .max_rows = max_rows};
    return part;
}

/* Whether it is worth a look in each run if masks are ranges. Columns of square masks are not all keys, and
 * with det=1 other sequences must not decide which kernel runs. */
static bool may_have_ranges(const struct attn_problem *p)
{
    return p->mask != ATTN_MASK_NONE && p->span == ATTN_SPAN_FULL && p->alibi == ATTN_ALIBI_NONE &&
           p->cp == 0 && p->det == 0 && (uint64_t)p->max_q * (p->heads / p->kv_heads) > GPU_DECODE_MAX_ROWS;
}

static void add_prefill_part(struct attn_plan_impl *plan, const struct gpu_kernel *kernel, uint32_t min_rows,
                             enum gpu_conversion conversion, enum gpu_masks masks)
{
    struct gpu_part *part = add_part(plan, kernel, ATTN__PREFILL, min_rows, UINT32_MAX);

    part->conversion = conversion;
    part->masks = masks;
}

/* Where masks may be ranges, a part that takes these, and one that reads masks. */
static void add_prefill_parts(struct attn_plan_impl *plan, const struct gpu_kernel *kernel, uint32_t min_rows,
                              enum gpu_conversion conversion)
{
    const bool ranges = kernel->family->takes_ranges && may_have_ranges(&plan->problem);

    if (ranges)
        add_prefill_part(plan, kernel, min_rows, conversion, GPU_MASKS_RANGES);
    add_prefill_part(plan, kernel, min_rows, conversion, ranges ? GPU_MASKS_OTHER : GPU_MASKS_ANY);
}

/* Prefill: where keys are converted for sequences of many rows, parts for these, and others. */
static int32_t add_prefill(struct attn_plan_impl *plan, const struct gpu_kernel *kernel,
                           struct attn_error *err)
{
    bool converts = false;
    const int32_t status =
        kernel->family->converts != NULL ? kernel->family->converts(plan, &converts, err) : ATTN_OK;

    if (converts)
        add_prefill_parts(plan, kernel, GPU_CONVERTED_MIN_ROWS, GPU_CONVERTED);
    add_prefill_parts(plan, kernel, GPU_DECODE_MAX_ROWS + 1, converts ? GPU_NOT_CONVERTED : GPU_AS_CACHED);
    if (status != ATTN_OK || plan->parts[plan->part_count - 1].masks == GPU_MASKS_ANY)
        return status;
    return gpu_module_function(plan->backend->context, GPU_MODULE_plan, "gpu_mask_ranges", 0,
                               &plan->mask_ranges, err);
}

/* Finds the parts. If both phases have the same kernel, one launch of it takes all sequences. The context is
 * current. */
static int32_t dispatch(struct attn_plan_impl *plan, struct attn_error *err)
{
    const uint32_t arch = plan->backend->context->record->arch;
    const uint32_t choice = plan->backend->tensor_cores;
    const struct gpu_kernel *decode = gpu_dispatch(&plan->problem, ATTN__DECODE, arch, choice);
    const struct gpu_kernel *prefill = gpu_dispatch(&plan->problem, ATTN__PREFILL, arch, choice);

    const bool fixed = plan->problem.det != 0 && decode->family->small_rows != NULL;
    const uint32_t small = fixed ? decode->family->small_rows(&plan->problem) : GPU_DECODE_MAX_ROWS;

    if (decode == prefill) {
        add_part(plan, decode, GPU_ALL_PHASES, 1, UINT32_MAX);
        return ATTN_OK;
    }
    add_part(plan, decode, ATTN__DECODE, 1, small);
    if (small < GPU_DECODE_MAX_ROWS)
        add_part(plan, decode, ATTN__DECODE, small + 1, GPU_DECODE_MAX_ROWS);
    return add_prefill(plan, prefill, err);
}

bool gpu_part_may_take(const struct gpu_part *part, uint32_t max_q, uint32_t group)
{
    return part->phase == GPU_ALL_PHASES || (uint64_t)max_q * group >= part->min_rows;
}

bool gpu_plan_add_block(uint64_t *total, uint64_t *offset, uint64_t bytes)
{
    *offset = *total;
    return bytes <= INT64_MAX && !__builtin_add_overflow(*total, round_block(bytes), total);
}

int32_t gpu_plan_too_large(struct attn_error *err)
{
    return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_MEMORY, "max_rows",
                      "the maxima need blocks beyond 64-bit sizes");
}

/* The most scratch and counters of a part and those behind it that are of the same kernel. */
static struct gpu_blocks most_blocks(const struct attn_plan_impl *plan, uint32_t first)
{
    struct gpu_blocks most = {0, 0, 0};

    for (uint32_t i = first; i < plan->part_count && plan->parts[i].kernel == plan->parts[first].kernel;
         i++) {
        const struct gpu_part *part = &plan->parts[i];
        most.scratch = part->scratch_bytes > most.scratch ? part->scratch_bytes : most.scratch;
        most.counters = part->counters_bytes > most.counters ? part->counters_bytes : most.counters;
    }
    return most;
}

/* Places the blocks of all parts one behind the other. Parts of one kernel run one after the other and leave
 * counters at zero: they have the same scratch and counters. */
static int32_t find_sizes(struct attn_plan_impl *plan, struct attn_error *err)
{
    struct attn_plan_sizes *sizes = &plan->sizes;

    ATTN_INIT(sizes);
    sizes->alignment = GPU_ALIGNMENT;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        struct gpu_part *part = &plan->parts[i];
        const struct gpu_blocks most = most_blocks(plan, i);
        if (!gpu_plan_add_block(&sizes->schedule, &part->schedule_offset, part->schedule_bytes))
            return gpu_plan_too_large(err);
        if (i > 0 && part->kernel == part[-1].kernel) {
            part->scratch_offset = part[-1].scratch_offset;
            part->counters_offset = part[-1].counters_offset;
            continue;
        }
        if (!gpu_plan_add_block(&sizes->scratch, &part->scratch_offset, most.scratch) ||
            !gpu_plan_add_block(&sizes->counters, &part->counters_offset, most.counters))
            return gpu_plan_too_large(err);
    }
    if (plan->mask_ranges != NULL &&
        (!gpu_plan_add_block(&sizes->scratch, &plan->ranges_offset,
                             GPU_ALIGNMENT +
                                 (uint64_t)plan->problem.max_rows * sizeof(struct gpu_key_range)) ||
         !gpu_plan_add_block(&sizes->counters, &plan->mask_counts_offset, 2 * sizeof(uint32_t))))
        return gpu_plan_too_large(err);
    if (plan->cascade != NULL) {
        const struct attn_plan_sizes *other = &plan->cascade->sizes;
        sizes->schedule = sizes->schedule > other->schedule ? sizes->schedule : other->schedule;
        sizes->scratch = sizes->scratch > other->scratch ? sizes->scratch : other->scratch;
        sizes->counters = sizes->counters > other->counters ? sizes->counters : other->counters;
    }
    sizes->staging = sizes->schedule;
    return ATTN_OK;
}

/* Finds the parts, and loads all that is loaded on first use, which must not happen inside a capture. */
static int32_t find_parts(struct attn_plan_impl *plan, struct attn_error *err)
{
    struct gpu_context *context = plan->backend->context;
    int32_t status = gpu_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = dispatch(plan, err);
    if (status == ATTN_OK)
        status = gpu_module_function(context, GPU_MODULE_upload, "gpu_put", 0, &plan->upload, err);
    for (uint32_t i = 0; i < plan->part_count && status == ATTN_OK; i++)
        status = plan->parts[i].kernel->family->create(plan, &plan->parts[i], err);
    for (uint32_t i = 0; i < plan->part_count && status == ATTN_OK; i++)
        if (plan->parts[i].schedule_bytes > 0 && plan->planner == NULL)
            status = gpu_module_function(context, GPU_MODULE_plan, "gpu_plan", 0, &plan->planner, err);
    return gpu_leave(context, status);
}

int32_t gpu_plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                        struct attn_plan_impl **out, struct attn_error *err)
{
    *out = NULL;
    struct attn_plan_impl *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "plan", "no memory for the plan");
    plan->backend = backend;
    plan->problem = *problem;
    plan->units = backend->context->record->info.units;
    int32_t status = find_parts(plan, err);
    if (status == ATTN_OK)
        status = gpu_cascade_create(plan, err);
    if (status == ATTN_OK)
        status = find_sizes(plan, err);
    if (status != ATTN_OK) {
        gpu_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return ATTN_OK;
}

void gpu_plan_destroy(struct attn_plan_impl *plan)
{
    if (plan == NULL)
        return;
    gpu_cascade_destroy(plan->cascade);
    free(plan);
}

int32_t gpu_plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    *out = plan->sizes;
    return ATTN_OK;
}

int32_t gpu_plan_describe(const struct attn_plan_impl *plan, struct attn_plan_info *out)
{
    attn__plan_info_init(out, &plan->problem);
    out->graph_level = ATTN_GRAPH_ALWAYS;
    out->splits = 1;
    out->cascade = plan->cascade != NULL;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct gpu_part *part = &plan->parts[i];
        const size_t length = strlen(out->kernels);
        if (i == 0 || part->kernel != part[-1].kernel)
            snprintf(out->kernels + length, sizeof out->kernels - length, "%s%s", i > 0 ? "," : "",
                     part->kernel->caps.name);
        if (part->kernel->caps.graph_level < out->graph_level)
            out->graph_level = part->kernel->caps.graph_level;
        out->splits = part->splits > out->splits ? part->splits : out->splits;
        out->split_keys = part->split_keys > out->split_keys ? part->split_keys : out->split_keys;
    }
    return ATTN_OK;
}
