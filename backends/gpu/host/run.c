/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs one layer: checks alignment, resolves its arguments into that of the kernels, launches them. */
#include "cascade.h"
#include "scales.h"

static int32_t check_alignment(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                               const struct attn_tensors *tensors, const struct attn_kv_desc *bare,
                               const struct attn_span *schedule, const struct attn_scratch *scratch,
                               struct attn_error *err)
{
    const struct attn_plan_sizes *sizes = &plan->sizes;
    int32_t status = attn__batch_align(&plan->problem, batch, err);

    if (status == ATTN_OK && sizes->schedule > 0)
        status = attn__span_align(schedule, GPU_ALIGNMENT, "schedule", err);
    if (status == ATTN_OK && sizes->scratch > 0)
        status = attn__span_align(&scratch->scratch, GPU_ALIGNMENT, "scratch", err);
    if (status == ATTN_OK && sizes->counters > 0)
        status = attn__span_align(&scratch->counters, GPU_ALIGNMENT, "counters", err);
    if (status == ATTN_OK)
        status = attn__run_align(&plan->problem, tensors, err);
    return status == ATTN_OK && bare != NULL ? attn__kv_align(bare, err) : status;
}

/* Where masks may be ranges. Those of heads may differ: only the first one's would be looked at. */
static struct gpu_mask_ranges masks_of(const struct attn_plan_impl *plan, const struct gpu_run *run,
                                       const struct gpu_blocks *blocks)
{
    const uint64_t at = blocks->scratch + plan->ranges_offset;

    if (plan->mask_ranges == NULL || run->mask.base == 0 || run->mask.head_stride != 0)
        return (struct gpu_mask_ranges){0};
    return (struct gpu_mask_ranges){
        .ranges = at + GPU_ALIGNMENT, .result = at, .counts = blocks->counters + plan->mask_counts_offset};
}

static int32_t look_at_masks(const struct attn_plan_impl *plan, const struct gpu_run *run, void *stream,
                             struct attn_error *err)
{
    const uint32_t grid[] = {run->batch.num_tokens, 1, 1};

    return gpu_launch(plan->backend->context, plan->mask_ranges, grid, GPU_MASK_THREADS, 0, run,
                      "gpu_mask_ranges", stream, err);
}

/* Launches a part for the masks that it is for. */
static int32_t launch_part(const struct attn_plan_impl *plan, const struct gpu_part *part,
                           const struct gpu_run *run, void *stream, struct attn_error *err)
{
    struct gpu_run own = *run;

    own.masks.wanted = part->masks;
    if (part->masks == GPU_MASKS_RANGES)
        own.mask.base = 0;
    else
        own.masks.ranges = 0;
    if (part->masks == GPU_MASKS_ANY)
        own.masks.result = 0;
    return part->kernel->family->launch(plan, part, &own, stream, err);
}

int32_t gpu_plan_launch(const struct attn_plan_impl *plan, struct gpu_run *run,
                        const struct gpu_blocks *blocks, void *stream, struct attn_error *err)
{
    int32_t status = ATTN_OK;
    bool looked = false;

    run->masks = masks_of(plan, run, blocks);
    for (uint32_t i = 0; i < plan->part_count && status == ATTN_OK; i++) {
        const struct gpu_part *part = &plan->parts[i];
        const bool ranges = part->masks == GPU_MASKS_RANGES;
        if (ranges && (run->masks.result == 0 || !gpu_part_may_take(part, run->batch.max_q, run->group)))
            continue;
        if (ranges && !looked)
            status = look_at_masks(plan, run, stream, err);
        looked = looked || ranges;
        run->phase = part->phase;
        run->schedule_bytes = part->schedule_bytes;
        run->scratch_bytes = part->scratch_bytes;
        run->counters_bytes = part->counters_bytes;
        run->schedule = part->schedule_bytes > 0 ? blocks->schedule + part->schedule_offset : 0;
        run->scratch = part->scratch_bytes > 0 ? blocks->scratch + part->scratch_offset : 0;
        run->counters = part->counters_bytes > 0 ? blocks->counters + part->counters_offset : 0;
        if (status == ATTN_OK)
            status = launch_part(plan, part, run, stream, err);
    }
    return status;
}

static uint64_t block_at(const struct attn_span *span, uint64_t size)
{
    return size > 0 ? gpu_address(&span->buffer) : 0;
}

/* The context is current. */
static int32_t launch_step(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                           struct gpu_run *run, const struct attn_span *schedule,
                           const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    const struct attn_plan_sizes *sizes = &plan->sizes;
    const struct gpu_blocks blocks = {block_at(schedule, sizes->schedule),
                                      block_at(&scratch->scratch, sizes->scratch),
                                      block_at(&scratch->counters, sizes->counters)};
    struct gpu_context *context = plan->backend->context;
    int32_t status = ATTN_OK;

    if (sizes->counters > 0 && scratch->counters_dirty != 0)
        status =
            gpu_check(context, context->driver->memset_d8_async(blocks.counters, 0, sizes->counters, stream),
                      "counters", gpu_names.memset_d8_async, err);
    if (status != ATTN_OK || run->batch.seqs == 0 || run->batch.num_tokens == 0)
        return status;
    if (gpu_cascade_of(plan, batch) != NULL)
        return gpu_cascade_run(plan, run, &blocks, stream, err);
    return gpu_plan_launch(plan, run, &blocks, stream, err);
}

int32_t gpu_plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                     const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                     const struct attn_kv_desc *desc, const struct attn_span *schedule,
                     const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    struct gpu_context *context = plan->backend->context;
    const struct attn_kv_desc *cache = kv != NULL ? &kv->desc : desc;
    struct gpu_run run;
    uint64_t scales = 0;
    int32_t status = check_alignment(plan, batch, tensors, kv == NULL ? desc : NULL, schedule, scratch, err);

    if (status != ATTN_OK)
        return status;
    gpu_resolve(&run, &plan->problem, batch, tensors, cache);
    run.units = plan->units;
    status = gpu_enter(context, err);
    if (status != ATTN_OK)
        return status;
    status = gpu_scales_place(plan, &run, cache, stream, &scales, err);
    if (status == ATTN_OK)
        status = launch_step(plan, batch, &run, schedule, scratch, stream, err);
    status = gpu_scales_release(plan, scales, stream, status, err);
    return gpu_leave(context, status);
}
