/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What kernels call: the visible range of a token, and the epilogue of a row, final or of one split.
 */
#include <math.h>

#include "block-codes.h"
#include "cpu.h"
#include "fp8-int8.h"
#include "half.h"
#include "visible.h"

/* Columns that are converted or merged at once. */
#define COLUMNS 64u

uint32_t cpu_all_keys(const struct cpu_run *run, const struct attn_work_item *work)
{
    return run->global_lens != NULL ? (uint32_t)run->global_lens[work->seq] : work->kv_len;
}

int64_t cpu_position(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t)
{
    struct attn_visible visible;

    if (run->positions != NULL)
        return attn__position(run->positions, run->position_dtype, (uint64_t)work->first_token + t);
    attn__visible_init(&visible, run->problem, work->causal, work->q_len, cpu_all_keys(run, work));
    return visible.shift + work->q_index + t;
}

void cpu_visible(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t *lo,
                 uint32_t *hi)
{
    struct attn_visible visible;
    attn__visible_init(&visible, run->problem, work->causal, work->q_len, cpu_all_keys(run, work));
    visible.shard = run->shard;
    attn__visible_range(&visible, cpu_position(run, work, t), lo, hi);
    *lo = *lo > work->key_begin ? *lo : work->key_begin;
    *hi = *hi < work->key_end ? *hi : work->key_end;
}

void cpu_store(uint32_t dtype, void *to, const float *from, uint32_t count)
{
    uint16_t *half = to;
    uint8_t *code = to;

    if (attn__dtype_size(dtype) == 1)
        for (uint32_t i = 0; i < count; i++)
            code[i] = attn__codec8_encode(dtype, from[i]);
    else if (dtype == ATTN_F32)
        memcpy(to, from, count * sizeof *from);
    else if (dtype == ATTN_F16)
        for (uint32_t i = 0; i < count; i++)
            half[i] = attn__f32_to_f16(from[i]);
    else
        for (uint32_t i = 0; i < count; i++)
            half[i] = attn__f32_to_bf16(from[i]);
}

void cpu_load(uint32_t dtype, float *to, const void *from, uint32_t count)
{
    const uint16_t *half = from;
    const uint8_t *code = from;

    if (attn__dtype_size(dtype) == 1)
        for (uint32_t i = 0; i < count; i++)
            to[i] = attn__codec8_decode(dtype, code[i]);
    else if (attn_block_bytes(dtype) != 0)
        attn__blocks_decode(dtype, from, count, to);
    else if (dtype == ATTN_F32)
        memcpy(to, from, count * sizeof *to);
    else if (dtype == ATTN_F16)
        for (uint32_t i = 0; i < count; i++)
            to[i] = attn__f16_to_f32(half[i]);
    else
        for (uint32_t i = 0; i < count; i++)
            to[i] = attn__bf16_to_f32(half[i]);
}

static char *out_row(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h)
{
    return run->out + ((int64_t)work->first_token + t) * run->out_token + h * run->out_head;
}

static void store_lse(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h,
                      float lse)
{
    if (run->lse != NULL)
        memcpy(run->lse + ((int64_t)work->first_token + t) * run->lse_token + h * run->lse_head, &lse,
               sizeof lse);
}

/* Stores columns [d, d + count) of a finished row, divided by the output scale. */
static void store_columns(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t,
                          uint32_t h, uint32_t d, float *from, uint32_t count)
{
    uint32_t dtype = run->problem->out_dtype;

    if (run->out_scale.base != NULL) {
        float scale = cpu_scale_at(&run->out_scale, work->seq, (int64_t)work->first_token + t, h);
        for (uint32_t i = 0; i < count; i++)
            from[i] /= scale;
    }
    run->store(dtype, out_row(run, work, t, h) + (size_t)d * attn__dtype_size(dtype), from, count);
}

/* Place of a row among the splits of its group. */
static uint64_t split_index(const struct cpu_run *run, const struct attn_work_item *work, uint32_t split,
                            uint32_t t, uint32_t h)
{
    uint64_t heads = (uint64_t)work->kv_heads * run->group;

    return work->split_row + ((uint64_t)split * work->tokens + t) * heads + (h - work->kv_head * run->group);
}

