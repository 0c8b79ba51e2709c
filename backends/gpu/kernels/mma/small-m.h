/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The small-M, or swap-AB kernel: work tiles of at most 8 query rows. A matrix instruction has 16 rows and 8
 * columns; keys are its rows here and queries its columns. Each of the four warps is a warp group, with
 * shared memory of its own.
 */
#ifndef ATTN_GPU_MMA_SMALL_M_H
#define ATTN_GPU_MMA_SMALL_M_H

#include "combine.h"
#include "query.h"
#include "small-m-load.h"
#include "small-m-query.h"
#include "small-m-schedule.h"
#include "small-m-value.h"

/*
 * Row maxima, row sums, and results of rows that exist, from registers into shared memory: of the warp that
 * has a work tile `alone`, or of all that share one. Results take the place of the warp's stages.
 */
template <class C>
GPU_INLINE void small_m_gather_results(mma_shared<C> *shared, float *to, uint32_t rows, bool alone,
                                       const float max[2], const float sum[2], small_m_out_fragments<C> o)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, place = alone ? 0 : gpu_thread() / GPU_WARP;

    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        float row_sum = sum[e];
        for (uint32_t step = 4; step < GPU_WARP; step *= 2)
            row_sum += gpu_shuffle_xor_f32(row_sum, step);
        if (lane < 4) {
            shared->max[place][lane * 2 + e] = max[e];
            shared->sum[place][lane * 2 + e] = row_sum;
        }
    }
    gpu_warp_barrier(); /* the last stage has been read */
    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        const uint32_t row = lane % 4 * 2 + e;
        if (row < rows) {
            GPU_UNROLL
            for (uint32_t n = 0; n < C::DV / 16; n++) {
                GPU_UNROLL
                for (uint32_t h = 0; h < 2; h++)
                    to[row * C::RESULT_PITCH + n * 16 + small_m_column<C>(h)] = o[n][2 * h + e];
            }
        }
    }
    mma_work_barrier(alone);
}

/* The address stage `ahead` iterations later. */
template <class C> GPU_INLINE uint32_t small_m_address_stage(uint32_t slot, uint32_t ahead)
{
    return slot + ahead < C::ADDRESS_STAGES ? slot + ahead : slot + ahead - C::ADDRESS_STAGES;
}

/* What a warp keeps in registers from one KV iteration to the next. Tiles are of the warp's UNIT_KEYS. */
template <class C> struct small_m_loop {
    small_m_out_fragments<C> o;
    small_m_query_fragments<C> q;
    struct small_m_softmax softmax;
    struct mma_rules rules;
    struct small_m_fast_path fast;
    struct small_m_lane_copy key_copy, value_copy;
    unsigned char *stages; /* of the warp */
    uint32_t tile;         /* of the current iteration */
    uint32_t step;         /* tiles from one iteration to the next */
    uint32_t left;         /* stages that this iteration and the later ones fill */
    uint32_t is_fast;      /* a bit for each iteration whose addresses are written, the current one's first */
    uint32_t slot;         /* address stage of the current iteration */
    uint32_t at;           /* stage of its keys */
};

/* Finds and writes the addresses of the first iterations. */
template <class C>
GPU_INLINE void small_m_write_first_addresses(const struct gpu_run *run, mma_shared<C> *shared,
                                              unsigned char *stages, small_m_loop<C> *loop)
{
    struct gpu_entry entries[C::ADDRESS_STAGES - 1];

    GPU_UNROLL
    for (uint32_t i = 0; i < C::ADDRESS_STAGES - 1; i++)
        entries[i] = small_m_find_page<C>(run, shared, &loop->fast, loop->tile + i * loop->step);
    mma_zero_padding<C>(run, stages);
    loop->is_fast = 0;
    GPU_LOOP
    for (uint32_t i = 0; i < C::ADDRESS_STAGES - 1; i++) {
        loop->is_fast |= (uint32_t)small_m_write_addresses<C>(run, shared, &loop->fast,
                                                              loop->tile + i * loop->step, i, entries[0])
                         << i;
        GPU_UNROLL
        for (uint32_t j = 0; j + 2 < C::ADDRESS_STAGES; j++)
            entries[j] = entries[j + 1];
    }
    gpu_warp_barrier();
}

