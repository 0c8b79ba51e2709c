/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes new keys and values into a cache, by slot mapping or by batch. All checks come before all writes. */
#include <float.h>
#include <math.h>

#include "code8.h"
#include "cpu.h"

/* Elements that are converted at once. */
#define ELEMENTS 64u
/* Rows of one task hold about this many bytes of keys. */
#define TASK_BYTES 32768u

struct write {
    const struct attn_kv_write_args *args;
    const struct attn_kv_desc *desc;
    const int64_t *slots;     /* or NULL: by batch */
    const int32_t *q_offsets; /* of the batch */
    const int32_t *kv_lens;
    struct attn_problem problem; /* what of a problem the batch is read with */
    struct cpu_run run;
    uint32_t rows;
    uint32_t task_rows;
};

/* Keys or values of a write. */
struct half {
    const struct attn_tensor *from;
    uint32_t from_dtype;
    char *to; /* of the cache */
    int64_t page_stride, token_stride, head_stride;
    uint32_t to_dtype;
    const struct attn_scale *scale;
    uint32_t dim;
};

static struct half get_half(const struct write *write, bool values)
{
    const struct attn_kv_write_args *args = write->args;
    const struct attn_kv_desc *d = write->desc;

    if (values)
        return (struct half){
            &args->v_new,     args->v_dtype,     cpu_address(&d->v),
            d->v_page_stride, d->v_token_stride, d->v_head_stride,
            d->v_dtype,       &d->v_scale,       d->head_dim_vo != 0 ? d->head_dim_vo : d->head_dim};
    return (struct half){&args->k_new,     args->k_dtype,     cpu_address(&d->k),
                         d->k_page_stride, d->k_token_stride, d->k_head_stride,
                         d->k_dtype,       &d->k_scale,       d->head_dim};
}

static float largest(const struct half *half, const char *from)
{
    float values[ELEMENTS], most = 0;

    for (uint32_t i = 0; i < half->dim; i += ELEMENTS) {
        uint32_t part = half->dim - i < ELEMENTS ? half->dim - i : ELEMENTS;
        cpu_load(half->from_dtype, values, from + (size_t)i * cpu_size(half->from_dtype), part);
        for (uint32_t k = 0; k < part; k++)
            most = fabsf(values[k]) > most || isnan(values[k]) ? fabsf(values[k]) : most;
        if (isnan(most))
            break;
    }
    return most;
}

/* The scale that a row is divided by; those per token and head are found here and kept beside the cache. */
static float find_scale(const struct half *half, const char *from, int64_t page, int64_t token, int64_t head)
{
    const struct cpu_scale scale = cpu_scale_of(half->scale);

    if (scale.base == NULL || half->scale->granularity != ATTN_SCALES_TOKEN_HEAD)
        return cpu_scale_at(&scale, page, token, head);
    float most = largest(half, from), value = most / attn__code8_largest(half->to_dtype);
    if (!isfinite(most))
        value = NAN;
    else if (value < FLT_MIN)
        value = 1;
    memcpy(scale.base + page * scale.outer_stride + token * scale.token_stride + head * scale.head_stride,
           &value, sizeof value);
    return value;
}

static void copy_row(const struct half *half, char *to, const char *from, int64_t page, int64_t token,
                     int64_t head)
{
    float buffer[ELEMENTS], scale = 1;

    if (half->to_dtype == half->from_dtype) {
        memcpy(to, from, (size_t)half->dim * cpu_size(half->to_dtype));
        return;
    }
    if (cpu_size(half->to_dtype) == 1)
        scale = find_scale(half, from, page, token, head);
    for (uint32_t i = 0; i < half->dim; i += ELEMENTS) {
        uint32_t part = half->dim - i < ELEMENTS ? half->dim - i : ELEMENTS;
        cpu_load(half->from_dtype, buffer, from + (size_t)i * cpu_size(half->from_dtype), part);
        for (uint32_t k = 0; scale != 1 && k < part; k++)
            buffer[k] /= scale;
        cpu_store(half->to_dtype, to + (size_t)i * cpu_size(half->to_dtype), buffer, part);
    }
}

