/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The next work tile of a CTA, but of small M. */
#ifndef ATTN_GPU_MMA_SCHEDULE_H
#define ATTN_GPU_MMA_SCHEDULE_H

#include "addresses.h"
#include "score-rules.h"

/* Position of the CTA's first work tile in the work list, or of the one that work.next has. */
template <class C>
GPU_INLINE uint64_t mma_list_position(const struct gpu_run *run, const mma_looked_up<C> *last, uint64_t all,
                                      uint32_t ctas, bool begins)
{
    if (!begins)
        return last->work.next;
    return run->phase == ATTN__PREFILL || run->problem.det != 0 ? gpu_cta()
                                                                : gpu_list_begin(all, gpu_cta(), ctas);
}

/*
 * CTAs that share the work list. Stretches of decode are a bit longer where sequences have equally many tiles
 * and the stretches of their heads begin at the same keys then: the vectors of a token, which lie side by
 * side, are read at the same time, and few heads are split.
 */
GPU_INLINE uint32_t mma_list_ctas(const struct gpu_run *run, uint64_t all, bool decode_list)
{
    if (all <= gpu_ctas() || !decode_list)
        return all < gpu_ctas() ? (uint32_t)all : gpu_ctas(); /* no CTA has an empty tile */
    const uint32_t head = gpu_sum(run, 1) - gpu_sum(run, 0);
    if (head == 0 || (uint64_t)head * run->batch.seqs * run->problem.kv_heads != all)
        return gpu_ctas();
    const uint32_t least = (uint32_t)gpu_divide_u64(all + gpu_ctas() - 1, gpu_ctas());
    const uint32_t parts = head / least; /* of a head, or a stretch has several heads */
    const uint32_t stretch = parts > 0 ? (head + parts - 1) / parts : (least + head - 1) / head * head;
    return stretch > least + least / 32 ? gpu_ctas() : (uint32_t)gpu_divide_u64(all + stretch - 1, stretch);
}

/* The position among the tiles of one KV head, which the sums of the schedule count. */
GPU_INLINE uint64_t mma_list_unit(const struct gpu_run *run, uint64_t all, uint64_t position)
{
    return gpu_divide_u64(run->phase == ATTN__PREFILL ? all - 1 - position : position, run->problem.kv_heads);
}

/* Whether planners do not know which keys a row tile of prefill sees: positions are given, keys sharded, or
 * masks ranges. */
GPU_INLINE bool mma_plans_all_keys(const struct gpu_run *run)
{
    return run->batch.positions != 0 || run->batch.cp_world != 0 || run->masks.ranges != 0;
}

/* Makes iterations of e4m3 those that the workspace has. By one lane. */
template <class C> GPU_INLINE void mma_align_tile(mma_looked_up<C> *to)
{
    if (!C::E4M3 || to->work.first % C::TILES == 0 || to->work.first >= to->work.end)
        return;
    to->lead = to->work.first % C::TILES;
    to->work.first -= to->lead;
}

/* Leaves out KV tiles that no row of the work tile sees, of which each lane of a warp knows some rows: keys
 * [lo, hi). One stays, for queries are copied already. */
template <class C> GPU_INLINE void mma_trim_tile(mma_looked_up<C> *to, uint32_t lo, uint32_t hi)
{
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2) {
        const uint32_t low = gpu_shuffle_xor_u32(lo, mask), high = gpu_shuffle_xor_u32(hi, mask);
        lo = low < lo ? low : lo;
        hi = high > hi ? high : hi;
    }
    if (gpu_thread() % GPU_WARP == 0) {
        const uint32_t begin = to->work.first + (C::E4M3 ? to->lead : 0), all = to->work.end,
                       last = (hi + GPU_TILE - 1) / GPU_TILE;
        uint32_t first = lo / GPU_TILE > begin ? lo / GPU_TILE : begin, end = last < all ? last : all;
        if (first >= end) {
            first = begin;
            end = begin < all ? begin + 1 : all;
        }
        to->work.first = first;
        to->work.end = end;
        to->lead = 0;
        mma_align_tile<C>(to);
    }
    gpu_warp_barrier();
}

