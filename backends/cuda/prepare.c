/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A step's schedules, of one plan or of several. With host copies of the batch they are written here and
 * copied, those that lie behind one another at once, and the batch is checked; without them a kernel of the
 * family writes the same bytes.
 */
#include "cuda.h"

static struct attn_buffer buffer_of(const void *memory)
{
    return (struct attn_buffer){(void *)(uintptr_t)memory, 0};
}

/* The batch with every array where the host can read it. */
static struct attn_batch batch_on_host(const struct attn_batch *batch)
{
    const struct attn_batch_host *host = batch->host;
    struct attn_batch out = *batch;

    out.q_offsets = buffer_of(host->q_offsets);
    out.kv_lens = buffer_of(host->kv_lens);
    out.kv_offsets = buffer_of(host->kv_offsets);
    out.table = buffer_of(host->table);
    out.csr_indptr = buffer_of(host->csr_indptr);
    out.csr_indices = buffer_of(host->csr_indices);
    out.last_page_lens = buffer_of(host->last_page_lens);
    out.q_positions = buffer_of(host->q_positions);
    out.seq_causal = buffer_of(host->seq_causal);
    out.kv_global_lens = buffer_of(host->kv_global_lens);
    return out;
}

/* What planners read of it. */
static struct attn_planner_batch planner_batch(const struct attn_problem *problem,
                                               const struct attn_batch *batch)
{
    const struct attn_batch_host *host = batch->host;
    struct attn_planner_batch out = {.seqs = batch->seqs, .position_dtype = batch->position_dtype};

    out.q_offsets = host->q_offsets;
    out.kv_lens = host->kv_lens;
    out.kv_offsets = host->kv_offsets;
    out.spread = attn__spread_of(problem, batch);
    if (problem->cp != 0)
        out.global_lens = host->kv_global_lens;
    if (problem->seq_causal != 0)
        out.seq_causal = host->seq_causal;
    if (problem->positions != 0)
        out.positions = host->q_positions;
    return out;
}

static int32_t check_blocks(const struct attn_plan_impl *plan, const struct attn_span *schedule,
                            const struct attn_span *staging, bool host, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    if (plan->sizes.schedule > 0)
        status = attn__span_check(schedule, plan->sizes.schedule, CUDA_ALIGNMENT, "schedule", err);
    if (status == ATTN_OK && host && plan->sizes.staging > 0)
        status = attn__span_check(staging, plan->sizes.staging, CUDA_ALIGNMENT, "staging", err);
    return status;
}

struct cuda_lengths cuda_lengths_of(const struct attn_plan_impl *plan, const struct attn_planner_batch *batch,
                                    uint32_t i)
{
    struct cuda_lengths own = {.q_len = (uint32_t)(batch->q_offsets[i + 1] - batch->q_offsets[i])};
    uint32_t causal = plan->problem.causal == ATTN_CAUSAL_YES;

    own.kv_len = own.q_len;
    if (batch->kv_offsets != NULL)
        own.kv_len = (uint32_t)(batch->kv_offsets[i + 1] - batch->kv_offsets[i]);
    if (batch->kv_lens != NULL)
        own.kv_len = (uint32_t)batch->kv_lens[i];
    if (batch->seq_causal != NULL)
        causal = batch->seq_causal[i] != 0;
    attn__visible_start(&own.visible, &plan->problem, causal, own.q_len,
                        batch->global_lens != NULL ? (uint32_t)batch->global_lens[i] : own.kv_len);
    own.visible.spread = batch->spread;
    return own;
}

/* A copy that is to be made: what comes next may lie behind it on both sides. */
struct pending {
    uint64_t to;
    const char *from;
    uint64_t size;
};

/* The context is current. */
static int32_t flush(struct cuda_context *context, const struct pending *copy, void *stream,
                     struct attn_error *err)
{
    if (copy->size == 0)
        return ATTN_OK;
    return cuda_check(context, context->driver->cuMemcpyHtoDAsync(copy->to, copy->from, copy->size, stream),
                      "schedule", "cuMemcpyHtoDAsync", err);
}

/* Writes all parts into staging; the copy is added to the one that is pending, or takes its place. */
static int32_t prepare_host(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                            const struct attn_span *schedule, char *memory, struct pending *copy,
                            void *stream, struct attn_error *err)
{
    const struct attn_planner_batch arrays = planner_batch(&plan->problem, batch);
    const uint64_t to = gpu_address(&schedule->buffer), size = plan->sizes.schedule;
    int32_t status = ATTN_OK;

    if (size == 0)
        return ATTN_OK;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct cuda_part *part = &plan->parts[i];
        if (part->kernel->family->prepare_host != NULL)
            part->kernel->family->prepare_host(plan, part, &arrays, memory + part->schedule_offset);
    }
    if (copy->size > 0 && copy->to + copy->size == to && copy->from + copy->size == memory) {
        copy->size += size;
        return ATTN_OK;
    }
    status = flush(plan->backend->context, copy, stream, err);
    *copy = (struct pending){to, memory, size};
    return status;
}

