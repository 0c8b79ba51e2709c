/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Plans, caches, writes and merges with one thing wrong. */
#include "offence.h"

#define SPOIL(name, ...)                                                                                     \
    static void name(struct arguments *a)                                                                    \
    {                                                                                                        \
        __VA_ARGS__;                                                                                         \
    }

SPOIL(no_problem, a->problem_given = NULL)
SPOIL(no_max_seqs, a->problem.max_seqs = 0)
SPOIL(no_max_q, a->problem.max_q = 0)
SPOIL(no_max_kv, a->problem.max_kv = 0)
SPOIL(no_max_rows, a->problem.max_rows = 0)
SPOIL(uneven_heads, a->problem.kv_heads = a->problem.heads + 1)

SPOIL(kv_no_k, a->kv.k = (struct attn_buffer){NULL, 0})
SPOIL(kv_no_block, a->kv.block = 0)
SPOIL(kv_no_heads, a->kv.kv_heads = 0)
SPOIL(kv_no_dim, a->kv.head_dim = 0)
SPOIL(kv_type, a->kv.k_dtype = ATTN_INT32)
SPOIL(kv_layout, a->kv.layout = 77)
SPOIL(kv_unaligned, a->kv.v.byte_offset++)
SPOIL(kv_unaligned_stride, a->kv.k_head_stride++)
SPOIL(kv_far, a->kv.v_page_stride = INT64_MIN; a->kv.pages = 7)

SPOIL(slot_beyond, a->slots[1] = (int64_t)a->kv.pages * a->kv.block)
SPOIL(slot_wild, a->slots[3] = INT64_MAX)
SPOIL(unaligned_slots, a->write.slot_mapping.byte_offset++)
SPOIL(no_slots, a->write.slot_mapping.data = NULL)
SPOIL(two_ways, a->write.batch = &a->write_batch)
SPOIL(no_k_new, a->write.k_new.buffer = (struct attn_buffer){NULL, 0})
SPOIL(no_v_new, a->write.v_new.buffer = (struct attn_buffer){NULL, 0})
SPOIL(typed_k_new, a->write.k_new.dtype = a->write.k_dtype == ATTN_F32 ? ATTN_BF16 : ATTN_F32)
SPOIL(unaligned_k_new, a->write.k_new.buffer.byte_offset++)
SPOIL(far_v_new, a->write.v_new.token_stride = INT64_MAX)
SPOIL(index_type, a->write.k_dtype = ATTN_INT32)
SPOIL(no_write_kv, a->without_kv = true)
SPOIL(both_write_kv, a->with_handle = true; a->write.kv_desc = &a->kv)

SPOIL(no_count, a->merge.count = 0)
SPOIL(no_parts, a->merge.parts = NULL)
SPOIL(no_part, a->parts[1].out.buffer = (struct attn_buffer){NULL, 0})
SPOIL(no_part_lse, a->parts[1].lse.buffer = (struct attn_buffer){NULL, 0})
SPOIL(merge_type, a->merge.dtype = ATTN_INT8)
SPOIL(merge_base, a->merge.lse_base = 0)
SPOIL(merge_heads, a->merge.heads = 0)
SPOIL(merge_no_out, a->merge.out.buffer = (struct attn_buffer){NULL, 0})
SPOIL(merge_unaligned, a->merge.out.buffer.byte_offset++)
SPOIL(rescale_none, a->rescale.all = NULL)
SPOIL(rescale_base, a->rescale.lse_base = 9)
SPOIL(rescale_own, a->rescale.own.buffer = (struct attn_buffer){NULL, 0})
SPOIL(rescale_rank, a->lses[1].buffer = (struct attn_buffer){NULL, 0})

