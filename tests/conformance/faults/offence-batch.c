/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Prepares of a batch with one thing wrong. A plugin alone sees the arrays, which here are host memory. */
#include "offence.h"

#define SPOIL(name, ...)                                                                                     \
    static void name(struct arguments *a)                                                                    \
    {                                                                                                        \
        __VA_ARGS__;                                                                                         \
    }

/* The longest sequence, whose pages are all looked at. */
static uint32_t longest(const struct arguments *a)
{
    uint32_t at = 0;

    for (uint32_t n = 1; n < a->batch.seqs; n++)
        at = a->kv_lens[n] > a->kv_lens[at] ? n : at;
    return at;
}

SPOIL(no_batch, a->batch_given = NULL)
SPOIL(no_schedule, a->schedule_given = NULL)
SPOIL(small_schedule, a->schedule.size--)
SPOIL(unaligned_schedule, a->schedule.buffer.byte_offset++)
SPOIL(many_seqs, a->batch.seqs = a->problem.max_seqs + 1)
SPOIL(many_tokens, a->batch.num_tokens = a->problem.max_rows + 1)
SPOIL(long_queries, a->batch.max_q = a->problem.max_q + 1)
SPOIL(long_keys, a->batch.max_kv = a->problem.max_kv + 1)
SPOIL(unknown_bits, a->batch.given |= 0x80)
SPOIL(no_offsets, a->batch.q_offsets.data = NULL; a->batch.q_offsets.byte_offset = 0)
SPOIL(no_lens, a->batch.kv_lens.data = NULL; a->batch.kv_lens.byte_offset = 0)
SPOIL(late_offsets, a->q_offsets[0] = 1)
SPOIL(falling_offsets, a->batch.max_q = a->problem.max_q;
      a->q_offsets[a->batch.seqs - 1] = a->q_offsets[a->batch.seqs] + 1)
SPOIL(negative_offsets, a->q_offsets[1] = -1)
SPOIL(other_end, a->batch.num_tokens--)
SPOIL(small_max_q, a->batch.max_q = 0)
SPOIL(negative_len, a->kv_lens[0] = -1)
SPOIL(least_len, a->kv_lens[0] = INT32_MIN)
SPOIL(large_len, a->kv_lens[a->batch.seqs - 1] = (int32_t)a->batch.max_kv + 1)
SPOIL(largest_len, a->kv_lens[0] = INT32_MAX)
SPOIL(unaligned_offsets, a->batch.q_offsets.byte_offset++)
SPOIL(unaligned_lens, a->batch.kv_lens.byte_offset++)
SPOIL(given_positions, a->batch.q_positions.data = a->q_offsets)
SPOIL(given_causal, a->batch.seq_causal.data = a->q_offsets)
SPOIL(no_table, a->batch.table.data = NULL; a->batch.table.byte_offset = 0)
SPOIL(unaligned_table_stride, a->batch.table_stride += 2)
SPOIL(narrow_table, a->batch.table_width = 0)
SPOIL(wrong_page, a->batch.pages = 1; a->table[longest(a) * a->batch.table_width] = 1)
SPOIL(wildest_page, a->batch.pages = a->kv.pages; a->table[longest(a) * a->batch.table_width] = INT32_MAX)
SPOIL(no_indptr, a->batch.csr_indptr.data = NULL; a->batch.csr_indptr.byte_offset = 0)
SPOIL(no_indices, a->batch.csr_indices.data = NULL; a->batch.csr_indices.byte_offset = 0)
SPOIL(falling_indptr, a->table[longest(a) + 1] = a->table[longest(a)] - 1)
SPOIL(negative_indptr, a->table[longest(a)] = -5)
SPOIL(short_indptr, a->table[longest(a) + 1] = a->table[longest(a)])
SPOIL(wrong_index, a->batch.pages = a->kv.pages; a->indices[a->table[longest(a)]] = a->kv.pages)
SPOIL(wildest_index, a->batch.pages = a->kv.pages; a->indices[a->table[longest(a)]] = INT64_MAX)
SPOIL(unaligned_indices, a->batch.csr_indices.byte_offset++)

