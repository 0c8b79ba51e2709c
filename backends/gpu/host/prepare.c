/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Prepares a step: the schedules of one plan or of several. With host copies of the batch the batch is
 * checked, and schedules are planned here and copied, adjacent ones by one copy. Otherwise they are jobs of
 * one kernel, which writes the same bytes because it shares the planning code (plan.h).
 */
#include "cascade.h"

static struct attn_buffer buffer_of(const void *memory)
{
    return (struct attn_buffer){(void *)(uintptr_t)memory, 0};
}

/* The batch with the host copies of its arrays. */
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

/* ---------------------------------------------------------------- pending copies and jobs */

/* What a call has still to submit: one copy, which adjacent copies are joined to, and planning jobs. */
struct pending {
    struct gpu_context *context;
    void *stream;
    uint64_t to; /* target of the copy */
    const char *from;
    uint64_t size;
    uint32_t jobs;
    gpu_handle planner;
    struct gpu_plan plan; /* its first `jobs` members are used */
};

/* The context is current. */
static int32_t flush_copy(struct pending *pending, struct attn_error *err)
{
    const uint64_t size = pending->size;

    pending->size = 0;
    if (size == 0)
        return ATTN_OK;
    return gpu_check(
        pending->context,
        pending->context->driver->memcpy_htod_async(pending->to, pending->from, size, pending->stream),
        "schedule", gpu_names.memcpy_htod_async, err);
}

static int32_t add_copy(struct pending *pending, uint64_t to, const char *from, uint64_t size,
                        struct attn_error *err)
{
    if (pending->size > 0 && pending->to + pending->size == to && pending->from + pending->size == from) {
        pending->size += size;
        return ATTN_OK;
    }
    const int32_t status = flush_copy(pending, err);
    pending->to = to;
    pending->from = from;
    pending->size = size;
    return status;
}

static int32_t flush_jobs(struct pending *pending, struct attn_error *err)
{
    const uint32_t grid[] = {pending->jobs, 1, 1};

    pending->jobs = 0;
    if (grid[0] == 0)
        return ATTN_OK;
    return gpu_launch(pending->context, pending->planner, grid, GPU_PLAN_THREADS, 0, &pending->plan,
                      "gpu_plan", pending->stream, err);
}

static int32_t add_job(struct pending *pending, gpu_handle planner, const struct gpu_plan_job *job,
                       struct attn_error *err)
{
    const int32_t status = pending->jobs == GPU_PLAN_JOBS ? flush_jobs(pending, err) : ATTN_OK;

    if (pending->jobs == 0)
        memset(&pending->plan, 0, sizeof pending->plan);
    pending->planner = planner;
    pending->plan.jobs[pending->jobs++] = *job;
    return status;
}

/* ---------------------------------------------------------------- schedules */

/* The job that plans a part. `schedule` is the address of its plan's schedule, and `batch` has the addresses
 * of the arrays, both in the memory of the side that plans. */
static struct gpu_plan_job job_of(const struct attn_plan_impl *plan, const struct gpu_part *part,
                                  const struct gpu_batch *batch, uint64_t schedule)
{
    return (struct gpu_plan_job){.schedule = schedule + part->schedule_offset,
                                 .lengths = gpu_lengths_of(&plan->problem, batch),
                                 .split_rules = part->split_rules,
                                 .kind = part->plan_kind,
                                 .empty = !gpu_part_may_take(part, batch->max_q, part->split_rules.group),
                                 .conversion = part->conversion,
                                 .block = part->converted_block,
                                 .pages = part->converted_pages};
}

/* That which plans the pages of sequences whose keys the part converts, from its job. */
static struct gpu_plan_job pages_job(const struct gpu_part *part, const struct gpu_plan_job *job)
{
    struct gpu_plan_job out = *job;

    out.schedule += part->first_pages_offset;
    out.kind = GPU_PLAN_PAGES;
    return out;
}

/* Tiles, or splits of `size` tiles, of all sequences of decode. */
static uint64_t count_tiles(const struct gpu_plan_job *job, uint64_t size)
{
    const struct gpu_plan_step step = {size, false, 0};
    uint64_t count = 0;

    for (uint32_t i = 0; i < job->lengths.seqs; i++)
        count += gpu_plan_tile_count(job, i, &step);
    return count;
}

/* Whether the workspace holds all keys that are to be converted. */
static bool step_converts(const struct gpu_plan_job *job)
{
    uint64_t pages = 0;

    if (!gpu_plan_may_convert(job))
        return false;
    for (uint32_t i = 0; i < job->lengths.seqs; i++)
        pages += gpu_plan_pages(job, i);
    return pages <= job->pages;
}

/* KV tiles of a decode split of a step that is split evenly, or 0. */
static uint64_t even_tiles_of(const struct gpu_plan_job *job)
{
    struct gpu_even_search search = {0, 0};

    while (gpu_even_search_goes_on(&search, &job->split_rules, count_tiles(job, search.size)))
        continue;
    return search.size;
}

