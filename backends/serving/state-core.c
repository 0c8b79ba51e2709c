/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What all states of a model share: plans, and memory that is allocated once for their maxima. */
#include <stdlib.h>

#include "check.h"
#include "fail.h"
#include "flashinfer.h"
#include "state.h"

int32_t attn__allocate(const struct attn_serving_host *host, uint64_t size, struct attn__allocation *out,
                       struct attn_error *err)
{
    *out = (struct attn__allocation){.size = size};
    return size == 0 ? ATTN_OK : host->memory_alloc(host->backend, size, &out->buffer, err);
}

void attn__release(const struct attn_serving_host *host, struct attn__allocation *block)
{
    host->memory_free(host->backend, &block->buffer);
    *block = (struct attn__allocation){.size = 0};
}

/* ---------------------------------------------------------------- memory */

/* Clears the counters, and writes the start locations 0, 1, 2, ... */
static int32_t fill_memory(struct attn__state_core *core, struct attn_error *err)
{
    const uint64_t counters = core->scratch.counters.size;
    void *zeros = calloc(1, counters > 0 ? counters : 1);
    const struct attn_buffer from = {zeros, 0}, starts = {core->host_starts, 0};
    int32_t status = ATTN_OK;

    if (zeros == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "counters", "no memory to clear %llu bytes",
                          (unsigned long long)counters);
    for (uint32_t i = 0; i <= core->max_seqs; i++)
        core->host_starts[i] = (int32_t)i;
    if (counters > 0)
        status = core->host.memory_copy(core->host.backend, &core->scratch.counters.buffer, &from, counters,
                                        ATTN_COPY_TO_DEVICE, NULL, err);
    if (status == ATTN_OK)
        status = core->host.memory_copy(core->host.backend, &core->starts, &starts,
                                        (core->max_seqs + UINT64_C(1)) * 4, ATTN_COPY_TO_DEVICE, NULL, err);
    if (status == ATTN_OK)
        status = core->host.stream_synchronize(core->host.backend, NULL, err);
    free(zeros);
    return status;
}

/* Allocates scratch and counters, which all plans share, start locations, and lengths that follow from pages.
 */
static int32_t make_memory(struct attn__state_core *core, struct attn_error *err)
{
    const struct attn_plan_sizes *sizes = &core->set->sizes;
    const uint64_t alignment = attn__larger(sizes->alignment, 64);
    const uint64_t counters = attn__round_up(sizes->scratch, alignment);
    const uint64_t starts = attn__round_up(counters + sizes->counters, alignment);
    const uint64_t lens = attn__round_up(starts + (core->max_seqs + UINT64_C(1)) * 4, alignment);

    core->lens.size = attn__pages_workspace(core);
    core->host_starts = malloc((core->max_seqs + (size_t)1) * sizeof *core->host_starts);
    if (core->host_starts == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "max_seqs", "no memory for %u start locations",
                          core->max_seqs + 1);
    const int32_t status = attn__allocate(&core->host, lens + core->lens.size, &core->memory, err);
    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&core->scratch);
    core->scratch.scratch = (struct attn_span){core->memory.buffer, sizes->scratch};
    core->scratch.counters = (struct attn_span){core->memory.buffer, sizes->counters};
    core->scratch.counters.buffer.byte_offset += counters;
    core->starts = core->lens.buffer = core->memory.buffer;
    core->starts.byte_offset += starts;
    core->lens.buffer.byte_offset += lens;
    return fill_memory(core, err);
}

/* ---------------------------------------------------------------- core */

void attn__core_drop(struct attn__state_core *core)
{
    if (core == NULL || --core->refs > 0)
        return;
    attn__set_destroy(core, core->set);
    attn__ranks_destroy(core);
    attn__release(&core->host, &core->memory);
    attn__staging_finish(&core->staging, &core->host);
    free(core->host_starts);
    free(core->problems);
    free(core->classes);
    free(core->no_new);
    free(core->groups);
    free(core->steps);
    free(core->batches);
    free(core->hosts);
    free(core->plan_list);
    free(core->batch_list);
    free(core->schedule_list);
    free(core);
}