/* Begins the copies of the stage that is `ahead` stages after the current keys, into the stage `to`. */
template <class C, uint32_t ahead>
GPU_INLINE void small_m_load_ahead(const struct gpu_run *run, const mma_shared<C> *shared,
                                   const small_m_loop<C> *loop, uint32_t to)
{
    constexpr bool values = ahead % 2 != 0;

    if (ahead < loop->left)
        small_m_load_stage<C>(run, shared, values ? &loop->value_copy : &loop->key_copy,
                              loop->stages + to * C::STAGE_BYTES,
                              small_m_address_stage<C>(loop->slot, ahead / 2),
                              loop->tile + ahead / 2 * loop->step, values, loop->is_fast >> ahead / 2 & 1);
    gpu_copy_commit();
}

/* Begins the copies of the first stages. */
template <class C, uint32_t i>
GPU_INLINE void small_m_load_first_stages(const struct gpu_run *run, const mma_shared<C> *shared,
                                          const small_m_loop<C> *loop)
{
    if constexpr (i < C::STAGES - 1) {
        small_m_load_ahead<C, i>(run, shared, loop, i);
        small_m_load_first_stages<C, i + 1>(run, shared, loop);
    }
}

/* Which keys the warp takes of a work tile, and nothing of results. */
template <class C>
GPU_INLINE void small_m_start(const struct gpu_run *run, const mma_shared<C> *shared, unsigned char *stages,
                              const struct gpu_work_tile *p, small_m_loop<C> *loop)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, units = GPU_TILE / C::UNIT_KEYS;
    const bool alone = shared->list.alone != 0;

    loop->step = alone ? 1 : C::GROUPS;
    loop->tile = p->first * units + (alone ? 0 : warp);
    loop->left = ((p->end - p->first) * units + loop->step - 1) / (alone ? 1 : C::GROUPS) * 2;
    loop->stages = stages + warp * C::STAGES * C::STAGE_BYTES;
    loop->slot = loop->at = 0;
    GPU_UNROLL
    for (uint32_t n = 0; n < C::DV / 16; n++)
        loop->o[n][0] = loop->o[n][1] = loop->o[n][2] = loop->o[n][3] = 0;
    loop->fast = small_m_fast_path_of<C>(run, &shared->sequence, small_m_key_end<C>(shared), p->kv_head,
                                         run->kv_aligned != 0);
    loop->key_copy = small_m_lane_copy_of<C>(C::K_BYTES);
    loop->value_copy = C::V_BYTES == C::K_BYTES ? loop->key_copy : small_m_lane_copy_of<C>(C::V_BYTES);
}

/* Before the first iteration. */
template <class C>
GPU_INLINE void small_m_begin(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                              unsigned char *stages, const struct gpu_work_tile *p, small_m_loop<C> *loop)
{
    small_m_start<C>(run, shared, stages, p, loop);
    if constexpr (C::Q_DIRECT)
        small_m_load_queries<C>(run, &shared->sequence, p->kv_head, loop->q);
    small_m_write_first_addresses<C>(run, shared, stages, loop);
    small_m_load_first_stages<C, 0>(run, shared, loop);
    if constexpr (!C::Q_DIRECT)
        mma_load_queries<C>(run, shared, queries, p->row0, p->kv_head); /* while keys are copied */
    mma_find_visible_keys<C>(run, shared, p->row0, p->kv_head);
    shared->nonfinite_tile[0] = 0;
    if constexpr (C::Q_DIRECT)
        gpu_warp_barrier();
    else
        gpu_barrier();
    loop->rules = mma_find_rules<C>(run, shared, p);
    loop->softmax = small_m_softmax_of<C>(shared, &loop->rules);
    if constexpr (C::Q_IN_REGISTERS && !C::Q_DIRECT)
        small_m_hold_queries<C>(queries, loop->q);
}