static int32_t prepare_device(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                              const struct attn_span *schedule, void *stream, struct attn_error *err)
{
    struct gpu_run run;
    int32_t status = ATTN_OK;

    memset(&run, 0, sizeof run);
    run.problem = plan->problem;
    run.group = plan->problem.heads / plan->problem.kv_heads;
    run.units = plan->units;
    gpu_resolve_batch(&run.batch, &plan->problem, batch);
    for (uint32_t i = 0; i < plan->part_count && status == ATTN_OK; i++) {
        const struct cuda_part *part = &plan->parts[i];
        if (part->kernel->family->prepare_device == NULL)
            continue;
        run.phase = part->phase;
        run.ctas = part->ctas;
        run.schedule = gpu_address(&schedule->buffer) + part->schedule_offset;
        run.schedule_bytes = part->schedule_bytes;
        status = part->kernel->family->prepare_device(plan, part, &run, stream, err);
    }
    return status;
}

static int32_t check_host(const struct attn_plan_impl *plan, const struct attn_batch *batch, void *stream,
                          struct attn_error *err)
{
    struct attn_extent extent;
    bool captured;
    int32_t status = cuda_stream_is_captured(plan->backend->context, stream, &captured, err);

    if (status == ATTN_OK && captured)
        return cuda_fail(err, ATTN_E_STATE, 0, "batch.host",
                         "host copies are read once; a step that a graph plans has none");
    if (status != ATTN_OK)
        return status;
    if (batch->host == NULL)
        return cuda_fail(err, ATTN_E_INVALID, 0, "batch.host",
                         "batch.host is not given, but `given` says that there are host copies");
    const struct attn_batch host = batch_on_host(batch);
    return attn__batch_check(&plan->problem, &host, &extent, err);
}

static bool has_host(const struct attn_batch *batch)
{
    return (batch->given & ATTN_GIVEN_HOST_COPIES) != 0;
}

/* What can be refused without a look at host copies. */
static int32_t check_step(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                          const struct attn_span *schedule, const struct attn_span *staging,
                          struct attn_error *err)
{
    const int32_t status = check_blocks(plan, schedule, staging, has_host(batch), err);

    return status == ATTN_OK ? attn__batch_check_given(&plan->problem, batch, err) : status;
}

/* The share of plan i of all staging. */
static struct attn_span next_staging(const struct attn_plan_impl *plan, struct attn_span *left)
{
    const uint64_t size = plan->sizes.staging < left->size ? plan->sizes.staging : left->size;
    const struct attn_span own = {left->buffer, size};

    left->buffer.byte_offset += own.size;
    left->size -= own.size;
    return own;
}

int32_t cuda_plan_prepare_many(const struct attn_plan_impl *const *plans,
                               const struct attn_batch *const *batches, const struct attn_span *schedules,
                               uint32_t n, const struct attn_span *staging, void *stream,
                               struct attn_error *err)
{
    struct cuda_context *context = plans[0]->backend->context;
    const struct attn_span all = staging != NULL ? *staging : (struct attn_span){{NULL, 0}, 0};
    struct attn_span left = all;
    struct pending copy = {0, NULL, 0};
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < n && status == ATTN_OK; i++) {
        const struct attn_span own = next_staging(plans[i], &left);
        status = check_step(plans[i], batches[i], &schedules[i], &own, err);
    }
    if (status == ATTN_OK)
        status = cuda_enter(context, err);
    if (status != ATTN_OK)
        return status;
    for (uint32_t i = 0; i < n && status == ATTN_OK; i++)
        if (has_host(batches[i]))
            status = check_host(plans[i], batches[i], stream, err);
    left = all;
    for (uint32_t i = 0; i < n && status == ATTN_OK; i++) {
        const struct attn_span own = next_staging(plans[i], &left);
        status = has_host(batches[i]) ? prepare_host(plans[i], batches[i], &schedules[i],
                                                     attn__address(&own.buffer), &copy, stream, err)
                                      : prepare_device(plans[i], batches[i], &schedules[i], stream, err);
    }
    if (status == ATTN_OK)
        status = flush(context, &copy, stream, err);
    return cuda_leave(context, status);
}

int32_t cuda_plan_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                          const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                          struct attn_error *err)
{
    return cuda_plan_prepare_many(&plan, &batch, schedule, 1, staging, stream, err);
}
