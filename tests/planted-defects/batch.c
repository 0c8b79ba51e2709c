/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks of a batch: its arrays are read here once, so that a run need not ask. */
#include "defect.h"

static int32_t check_scalars(const struct attn_problem *p, const struct attn_batch *batch,
                             struct attn_error *err)
{
    static const char wanted[] = "it exceeds the plan's maximum";

    if (batch->seqs > p->max_seqs)
        return attn_util_fail(err, ATTN_E_INVALID, "seqs", wanted);
    if (batch->num_tokens > p->max_rows)
        return attn_util_fail(err, ATTN_E_INVALID, "rows", wanted);
    if (batch->max_q > p->max_q)
        return attn_util_fail(err, ATTN_E_INVALID, "max_q", wanted);
    if (batch->max_kv > p->max_kv)
        return attn_util_fail(err, ATTN_E_INVALID, "max_kv", wanted);
    return ATTN_OK;
}

static int32_t check_arrays(const struct attn_problem *p, const struct attn_batch *batch,
                            struct attn_error *err)
{
    const uint32_t position = batch->position_dtype == ATTN_INT64 ? 8 : 4;
    const bool table = p->addressing == ATTN_TABLE;
    int32_t status = check_address(&batch->q_offsets, 4, true, "q_offsets", err);

    if (status == ATTN_OK)
        status = check_address(&batch->kv_lens, 4, true, "kv_lens", err);
    if (status == ATTN_OK)
        status = check_address(&batch->kv_offsets, 4, false, "kv_offsets", err);
    if (status == ATTN_OK)
        status = check_address(&batch->table, 4, table && batch->max_kv > 0, "table", err);
    if (status == ATTN_OK && table && batch->table_stride % 4 != 0)
        status = attn_util_fail(err, ATTN_E_INVALID, "table_stride", "it is no multiple of 4");
    if (status == ATTN_OK)
        status = check_address(&batch->q_positions, position, p->positions != 0 && batch->num_tokens > 0,
                               "q_positions", err);
    return status;
}

static int32_t check_queries(const struct attn_batch *batch, uint32_t seq, struct attn_error *err)
{
    const int64_t begin = number_at(&batch->q_offsets, seq), end = number_at(&batch->q_offsets, seq + 1);

    if (seq == 0 && begin != 0)
        return attn_util_fail(err, ATTN_E_INVALID, "q_offsets", "they begin at 0");
    if (end < begin || end - begin > batch->max_q)
        return attn_util_fail(err, ATTN_E_INVALID, "q_offsets", "a length is not within 0 and max_q");
    return ATTN_OK;
}

/* Raises *last to the highest page, or with kv_offsets token, that a sequence has. */
static int32_t check_keys(const struct attn_problem *p, const struct attn_batch *batch, uint32_t seq,
                          int64_t *last, struct attn_error *err)
{
    const int32_t kv_len = number_at(&batch->kv_lens, seq);
    int64_t token, at = seq;

    if (kv_len < 0 || (uint32_t)kv_len > batch->max_kv)
        return attn_util_fail(err, ATTN_E_INVALID, "kv_lens", "a length is not within 0 and max_kv");
    if (kv_len == 0)
        return ATTN_OK;
    if (p->addressing == ATTN_DENSE && batch->kv_offsets.data != NULL) {
        const int64_t begin = number_at(&batch->kv_offsets, seq);
        at = begin + kv_len - 1;
        if (begin < 0 || at >= number_at(&batch->kv_offsets, seq + 1))
            return attn_util_fail(err, ATTN_E_INVALID, "kv_offsets", "a length reaches beyond them");
    }
    *last = p->addressing == ATTN_DENSE && at > *last ? at : *last;
    if (p->addressing == ATTN_DENSE)
        return ATTN_OK;
    if (((uint32_t)kv_len - 1) / p->block >= batch->table_width)
        return attn_util_fail(err, ATTN_E_INVALID, "table_width", "a sequence has more pages");
    for (int64_t key = 0; key < kv_len; key += p->block) {
        at = attn_util_locate(batch, p->addressing, p->block, seq, key, &token);
        *last = at > *last ? at : *last;
    }
    if (batch->pages != 0 && *last >= batch->pages)
        return attn_util_fail(err, ATTN_E_INVALID, "table", "a page lies beyond the cache");
    return ATTN_OK;
}

int32_t check_batch(const struct attn_problem *p, const struct attn_batch *batch, int64_t *last,
                    struct attn_error *err)
{
    int32_t status = check_scalars(p, batch, err);

    *last = -1;
    if (status == ATTN_OK && batch->seqs > 0)
        status = check_arrays(p, batch, err);
    for (uint32_t seq = 0; status == ATTN_OK && seq < batch->seqs; seq++) {
        status = check_queries(batch, seq, err);
        if (status == ATTN_OK)
            status = check_keys(p, batch, seq, last, err);
    }
    if (status == ATTN_OK && batch->seqs > 0 &&
        (uint32_t)number_at(&batch->q_offsets, batch->seqs) != batch->num_tokens)
        return attn_util_fail(err, ATTN_E_INVALID, "q_offsets", "they end at rows");
    return status;
}