const struct offence batch_offences[] = {
    {"no batch", "batch", CALL_PREPARE, BY_LIBRARY, ANY_PROBLEM, no_batch},
    {"no schedule", "schedule", CALL_PREPARE, BY_LIBRARY, SCHEDULE_PLAN, no_schedule},
    {"too small a schedule", "schedule", CALL_PREPARE, BY_LIBRARY, SCHEDULE_PLAN, small_schedule},
    {"an unaligned schedule", "schedule", CALL_PREPARE, BY_PLUGIN, SCHEDULE_PLAN, unaligned_schedule},
    {"too many sequences", "seqs", CALL_PREPARE, BY_LIBRARY, ANY_PROBLEM, many_seqs},
    {"too many query tokens", "num_tokens", CALL_PREPARE, BY_LIBRARY, ANY_PROBLEM, many_tokens},
    {"too large a max_q", "max_q", CALL_PREPARE, BY_LIBRARY, ANY_PROBLEM, long_queries},
    {"too large a max_kv", "max_kv", CALL_PREPARE, BY_LIBRARY, ANY_PROBLEM, long_keys},
    {"unknown bits", "given", CALL_PREPARE, BY_LIBRARY, ANY_PROBLEM, unknown_bits},
    {"no q_offsets", "q_offsets", CALL_PREPARE, BY_LIBRARY, ANY_PROBLEM, no_offsets},
    {"no kv_lens", "kv_lens", CALL_PREPARE, BY_LIBRARY, ANY_PROBLEM, no_lens},
    {"offsets that begin late", "q_offsets", CALL_PREPARE, BY_BOTH, ANY_PROBLEM, late_offsets},
    {"offsets that fall", "q_offsets", CALL_PREPARE, BY_BOTH, ANY_PROBLEM, falling_offsets},
    {"negative offsets", "q_offsets", CALL_PREPARE, BY_BOTH, ANY_PROBLEM, negative_offsets},
    {"offsets that end beyond the query tokens", "", CALL_PREPARE, BY_BOTH, ANY_PROBLEM, other_end},
    {"sequences longer than max_q", "", CALL_PREPARE, BY_BOTH, ANY_PROBLEM, small_max_q},
    {"kv_lens of -1", "kv_lens", CALL_PREPARE, BY_BOTH, ANY_PROBLEM, negative_len},
    {"kv_lens of -2^31", "kv_lens", CALL_PREPARE, BY_BOTH, ANY_PROBLEM, least_len},
    {"kv_lens beyond max_kv", "kv_lens", CALL_PREPARE, BY_BOTH, ANY_PROBLEM, large_len},
    {"kv_lens of 2^31 - 1", "kv_lens", CALL_PREPARE, BY_BOTH, ANY_PROBLEM, largest_len},
    {"unaligned q_offsets", "q_offsets", CALL_PREPARE, BY_PLUGIN, ANY_PROBLEM, unaligned_offsets},
    {"unaligned kv_lens", "kv_lens", CALL_PREPARE, BY_PLUGIN, ANY_PROBLEM, unaligned_lens},
    {"positions that the problem has not", "q_positions", CALL_PREPARE, BY_LIBRARY, ANY_PROBLEM,
     given_positions},
    {"seq_causal that the problem has not", "seq_causal", CALL_PREPARE, BY_LIBRARY, ANY_PROBLEM,
     given_causal},
    {"no table", "table", CALL_PREPARE, BY_LIBRARY, TABLE_PROBLEM, no_table},
    {"an unaligned table_stride", "table_stride", CALL_PREPARE, BY_LIBRARY, TABLE_PROBLEM,
     unaligned_table_stride},
    {"too narrow a table", "table", CALL_PREPARE, BY_BOTH, TABLE_PROBLEM, narrow_table},
    {"a page beyond the cache", "table", CALL_PREPARE, BY_BOTH, TABLE_PROBLEM, wrong_page},
    {"page 2^31 - 1", "table", CALL_PREPARE, BY_BOTH, TABLE_PROBLEM, wildest_page},
    {"no csr_indptr", "csr_indptr", CALL_PREPARE, BY_LIBRARY, CSR_PROBLEM, no_indptr},
    {"no csr_indices", "csr_indices", CALL_PREPARE, BY_LIBRARY, CSR_PROBLEM, no_indices},
    {"csr_indptr that falls", "csr_indptr", CALL_PREPARE, BY_BOTH, CSR_PROBLEM, falling_indptr},
    {"a negative csr_indptr", "csr_indptr", CALL_PREPARE, BY_BOTH, CSR_PROBLEM, negative_indptr},
    {"too few csr_indices", "csr_ind", CALL_PREPARE, BY_BOTH, CSR_PROBLEM, short_indptr},
    {"an index beyond the cache", "csr_indices", CALL_PREPARE, BY_BOTH, CSR_PROBLEM, wrong_index},
    {"index 2^63 - 1", "csr_indices", CALL_PREPARE, BY_BOTH, CSR_PROBLEM, wildest_index},
    {"unaligned csr_indices", "csr_indices", CALL_PREPARE, BY_PLUGIN, CSR_PROBLEM, unaligned_indices},
    {NULL, NULL, CALL_PREPARE, 0, 0, NULL},
};
