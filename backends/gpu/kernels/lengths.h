/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How long the sequences of a step are and what they see, for host and device. */
#ifndef ATTN_GPU_LENGTHS_H
#define ATTN_GPU_LENGTHS_H

#include "address.h"
#include "run.h"
#include "visible-range.h"

#define GPU_I32(base) GPU_GLOBAL(const int32_t, base)
#define GPU_I64(base) GPU_GLOBAL(const int64_t, base)
#define GPU_F32(base) GPU_GLOBAL(const float, base)
#define GPU_U8(base)  GPU_GLOBAL(const unsigned char, base)

/* The members of a batch and its problem that decide lengths. Addresses are of the side that reads them. */
struct gpu_lengths {
    uint64_t q_offsets; /* arrays as in struct gpu_batch */
    uint64_t kv_lens;
    uint64_t kv_starts;
    uint64_t seq_causal;
    uint64_t global_lens;
    uint32_t seqs;
    uint32_t causal; /* of all sequences if seq_causal is 0 */
    uint32_t cp_rank;
    uint32_t cp_world;
    uint32_t cp_interleave;
    struct attn_rules rules;
};

/* Lengths of one sequence. */
struct gpu_length {
    uint32_t row; /* of query token 0 */
    uint32_t q_len;
    uint32_t kv_len;   /* keys of this rank */
    uint32_t all_keys; /* Lk: keys of all ranks */
    struct attn_visible visible;
};

/* Beyond this positions and lengths are far. */
#define GPU_FAR (1 << 30)

/* attn__visible_find, in 32 bits where no number is far and keys are not sharded: kernels wait for it before
 * they begin. */
static inline ATTN__DEVICE void gpu_visible_find(const struct attn_visible *visible, int64_t position,
                                                 uint32_t *lo, uint32_t *hi)
{
    if (visible->shard.world != 0 || visible->kv_len >= GPU_FAR ||
        (uint64_t)position + GPU_FAR >= 2 * (uint64_t)GPU_FAR) {
        attn__visible_find(visible, position, lo, hi);
        return;
    }
    const int32_t p = (int32_t)position, left = (int32_t)visible->left;
    const uint32_t reach = (uint32_t)(p + GPU_FAR) + (uint32_t)visible->right + 1;
    int32_t begin = 0, end = (int32_t)visible->kv_len;
    if (visible->causal != 0 && p + 1 < end)
        end = p + 1;
    if (visible->right >= 0 && reach < (uint32_t)(end + GPU_FAR))
        end = (int32_t)(reach - GPU_FAR);
    if (left >= 0 && p > left)
        begin = p - left;
    if (visible->square >= 0) {
        const int32_t square = (int32_t)visible->square;
        begin = begin < end && begin < square ? begin : square;
        end = (int32_t)visible->kv_len;
    }
    if (begin >= end)
        begin = end = 0;
    *lo = (uint32_t)begin;
    *hi = (uint32_t)end;
}

static inline ATTN__DEVICE struct gpu_lengths gpu_lengths_of(const struct attn_problem *problem,
                                                             const struct gpu_batch *batch)
{
    struct gpu_lengths lengths;

    lengths.q_offsets = batch->q_offsets;
    lengths.kv_lens = batch->kv_lens;
    lengths.kv_starts = batch->kv_starts;
    lengths.seq_causal = batch->seq_causal;
    lengths.global_lens = batch->global_lens;
    lengths.seqs = batch->seqs;
    lengths.causal = problem->causal == ATTN_CAUSAL_YES;
    lengths.cp_rank = batch->cp_rank;
    lengths.cp_world = batch->cp_world;
    lengths.cp_interleave = batch->cp_interleave;
    lengths.rules = attn__rules_of(problem);
    return lengths;
}

static inline ATTN__DEVICE struct gpu_length gpu_length_at(const struct gpu_lengths *lengths, uint32_t index)
{
    uint32_t causal = lengths->causal, start = 0, stop = 0, kv_len = 0, all_keys = 0;
    struct gpu_length own;

    /* No load waits for another one. */
    const uint32_t row = (uint32_t)GPU_I32(lengths->q_offsets)[index],
                   next_row = (uint32_t)GPU_I32(lengths->q_offsets)[index + 1];
    if (lengths->kv_starts != 0) {
        start = (uint32_t)GPU_I32(lengths->kv_starts)[index];
        stop = (uint32_t)GPU_I32(lengths->kv_starts)[index + 1];
    }
    if (lengths->kv_lens != 0)
        kv_len = (uint32_t)GPU_I32(lengths->kv_lens)[index];
    if (lengths->global_lens != 0)
        all_keys = (uint32_t)GPU_I32(lengths->global_lens)[index];
    if (lengths->seq_causal != 0)
        causal = GPU_U8(lengths->seq_causal)[index] != 0;
    own.row = row;
    own.q_len = next_row - row;
    own.kv_len = lengths->kv_lens != 0 ? kv_len : lengths->kv_starts != 0 ? stop - start : own.q_len;
    own.all_keys = lengths->global_lens != 0 ? all_keys : own.kv_len;
    attn__visible_start(&own.visible, &lengths->rules, causal, own.q_len, own.all_keys);
    own.visible.shard.rank = lengths->cp_rank;
    own.visible.shard.world = lengths->cp_world;
    own.visible.shard.interleave = lengths->cp_interleave;
    return own;
}

#endif
