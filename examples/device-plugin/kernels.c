/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What runs on the device: attention in f32, one query token and one key at a time. */
#include "kernels.h"

#include <math.h>

static void *at(const struct attn_buffer *buffer)
{
    return attn_util_at(buffer);
}

void kernel_copy(void *work)
{
    const struct copy_work *w = work;
    memcpy(at(&w->to), at(&w->from), w->size);
}

void make_schedule(const struct attn_problem *problem, uint32_t seqs, const int32_t *q_offsets,
                   const int32_t *kv_lens, struct item *items)
{
    for (uint32_t s = 0; s < seqs; s++)
        for (int32_t row = q_offsets[s]; row < q_offsets[s + 1]; row++) {
            int64_t end = (int64_t)row + 1 - q_offsets[s];
            if (problem->align == ATTN_ALIGN_END)
                end += kv_lens[s] - (q_offsets[s + 1] - q_offsets[s]);
            if (problem->causal != ATTN_CAUSAL_YES || end > kv_lens[s])
                end = kv_lens[s];
            *items++ = (struct item){(int32_t)s, row, end};
        }
}

void kernel_schedule(void *work)
{
    const struct schedule_work *w = work;
    make_schedule(&w->problem, w->batch.seqs, at(&w->batch.q_offsets), at(&w->batch.kv_lens),
                  at(&w->schedule));
}

void kernel_write(void *work)
{
    struct write_work *w = work;
    const struct attn_kv_desc *d = &w->cache;
    w->args.batch = w->args.batch != NULL ? &w->batch : NULL;
    for (uint32_t i = 0; i < w->args.num_tokens; i++) {
        int64_t token;
        const int64_t page = attn_util_place(&w->args, d->block, i, &token);
        for (uint32_t h = 0; page >= 0 && page < (int64_t)d->pages && h < d->kv_heads; h++) {
            memcpy(attn_util_key(d, page, token, h), attn_util_element(&w->args.k_new, i, h),
                   4u * d->head_dim);
            memcpy(attn_util_value(d, page, token, h), attn_util_element(&w->args.v_new, i, h),
                   4u * d->head_dim_vo);
        }
    }
}

/* One query token and head: row max m, row sum z, weighted values in out. Returns the log-sum-exp. */
static float attend(const struct run_work *w, const struct item *item, uint32_t head, float *out)
{
    const struct attn_problem *p = &w->problem;
    const struct attn_kv_desc *d = &w->cache;
    const uint32_t kv_head = head / (p->heads / p->kv_heads);
    const float *q = (const float *)(void *)attn_util_element(&w->tensors.q, item->row, head);
    float m = -INFINITY;
    double z = 0;
    memset(out, 0, sizeof *out * p->head_dim_vo);
    for (int64_t j = 0, token; j < item->end; j++) {
        const int64_t page =
            attn_util_locate(&w->batch, p->addressing, d->block, (uint32_t)item->seq, j, &token);
        if (page < 0)
            continue; /* an invalid block: not a key */
        const float *k = (const float *)(void *)attn_util_key(d, page, token, kv_head);
        const float *v = (const float *)(void *)attn_util_value(d, page, token, kv_head);
        double dot = 0;
        for (uint32_t c = 0; c < p->head_dim; c++)
            dot += (double)q[c] * (double)k[c];
        const float s = (float)(dot * (double)w->tensors.softmax_scale), old = s > m ? expf(m - s) : 1;
        m = s > m ? s : m;
        const float weight = expf(s - m);
        z = z * (double)old + (double)weight;
        for (uint32_t c = 0; c < p->head_dim_vo; c++)
            out[c] = out[c] * old + weight * v[c];
    }
    for (uint32_t c = 0; c < p->head_dim_vo && z != 0; c++)
        out[c] = (float)((double)out[c] / z);
    return z != 0 ? m + (float)log(z) : -INFINITY;
}

/* Thread groups of a device would take items by counting; the last one leaves zero for the next run. */
void kernel_run(void *work)
{
    const struct run_work *w = work;
    const struct item *items = at(&w->schedule);
    uint32_t *taken = at(&w->counters);
    if (w->counters_dirty)
        *taken = 0;
    for (uint32_t i; (i = (*taken)++) < w->batch.num_tokens;)
        for (uint32_t h = 0; h < w->problem.heads; h++) {
            const float lse =
                attend(w, &items[i], h, (float *)(void *)attn_util_element(&w->tensors.out, items[i].row, h));
            if (w->problem.lse)
                memcpy(attn_util_element(&w->tensors.lse, items[i].row, h), &lse, sizeof lse);
        }
    *taken = 0;
}