/* KV tiles of a split of the step, or 0. */
static uint64_t split_tiles_of(const struct gpu_plan_job *job, bool converts)
{
    struct gpu_prefill_work all = {0, 0};

    if (gpu_plan_splits_evenly(job))
        return even_tiles_of(job);
    if (!gpu_plan_splits_prefill(job))
        return 0;
    for (uint32_t i = 0; i < job->lengths.seqs; i++) {
        const struct gpu_prefill_work own = gpu_plan_work(job, i, converts);
        all.row_tiles += own.row_tiles;
        all.tiles += own.tiles;
    }
    return gpu_prefill_split_tiles(&job->split_rules, all);
}

/* MLA: KV tiles of each row tile, or 0 if these are not the same. */
static uint64_t same_tiles_of(const struct gpu_plan_job *job)
{
    const uint64_t same = gpu_plan_first_tiles(job);

    for (uint32_t i = 0; same != 0 && i < job->lengths.seqs; i++)
        if (gpu_plan_differs(job, i, same))
            return 0;
    return same;
}

/* Plans a schedule on the host: writes the sum of the tile counts before each sequence. */
static void write_sums(const struct gpu_plan_job *job)
{
    const bool converts = step_converts(job);
    const struct gpu_plan_step step = {split_tiles_of(job, converts), converts, same_tiles_of(job)};
    uint64_t sum = 0;

    for (uint32_t i = 0; i < job->lengths.seqs; i++) {
        gpu_plan_store(job, i, sum);
        sum += gpu_plan_tile_count(job, i, &step);
    }
    gpu_plan_store(job, job->lengths.seqs, sum + gpu_plan_mark(job, &step));
    gpu_plan_store_end(job, &step);
}

/* Plans all parts on the host. `memory` is that of the plan's schedule. */
static void write_parts(const struct attn_plan_impl *plan, const struct gpu_batch *batch, uint64_t memory)
{
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct gpu_part *part = &plan->parts[i];
        const struct gpu_plan_job job = job_of(plan, part, batch, memory), pages = pages_job(part, &job);
        if (part->schedule_bytes > 0)
            write_sums(&job);
        if (part->conversion == GPU_CONVERTED)
            write_sums(&pages);
    }
}

/* Adds the jobs of all parts. `schedule` is the address of the plan's schedule. */
static int32_t add_parts(const struct attn_plan_impl *plan, const struct gpu_batch *batch, uint64_t schedule,
                         struct pending *pending, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < plan->part_count && status == ATTN_OK; i++) {
        const struct gpu_part *part = &plan->parts[i];
        const struct gpu_plan_job job = job_of(plan, part, batch, schedule), pages = pages_job(part, &job);
        if (part->schedule_bytes > 0)
            status = add_job(pending, plan->planner, &job, err);
        if (status == ATTN_OK && part->conversion == GPU_CONVERTED)
            status = add_job(pending, plan->planner, &pages, err);
    }
    return status;
}

/* Pages that all sequences with queries begin with. */
static struct gpu_cascade_prefix find_prefix(const struct gpu_cascade_job *job)
{
    uint32_t first = job->seqs, live = 0, pages = UINT32_MAX;

    for (uint32_t i = 0; i < job->seqs; i++) {
        const struct gpu_cascade_sequence own = gpu_cascade_at(job, i);
        if (own.q_len == 0)
            continue;
        first = live++ == 0 ? i : first;
        pages = own.pages < pages ? own.pages : pages;
        for (uint32_t page = 0; page < pages && i > first; page++)
            if (!gpu_cascade_is_same(job, gpu_cascade_first(job, first), gpu_cascade_first(job, i), page))
                pages = page;
    }
    return (struct gpu_cascade_prefix){live < 2 ? 0 : pages, first};
}

/* Plans a step on the host, into staging, and adds the copy. */
static int32_t prepare_host(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                            const struct attn_span *schedule, char *memory, struct pending *pending,
                            struct attn_error *err)
{
    const struct gpu_cascade *cascade = gpu_cascade_of(plan, batch);
    const struct attn_batch host = batch_on_host(batch);
    const uint64_t at = (uint64_t)(uintptr_t)memory;
    struct gpu_batch arrays;

    if (plan->sizes.schedule == 0)
        return ATTN_OK;
    gpu_resolve_batch(&arrays, &plan->problem, &host);
    if (cascade == NULL) {
        write_parts(plan, &arrays, at);
    } else {
        const struct gpu_cascade_job job = gpu_cascade_job_of(plan, &arrays, at);
        const struct gpu_cascade_prefix prefix = find_prefix(&job);
        gpu_cascade_write_prefix(&job, prefix);
        for (uint32_t i = 0; i < job.seqs; i++)
            gpu_cascade_write_suffix(&job, prefix, i);
        for (uint32_t i = 0; i < GPU_HALVES; i++) {
            const struct gpu_batch half = gpu_cascade_batch(plan, &arrays, at, (enum gpu_half)i);
            write_parts(cascade->half[i], &half, at + cascade->at[i].schedule);
        }
    }
    return add_copy(pending, gpu_address(&schedule->buffer), memory, plan->sizes.schedule, err);
}

