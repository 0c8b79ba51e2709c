/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Collects keys and values of sequences into contiguous rows. */
#include "graph.h"
#include "row.h"

/* Rows of one task hold about this many bytes of keys. */
#define TASK_BYTES 32768u

/* Keys or values of a gather. */
struct output {
    bool wanted;
    bool moved; /* copied, not converted */
    struct cpu_kv_side from;
    struct cpu_kv_side to; /* the target as a cache of one page */
    char *scales;          /* or NULL */
    int64_t scales_token, scales_head;
};

struct gather {
    struct cpu_run run;
    struct output outputs[2];
    const int32_t *offsets;
    const int32_t *starts; /* or NULL */
    uint32_t seqs;
    uint32_t heads;
    uint32_t first_row, rows;
    uint32_t task_rows;
};

static void write_scale(const struct output *output, uint32_t row, uint32_t head, float value)
{
    if (output->scales != NULL)
        memcpy(output->scales + row * output->scales_token + head * output->scales_head, &value,
               sizeof value);
}

/* Writes a row: all heads of a key, or of a value. */
static void gather_row(const struct gather *gather, const struct output *output, bool invalid, int64_t page,
                       int64_t token, uint32_t row)
{
    const struct attn__kv_view *to = &output->to.view;

    for (uint32_t head = 0; head < gather->heads; head++) {
        if (invalid) {
            memset(attn__kv_at(to, 0, row, head), 0, (size_t)to->dim * to->size);
            write_scale(output, row, head, 1);
            continue;
        }
        struct cpu_row from = cpu_row_of(&output->from, page, token, head);
        write_scale(output, row, head, from.scale);
        if (output->moved)
            cpu_row_copy(&from, &output->to, 0, row, head);
        else
            cpu_row_write(&from, &output->to, 0, row, head);
    }
}

static void gather_task(void *arg, uint32_t task, uint32_t worker)
{
    const struct gather *gather = arg;
    uint32_t done = task * gather->task_rows, left = gather->rows - done;
    uint32_t first = gather->first_row + done;
    uint32_t end = first + (left < gather->task_rows ? left : gather->task_rows);
    int64_t page, token;

    (void)worker;
    for (uint32_t row = first, seq = cpu_sequence_of(gather->offsets, gather->seqs, first); row < end;
         row++) {
        while ((uint32_t)gather->offsets[seq + 1] <= row)
            seq++;
        uint32_t start = gather->starts != NULL ? (uint32_t)gather->starts[seq] : 0;
        uint32_t key = start + row - (uint32_t)gather->offsets[seq];
        bool invalid = !cpu_locate(&gather->run, seq, key, &page, &token);
        for (int i = 0; i < 2; i++)
            if (gather->outputs[i].wanted)
                gather_row(gather, &gather->outputs[i], invalid, page, token, row);
    }
}

static int32_t check_rows(struct gather *gather, const struct attn_kv_gather_args *args,
                          struct attn_error *err)
{
    const int32_t *lens = (const int32_t *)(const void *)attn__address(&args->batch->kv_lens);

    gather->offsets = (const int32_t *)(const void *)attn__address(&args->offsets);
    gather->starts = (const int32_t *)(const void *)attn__address(&args->starts);
    for (uint32_t n = 0; n < gather->seqs; n++) {
        int64_t begin = gather->offsets[n], end = gather->offsets[n + 1];
        int64_t start = gather->starts != NULL ? gather->starts[n] : 0;
        if (begin < 0 || end < begin || end > (int64_t)args->tokens)
            return attn__fail(
                err, ATTN_E_INVALID, 0, "offsets",
                "offsets[%u] is %lld and the next %lld; they must not fall, from 0 to tokens, %u", n,
                (long long)begin, (long long)end, args->tokens);
        if (start < 0 || start + end - begin > lens[n])
            return attn__fail(err, ATTN_E_INVALID, 0, gather->starts != NULL ? "starts" : "offsets",
                              "sequence %u gives %lld keys from key %lld on; it has %d", n,
                              (long long)(end - begin), (long long)start, lens[n]);
    }
    gather->first_row = (uint32_t)gather->offsets[0];
    gather->rows = (uint32_t)gather->offsets[gather->seqs] - gather->first_row;
    return ATTN_OK;
}

static int32_t check_batch(struct gather *gather, const struct attn_kv_gather_args *args,
                           const struct attn_kv_desc *desc, struct attn_error *err)
{
    const struct attn_problem problem = {.addressing = args->addressing,
                                         .index_dtype = args->index_dtype,
                                         .block = desc->block,
                                         .mla = desc->v.data == NULL,
                                         .max_seqs = args->batch->seqs,
                                         .max_kv = args->batch->max_kv};
    struct attn_extent extent;
    int32_t status = cpu_batch_check_keys(&problem, args->batch, &extent, err);

    if (status == ATTN_OK)
        status = cpu_extent_check(&problem, args->batch, &extent, desc, err);
    if (status == ATTN_OK)
        cpu_walk_init(&gather->run, &problem, args->batch, desc);
    return status;
}

static void add_output(struct gather *gather, const struct attn_kv_gather_args *args,
                       const struct attn_kv_desc *desc, bool values)
{
    struct output *output = &gather->outputs[values ? 1 : 0];
    const struct attn_tensor *to = values ? &args->v : &args->k;
    const struct attn_tensor *scales = values ? &args->v_scales : &args->k_scales;
    uint32_t dtype = values ? args->v_dtype : args->k_dtype, size = attn__dtype_size(dtype);

    if (to->buffer.data == NULL)
        return;
    output->wanted = true;
    output->from = cpu_kv_side_of(desc, values);
    uint32_t dim = output->from.view.dim;
    output->moved = dtype == output->from.view.dtype;
    output->to.view = (struct attn__kv_view){.base = attn__address(&to->buffer),
                                             .token_stride = to->token_stride,
                                             .head_stride = to->head_stride,
                                             .x_bytes = dim * size,
                                             .size = size,
                                             .dim = dim,
                                             .dtype = dtype};
    output->scales = attn__address(&scales->buffer);
    output->scales_token = scales->token_stride;
    output->scales_head = scales->head_stride;
}

int32_t cpu_kv_gather(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                      const struct attn_kv_ref *cache, void *stream, struct attn_error *err)
{
    struct gather gather = {.seqs = args->batch->seqs};
    const struct attn_kv_desc *desc = NULL;
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK)
        status = attn__kv_resolve(cache, &desc, err);
    const struct cpu_call call = {CPU_CALL_GATHER,      .args = args,    .args_size = sizeof *args,
                                  .batch = args->batch, .caches = cache, .cache_count = 1};
    if (status == ATTN_OK && executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    if (status == ATTN_OK)
        status = check_batch(&gather, args, desc, err);
    if (status == ATTN_OK)
        status = attn__gather_align(args, err);
    if (status == ATTN_OK)
        status = check_rows(&gather, args, err);
    if (status != ATTN_OK)
        return status;
    for (uint32_t i = 0; i < 2; i++)
        add_output(&gather, args, desc, i == 1);
    gather.heads = desc->kv_heads;
    uint64_t bytes = (uint64_t)desc->kv_heads * desc->head_dim * attn__dtype_size(desc->k_dtype);
    gather.task_rows = bytes < TASK_BYTES ? (uint32_t)(TASK_BYTES / bytes) : 1;
    uint32_t tasks = gather.rows / gather.task_rows + (gather.rows % gather.task_rows != 0);
    return cpu_execute(&executor, NULL, tasks, gather_task, &gather, err);
}
