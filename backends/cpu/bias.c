/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What is added to scores: explicit masks, of bits or of numbers, over all keys or over the new tokens alone;
 * and ALiBi.
 */
#include <float.h>
#include <math.h>

#include "cpu.h"
#include "visible.h"

static void init_mask(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h,
                      struct cpu_bias *out)
{
    int64_t start = run->mask_starts != NULL ? run->mask_starts[work->seq] : work->seq * run->mask_seq;
    int64_t all = cpu_all_keys(run, work);

    if (run->mask == NULL || (run->mask_starts != NULL && start < 0))
        return;
    out->columns = out->square ? work->q_len : all;
    out->first = out->square ? all - work->q_len : 0;
    out->row = run->mask + start + h * run->mask_head;
    if (run->mask_packed != 0)
        out->bit = (uint64_t)(work->q_index + t) * (uint64_t)out->columns;
    else
        out->row += (int64_t)(work->q_index + t) * run->mask_row;
}

void cpu_bias_init(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h,
                   struct cpu_bias *out)
{
    struct attn_visible visible;

    *out = (struct cpu_bias){.run = run,
                             .square = run->problem->span == ATTN_SPAN_SQUARE,
                             .token = work->first_token - work->q_index,
                             .position = cpu_position(run, work, t),
                             .slope = run->slopes != NULL ? (double)run->slopes[h] : 0};
    attn__visible_init(&visible, run->problem, work->causal, work->q_len, cpu_all_keys(run, work));
    visible.shard = run->shard;
    visible.square = -1;
    attn__visible_range(&visible, out->position, &out->lo, &out->hi);
    init_mask(run, work, t, h, out);
}

float cpu_mask_hides(uint32_t dtype)
{
    return dtype == ATTN_F16 ? -65504.0f : dtype == ATTN_BF16 ? -0x1.fep127f : -FLT_MAX;
}

bool cpu_bias_mask(const struct cpu_bias *bias, uint32_t key, bool *covered, double *value)
{
    int64_t column = attn__cp_position(&bias->run->shard, key) - bias->first;
    uint32_t dtype = bias->run->mask_dtype;
    float number;

    *covered = bias->row != NULL && column >= 0 && column < bias->columns;
    *value = 0;
    if (*covered && dtype == 0) {
        uint64_t bit = bias->bit + (uint64_t)column;
        if (((unsigned char)bias->row[bit / 8] >> (bit % 8) & 1) == 0)
            return false;
    } else if (*covered) {
        cpu_load(dtype, &number, bias->row + column * (int64_t)attn__dtype_size(dtype), 1);
        if (number <= cpu_mask_hides(dtype))
            return false;
        *value = (double)number;
    }
    return (*covered && bias->square) || (key >= bias->lo && key < bias->hi);
}

/* The position of a key for ALiBi; with a square mask, that of its own query. */
static double key_position(const struct cpu_bias *bias, uint32_t key, bool covered)
{
    const struct cpu_run *run = bias->run;
    int64_t position = attn__cp_position(&run->shard, key);

    if (!covered || !bias->square || run->positions == NULL)
        return (double)position;
    return (double)attn__position(run->positions, run->position_dtype,
                                  bias->token + (uint64_t)(position - bias->first));
}

bool cpu_bias_of_key(const struct cpu_bias *bias, uint32_t key, double *value)
{
    const struct cpu_run *run = bias->run;
    bool covered;

    if (!cpu_bias_mask(bias, key, &covered, value))
        return false;
    if (run->slopes == NULL)
        return true;
    if (run->problem->alibi == ATTN_ALIBI_MASK) {
        *value *= bias->slope;
        return true;
    }
    /* In double, which represents all positions exactly. */
    double difference = key_position(bias, key, covered) - (double)bias->position;
    if (run->problem->alibi == ATTN_ALIBI_DISTANCE && difference > 0)
        difference = -difference;
    *value += bias->slope * difference;
    return true;
}