/* One KV iteration. */
template <class C>
GPU_INLINE void small_m_iterate(const struct gpu_run *run, mma_shared<C> *shared,
                                const unsigned char *queries, small_m_loop<C> *loop)
{
    const uint32_t tile = loop->tile, slot = loop->slot, at = loop->at;
    const uint32_t later = tile + (C::ADDRESS_STAGES - 1) * loop->step;
    const uint32_t previous = at == 0 ? C::STAGES - 1 : at - 1;
    const uint32_t next = at + 1 == C::STAGES ? 0 : at + 1;
    small_m_score_fragments<C> s;

    mma_wait_copies<C, C::STAGES - 2>(); /* the keys */
    small_m_load_ahead<C, C::STAGES - 1>(run, shared, loop, previous);
    /* The entry arrives while scores are computed. */
    const struct gpu_entry entry = small_m_find_page<C>(run, shared, &loop->fast, later);
    if constexpr (!C::Q_IN_REGISTERS)
        small_m_hold_queries<C>(queries, loop->q);
    small_m_scores<C>(run, loop->stages + at * C::STAGE_BYTES, loop->q, s);
    const bool unmasked = small_m_apply_rules<C>(run, shared, &loop->rules, slot, tile, loop->is_fast & 1, s);
    mma_wait_copies<C, C::STAGES - 2>(); /* the values */
    unsigned char *values = loop->stages + next * C::STAGE_BYTES;
    small_m_load_ahead<C, C::STAGES>(run, shared, loop, at);
    if (!unmasked && !small_m_all_finite<C>(run, shared, values, slot)) {
        mma_clear_nonfinite<C>(run, shared, values, slot, tile, 0);
        if (shared->nonfinite_tile[0] == tile + 1)
            small_m_spread_nonfinite<C>(shared, s, loop->o);
    }
    small_m_exponentiate<C>(s, &loop->softmax, loop->o);
    small_m_values<C>(run, shared, values, slot, unmasked, s, loop->o);
    loop->is_fast >>= 1;
    if (2 * (C::ADDRESS_STAGES - 1) < loop->left)
        loop->is_fast |=
            (uint32_t)small_m_write_addresses<C>(run, shared, &loop->fast, later,
                                                 small_m_address_stage<C>(slot, C::ADDRESS_STAGES - 1), entry)
            << (C::ADDRESS_STAGES - 2);
    loop->tile = tile + loop->step;
    loop->slot = small_m_address_stage<C>(slot, 1);
    loop->at = next + 1 == C::STAGES ? 0 : next + 1;
}

/* Attention of a work tile; results are in shared memory then, in place of stages. `results`: where maxima
 * and sums of the warps go that share the work tile. */
template <class C>
GPU_INLINE void small_m_attend(const struct gpu_run *run, mma_shared<C> *shared, mma_shared<C> *results,
                               unsigned char *queries, unsigned char *stages, const struct gpu_work_tile *p)
{
    small_m_loop<C> loop;

    small_m_begin<C>(run, shared, queries, stages, p, &loop);
    GPU_LOOP
    for (; loop.left != 0; loop.left -= 2)
        small_m_iterate<C>(run, shared, queries, &loop);
    GPU_COPY_WAIT(0);
    small_m_gather_results<C>(results, (float *)(void *)loop.stages, shared->sequence.q_len * run->group,
                              shared->list.alone != 0, loop.softmax.max, loop.softmax.sum, loop.o);
}

/* The small-M kernel: work tile by work tile. */
template <class C> GPU_INLINE void small_m_kernel(const struct gpu_run *run)
{
    unsigned char *memory = gpu_shared();
    const uint32_t warp = gpu_thread() / GPU_WARP;
    mma_shared<C> *all = (mma_shared<C> *)(void *)memory, *shared = all + warp;
    unsigned char *queries = memory + C::FIXED_BYTES;
    unsigned char *stages = queries + C::ROWS * mma_row_pitch<C>(C::Q_BYTES);
    const struct gpu_work_tile *p = &shared->work;
    static_assert(sizeof *shared * C::WARPS <= C::FIXED_BYTES, "the host reserves less");

    for (bool begins = true;; begins = false) {
        small_m_next_tile<C>(run, shared, begins);
        const bool alone = shared->list.alone != 0;
        if (p->splits != 0) {
            mma_shared<C> *results = alone ? shared : all;
            small_m_attend<C>(run, shared, results, queries, stages, p);
            mma_store_tile<C>(run, &shared->sequence, results,
                              (const float *)(void *)stages + (alone ? warp * C::GROUP_FLOATS : 0), p,
                              alone ? 1 : C::GROUPS, alone ? 0 : warp, alone ? 1 : C::WARPS);
            if (p->splits > 1 && mma_is_last_split<C>(run, results, p, alone))
                mma_combine_tile<C>(run, &shared->sequence, p, alone);
        }
        if (p->next == 0)
            return;
        mma_work_barrier(alone); /* the work tile is done */
    }
}

#endif
