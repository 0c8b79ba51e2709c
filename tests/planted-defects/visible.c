/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which keys a query token sees, and what ALiBi adds for them. */
#include "defect.h"

static void mask_init(struct view *view, const struct job *job, uint32_t seq, uint32_t token, uint32_t head,
                      int64_t q_len)
{
    const struct attn_tensors *t = job->tensors;
    int64_t start = seq * t->mask_seq_stride;

    if (job->problem->mask != ATTN_MASK_BITS)
        return;
    if (t->mask_starts.data != NULL)
        start = ((const int64_t *)(const void *)attn_util_at(&t->mask_starts))[seq];
    if (t->mask_starts.data != NULL && start < 0)
        return;
    view->mask = (const unsigned char *)attn_util_at(&t->mask) + start + head * t->mask_head_stride;
    view->columns = view->square ? q_len : view->kv_len;
    view->first = view->square ? view->kv_len - q_len : 0;
    if (t->mask_packed != 0)
        view->bit = (uint64_t)token * (uint64_t)view->columns;
    else
        view->mask += token * t->mask_row_stride;
}

static int64_t read_position(const struct attn_batch *batch, uint32_t row)
{
    const void *positions = attn_util_at(&batch->q_positions);

    return batch->position_dtype == ATTN_INT64 ? ((const int64_t *)positions)[row]
                                               : ((const int32_t *)positions)[row];
}

void view_init(struct view *view, const struct job *job, uint32_t seq, uint32_t token, uint32_t head)
{
    const struct attn_problem *p = job->problem;
    const int64_t q_begin = number_at(&job->batch->q_offsets, seq);
    const int64_t q_len = number_at(&job->batch->q_offsets, seq + 1) - q_begin;

    *view = (struct view){.job = job, .first_row = (uint32_t)q_begin};
    view->kv_len = number_at(&job->batch->kv_lens, seq);
    view->causal = p->causal == ATTN_CAUSAL_YES;
    if (p->seq_causal != 0)
        view->causal = attn_util_at(&job->batch->seq_causal)[seq] != 0;
    view->left = (p->given & ATTN_GIVEN_WINDOW_LEFT) != 0 ? p->window_left : -1;
    view->right = view->causal ? -1 : view->left; /* causal is a rule of its own */
    if ((p->given & ATTN_GIVEN_WINDOW_RIGHT) != 0)
        view->right = p->window_right;
    view->position = token + (p->align == ATTN_ALIGN_START ? 0 : view->kv_len - q_len);
    if (p->positions != 0 && !IS(positions))
        view->position = read_position(job->batch, view->first_row + token);
    view->square = p->span == ATTN_SPAN_SQUARE;
    mask_init(view, job, seq, token, head, q_len);
    view->alibi = p->alibi;
    if (p->alibi != ATTN_ALIBI_NONE)
        view->slope = (double)((const float *)(const void *)attn_util_at(&job->tensors->alibi_slopes))[head];
}

static bool is_covered(const struct view *view, int64_t key)
{
    return view->mask != NULL && key >= view->first && key - view->first < view->columns;
}

bool view_sees(const struct view *view, int64_t key)
{
    if (is_covered(view, key)) {
        const uint64_t bit = view->bit + (uint64_t)(key - view->first);
        if ((view->mask[bit / 8] >> bit % 8 & 1) == 0)
            return false;
        if (view->square)
            return true;
    }
    if (view->causal && key > view->position + IS(causal))
        return false;
    if (view->left >= 0 && key < view->position - view->left + IS(window))
        return false;
    return view->right < 0 || key <= view->position + view->right;
}

double view_bias(const struct view *view, int64_t key)
{
    int64_t away = key;

    if (view->alibi == ATTN_ALIBI_NONE)
        return 0;
    if (view->square && view->job->problem->positions != 0 && is_covered(view, key))
        away = read_position(view->job->batch, view->first_row + (uint32_t)(key - view->first));
    away -= view->position;
    if (view->alibi == ATTN_ALIBI_DISTANCE && away > 0)
        away = -away;
    return view->slope * (double)away;
}
