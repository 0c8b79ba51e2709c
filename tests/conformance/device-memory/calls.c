/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Plans and merges: brings every address within reach and lets the CPU plugin do it. */
#include <stdlib.h>

#include "device-memory.h"

struct attn_plan_impl {
    const struct attn_plan_table *table;
    struct attn_plan_impl *impl;
    uint32_t heads;
    uint32_t row_bytes; /* of out, one head */
};

static bool reach_tensors(struct attn_tensors *tensors)
{
    return device_memory_reach(&tensors->q.buffer) && device_memory_reach(&tensors->q_rope.buffer) &&
           device_memory_reach(&tensors->k_new.buffer) && device_memory_reach(&tensors->v_new.buffer) &&
           device_memory_reach(&tensors->out.buffer) && device_memory_reach(&tensors->lse.buffer) &&
           device_memory_reach(&tensors->alibi_slopes) && device_memory_reach(&tensors->sinks) &&
           device_memory_reach(&tensors->mask) && device_memory_reach(&tensors->mask_starts) &&
           reach_scale(&tensors->q_scale) && reach_scale(&tensors->k_new_scale) &&
           reach_scale(&tensors->v_new_scale) && reach_scale(&tensors->out_scale);
}

/* ---------------------------------------------------------------- plans */

static int32_t plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                           struct attn_plan_impl **out, struct attn_error *err)
{
    struct attn_plan_impl *plan = calloc(1, sizeof *plan);

    if (plan == NULL)
        return ATTN_E_MEMORY;
    plan->table = backend->table->plan;
    plan->heads = problem->heads;
    plan->row_bytes = problem->head_dim_vo * ((problem->out_dtype >> 8 & 0xff) / 8);
    int32_t status = plan->table->create(backend->impl, problem, &plan->impl, err);
    if (status == ATTN_OK)
        *out = plan;
    else
        free(plan);
    return status;
}

static int32_t plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    return plan->table->sizes(plan->impl, out);
}

static int32_t plan_describe(const struct attn_plan_impl *plan, struct attn_plan_info *out)
{
    return plan->table->describe(plan->impl, out);
}

static int32_t plan_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                            const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                            struct attn_error *err)
{
    struct attn_batch near = *batch;
    struct attn_span place = *schedule;

    if (!reach_batch(&near))
        return far_away(err, "batch");
    if (!device_memory_reach(&place.buffer))
        return far_away(err, "schedule");
    stream = device_memory_catch_up(stream);
    return plan->table->prepare(plan->impl, &near, &place, staging, stream, err);
}

/* What a careless kernel does. */
static void misbehave(const struct attn_plan_impl *plan, const struct attn_tensors *tensors, uint32_t rows)
{
    unsigned char *out = (unsigned char *)tensors->out.buffer.data + tensors->out.buffer.byte_offset;
    unsigned char *q = (unsigned char *)tensors->q.buffer.data + tensors->q.buffer.byte_offset;
    int64_t last = ((int64_t)rows - 1) * tensors->out.token_stride;

    last += ((int64_t)plan->heads - 1) * tensors->out.head_stride + plan->row_bytes;
    if (device_memory_fault == FAULT_BEYOND && rows > 0)
        out[last] ^= 1;
    if (device_memory_fault == FAULT_INPUT && rows > 0)
        q[0] ^= 1;
}

static int32_t plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                        const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                        const struct attn_kv_desc *desc, const struct attn_span *schedule,
                        const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    struct attn_batch near = *batch;
    struct attn_tensors things = *tensors;
    struct attn_kv_desc cache;
    struct attn_span place = *schedule;
    struct attn_scratch blocks = *scratch;

    if (!reach_batch(&near) || !reach_tensors(&things))
        return far_away(err, "tensors");
    if (desc != NULL) {
        cache = *desc;
        if (!reach_cache(&cache))
            return far_away(err, "kv");
    }
    if (!device_memory_reach(&place.buffer) || !device_memory_reach(&blocks.scratch.buffer) ||
        !device_memory_reach(&blocks.counters.buffer))
        return far_away(err, "scratch");
    stream = device_memory_catch_up(stream);
    int32_t status = plan->table->run(plan->impl, &near, &things, kv != NULL ? kv->impl : NULL,
                                      desc != NULL ? &cache : NULL, &place, &blocks, stream, err);
    misbehave(plan, &things, batch->num_tokens);
    return status;
}

static void plan_destroy(struct attn_plan_impl *plan)
{
    plan->table->destroy(plan->impl);
    free(plan);
}

const struct attn_plan_table device_memory_plan = {
    .struct_size = sizeof device_memory_plan,
    .create = plan_create,
    .sizes = plan_sizes,
    .prepare = plan_prepare,
    .run = plan_run,
    .destroy = plan_destroy,
    .describe = plan_describe,
};

/* ---------------------------------------------------------------- merge */

static int32_t merge(struct attn_backend_impl *backend, const struct attn_merge_args *args, void *stream,
                     struct attn_error *err)
{
    struct attn_merge_args near = *args;
    struct attn_merge_part *parts = calloc(args->count, sizeof *parts);
    bool good =
        parts != NULL && device_memory_reach(&near.out.buffer) && device_memory_reach(&near.lse.buffer);

    for (uint32_t i = 0; i < args->count && good; i++) {
        parts[i] = args->parts[i];
        good = device_memory_reach(&parts[i].out.buffer) && device_memory_reach(&parts[i].lse.buffer);
    }
    near.parts = parts;
    stream = device_memory_catch_up(stream);
    int32_t status =
        good ? backend->table->merge->merge(backend->impl, &near, stream, err) : far_away(err, "parts");
    free(parts);
    return status;
}

static int32_t rescale(struct attn_backend_impl *backend, const struct attn_rescale_args *args, void *stream,
                       struct attn_error *err)
{
    struct attn_rescale_args near = *args;
    struct attn_tensor *all = calloc(args->count, sizeof *all);
    bool good = all != NULL && device_memory_reach(&near.out.buffer) && device_memory_reach(&near.own.buffer);

    for (uint32_t i = 0; i < args->count && good; i++) {
        all[i] = args->all[i];
        good = device_memory_reach(&all[i].buffer);
    }
    near.all = all;
    stream = device_memory_catch_up(stream);
    int32_t status =
        good ? backend->table->merge->rescale(backend->impl, &near, stream, err) : far_away(err, "all");
    free(all);
    return status;
}

const struct attn_merge_table device_memory_merge = {
    .struct_size = sizeof device_memory_merge,
    .merge = merge,
    .rescale = rescale,
};