const struct offence other_offences[] = {
    {"no problem", "problem", CALL_PLAN, BY_LIBRARY, ANY_PROBLEM, no_problem},
    {"no max_seqs", "max_seqs", CALL_PLAN, BY_LIBRARY, ANY_PROBLEM, no_max_seqs},
    {"no max_q", "max_q", CALL_PLAN, BY_LIBRARY, ANY_PROBLEM, no_max_q},
    {"no max_kv", "max_kv", CALL_PLAN, BY_LIBRARY, ANY_PROBLEM, no_max_kv},
    {"no max_rows", "max_rows", CALL_PLAN, BY_LIBRARY, ANY_PROBLEM, no_max_rows},
    {"heads that are no multiple", "heads", CALL_PLAN, BY_LIBRARY, ANY_PROBLEM, uneven_heads},
    {"no k", "k", CALL_KV, BY_LIBRARY, ANY_PROBLEM, kv_no_k},
    {"block 0", "block", CALL_KV, BY_LIBRARY, ANY_PROBLEM, kv_no_block},
    {"no heads", "kv_heads", CALL_KV, BY_LIBRARY, ANY_PROBLEM, kv_no_heads},
    {"head_dim 0", "head_dim", CALL_KV, BY_LIBRARY, ANY_PROBLEM, kv_no_dim},
    {"keys of type i32", "k_dtype", CALL_KV, BY_LIBRARY, ANY_PROBLEM, kv_type},
    {"layout 77", "layout", CALL_KV, BY_LIBRARY, ANY_PROBLEM, kv_layout},
    {"unaligned values", "v", CALL_KV, BY_PLUGIN, WIDE_PROBLEM, kv_unaligned},
    {"an unaligned stride", "k", CALL_KV, BY_LIBRARY, WIDE_PROBLEM, kv_unaligned_stride},
    {"values beyond 64 bits", "v", CALL_KV, BY_LIBRARY, ANY_PROBLEM, kv_far},
    {"a slot beyond the cache", "slot_mapping", CALL_WRITE, BY_PLUGIN, ANY_PROBLEM, slot_beyond},
    {"slot 2^63 - 1", "slot_mapping", CALL_WRITE, BY_PLUGIN, ANY_PROBLEM, slot_wild},
    {"unaligned slots", "slot_mapping", CALL_WRITE, BY_PLUGIN, ANY_PROBLEM, unaligned_slots},
    {"neither slots nor batch", "", CALL_WRITE, BY_LIBRARY, ANY_PROBLEM, no_slots},
    {"slots and batch", "slot_mapping", CALL_WRITE, BY_LIBRARY, ANY_PROBLEM, two_ways},
    {"no k_new", "k_new", CALL_WRITE, BY_LIBRARY, ANY_PROBLEM, no_k_new},
    {"no v_new", "v_new", CALL_WRITE, BY_LIBRARY, ANY_PROBLEM, no_v_new},
    {"k_new of another type", "k_new", CALL_WRITE, BY_LIBRARY, ANY_PROBLEM, typed_k_new},
    {"an unaligned k_new", "k_new", CALL_WRITE, BY_PLUGIN, WIDE_PROBLEM, unaligned_k_new},
    {"a v_new beyond 64 bits", "v_new", CALL_WRITE, BY_LIBRARY, ANY_PROBLEM, far_v_new},
    {"new keys of type i32", "k_dtype", CALL_WRITE, BY_LIBRARY, ANY_PROBLEM, index_type},
    {"no cache", "kv", CALL_WRITE, BY_LIBRARY, ANY_PROBLEM, no_write_kv},
    {"two caches", "kv_desc", CALL_WRITE, BY_LIBRARY, ANY_PROBLEM, both_write_kv},
    {"no part", "count", CALL_MERGE, BY_LIBRARY, ANY_PROBLEM, no_count},
    {"no list of parts", "parts", CALL_MERGE, BY_LIBRARY, ANY_PROBLEM, no_parts},
    {"a part without out", "", CALL_MERGE, BY_LIBRARY, ANY_PROBLEM, no_part},
    {"a part without lse", "", CALL_MERGE, BY_LIBRARY, ANY_PROBLEM, no_part_lse},
    {"type int8", "dtype", CALL_MERGE, BY_LIBRARY, ANY_PROBLEM, merge_type},
    {"no lse_base", "lse_base", CALL_MERGE, BY_LIBRARY, ANY_PROBLEM, merge_base},
    {"no heads", "heads", CALL_MERGE, BY_LIBRARY, ANY_PROBLEM, merge_heads},
    {"no out", "out", CALL_MERGE, BY_LIBRARY, ANY_PROBLEM, merge_no_out},
    {"an unaligned out", "out", CALL_MERGE, BY_PLUGIN, ANY_PROBLEM, merge_unaligned},
    {"no list of ranks", "all", CALL_RESCALE, BY_LIBRARY, ANY_PROBLEM, rescale_none},
    {"lse_base 9", "lse_base", CALL_RESCALE, BY_LIBRARY, ANY_PROBLEM, rescale_base},
    {"no own lse", "own", CALL_RESCALE, BY_LIBRARY, ANY_PROBLEM, rescale_own},
    {"a rank without lse", "all", CALL_RESCALE, BY_LIBRARY, ANY_PROBLEM, rescale_rank},
    {NULL, NULL, CALL_PLAN, 0, 0, NULL},
};
