/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes new keys and values into a cache, by slot mapping or by batch. All checks come before all writes. */
#include "graph.h"
#include "row.h"

/* Rows of one task hold about this many bytes of keys. */
#define TASK_BYTES 32768u

struct write {
    const struct attn_kv_write_args *args;
    const struct attn_kv_desc *desc;
    struct cpu_kv_side sides[2];
    const int64_t *slots;     /* or NULL: by batch */
    const int32_t *q_offsets; /* of the batch */
    const int32_t *kv_lens;
    struct attn_problem problem; /* the members that decide how the batch is read */
    struct cpu_run run;
    uint32_t rows;
    uint32_t task_rows;
};

static const char *element(const struct attn_tensor *tensor, uint32_t row, uint32_t head)
{
    return attn__address(&tensor->buffer) + row * tensor->token_stride + head * tensor->head_stride;
}

/* Writes all heads of one token. */
static void write_row(const struct write *write, uint32_t row, int64_t page, int64_t token)
{
    const struct attn_kv_write_args *args = write->args;

    for (uint32_t i = 0; i < cpu_kv_sides(write->desc); i++) {
        const struct cpu_kv_side *to = &write->sides[i];
        const struct attn_tensor *tensor = i == 0 ? &args->k_new : &args->v_new;
        struct cpu_row from = {
            .dtype = i == 0 ? args->k_dtype : args->v_dtype, .dim = to->view.dim, .scale = 1};
        for (uint32_t head = 0; head < write->desc->kv_heads; head++) {
            from.at = element(tensor, row, head);
            if (i == 0 && args->k_rope.buffer.data != NULL) {
                from.rest = element(&args->k_rope, row, head);
                from.split = write->desc->head_dim_vo;
            }
            if (from.dtype == to->view.dtype)
                cpu_row_copy(&from, to, page, token, head);
            else
                cpu_row_write(&from, to, page, token, head);
        }
    }
}

static void write_slots(const struct write *write, uint32_t first, uint32_t end)
{
    const struct attn_kv_desc *desc = write->desc;

    for (uint32_t row = first; row < end; row++) {
        int64_t slot = write->slots[row];
        if (slot < 0)
            continue;
        write_row(write, row, slot / desc->block, slot % desc->block);
    }
}

static void write_batch(const struct write *write, uint32_t first, uint32_t end)
{
    int64_t page, token;
    uint32_t seq = cpu_sequence_of(write->q_offsets, write->args->batch->seqs, first);

    for (uint32_t row = first; row < end; row++) {
        while ((uint32_t)write->q_offsets[seq + 1] <= row)
            seq++;
        int32_t key = write->kv_lens[seq] - (write->q_offsets[seq + 1] - (int32_t)row);
        if (cpu_locate(&write->run, seq, (uint32_t)key, &page, &token))
            write_row(write, row, page, token);
    }
}

static void write_task(void *arg, uint32_t task, uint32_t worker)
{
    const struct write *write = arg;
    uint32_t first = task * write->task_rows;
    uint32_t end = write->rows - first < write->task_rows ? write->rows : first + write->task_rows;

    (void)worker;
    if (write->slots != NULL)
        write_slots(write, first, end);
    else
        write_batch(write, first, end);
}

static int32_t check_slots(struct write *write, struct attn_error *err)
{
    uint64_t there = (uint64_t)write->desc->pages * write->desc->block;

    write->slots = (const int64_t *)(const void *)attn__address(&write->args->slot_mapping);
    for (uint32_t row = 0; row < write->rows; row++) {
        if (write->slots[row] >= 0 && (uint64_t)write->slots[row] >= there)
            return attn__fail(
                err, ATTN_E_INVALID, 0, "slot_mapping",
                "slot_mapping[%u] is %lld, the cache has %llu slots; slots below that are accepted", row,
                (long long)write->slots[row], (unsigned long long)there);
    }
    return ATTN_OK;
}

static int32_t check_batch(struct write *write, struct attn_error *err)
{
    const struct attn_batch *batch = write->args->batch;
    struct attn_problem *problem = &write->problem;
    struct attn_extent extent;

    problem->addressing = write->args->addressing;
    problem->index_dtype = write->args->index_dtype;
    problem->block = write->desc->block;
    problem->mla = write->desc->v.data == NULL;
    problem->max_seqs = batch->seqs;
    problem->max_rows = write->rows;
    problem->max_q = batch->max_q;
    problem->max_kv = batch->max_kv;
    int32_t status = cpu_batch_check_new(problem, batch, &extent, err);
    if (status == ATTN_OK)
        status = cpu_extent_check(problem, batch, &extent, write->desc, err);
    if (status != ATTN_OK)
        return status;
    write->rows = batch->num_tokens;
    write->q_offsets = (const int32_t *)(const void *)attn__address(&batch->q_offsets);
    write->kv_lens = (const int32_t *)(const void *)attn__address(&batch->kv_lens);
    cpu_walk_init(&write->run, problem, batch, write->desc);
    return ATTN_OK;
}

int32_t cpu_kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                     const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                     struct attn_error *err)
{
    struct write write = {.args = args, .desc = kv != NULL ? &kv->desc : desc, .rows = args->num_tokens};
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK && kv == NULL)
        status = attn__kv_align(desc, err);
    if (status == ATTN_OK)
        status = attn__write_align(args, err);
    const struct attn_kv_ref cache = {NULL, write.desc};
    const struct cpu_call call = {CPU_CALL_WRITE,       .args = args,     .args_size = sizeof *args,
                                  .batch = args->batch, .caches = &cache, .cache_count = 1};
    if (status == ATTN_OK && executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    if (status == ATTN_OK)
        status =
            attn__address(&args->slot_mapping) != NULL ? check_slots(&write, err) : check_batch(&write, err);
    if (status != ATTN_OK)
        return status;
    for (uint32_t i = 0; i < cpu_kv_sides(write.desc); i++)
        write.sides[i] = cpu_kv_side_of(write.desc, i == 1);
    uint64_t bytes = (uint64_t)write.desc->kv_heads * write.desc->head_dim * attn__dtype_size(args->k_dtype);
    write.task_rows = bytes < TASK_BYTES ? (uint32_t)(TASK_BYTES / bytes) : 1;
    uint32_t tasks = write.rows / write.task_rows + (write.rows % write.task_rows != 0);
    return cpu_execute(&executor, NULL, tasks, write_task, &write, err);
}
