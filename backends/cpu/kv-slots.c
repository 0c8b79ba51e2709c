/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Slots of the new tokens of a batch. */
#include "graph.h"

/* Tokens of one task. */
#define TASK_ROWS 2048u

struct slots {
    struct cpu_run run;
    const int32_t *q_offsets;
    const int32_t *kv_lens;
    int64_t *slots;
    uint32_t seqs;
    uint32_t rows;
    int64_t block;
};

/* Writes slots of keys [key, key + count) of a sequence, page by page. */
static void map_keys(const struct slots *slots, uint32_t seq, uint32_t key, uint32_t count, int64_t *out)
{
    const struct cpu_run *run = &slots->run;
    int64_t page, token;

    while (count > 0) {
        bool invalid = !cpu_locate(run, seq, key, &page, &token);
        uint32_t here = count;
        if (run->addressing != ATTN_DENSE && slots->block - token < (int64_t)count)
            here = (uint32_t)(slots->block - token);
        int64_t slot = invalid ? -1 : page * slots->block + token;
        for (uint32_t i = 0; i < here; i++)
            *out++ = invalid ? -1 : slot + i;
        key += here;
        count -= here;
    }
}

/* Writes the slots of a task's tokens, sequence by sequence. */
static void slots_task(void *arg, uint32_t task, uint32_t worker)
{
    const struct slots *slots = arg;
    uint32_t first = task * TASK_ROWS;
    uint32_t end = slots->rows - first < TASK_ROWS ? slots->rows : first + TASK_ROWS;

    (void)worker;
    for (uint32_t row = first, seq = cpu_sequence_of(slots->q_offsets, slots->seqs, first); row < end;
         seq++) {
        uint32_t behind = (uint32_t)slots->q_offsets[seq + 1];
        uint32_t to = behind < end ? behind : end;
        if (to <= row)
            continue;
        map_keys(slots, seq, (uint32_t)slots->kv_lens[seq] - (behind - row), to - row, slots->slots + row);
        row = to;
    }
}

/* Checks that every slot fits 64 bits, which is not certain with 64-bit page numbers. */
static int32_t check_pages(const struct slots *slots, int64_t last_page, struct attn_error *err)
{
    int64_t end;

    if (__builtin_add_overflow(last_page, 1, &end) || __builtin_mul_overflow(end, slots->block, &end))
        return attn__fail(err, ATTN_E_INVALID, 0, "csr_indices",
                          "page %lld of %lld tokens has no slots of 64 bits; lower page numbers are accepted",
                          (long long)last_page, (long long)slots->block);
    return ATTN_OK;
}

static int32_t check_batch(struct slots *slots, const struct attn_kv_slot_mapping_args *args,
                           struct attn_error *err)
{
    const struct attn_batch *batch = args->batch;
    const struct attn_problem problem = {.addressing = args->addressing,
                                         .index_dtype = args->index_dtype,
                                         .block = args->block,
                                         .max_seqs = batch->seqs,
                                         .max_rows = batch->num_tokens,
                                         .max_q = batch->max_q,
                                         .max_kv = batch->max_kv};
    const struct attn_kv_desc none = {0};
    struct attn_extent extent;
    int32_t status = cpu_batch_check_new(&problem, batch, &extent, err);

    if (status != ATTN_OK)
        return status;
    if (problem.addressing == ATTN_DENSE && batch->kv_offsets.data == NULL && extent.max_kv > args->block)
        return attn__fail(err, ATTN_E_INVALID, 0, "kv_lens",
                          "a sequence has %u keys; up to the %u tokens of a page are accepted", extent.max_kv,
                          args->block);
    cpu_walk_init(&slots->run, &problem, batch, &none);
    return check_pages(slots, extent.last_key, err);
}

int32_t cpu_kv_slot_mapping(struct attn_backend_impl *backend, const struct attn_kv_slot_mapping_args *args,
                            void *stream, struct attn_error *err)
{
    const struct attn_batch *batch = args->batch;
    struct slots slots = {.q_offsets = (const int32_t *)(const void *)attn__address(&batch->q_offsets),
                          .kv_lens = (const int32_t *)(const void *)attn__address(&batch->kv_lens),
                          .slots = (int64_t *)(void *)attn__address(&args->slots),
                          .seqs = batch->seqs,
                          .rows = batch->num_tokens,
                          .block = args->block};
    const struct attn__place place = {&args->slots, sizeof *slots.slots, "slots"};
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK)
        status = attn__align_check(&place, 1, err);
    const struct cpu_call call = {CPU_CALL_SLOT_MAPPING, .args = args, .args_size = sizeof *args,
                                  .batch = batch};
    if (status == ATTN_OK && executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    if (status == ATTN_OK)
        status = check_batch(&slots, args, err);
    if (status != ATTN_OK)
        return status;
    uint32_t tasks = slots.rows / TASK_ROWS + (slots.rows % TASK_ROWS != 0);
    return cpu_execute(&executor, NULL, tasks, slots_task, &slots, err);
}