/* Checks the type of new keys and values, or chooses one. */
static int32_t check_kind(struct attn__state_core *core, uint32_t i, struct attn_error *err)
{
    struct attn_layer_class *class = &core->classes[i];
    const struct attn_problem *problem = &core->problems[i];

    if (class->new_dtype == 0)
        class->new_dtype = attn__dtype_size(problem->q_dtype) > 1 ? problem->q_dtype : (uint32_t)ATTN_BF16;
    if (class->new_dtype != ATTN_F32 && class->new_dtype != ATTN_F16 && class->new_dtype != ATTN_BF16)
        return attn__fail(err, ATTN_E_INVALID, 0, "new_dtype",
                          "classes[%u]: new_dtype is 0x%x; ATTN_F32, ATTN_F16 and ATTN_BF16 are accepted, or "
                          "0 for that of q",
                          i, class->new_dtype);
    return ATTN_OK;
}

/* How a class finds its keys: cross-attention's blocks are in a table with every flavour. */
static int32_t check_keys(const struct attn__state_core *core, uint32_t i, struct attn_error *err)
{
    const struct attn_problem *problem = &core->problems[i];
    const bool cross = problem->type == ATTN_ENCODER_DECODER, lists = core->flavour->pages && !cross;
    const uint32_t index = problem->index_dtype == ATTN_INT64 ? ATTN_INT64 : ATTN_INT32;

    if (problem->addressing != (uint32_t)(lists ? ATTN_CSR : ATTN_TABLE))
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_ADDRESSING, "addr",
                          "classes[%u]: addr=%s is needed, which a state of flavour %s reads%s", i,
                          lists ? "csr" : "table", core->flavour->name, cross ? " for cross-attention" : "");
    if (lists && index != core->params.index_dtype)
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_INDEX, "index",
                          "classes[%u]: index must be the index_dtype of the state", i);
    return ATTN_OK;
}

/* Checks a class against the flavour and the cache groups, and takes it over. */
static int32_t check_class(struct attn__state_core *core, uint32_t i, const struct attn_layer_class *source,
                           struct attn_error *err)
{
    struct attn_problem *problem = &core->problems[i];
    struct attn_error inner;

    attn__error_open(&inner);
    if (source->problem == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "problem", "classes[%u]: problem is NULL", i);
    const int32_t status = core->host.problem_resolve(core->host.backend, source->problem, problem, &inner);
    if (status != ATTN_OK)
        return attn__fail_class(i, status, &inner, err);
    if (source->group >= core->params.groups)
        return attn__fail(err, ATTN_E_INVALID, 0, "group",
                          "classes[%u]: group is %u; there are %u cache groups", i, source->group,
                          core->params.groups);
    core->classes[i] = *source;
    core->classes[i].problem = problem;
    const int32_t kind = check_kind(core, i, err);
    if (kind != ATTN_OK)
        return kind;
    if (problem->cp != 0 && core->params.collectives == NULL)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "cp",
            "classes[%u]: cp is 1, and the state has no collectives; give it those of the ranks, "
            "or a problem with cp=0",
            i);
    core->max_seqs = problem->max_seqs > core->max_seqs ? problem->max_seqs : core->max_seqs;
    if (core->params.max_capture_len == 0 || problem->max_kv < core->params.max_capture_len)
        core->params.max_capture_len = problem->max_kv;
    if (problem->kv_source == ATTN_KV_NEW)
        return ATTN_OK;
    if (problem->type == ATTN_ENCODER || problem->type == ATTN_ENCODER_DECODER) {
        const int32_t asked = attn__class_ask(&core->host, problem, &inner);
        if (asked != ATTN_OK)
            return attn__fail_class(i, asked, &inner, err);
    }
    const int32_t keys = check_keys(core, i, err);
    if (keys != ATTN_OK)
        return keys;
    if (problem->type != ATTN_ENCODER_DECODER && problem->block != core->groups[source->group].block)
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_BLOCK_SIZE, "block",
                          "classes[%u]: block is %u; that of cache group %u, %u, is accepted", i,
                          problem->block, source->group, core->groups[source->group].block);
    return ATTN_OK;
}

