/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs with one thing wrong. */
#include <math.h>

#include "offence.h"

#define SPOIL(name, ...)                                                                                     \
    static void name(struct arguments *a)                                                                    \
    {                                                                                                        \
        __VA_ARGS__;                                                                                         \
    }

SPOIL(no_batch, a->batch_given = NULL)
SPOIL(no_tensors, a->tensors_given = NULL)
SPOIL(no_schedule, a->schedule_given = NULL)
SPOIL(no_scratch, a->scratch_given = NULL)
SPOIL(small_schedule, a->schedule.size--)
SPOIL(small_scratch, a->scratch.scratch.size--)
SPOIL(small_counters, a->scratch.counters.size--)
SPOIL(unaligned_schedule, a->schedule.buffer.byte_offset++)
SPOIL(unaligned_scratch, a->scratch.scratch.buffer.byte_offset++)
SPOIL(unaligned_counters, a->scratch.counters.buffer.byte_offset++)
SPOIL(rubbish_schedule, memset(a->schedule.buffer.data, 0xff, a->schedule.size))
SPOIL(zero_schedule, memset(a->schedule.buffer.data, 0, a->schedule.size))
SPOIL(old_schedule, a->batch.seqs--; a->batch.num_tokens = (uint32_t)a->q_offsets[a->batch.seqs])
SPOIL(many_seqs, a->batch.seqs = a->problem.max_seqs + 1)
SPOIL(many_tokens, a->batch.num_tokens = a->problem.max_rows + 1)
SPOIL(long_queries, a->batch.max_q = a->problem.max_q + 1)
SPOIL(long_keys, a->batch.max_kv = a->problem.max_kv + 1)
SPOIL(no_kv, a->without_kv = true)
SPOIL(two_kvs, a->tensors.kv_desc = &a->kv; a->with_handle = true)
SPOIL(other_heads, a->kv.kv_heads++)
SPOIL(other_heads_handle, a->kv.kv_heads++; a->with_handle = true)
SPOIL(other_dim, a->kv.head_dim += 8)
SPOIL(other_dim_handle, a->kv.head_dim += 8; a->with_handle = true)
SPOIL(other_dim_vo, a->kv.head_dim_vo += 8; a->with_handle = true)
SPOIL(other_block, a->kv.block *= 2)
SPOIL(other_block_handle, a->kv.block *= 2; a->with_handle = true)
SPOIL(other_k_type, a->kv.k_dtype = a->kv.k_dtype == ATTN_F16 ? ATTN_BF16 : ATTN_F16)
SPOIL(other_v_type, a->kv.v_dtype = a->kv.v_dtype == ATTN_F16 ? ATTN_BF16 : ATTN_F16; a->with_handle = true)
SPOIL(other_layout, a->kv.layout = ATTN_PAGED_X; a->kv.head_dim = a->kv.head_dim_vo = 16)
SPOIL(few_pages, a->kv.pages = 1)
SPOIL(few_pages_handle, a->kv.pages = 1; a->with_handle = true)
SPOIL(unaligned_kv, a->kv.k.byte_offset++)
SPOIL(unaligned_kv_stride, a->kv.v_token_stride++)
SPOIL(far_kv_stride, a->kv.k_page_stride = INT64_MAX / 2)
SPOIL(zero_scale, a->tensors.softmax_scale = 0)
SPOIL(nan_scale, a->tensors.softmax_scale = NAN)
SPOIL(negative_scale, a->tensors.softmax_scale = -1)
SPOIL(no_q, a->tensors.q.buffer.data = NULL; a->tensors.q.buffer.byte_offset = 0)
SPOIL(unaligned_q, a->tensors.q.buffer.byte_offset++)
SPOIL(unaligned_q_stride, a->tensors.q.token_stride++)
SPOIL(far_q_stride, a->tensors.q.token_stride = INT64_MAX)
SPOIL(no_out, a->tensors.out.buffer.data = NULL; a->tensors.out.buffer.byte_offset = 0)
SPOIL(unaligned_out, a->tensors.out.buffer.byte_offset++)
SPOIL(flat_out, a->tensors.out.token_stride = 0)
SPOIL(far_out, a->tensors.out.head_stride = INT64_MAX - 7)
SPOIL(no_lse, a->tensors.lse.buffer.data = NULL; a->tensors.lse.buffer.byte_offset = 0)
SPOIL(unaligned_lse, a->tensors.lse.buffer.byte_offset++)
SPOIL(given_sinks, a->tensors.sinks.data = a->q_offsets; a->tensors.sinks_dtype = ATTN_F32)
SPOIL(given_slopes, a->tensors.alibi_slopes.data = a->q_offsets)
SPOIL(given_mask, a->tensors.mask.data = a->q_offsets)
SPOIL(given_rope, a->tensors.q_rope = a->tensors.q)
SPOIL(typed_q, a->tensors.q.dtype = a->problem.q_dtype == ATTN_F32 ? ATTN_BF16 : ATTN_F32)
SPOIL(typed_out, a->tensors.out.dtype = a->problem.out_dtype == ATTN_F32 ? ATTN_BF16 : ATTN_F32)
SPOIL(unknown_dtype, a->tensors.q.dtype = 1)
SPOIL(given_new, a->tensors.k_new = a->tensors.q)
SPOIL(given_q_scale, a->tensors.q_scale.kind = ATTN_SCALE_UNIT)
SPOIL(given_out_scale, a->tensors.out_scale.kind = ATTN_SCALE_UNIT)
SPOIL(short_tensors, a->tensors.struct_size = 2)
SPOIL(short_batch, a->batch.struct_size = 2)

