/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes the schedule of a step: a header and the work items. */
#include "graph.h"
#include "schedule.h"

static const int32_t *array(const struct attn_buffer *buffer)
{
    return (const int32_t *)(const void *)attn__address(buffer);
}

static uint32_t hash_words(uint32_t hash, const int32_t *words, uint32_t count)
{
    for (uint32_t i = 0; words != NULL && i < count; i++)
        hash = (hash ^ (uint32_t)words[i]) * UINT32_C(0x9e3779b1);
    return hash;
}

uint32_t cpu_lengths_hash(const struct attn_batch *batch)
{
    uint32_t hash = hash_words(1, array(&batch->q_offsets), batch->seqs + 1);

    hash = hash_words(hash, array(&batch->kv_lens), batch->seqs);
    return hash_words(hash, array(&batch->kv_offsets), batch->kv_offsets.data != NULL ? batch->seqs + 1 : 0);
}

static void write_schedule(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                           const struct attn_extent *extent, struct cpu_schedule *out)
{
    struct attn_planner planner = cpu_planner(&plan->problem, plan->backend->threads);
    struct attn_planner_batch arrays = {.seqs = batch->seqs, .position_dtype = batch->position_dtype};
    struct attn_planner_result result;

    const uint64_t rows = (uint64_t)batch->num_tokens * plan->problem.heads;
    const uint32_t least = planner.prefill_rows;
    planner.prefill_rows = plan->kernels[1]->prefill_rows;
    while (planner.prefill_rows > least &&
           rows < (uint64_t)planner.prefill_rows * CPU_PREFILL_ITEMS * planner.units)
        planner.prefill_rows /= 2;
    arrays.q_offsets = array(&batch->q_offsets);
    arrays.kv_lens = array(&batch->kv_lens);
    arrays.kv_offsets = array(&batch->kv_offsets);
    arrays.shard = attn__cp_shard_of(&plan->problem, batch);
    if (plan->problem.cp != 0)
        arrays.global_lens = array(&batch->kv_global_lens);
    if (plan->problem.seq_causal != 0)
        arrays.seq_causal = (const uint8_t *)attn__address(&batch->seq_causal);
    if (plan->problem.positions != 0)
        arrays.positions = attn__address(&batch->q_positions);
    attn__planner_run(&planner, &arrays, cpu_schedule_items(out), &result);
    *out = (struct cpu_schedule){.magic = CPU_SCHEDULE_MAGIC,
                                 .seqs = batch->seqs,
                                 .num_tokens = batch->num_tokens,
                                 .items = result.items,
                                 .counters = result.counters,
                                 .max_kv = extent->max_kv,
                                 .last_key = extent->last_key,
                                 .problem = plan->hash,
                                 .lengths = cpu_lengths_hash(batch)};
}

int32_t cpu_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                    const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                    struct attn_error *err)
{
    struct cpu_executor executor;
    struct attn_extent extent;
    int32_t status = cpu_executor_init(&executor, plan->backend, stream, err);

    (void)staging;
    if (status == ATTN_OK)
        status = attn__span_align(schedule, CPU_ALIGNMENT, "schedule", err);
    if (status == ATTN_OK && executor.recording != NULL) {
        if ((batch->given & ATTN_GIVEN_HOST_COPIES) != 0)
            return attn__fail(err, ATTN_E_STATE, 0, "batch.host",
                              "host copies are read once; a step that a graph plans has none");
        const struct cpu_call call = {CPU_CALL_PREPARE, .args = schedule, .args_size = sizeof *schedule,
                                      .plan = plan, .batch = batch};
        return cpu_record(executor.recording, &call, err);
    }
    if (status == ATTN_OK)
        status = cpu_batch_check(&plan->problem, batch, &extent, err);
    if (status != ATTN_OK)
        return status;
    if (cpu_is_first(&executor))
        write_schedule(plan, batch, &extent, (struct cpu_schedule *)(void *)attn__address(&schedule->buffer));
    cpu_join(&executor);
    return ATTN_OK;
}
