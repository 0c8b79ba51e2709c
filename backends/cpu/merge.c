/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merge and rescale of partial results (docs/definition.md, section 3). Weights are double, columns f32. */
#include <math.h>

#include "graph.h"

#define LN2 0.69314718055994530942
/* Columns that are merged at once. */
#define COLUMNS 64u
/* (row, head) pairs of one task. */
#define TASK_PAIRS 16u

struct merge {
    const struct attn_merge_args *args;
    uint64_t pairs;
};

struct rescale {
    const struct attn_rescale_args *args;
    uint64_t pairs;
};

static char *pair_at(const struct attn_tensor *tensor, uint32_t row, uint32_t head)
{
    return attn__address(&tensor->buffer) + row * tensor->token_stride + head * tensor->head_stride;
}

/* Reads an LSE as a natural logarithm; -inf for an empty part, also if it is marked by +inf. */
static double load_lse(const struct attn_tensor *tensor, uint32_t row, uint32_t head, uint32_t base)
{
    float lse;

    memcpy(&lse, pair_at(tensor, row, head), sizeof lse);
    if (isinf(lse))
        return -(double)INFINITY;
    return base == ATTN_LSE_BASE2 ? (double)lse * LN2 : (double)lse;
}

/* The LSE of all parts; -inf if all are empty, NaN if one is NaN. */
static double add_lses(double max_lse, double sum)
{
    return max_lse == -(double)INFINITY ? max_lse : max_lse + log(sum);
}

static void merge_pair(const struct attn_merge_args *args, uint32_t row, uint32_t head)
{
    double max_lse = -(double)INFINITY, sum = 0;
    uint32_t size = attn__dtype_size(args->dtype);
    float buffer[COLUMNS], values[COLUMNS];

    for (uint32_t k = 0; k < args->count; k++) {
        double lse = load_lse(&args->parts[k].lse, row, head, args->lse_base);
        max_lse = lse > max_lse || isnan(lse) ? lse : max_lse;
    }
    for (uint32_t k = 0; k < args->count && max_lse != -(double)INFINITY; k++)
        sum += exp(load_lse(&args->parts[k].lse, row, head, args->lse_base) - max_lse);
    for (uint32_t d = 0; d < args->head_dim; d += COLUMNS) {
        uint32_t count = args->head_dim - d < COLUMNS ? args->head_dim - d : COLUMNS;
        memset(buffer, 0, sizeof buffer);
        for (uint32_t k = 0; k < args->count; k++) {
            double lse = load_lse(&args->parts[k].lse, row, head, args->lse_base);
            if (lse == -(double)INFINITY)
                continue;
            float weight = (float)(exp(lse - max_lse) / sum);
            cpu_load(args->dtype, values, pair_at(&args->parts[k].out, row, head) + (size_t)d * size, count);
            for (uint32_t i = 0; i < count; i++)
                buffer[i] += weight * values[i];
        }
        /* Stored last, because the result may overwrite a part. */
        cpu_store(args->dtype, pair_at(&args->out, row, head) + (size_t)d * size, buffer, count);
    }
    if (attn__address(&args->lse.buffer) != NULL) {
        float lse = (float)add_lses(max_lse, sum);
        memcpy(pair_at(&args->lse, row, head), &lse, sizeof lse);
    }
}

static void merge_task(void *arg, uint32_t task, uint32_t worker)
{
    const struct merge *merge = arg;
    uint64_t first = (uint64_t)task * TASK_PAIRS, end = first + TASK_PAIRS;

    (void)worker;
    for (uint64_t pair = first; pair < end && pair < merge->pairs; pair++)
        merge_pair(merge->args, (uint32_t)(pair / merge->args->heads), (uint32_t)(pair % merge->args->heads));
}

static void rescale_pair(const struct attn_rescale_args *args, uint32_t row, uint32_t head)
{
    double own = load_lse(&args->own, row, head, args->lse_base);
    double max_lse = -(double)INFINITY, sum = 0;
    uint32_t size = attn__dtype_size(args->dtype);
    float buffer[COLUMNS];

    for (uint32_t k = 0; k < args->count; k++) {
        double lse = load_lse(&args->all[k], row, head, args->lse_base);
        max_lse = lse > max_lse || isnan(lse) ? lse : max_lse;
    }
    for (uint32_t k = 0; k < args->count && max_lse != -(double)INFINITY; k++)
        sum += exp(load_lse(&args->all[k], row, head, args->lse_base) - max_lse);
    double share = exp(own - add_lses(max_lse, sum));
    for (uint32_t d = 0; d < args->head_dim; d += COLUMNS) {
        uint32_t count = args->head_dim - d < COLUMNS ? args->head_dim - d : COLUMNS;
        char *at = pair_at(&args->out, row, head) + (size_t)d * size;
        cpu_load(args->dtype, buffer, at, count);
        for (uint32_t i = 0; i < count; i++)
            buffer[i] = own == -(double)INFINITY ? 0 : (float)((double)buffer[i] * share);
        cpu_store(args->dtype, at, buffer, count);
    }
}

static void rescale_task(void *arg, uint32_t task, uint32_t worker)
{
    const struct rescale *rescale = arg;
    uint64_t first = (uint64_t)task * TASK_PAIRS, end = first + TASK_PAIRS;

    (void)worker;
    for (uint64_t pair = first; pair < end && pair < rescale->pairs; pair++)
        rescale_pair(rescale->args, (uint32_t)(pair / rescale->args->heads),
                     (uint32_t)(pair % rescale->args->heads));
}

/* Task numbers have 32 bits. */
static int32_t check_pairs(uint32_t rows, uint32_t heads, struct attn_error *err)
{
    if ((uint64_t)rows * heads / TASK_PAIRS < UINT32_MAX)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_INVALID, 0, "num_tokens",
                      "%u rows of %u heads are too many for one call; merge them in several calls", rows,
                      heads);
}

static uint32_t count_tasks(uint64_t pairs)
{
    return (uint32_t)((pairs + TASK_PAIRS - 1) / TASK_PAIRS);
}

int32_t cpu_merge(struct attn_backend_impl *backend, const struct attn_merge_args *args, void *stream,
                  struct attn_error *err)
{
    struct merge merge = {args, (uint64_t)args->num_tokens * args->heads};
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK)
        status = check_pairs(args->num_tokens, args->heads, err);
    if (status == ATTN_OK)
        status = attn__merge_align(args, err);
    if (status != ATTN_OK)
        return status;
    const struct cpu_call call = {CPU_CALL_MERGE, .args = args, .args_size = sizeof *args,
                                  .list = args->parts, .list_size = args->count * sizeof *args->parts};
    if (executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    return cpu_execute(&executor, NULL, count_tasks(merge.pairs), merge_task, &merge, err);
}

int32_t cpu_rescale(struct attn_backend_impl *backend, const struct attn_rescale_args *args, void *stream,
                    struct attn_error *err)
{
    struct rescale rescale = {args, (uint64_t)args->num_tokens * args->heads};
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK)
        status = check_pairs(args->num_tokens, args->heads, err);
    if (status == ATTN_OK)
        status = attn__rescale_align(args, err);
    if (status != ATTN_OK)
        return status;
    const struct cpu_call call = {CPU_CALL_RESCALE, .args = args, .args_size = sizeof *args,
                                  .list = args->all, .list_size = args->count * sizeof *args->all};
    if (executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    return cpu_execute(&executor, NULL, count_tasks(rescale.pairs), rescale_task, &rescale, err);
}
