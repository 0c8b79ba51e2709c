/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Takes what can be said of a call in numbers and words: what it ran on, and the scalars of its arguments. */
#include <stdio.h>

#include "record/recorder.h"
#include "show.h"

/* What the plugin said of the device. */
static void fill_device(struct attn__call *call, const struct attn_backend *backend)
{
    const struct attn__plugin *plugin = backend->entry->plugin;

    for (uint32_t i = 0; i < plugin->device_count; i++) {
        const struct attn_device_info *device = &plugin->devices[i];
        if (device->device.type != backend->device.type || device->device.ordinal != backend->device.ordinal)
            continue;
        call->units = device->units;
        attn__show(device->arch, call->arch, sizeof call->arch);
    }
    attn__show(backend->device_name, call->device, sizeof call->device);
    attn__show(backend->entry->table.name, call->backend, sizeof call->backend);
    attn__show(plugin->table.version, call->plugin, sizeof call->plugin);
}

/* The class of the roughest kernel that may have run: the bounds of the result follow from it. */
static uint32_t numerics_of(const struct attn_plan *plan)
{
    struct attn_kernel_info kernels[16];
    struct attn_query query;
    uint32_t most = 0;

    ATTN_INIT(&query);
    memset(kernels, 0, sizeof kernels);
    query.kernels = kernels;
    query.kernel_capacity = sizeof kernels / sizeof kernels[0];
    if (attn_backend_query(plan->backend, &plan->problem, &query, NULL) != ATTN_OK)
        return 0;
    for (uint32_t i = 0; i < query.kernel_count && i < query.kernel_capacity; i++)
        most = kernels[i].numerics > most ? kernels[i].numerics : most;
    return most;
}

static void fill_numbers(struct attn__call *call, const struct attn__run *run)
{
    const struct attn_batch *batch = run->batch;
    const struct attn_tensors *tensors = run->tensors;
    uint32_t bits;

    memcpy(&bits, &tensors->softmax_scale, sizeof bits);
    call->softmax_scale = bits;
    call->numerics = numerics_of(run->plan);
    call->seqs = batch->seqs;
    call->num_tokens = batch->num_tokens;
    call->max_q = batch->max_q;
    call->max_kv = batch->max_kv;
    call->cascade = batch->cascade;
    call->position_dtype = batch->position_dtype;
    call->cp_rank = batch->cp_rank;
    call->cp_world = batch->cp_world;
    call->cp_interleave = batch->cp_interleave;
    call->sinks_dtype = tensors->sinks_dtype;
    call->mask_packed = tensors->mask_packed != 0;
    call->kv_handle = tensors->kv != NULL;
}

int32_t attn__taken_fields(struct attn__taken *taken)
{
    const struct attn__run *run = taken->run;
    const struct attn__env *env = &run->plan->backend->context->env;
    struct attn__call *call = taken->call;
    struct attn_plan_info info;

    ATTN_INIT(&info);
    const int32_t status = attn_plan_describe(run->plan, &info, taken->err);
    if (status != ATTN_OK)
        return status;
    fill_device(call, run->plan->backend);
    fill_numbers(call, run);
    snprintf(call->libattn, sizeof call->libattn, "%s", attn_version());
    snprintf(call->status, sizeof call->status, "%s", attn_status_name(run->status));
    if (run->status != ATTN_OK)
        attn__show(run->message, call->message, sizeof call->message);
    attn__show(info.kernels, call->kernels, sizeof call->kernels);
    attn__show(attn__env_get(env, ATTN__VAR_ATTN_CPU_FLAGS), call->cpu_flags, sizeof call->cpu_flags);
    return attn_problem_format(&run->plan->problem, call->problem, sizeof call->problem, NULL, taken->err);
}
