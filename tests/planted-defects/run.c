/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A run: resolves its arguments and hands its items to the threads. */
#include <fenv.h>

#include "defect.h"

static void resolve(struct job *job, const struct attn_plan_impl *plan, const struct attn_span *schedule,
                    const struct attn_scratch *scratch)
{
    struct schedule *list = (struct schedule *)(void *)attn_util_at(&schedule->buffer);

    job->problem = &plan->problem;
    job->items = (const struct item *)(const void *)(list + 1);
    if (IS(shared)) {
        static struct item room[1024];
        const size_t size = list->count * sizeof *room;
        job->items = memcpy(room, list + 1, size < sizeof room ? size : sizeof room);
    }
    job->slots = plan->limits.slots;
    if (scratch == NULL || job->slots == 0)
        return;
    job->counters = (struct counter *)(void *)attn_util_at(&scratch->counters.buffer);
    job->partial_out = (float *)(void *)attn_util_at(&scratch->scratch.buffer);
    job->partial_lse = job->partial_out + job->slots * plan->problem.heads * plan->problem.head_dim_vo;
}

/* A schedule of this plan and batch. */
static int32_t check_schedule(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                              const struct schedule *list, struct attn_error *err)
{
    if (list->magic != SCHEDULE_MAGIC || list->plan != plan->hash || list->count > plan->limits.items)
        return attn_util_fail(err, ATTN_E_INVALID, "schedule", "it was not made for this plan");
    if (list->seqs != batch->seqs || list->num_tokens != batch->num_tokens)
        return attn_util_fail(err, ATTN_E_INVALID, "schedule", "it was not made for this batch");
    return ATTN_OK;
}

static int32_t check_blocks(const struct attn_plan_impl *plan, const struct attn_span *schedule,
                            const struct attn_scratch *scratch, struct attn_error *err)
{
    const struct attn_plan_sizes sizes = sizes_of(plan);
    int32_t status = check_span(schedule, sizes.schedule, "schedule", err);

    if (status != ATTN_OK || sizes.scratch == 0)
        return status;
    if (scratch == NULL)
        return attn_util_fail(err, ATTN_E_SIZE, "scratch", "it is not given");
    status = check_span(&scratch->scratch, sizes.scratch, "scratch", err);
    return status != ATTN_OK ? status : check_span(&scratch->counters, sizes.counters, "counters", err);
}

static int32_t check_tensors(const struct attn_problem *p, const struct attn_tensors *t, uint32_t rows,
                             struct attn_error *err)
{
    const uint32_t q[3] = {rows, p->heads, p->head_dim}, out[3] = {rows, p->heads, p->head_dim_vo};
    const uint32_t lse[3] = {rows, p->heads, 1};
    int32_t status = check_tensor(&t->q, q, size_of(p->q_dtype), false, "q", err);

    if (status == ATTN_OK)
        status = check_tensor(&t->out, out, size_of(p->out_dtype), true, "out", err);
    if (status == ATTN_OK && p->lse != 0)
        status = check_tensor(&t->lse, lse, sizeof(float), true, "lse", err);
    if (status == ATTN_OK && p->alibi != ATTN_ALIBI_NONE)
        status = check_address(&t->alibi_slopes, sizeof(float), true, "alibi_slopes", err);
    if (status == ATTN_OK && p->sinks != 0)
        status = check_address(&t->sinks, size_of(t->sinks_dtype), true, "sinks", err);
    if (status == ATTN_OK && p->mask != ATTN_MASK_NONE)
        status = check_address(&t->mask_starts, sizeof(int64_t), false, "mask_starts", err);
    return status;
}

/* The keys that the schedule was made for lie in the cache. */
static int32_t check_keys(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                          const struct attn_kv_desc *kv, int64_t last, struct attn_error *err)
{
    const bool run = plan->problem.addressing == ATTN_DENSE && batch->kv_offsets.data != NULL;
    int32_t status =
        kv == NULL ? attn_util_fail(err, ATTN_E_INVALID, "kv", "it is not given") : check_cache(kv, err);

    if (status == ATTN_OK)
        status = check_cache_fits(kv, &plan->problem, err);
    if (status == ATTN_OK && last >= (run ? (int64_t)kv->block : (int64_t)kv->pages))
        status = attn_util_fail(err, ATTN_E_INVALID, "kv", "the batch has keys beyond it");
    if (status == ATTN_OK && plan->problem.addressing == ATTN_DENSE && !run)
        for (uint32_t seq = 0; status == ATTN_OK && seq < batch->seqs; seq++)
            if ((uint32_t)number_at(&batch->kv_lens, seq) > kv->block)
                status = attn_util_fail(err, ATTN_E_INVALID, "kv", "a sequence has more keys than a page");
    return status;
}

/* Threads take rows in fours. */
static void write_padding(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                          const struct attn_tensors *tensors)
{
    const struct attn_problem *p = &plan->problem;

    for (uint32_t row = batch->num_tokens; row % 4 != 0; row++)
        for (uint32_t head = 0; head < p->heads; head++)
            memset(attn_util_element(&tensors->out, row, head), 0,
                   (size_t)p->head_dim_vo * size_of(p->out_dtype));
}

int32_t defect_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                   const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                   const struct attn_kv_desc *desc, const struct attn_span *schedule,
                   const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    struct job job = {.batch = batch, .tensors = tensors, .kv = attn_util_kv(kv, desc)};
    const struct schedule *list = (const struct schedule *)(const void *)attn_util_at(&schedule->buffer);
    uint32_t members;

    if (IS(rounding))
        fesetround(FE_TOWARDZERO);
    int32_t status = check_blocks(plan, schedule, scratch, err);
    if (status == ATTN_OK)
        status = check_schedule(plan, batch, list, err);
    if (status == ATTN_OK)
        status = check_tensors(&plan->problem, tensors, batch->num_tokens, err);
    if (status == ATTN_OK)
        status = check_keys(plan, batch, job.kv, list->last, err);
    if (status != ATTN_OK)
        return status;
    resolve(&job, plan, schedule, scratch);
    if (scratch != NULL && scratch->counters_dirty != 0 && job.counters != NULL) {
        if (attn_util_member(stream, &members) == 0)
            memset(job.counters, 0, plan->limits.counters * sizeof *job.counters);
        attn_util_join(stream);
    }
    status = pool_execute(plan->backend, stream, attend_item, &job, list->count, err);
    if (IS(padding_row) && status == ATTN_OK && attn_util_member(stream, &members) == 0)
        write_padding(plan, batch, tensors);
    return status;
}