/* All heads of one row. */
static void write_row(const struct write *write, uint32_t row, int64_t page, int64_t token)
{
    for (int values = 0; values < 2; values++) {
        const struct half half = get_half(write, values != 0);
        char *to = half.to + page * half.page_stride + token * half.token_stride;
        const char *from = cpu_address(&half.from->buffer) + row * half.from->token_stride;
        for (uint32_t head = 0; head < write->desc->kv_heads; head++)
            copy_row(&half, to + head * half.head_stride, from + head * half.from->head_stride, page, token,
                     head);
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

/* The sequence of a row: the last one whose offset is not behind it. */
static uint32_t find_sequence(const struct write *write, uint32_t row)
{
    uint32_t low = 0, high = write->args->batch->seqs;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if ((uint32_t)write->q_offsets[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void write_batch(const struct write *write, uint32_t first, uint32_t end)
{
    int64_t page, token;
    uint32_t seq = find_sequence(write, first);

    for (uint32_t row = first; row < end; row++) {
        while ((uint32_t)write->q_offsets[seq + 1] <= row)
            seq++;
        int32_t key = write->kv_lens[seq] - (write->q_offsets[seq + 1] - (int32_t)row);
        if (cpu_locate(&write->run, seq, (uint32_t)key, &page, &token))
            write_row(write, row, page, token);
    }
}

static void write_task(void *arg, uint32_t task, uint32_t lane)
{
    const struct write *write = arg;
    uint32_t first = task * write->task_rows;
    uint32_t end = write->rows - first < write->task_rows ? write->rows : first + write->task_rows;

    (void)lane;
    if (write->slots != NULL)
        write_slots(write, first, end);
    else
        write_batch(write, first, end);
}

static int32_t check_slots(struct write *write, struct attn_error *err)
{
    uint64_t there = (uint64_t)write->desc->pages * write->desc->block;
    uintptr_t address = (uintptr_t)cpu_address(&write->args->slot_mapping);

    if (address % sizeof(int64_t) != 0)
        return cpu_fail(err, ATTN_E_INVALID, 0, "slot_mapping", "its address is no multiple of 8");
    write->slots = (const int64_t *)address;
    for (uint32_t row = 0; row < write->rows; row++) {
        if (write->slots[row] >= 0 && (uint64_t)write->slots[row] >= there)
            return cpu_fail(err, ATTN_E_INVALID, 0, "slot_mapping",
                            "slot_mapping[%u] is %lld, the cache has %llu slots", row,
                            (long long)write->slots[row], (unsigned long long)there);
    }
    return ATTN_OK;
}

static int32_t check_batch(struct write *write, struct attn_error *err)
{
    const struct attn_batch *batch = write->args->batch;
    struct attn_problem *problem = &write->problem;
    struct cpu_extent extent;

    if (batch == NULL)
        return cpu_fail(err, ATTN_E_INVALID, 0, "batch", "neither slot_mapping nor batch is given");
    problem->addressing = write->args->addressing;
    problem->index_dtype = write->args->index_dtype;
    problem->block = write->desc->block;
    problem->max_seqs = batch->seqs;
    problem->max_rows = write->rows;
    problem->max_q = batch->max_q;
    problem->max_kv = batch->max_kv;
    if (problem->addressing < ATTN_DENSE || problem->addressing > ATTN_CSR)
        return cpu_fail(err, ATTN_E_INVALID, 0, "addressing",
                        "addressing is %u; dense (1), table (2) and csr (3) are accepted",
                        problem->addressing);
    int32_t status = cpu_batch_check(problem, batch, &extent, err);
    if (status == ATTN_OK)
        status = cpu_extent_check(problem, batch, &extent, write->desc, err);
    if (status != ATTN_OK)
        return status;
    write->rows = batch->rows;
    write->q_offsets = (const int32_t *)(const void *)cpu_address(&batch->q_offsets);
    write->kv_lens = (const int32_t *)(const void *)cpu_address(&batch->kv_lens);
    for (uint32_t n = 0; n < batch->seqs; n++) {
        if (write->q_offsets[n + 1] - write->q_offsets[n] > write->kv_lens[n])
            return cpu_fail(err, ATTN_E_INVALID, 0, "kv_lens",
                            "kv_lens[%u] is %d, but the sequence has %d new tokens", n, write->kv_lens[n],
                            write->q_offsets[n + 1] - write->q_offsets[n]);
    }
    cpu_walk_init(&write->run, problem, batch, write->desc);
    return ATTN_OK;
}

/* New rows of 8 bits come without a scale: they are codes of the cache's own. */
static int32_t check_types(uint32_t from, uint32_t to, const struct attn_scale *scale, const char *name,
                           struct attn_error *err)
{
    if (cpu_size(from) > 1 ||
        (cpu_size(from) == 1 && from == to &&
         (scale->kind == ATTN_SCALE_UNIT || scale->granularity != ATTN_SCALES_TOKEN_HEAD)))
        return ATTN_OK;
    return cpu_fail(err, ATTN_E_UNSUPPORTED, name[0] == 'k' ? ATTN_REASON_DTYPE_K : ATTN_REASON_DTYPE_V, name,
                    "%s of the new rows is %s, the cache's is %s; f32, f16 and bf16 are served, and codes of "
                    "the cache's own 8-bit type if its scale is not token-head",
                    name, cpu_type_name(from), cpu_type_name(to));
}

static int32_t check_new(const struct write *write, struct attn_error *err)
{
    const struct attn_kv_write_args *args = write->args;
    const struct attn_kv_desc *desc = write->desc;
    uint32_t dim_vo = desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim;
    int32_t wrong = check_types(args->k_dtype, desc->k_dtype, &desc->k_scale, "k_dtype", err);

    if (wrong == ATTN_OK)
        wrong = check_types(args->v_dtype, desc->v_dtype, &desc->v_scale, "v_dtype", err);
    if (wrong != ATTN_OK)
        return wrong;
    int32_t status = cpu_tensor_check(&args->k_new, write->rows, desc->kv_heads, desc->head_dim,
                                      cpu_size(args->k_dtype), 0, "k_new", err);
    if (status != ATTN_OK)
        return status;
    return cpu_tensor_check(&args->v_new, write->rows, desc->kv_heads, dim_vo, cpu_size(args->v_dtype), 0,
                            "v_new", err);
}

int32_t cpu_kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                     const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                     struct attn_error *err)
{
    struct write write = {.args = args, .desc = kv != NULL ? &kv->desc : desc, .rows = args->rows};
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK && write.desc == NULL)
        status = cpu_fail(err, ATTN_E_INVALID, 0, "kv", "neither a cache nor a description is given");
    if (status == ATTN_OK && kv == NULL)
        status = cpu_kv_check(desc, err);
    if (status == ATTN_OK)
        status =
            cpu_address(&args->slot_mapping) != NULL ? check_slots(&write, err) : check_batch(&write, err);
    if (status == ATTN_OK)
        status = check_new(&write, err);
    if (status != ATTN_OK)
        return status;
    uint64_t bytes = (uint64_t)write.desc->kv_heads * write.desc->head_dim * cpu_size(args->k_dtype);
    write.task_rows = bytes < TASK_BYTES ? (uint32_t)(TASK_BYTES / bytes) : 1;
    uint32_t tasks = write.rows / write.task_rows + (write.rows % write.task_rows != 0);
    return cpu_execute(&executor, NULL, tasks, write_task, &write, err);
}
