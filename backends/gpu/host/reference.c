/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The family of reference kernels: one CTA for one query token and head, no schedule, no scratch. */
#include "reference/instances.h"

#include "host.h"

static const struct {
    const char *name;
    uint32_t dim, type;
} functions[] = {
#define ROW(name_, dim_, type_) {#name_, dim_, type_},
    REFERENCE_INSTANCES(ROW)};

static int32_t create(const struct attn_plan_impl *plan, struct gpu_part *part, struct attn_error *err)
{
    const size_t count = sizeof functions / sizeof functions[0];
    size_t i = 0;

    /* The last kernels of the list take any type, and the capability table has checked the dimensions. */
    while (i + 1 < count && !reference_fits(&plan->problem, functions[i].dim, functions[i].type))
        i++;
    part->threads = REFERENCE_THREADS;
    return gpu_module_function(plan->backend->context, GPU_MODULE_reference, functions[i].name, 0,
                               &part->attention, err);
}

static int32_t launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                      const struct gpu_run *run, void *stream, struct attn_error *err)
{
    const uint32_t grid[3] = {run->batch.num_tokens * plan->problem.heads, 1, 1};

    return gpu_launch(plan->backend->context, part->attention, grid, part->threads, part->shared_bytes, run,
                      "attn_reference", stream, err);
}

const struct gpu_family gpu_reference_family = {.create = create, .launch = launch};