/* The sink of a query head; -inf if there is none, as on all ranks but the first. */
static float sink_of(const struct cpu_run *run, uint32_t h)
{
    float sink = -INFINITY;

    if (run->sinks != NULL && run->shard.rank == 0)
        cpu_load(run->sinks_dtype, &sink, run->sinks + (size_t)h * attn__dtype_size(run->sinks_dtype), 1);
    return sink;
}

/* Stores a row that saw no key. */
static void store_empty(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h)
{
    store_lse(run, work, t, h, sink_of(run, h));
    memset(out_row(run, work, t, h), 0,
           (size_t)run->problem->head_dim_vo * attn__dtype_size(run->problem->out_dtype));
}

/* Stores a finished row, with its sink. */
static void store_row(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h,
                      const float *o, float lse)
{
    uint32_t dim = run->problem->head_dim_vo;
    float sink = sink_of(run, h), share = 1, buffer[COLUMNS];

    if (sink != -INFINITY) {
        double max = sink > lse ? sink : lse;
        double all = max + log(exp((double)lse - max) + exp((double)sink - max));
        share = (float)exp((double)lse - all);
        lse = (float)all;
    }
    store_lse(run, work, t, h, lse);
    if (share == 1 && run->out_scale.base == NULL) {
        run->store(run->problem->out_dtype, out_row(run, work, t, h), o, dim);
        return;
    }
    for (uint32_t d = 0; d < dim; d += COLUMNS) {
        uint32_t count = dim - d < COLUMNS ? dim - d : COLUMNS;
        for (uint32_t i = 0; i < count; i++)
            buffer[i] = o[d + i] * share + 0.0f; /* turns -0 of an underflow into 0, as merge does */
        store_columns(run, work, t, h, d, buffer, count);
    }
}

void cpu_epilogue(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h,
                  const float *o, float lse)
{
    uint32_t dim = run->problem->head_dim_vo;

    if (work->splits > 1) {
        uint64_t row = split_index(run, work, work->split, t, h);
        run->partial_lse[row] = lse;
        if (lse != -INFINITY)
            memcpy(run->partial_out + row * dim, o, dim * sizeof *o);
    } else if (lse == -INFINITY) {
        store_empty(run, work, t, h);
    } else {
        store_row(run, work, t, h, o, lse);
    }
}

/* exp(lse - max) of a split, 0 for one that saw nothing. */
static double weight_of(float lse, float max)
{
    return lse == -INFINITY ? 0 : exp((double)lse - (double)max);
}

static void merge_row(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h)
{
    uint32_t dim = run->problem->head_dim_vo;
    float max = -INFINITY, sink = sink_of(run, h), weights[ATTN_SPLITS_MAX], buffer[COLUMNS];
    double sum;

    for (uint32_t split = 0; split < work->splits; split++) {
        float lse = run->partial_lse[split_index(run, work, split, t, h)];
        max = lse > max || isnan(lse) ? lse : max;
    }
    if (max == -INFINITY) {
        store_empty(run, work, t, h);
        return;
    }
    max = sink > max ? sink : max;
    sum = weight_of(sink, max);
    for (uint32_t split = 0; split < work->splits; split++)
        sum += weight_of(run->partial_lse[split_index(run, work, split, t, h)], max);
    for (uint32_t split = 0; split < work->splits; split++)
        weights[split] = (float)(weight_of(run->partial_lse[split_index(run, work, split, t, h)], max) / sum);
    for (uint32_t d = 0; d < dim; d += COLUMNS) {
        uint32_t count = dim - d < COLUMNS ? dim - d : COLUMNS;
        memset(buffer, 0, sizeof buffer);
        for (uint32_t split = 0; split < work->splits; split++) {
            uint64_t row = split_index(run, work, split, t, h);
            const float *o = run->partial_out + row * dim + d;
            if (run->partial_lse[row] == -INFINITY)
                continue;
            for (uint32_t i = 0; i < count; i++)
                buffer[i] += weights[split] * o[i];
        }
        store_columns(run, work, t, h, d, buffer, count);
    }
    store_lse(run, work, t, h, (float)((double)max + log(sum)));
}

void cpu_combine_splits(const struct cpu_run *run, const struct attn_work_item *work)
{
    uint32_t first = work->kv_head * run->group, heads = work->kv_heads * run->group;

    for (uint32_t t = 0; t < work->tokens; t++)
        for (uint32_t h = first; h < first + heads; h++)
            merge_row(run, work, t, h);
}
