/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One sequence of a batch: lengths, where its keys lie, and the visibility rules that need no mask. */
#include "oracle.h"

int64_t oracle_element(const struct attn_buffer *buffer, uint64_t index, uint32_t dtype)
{
    const unsigned char *at = oracle_address(buffer);

    if (dtype == ATTN_INT64) {
        int64_t wide;
        memcpy(&wide, at + index * 8, sizeof wide);
        return wide;
    }
    int32_t narrow;
    memcpy(&narrow, at + index * 4, sizeof narrow);
    return narrow;
}

static bool is_encoder(const struct attn_problem *problem)
{
    return problem->type == ATTN_ENCODER || problem->type == ATTN_ENCODER_ONLY;
}

/* Keys of the sequence that are here; those of other ranks are not. */
static int64_t count_keys(const struct oracle_sequence *sequence)
{
    const struct attn_batch *batch = sequence->batch;
    uint32_t n = sequence->index;

    if (batch->kv_lens.data != NULL)
        return oracle_element(&batch->kv_lens, n, ATTN_INT32);
    if (batch->kv_offsets.data != NULL)
        return oracle_element(&batch->kv_offsets, (uint64_t)n + 1, ATTN_INT32) -
               oracle_element(&batch->kv_offsets, n, ATTN_INT32);
    return sequence->q_len;
}

void oracle_sequence_init(struct oracle_sequence *sequence, const struct attn_problem *problem,
                          const struct attn_batch *batch, uint32_t index)
{
    int64_t first = oracle_element(&batch->q_offsets, index, ATTN_INT32);

    memset(sequence, 0, sizeof *sequence);
    sequence->problem = problem;
    sequence->batch = batch;
    sequence->index = index;
    sequence->first_row = (uint32_t)first;
    sequence->q_len = (uint32_t)(oracle_element(&batch->q_offsets, (uint64_t)index + 1, ATTN_INT32) - first);
    sequence->kv_len = (uint32_t)count_keys(sequence);
    sequence->all_keys = sequence->kv_len;
    if (problem->cp != 0)
        sequence->all_keys = (uint32_t)oracle_element(&batch->kv_global_lens, index, ATTN_INT32);
    sequence->source = problem->kv_source;
    if (sequence->source == 0)
        sequence->source = is_encoder(problem) ? ATTN_KV_NEW : ATTN_KV_CACHE;
    sequence->causal = problem->causal == ATTN_CAUSAL_YES;
    if (problem->seq_causal != 0)
        sequence->causal = oracle_address(&batch->seq_causal)[index] != 0;
    sequence->left = (problem->given & ATTN_GIVEN_WINDOW_LEFT) != 0 ? problem->window_left : -1;
    if ((problem->given & ATTN_GIVEN_WINDOW_RIGHT) != 0)
        sequence->right = problem->window_right;
    else
        sequence->right = sequence->causal ? 0 : sequence->left;
}

/* The place of a key in k_new and v_new, `row` counted within the sequence. */
static void locate_new(const struct oracle_sequence *sequence, uint32_t row, struct oracle_place *out)
{
    const struct attn_batch *batch = sequence->batch;
    int64_t first = sequence->first_row;

    if (sequence->source == ATTN_KV_NEW && batch->kv_offsets.data != NULL)
        first = oracle_element(&batch->kv_offsets, sequence->index, ATTN_INT32);
    out->is_new = true;
    out->page = sequence->index;
    out->token = first + row;
}

static bool locate_cached(const struct oracle_sequence *sequence, uint32_t j, struct oracle_place *out)
{
    const struct attn_batch *batch = sequence->batch;
    uint32_t block = sequence->problem->block;

    out->is_new = false;
    switch (sequence->problem->addressing) {
    case ATTN_DENSE:
        out->page = sequence->index;
        out->token = j;
        if (batch->kv_offsets.data != NULL) {
            out->page = 0;
            out->token += oracle_element(&batch->kv_offsets, sequence->index, ATTN_INT32);
        }
        return true;
    case ATTN_TABLE: {
        struct attn_buffer row = batch->table;
        /* Unsigned arithmetic wraps, so a negative stride is right too. */
        row.byte_offset += (uint64_t)((int64_t)sequence->index * batch->table_stride);
        out->page = oracle_element(&row, j / block, ATTN_INT32);
        break;
    }
    default: {
        int64_t begin = oracle_element(&batch->csr_indptr, sequence->index, ATTN_INT32);
        out->page =
            oracle_element(&batch->csr_indices, (uint64_t)begin + j / block, sequence->problem->index_dtype);
        break;
    }
    }
    out->token = j % block;
    return out->page >= 0;
}

bool oracle_locate(const struct oracle_sequence *sequence, uint32_t j, struct oracle_place *out)
{
    if (j >= sequence->kv_len)
        return false;
    if (sequence->source == ATTN_KV_NEW) {
        locate_new(sequence, j, out);
        return true;
    }
    uint32_t old = sequence->kv_len - sequence->q_len; /* cache+new: Lk >= Lq */
    if (sequence->source == ATTN_KV_CACHE_NEW && j >= old) {
        locate_new(sequence, j - old, out);
        return true;
    }
    return locate_cached(sequence, j, out);
}

int64_t oracle_query_position(const struct oracle_sequence *sequence, uint32_t i)
{
    const struct attn_batch *batch = sequence->batch;

    if (sequence->problem->positions != 0)
        return oracle_element(&batch->q_positions, (uint64_t)sequence->first_row + i, batch->position_dtype);
    if (sequence->problem->align == ATTN_ALIGN_START)
        return i;
    return (int64_t)i + sequence->all_keys - sequence->q_len;
}

int64_t oracle_key_position(const struct oracle_sequence *sequence, uint32_t j)
{
    const struct attn_batch *batch = sequence->batch;

    if (sequence->problem->cp == 0)
        return j;
    int64_t interleave = batch->cp_interleave, world = batch->cp_world, rank = batch->cp_rank;
    return j / interleave * interleave * world + rank * interleave + j % interleave;
}

bool oracle_in_reach(const struct oracle_sequence *sequence, uint32_t i, uint32_t j)
{
    int64_t p = oracle_query_position(sequence, i);
    int64_t key = oracle_key_position(sequence, j);

    if (sequence->causal && key > p)
        return false;
    if (sequence->left >= 0 && key < p - sequence->left)
        return false;
    return sequence->right < 0 || key <= p + sequence->right;
}

bool oracle_visible(const struct oracle_sequence *sequence, uint32_t i, uint32_t j)
{
    struct oracle_place place;

    return j < sequence->kv_len && oracle_in_reach(sequence, i, j) && oracle_locate(sequence, j, &place);
}