/* The same by a warp whose lanes look at the tokens first. */
template <class C> GPU_INLINE void mma_find_and_trim(const struct gpu_run *run, mma_looked_up<C> *to)
{
    const struct gpu_sequence *s = &to->sequence;
    const uint32_t first = to->work.row0 / run->group, last = (to->work.row0 + C::ROWS - 1) / run->group;
    uint32_t lo = UINT32_MAX, hi = 0;

    GPU_LOOP
    for (uint32_t i = first + gpu_thread() % GPU_WARP; i <= last && i < s->q_len; i += GPU_WARP) {
        uint32_t low, high;
        gpu_find_reach(run, s, i, &low, &high);
        lo = low < high && low < lo ? low : lo;
        hi = high > hi ? high : hi;
    }
    mma_trim_tile<C>(to, lo, hi);
}

/*
 * Finds the CTA's first work tile, or the one that work.next has; work.splits is 0 if the list does not have
 * it. Decode: of its stretch of the list of key tiles, or with det=1 of its share of fixed splits. Prefill:
 * of its share of row tiles. Each lane of a warp looks at one sequence; the lane whose sequence holds the
 * position writes the tile. Returns how many the list has.
 */
template <class C>
GPU_INLINE uint32_t mma_next_tile(const struct gpu_run *run, mma_looked_up<C> *to, bool begins)
{
    const uint32_t seqs = run->batch.seqs;
    const bool prefill = C::PREFILL_ONLY || run->phase == ATTN__PREFILL,
               decode_list = !prefill && run->problem.det == 0;
    const uint64_t all = (uint64_t)gpu_sum(run, seqs) * run->problem.kv_heads;
    const uint32_t ctas = mma_list_ctas(run, all, decode_list);
    uint32_t index = gpu_thread() % GPU_WARP, below = 0, above = 0;
    struct gpu_sequence s;

    /* Up to 32 sequences are read without knowing where the position is. */
    if (seqs > GPU_WARP && (begins ? gpu_cta() < ctas : to->work.next < all))
        index +=
            gpu_find_block(run, mma_list_unit(run, all, mma_list_position<C>(run, to, all, ctas, begins)));
    const bool exists = index < seqs;
    if (exists) {
        below = gpu_sum(run, index);
        above = gpu_sum(run, index + 1);
        s = gpu_sequence(run, index);
    }
    if (begins ? gpu_cta() >= ctas : to->work.next >= all) {
        if (!C::WGMMA || gpu_thread() % GPU_WARP == 0) /* the lane that says then that it is known */
            to->work.splits = 0;
        return (uint32_t)all;
    }
    const uint64_t at = mma_list_position<C>(run, to, all, ctas, begins);
    const uint64_t unit = mma_list_unit(run, all, at);
    gpu_warp_barrier(); /* the last work tile has been read */
    if (exists && unit >= below && unit < above) {
        const uint64_t end = decode_list ? gpu_list_begin(all, gpu_cta() + 1, ctas) : all;
        to->sequence = s;
        to->work = prefill ? gpu_prefill_tile_at(run, &s, at, all, below, above, C::ROWS)
                           : gpu_decode_tile_at(run, &s, at, end, all, ctas, below, above, C::ROWS);
        to->lead = 0;
        mma_align_tile<C>(to);
    }
    gpu_warp_barrier();
    if (C::ROWS >= 64 && prefill && !mma_rows_are_ranges<C>(run) && mma_plans_all_keys(run))
        mma_find_and_trim<C>(run, to);
    to->trust = MMA_TRUSTED;
    mma_find_origins<C>(run, to, to->work.kv_head);
    return (uint32_t)all;
}

#endif
