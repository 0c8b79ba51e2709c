/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Creates plans: chooses kernels, finds their functions, and computes sizes from the maxima. */
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

static uint64_t round_block(uint64_t size)
{
    return (size + GPU_ALIGNMENT - 1) / GPU_ALIGNMENT * GPU_ALIGNMENT;
}

/* If both phases have the same kernel, one launch of it takes all sequences. */
static void dispatch(struct attn_plan_impl *plan)
{
    const uint32_t arch = plan->backend->context->record->arch;
    const uint32_t choice = plan->backend->tensor_cores;
    const struct gpu_kernel *decode = gpu_dispatch(&plan->problem, ATTN__DECODE, arch, choice);
    const struct gpu_kernel *prefill = gpu_dispatch(&plan->problem, ATTN__PREFILL, arch, choice);

    plan->part_count = decode == prefill ? 1 : 2;
    plan->parts[0].kernel = decode;
    plan->parts[0].phase = decode == prefill ? GPU_ALL_PHASES : ATTN__DECODE;
    plan->parts[1].kernel = prefill;
    plan->parts[1].phase = ATTN__PREFILL;
}

static bool add_block(uint64_t *total, uint64_t *offset, uint64_t bytes)
{
    *offset = *total;
    return bytes <= INT64_MAX && !__builtin_add_overflow(*total, round_block(bytes), total);
}

/* Places the blocks of both parts one behind the other. */
static int32_t find_sizes(struct attn_plan_impl *plan, struct attn_error *err)
{
    struct attn_plan_sizes *sizes = &plan->sizes;

    ATTN_INIT(sizes);
    sizes->alignment = GPU_ALIGNMENT;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        struct gpu_part *part = &plan->parts[i];
        if (!add_block(&sizes->schedule, &part->schedule_offset, part->schedule_bytes) ||
            !add_block(&sizes->scratch, &part->scratch_offset, part->scratch_bytes) ||
            !add_block(&sizes->counters, &part->counters_offset, part->counters_bytes))
            return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_MEMORY, "max_rows",
                              "the maxima need blocks beyond 64-bit sizes");
    }
    sizes->staging = sizes->schedule;
    return ATTN_OK;
}

/* Loads all that is loaded on first use, which must not happen inside a capture. */
static int32_t find_functions(struct attn_plan_impl *plan, struct attn_error *err)
{
    struct gpu_context *context = plan->backend->context;
    int32_t status = gpu_enter(context, err);

    if (status != ATTN_OK)
        return status;
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
    dispatch(plan);
    int32_t status = find_functions(plan, err);
    if (status == ATTN_OK)
        status = find_sizes(plan, err);
    if (status != ATTN_OK) {
        free(plan);
        return status;
    }
    *out = plan;
    return ATTN_OK;
}

void gpu_plan_destroy(struct attn_plan_impl *plan)
{
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
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct gpu_part *part = &plan->parts[i];
        const size_t length = strlen(out->kernels);
        snprintf(out->kernels + length, sizeof out->kernels - length, "%s%s", i > 0 ? "," : "",
                 part->kernel->caps.name);
        if (part->kernel->caps.graph_level < out->graph_level)
            out->graph_level = part->kernel->caps.graph_level;
        out->splits = part->splits > out->splits ? part->splits : out->splits;
        out->split_keys = part->split_keys > out->split_keys ? part->split_keys : out->split_keys;
    }
    return ATTN_OK;
}