static int32_t check_groups(struct attn__state_core *core, const struct attn_state_params *params,
                            struct attn_error *err)
{
    if (params->group == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "group", "group is NULL, but there are %u cache groups",
                          core->params.groups);
    memcpy(core->groups, params->group, core->params.groups * sizeof *core->groups);
    for (uint32_t g = 0; g < core->params.groups; g++) {
        struct attn_builder_group *group = &core->groups[g];
        if (group->block == 0)
            return attn__fail(err, ATTN_E_INVALID, 0, "block", "group[%u].block is 0; at least 1 is accepted",
                              g);
        group->graph_blocks = group->graph_blocks != 0 ? group->graph_blocks : group->max_blocks;
    }
    if (params->cross != NULL) {
        core->cross_width =
            params->cross->graph_blocks != 0 ? params->cross->graph_blocks : params->cross->max_blocks;
        core->cross_block = params->cross->block;
    }
    return ATTN_OK;
}

static struct attn__state_core *new_core(const struct attn_serving_host *host, uint32_t count,
                                         const struct attn_state_params *params)
{
    struct attn__state_core *core = calloc(1, sizeof *core);
    const size_t runs = (size_t)count * ATTN__RUNS;

    if (core == NULL)
        return NULL;
    core->refs = 1;
    core->host = *host;
    core->count = count;
    core->params = *params;
    core->params.groups = params->groups != 0 ? params->groups : 1;
    core->params.steps = params->steps != 0 ? params->steps : 1;
    core->params.capture_tokens = params->capture_tokens != 0 ? params->capture_tokens : 1;
    core->params.index_dtype = params->index_dtype != 0 ? params->index_dtype : (uint32_t)ATTN_INT32;
    core->problems = calloc(count, sizeof *core->problems);
    core->classes = calloc(count, sizeof *core->classes);
    core->no_new = calloc(count, sizeof *core->no_new);
    core->groups = calloc(core->params.groups, sizeof *core->groups);
    core->steps = calloc(count, sizeof *core->steps);
    core->batches = calloc(runs, sizeof *core->batches);
    core->hosts = calloc(runs, sizeof *core->hosts);
    core->plan_list = calloc(runs, sizeof(const struct attn_plan *));
    core->batch_list = calloc(runs, sizeof(const struct attn_batch *));
    core->schedule_list = calloc(runs, sizeof *core->schedule_list);
    if (core->problems == NULL || core->classes == NULL || core->no_new == NULL || core->groups == NULL ||
        core->steps == NULL || core->batches == NULL || core->hosts == NULL || core->plan_list == NULL ||
        core->batch_list == NULL || core->schedule_list == NULL) {
        attn__core_drop(core);
        return NULL;
    }
    return core;
}

int32_t attn__core_create(const struct attn_serving_host *host, const struct attn_layer_class *classes,
                          uint32_t count, const struct attn_state_params *params,
                          const struct attn__flavour *flavour, struct attn__state_core **out,
                          struct attn_error *err)
{
    struct attn__state_core *core = new_core(host, count, params);
    if (core == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "state", "no memory for a state of %u classes", count);
    core->flavour = flavour;
    int32_t status = check_groups(core, params, err);
    for (uint32_t i = 0; i < count && status == ATTN_OK; i++)
        status = check_class(core, i, &classes[i], err);
    if (status == ATTN_OK)
        status = attn__ranks_create(core, params, err);
    if (status == ATTN_OK)
        status = attn__set_create(core, NULL, &core->set, err);
    if (status == ATTN_OK)
        status = make_memory(core, err);
    if (status == ATTN_OK)
        status = attn__staging_init(&core->staging, &core->host, core->params.steps,
                                    attn__round_up(core->set->sizes.staging, 64) + core->lens.size, err);
    if (status != ATTN_OK) {
        attn__core_drop(core);
        return status;
    }
    *out = core;
    return ATTN_OK;
}