/* A schedule that another plan made: of the same batch, with other maxima. Kept if it does not fit. */
static void foreign_schedule(struct arguments *a)
{
    struct attn_problem problem = a->problem;
    struct attn_plan *plan = NULL;
    struct attn_plan_sizes sizes;

    ATTN_INIT(&sizes);
    problem.softcap = 20;
    memset(a->schedule.buffer.data, 0xff, a->schedule.size);
    if (attn_plan_create(a->bench->target->backend, &problem, &plan, NULL) == ATTN_OK &&
        attn_plan_get_sizes(plan, &sizes, NULL) == ATTN_OK && sizes.schedule <= a->schedule.size)
        attn_plan_prepare(plan, &a->batch, &a->schedule, &a->bench->fixture.staging, NULL, NULL);
    attn_plan_destroy(plan);
}

const struct offence run_offences[] = {
    {"no batch", "batch", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, no_batch},
    {"no tensors", "tensors", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, no_tensors},
    {"a short batch", "batch", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, short_batch},
    {"short tensors", "tensors", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, short_tensors},
    {"no schedule", "schedule", CALL_RUN, BY_LIBRARY, SCHEDULE_PLAN, no_schedule},
    {"no scratch", "scratch", CALL_RUN, BY_LIBRARY, SCRATCH_PLAN, no_scratch},
    {"too small a schedule", "schedule", CALL_RUN, BY_LIBRARY, SCHEDULE_PLAN, small_schedule},
    {"too small a scratch", "scratch", CALL_RUN, BY_LIBRARY, SCRATCH_PLAN, small_scratch},
    {"too few counters", "counters", CALL_RUN, BY_LIBRARY, COUNTERS_PLAN, small_counters},
    {"an unaligned schedule", "schedule", CALL_RUN, BY_PLUGIN, SCHEDULE_PLAN, unaligned_schedule},
    {"an unaligned scratch", "scratch", CALL_RUN, BY_PLUGIN, SCRATCH_PLAN, unaligned_scratch},
    {"unaligned counters", "counters", CALL_RUN, BY_PLUGIN, COUNTERS_PLAN, unaligned_counters},
    {"rubbish for a schedule", "schedule", CALL_RUN, BY_PLUGIN, SCHEDULE_PLAN, rubbish_schedule},
    {"zeros for a schedule", "schedule", CALL_RUN, BY_PLUGIN, SCHEDULE_PLAN, zero_schedule},
    {"the schedule of another batch", "schedule", CALL_RUN, BY_PLUGIN, SCHEDULE_PLAN, old_schedule},
    {"the schedule of another plan", "schedule", CALL_RUN, BY_PLUGIN, SCHEDULE_PLAN, foreign_schedule},
    {"too many sequences", "seqs", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, many_seqs},
    {"too many query tokens", "num_tokens", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, many_tokens},
    {"too large a max_q", "max_q", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, long_queries},
    {"too large a max_kv", "max_kv", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, long_keys},
    {"queries of another type", "q", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, typed_q},
    {"results of another type", "out", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, typed_out},
    {"queries of no type", "q", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, unknown_dtype},
    {"no cache", "kv", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, no_kv},
    {"two caches", "kv_desc", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, two_kvs},
    {"a cache with other heads", "kv_heads", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, other_heads},
    {"a handle with other heads", "kv_heads", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, other_heads_handle},
    {"a cache with another head_dim", "head_dim", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, other_dim},
    {"a handle with another head_dim", "head_dim", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, other_dim_handle},
    {"a handle with another head_dim_vo", "head_dim", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, other_dim_vo},
    {"a cache with another block", "block", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, other_block},
    {"a handle with another block", "block", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, other_block_handle},
    {"a cache with another k type", "k_dtype", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, other_k_type},
    {"a handle with another v type", "v_dtype", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, other_v_type},
    {"a cache with another layout", "", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, other_layout},
    {"a cache with too few pages", "", CALL_RUN, BY_PLUGIN, ANY_PROBLEM, few_pages},
    {"a handle with too few pages", "", CALL_RUN, BY_PLUGIN, ANY_PROBLEM, few_pages_handle},
    {"an unaligned cache", "k", CALL_RUN, BY_PLUGIN, WIDE_PROBLEM, unaligned_kv},
    {"a cache with unaligned strides", "v", CALL_RUN, BY_LIBRARY, WIDE_PROBLEM, unaligned_kv_stride},
    {"a cache beyond 64 bits", "k", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, far_kv_stride},
    {"softmax_scale 0", "softmax_scale", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, zero_scale},
    {"softmax_scale NaN", "softmax_scale", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, nan_scale},
    {"softmax_scale -1", "softmax_scale", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, negative_scale},
    {"no q", "q", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, no_q},
    {"an unaligned q", "q", CALL_RUN, BY_PLUGIN, WIDE_PROBLEM, unaligned_q},
    {"a q with an unaligned stride", "q", CALL_RUN, BY_LIBRARY, WIDE_PROBLEM, unaligned_q_stride},
    {"a q beyond 64 bits", "q", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, far_q_stride},
    {"no out", "out", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, no_out},
    {"an unaligned out", "out", CALL_RUN, BY_PLUGIN, WIDE_PROBLEM, unaligned_out},
    {"an out whose rows overlap", "out", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, flat_out},
    {"an out beyond 64 bits", "out", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, far_out},
    {"no lse", "lse", CALL_RUN, BY_LIBRARY, LSE_PROBLEM, no_lse},
    {"an unaligned lse", "lse", CALL_RUN, BY_PLUGIN, LSE_PROBLEM, unaligned_lse},
    {"sinks that the problem has not", "sinks", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, given_sinks},
    {"slopes that the problem has not", "alibi_slopes", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, given_slopes},
    {"a mask that the problem has not", "mask", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, given_mask},
    {"a q_rope that the problem has not", "q_rope", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, given_rope},
    {"a k_new that the problem has not", "k_new", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, given_new},
    {"a q_scale that the problem has not", "q_scale", CALL_RUN, BY_LIBRARY, ANY_PROBLEM, given_q_scale},
    {"an out_scale that the problem has not", "out_scale", CALL_RUN, BY_LIBRARY, ANY_PROBLEM,
     given_out_scale},
    {NULL, NULL, CALL_RUN, 0, 0, NULL},
};
