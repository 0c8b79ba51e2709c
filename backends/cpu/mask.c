/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Explicit masks: bits, or numbers that are added, over all keys or over the new tokens alone. */
#include <float.h>
#include <math.h>

#include "cpu.h"
#include "visible.h"

void cpu_mask_init(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h,
                   struct cpu_mask *out)
{
    int64_t start = run->mask_starts != NULL ? run->mask_starts[work->seq] : work->seq * run->mask_seq;
    int64_t all = cpu_all_keys(run, work);
    struct attn_visible visible;

    *out = (struct cpu_mask){
        .dtype = run->mask_dtype, .square = run->problem->span == ATTN_SPAN_SQUARE, .shard = &run->shard};
    attn__visible_init(&visible, run->problem, work->causal, work->q_len, (uint32_t)all);
    visible.shard = run->shard;
    visible.square = -1;
    attn__visible_range(&visible, cpu_position(run, work, t), &out->lo, &out->hi);
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

/* Minus infinity and the lowest number of the type hide a key. */
static bool hides(uint32_t dtype, float value)
{
    float lowest = dtype == ATTN_F16 ? -65504.0f : dtype == ATTN_BF16 ? -0x1.fep127f : -FLT_MAX;

    return value == lowest || value == -INFINITY;
}

bool cpu_mask_sees(const struct cpu_mask *mask, uint32_t key, bool *covered, double *value)
{
    int64_t column = attn__cp_position(mask->shard, key) - mask->first;
    float number;

    *covered = mask->row != NULL && column >= 0 && column < mask->columns;
    *value = 0;
    if (*covered && mask->dtype == 0) {
        uint64_t bit = mask->bit + (uint64_t)column;
        if (((unsigned char)mask->row[bit / 8] >> (bit % 8) & 1) == 0)
            return false;
    } else if (*covered) {
        cpu_load(mask->dtype, &number, mask->row + column * (int64_t)attn__dtype_size(mask->dtype), 1);
        if (hides(mask->dtype, number))
            return false;
        *value = (double)number;
    }
    return (*covered && mask->square) || (key >= mask->lo && key < mask->hi);
}