static int32_t prepare_device(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                              const struct attn_span *schedule, struct pending *pending,
                              struct attn_error *err)
{
    const struct gpu_cascade *cascade = gpu_cascade_of(plan, batch);
    const uint64_t at = gpu_address(&schedule->buffer);
    const uint32_t one_cta[] = {1, 1, 1};
    struct gpu_batch arrays;

    gpu_resolve_batch(&arrays, &plan->problem, batch);
    if (cascade == NULL)
        return add_parts(plan, &arrays, at, pending, err);
    const struct gpu_cascade_job job = gpu_cascade_job_of(plan, &arrays, at);
    int32_t status = gpu_launch(pending->context, cascade->search, one_cta, GPU_PLAN_THREADS, 0, &job,
                                "gpu_cascade", pending->stream, err);
    for (uint32_t i = 0; i < GPU_HALVES && status == ATTN_OK; i++) {
        const struct gpu_batch half = gpu_cascade_batch(plan, &arrays, at, (enum gpu_half)i);
        status = add_parts(cascade->half[i], &half, at + cascade->at[i].schedule, pending, err);
    }
    return status;
}

/* ---------------------------------------------------------------- prepare */

static bool has_host(const struct attn_batch *batch)
{
    return (batch->given & ATTN_GIVEN_HOST_COPIES) != 0;
}

static int32_t check_step(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                          const struct attn_span *schedule, const struct attn_span *staging,
                          struct attn_error *err)
{
    int32_t status = attn__batch_align(&plan->problem, batch, err);

    if (status != ATTN_OK || plan->sizes.schedule == 0)
        return status;
    status = attn__span_align(schedule, GPU_ALIGNMENT, "schedule", err);
    return status == ATTN_OK && has_host(batch) ? attn__span_align(staging, GPU_ALIGNMENT, "staging", err)
                                                : status;
}

/* The context is current. */
static int32_t check_capture(const struct attn_plan_impl *plan, void *stream, struct attn_error *err)
{
    bool captured;
    const int32_t status = gpu_stream_is_captured(plan->backend->context, stream, &captured, err);

    if (status != ATTN_OK || !captured)
        return status;
    return attn__fail(err, ATTN_E_STATE, 0, "batch.host",
                      "host copies are read once; a step that a graph plans has none");
}

/* Takes the staging of the next plan from the front of `left`. */
static struct attn_span next_staging(const struct attn_plan_impl *plan, struct attn_span *left)
{
    const uint64_t size = plan->sizes.staging < left->size ? plan->sizes.staging : left->size;
    const struct attn_span own = {left->buffer, size};

    left->buffer.byte_offset += own.size;
    left->size -= own.size;
    return own;
}

int32_t gpu_plan_prepare_many(const struct attn_plan_impl *const *plans,
                              const struct attn_batch *const *batches, const struct attn_span *schedules,
                              uint32_t n, const struct attn_span *staging, void *stream,
                              struct attn_error *err)
{
    struct gpu_context *context = plans[0]->backend->context;
    const struct attn_span all = staging != NULL ? *staging : (struct attn_span){{NULL, 0}, 0};
    struct attn_span left = all;
    struct pending pending;
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < n && status == ATTN_OK; i++) {
        const struct attn_span own = next_staging(plans[i], &left);
        status = check_step(plans[i], batches[i], &schedules[i], &own, err);
    }
    if (status == ATTN_OK)
        status = gpu_enter(context, err);
    if (status != ATTN_OK)
        return status;
    for (uint32_t i = 0; i < n && status == ATTN_OK; i++)
        if (has_host(batches[i]))
            status = check_capture(plans[i], stream, err);
    left = all;
    pending.context = context;
    pending.stream = stream;
    pending.size = pending.jobs = 0;
    for (uint32_t i = 0; i < n && status == ATTN_OK; i++) {
        const struct attn_span own = next_staging(plans[i], &left);
        status = has_host(batches[i]) ? prepare_host(plans[i], batches[i], &schedules[i],
                                                     attn__address(&own.buffer), &pending, err)
                                      : prepare_device(plans[i], batches[i], &schedules[i], &pending, err);
    }
    if (status == ATTN_OK)
        status = flush_copy(&pending, err);
    if (status == ATTN_OK)
        status = flush_jobs(&pending, err);
    return gpu_leave(context, status);
}

int32_t gpu_plan_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                         const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                         struct attn_error *err)
{
    return gpu_plan_prepare_many(&plan, &batch, schedule, 1, staging, stream, err);
}
