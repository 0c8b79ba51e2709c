/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Small M, or swap-AB: work tiles of at most 8 query rows. A matrix instruction has 16 rows and 8 columns;
 * keys are its rows here and queries its columns. Each of the four warps is a warp group.
 */
#ifndef ATTN_GPU_MMA_SMALL_M_H
#define ATTN_GPU_MMA_SMALL_M_H

#include "combine.h"
#include "query.h"
#include "small-m-load.h"
#include "small-m-value.h"

/*
 * Row maxima, row sums, and results of rows that exist, from registers into the shared memory of the warp
 * group.
 */
template <class C>
GPU_INLINE void small_m_gather_results(mma_shared<C> *shared, float *to, uint32_t rows, const float max[2],
                                       const float sum[2], small_m_out_fragments<C> o)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        float row_sum = sum[e];
        for (uint32_t step = 4; step < GPU_WARP; step *= 2)
            row_sum += gpu_shuffle_xor_f32(row_sum, step);
        if (lane < 4) {
            shared->max[warp][lane * 2 + e] = max[e];
            shared->sum[warp][lane * 2 + e] = row_sum;
        }
    }
    gpu_barrier(); /* the last tile has been read */
    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        const uint32_t row = lane % 4 * 2 + e;
        if (row < rows) {
            GPU_UNROLL
            for (uint32_t n = 0; n < C::DV / 16; n++) {
                GPU_UNROLL
                for (uint32_t h = 0; h < 2; h++)
                    to[warp * C::GROUP_FLOATS + row * C::RESULT_PITCH + n * 16 + small_m_column<C>(h)] =
                        o[n][2 * h + e];
            }
        }
    }
    gpu_barrier();
}

/* The address stage `ahead` iterations later. */
template <class C> GPU_INLINE uint32_t small_m_address_stage(uint32_t slot, uint32_t ahead)
{
    return slot + ahead < C::ADDRESS_STAGES ? slot + ahead : slot + ahead - C::ADDRESS_STAGES;
}

/* What a warp keeps in registers from one KV iteration to the next. */
template <class C> struct small_m_loop {
    small_m_out_fragments<C> o;
    small_m_query_fragments<C> q;
    struct small_m_softmax softmax;
    struct mma_rules rules;
    struct mma_key_range range;
    struct small_m_fast_path fast;
    struct small_m_lane_copy key_copy, value_copy;
    unsigned char *stages;
    uint32_t group;
    uint32_t key0;    /* the group's first key of an iteration */
    uint32_t count;   /* stages that all of them fill */
    uint32_t is_fast; /* a bit for each iteration whose addresses are written, the current one's first */
    uint32_t slot;    /* address stage of the current iteration */
    uint32_t at;      /* stage of its keys */
};

/* Finds and writes the addresses of the first iterations. */
template <class C>
GPU_INLINE void small_m_write_first_addresses(const struct gpu_run *run, mma_shared<C> *shared,
                                              unsigned char *stages, const struct gpu_work_tile *p,
                                              small_m_loop<C> *loop)
{
    struct gpu_entry entries[C::ADDRESS_STAGES - 1];

    GPU_UNROLL
    for (uint32_t i = 0; i < C::ADDRESS_STAGES - 1; i++)
        entries[i] =
            small_m_find_page<C>(run, &loop->range, &loop->fast, p->first + i * C::TILES, loop->key0);
    mma_zero_padding<C>(run, stages);
    loop->is_fast = 0;
    GPU_LOOP
    for (uint32_t i = 0; i < C::ADDRESS_STAGES - 1; i++) {
        loop->is_fast |=
            (uint32_t)small_m_write_addresses<C>(run, shared, &loop->range, &loop->fast,
                                                 p->first + i * C::TILES, i, loop->key0, entries[0])
            << i;
        GPU_UNROLL
        for (uint32_t j = 0; j + 2 < C::ADDRESS_STAGES; j++)
            entries[j] = entries[j + 1];
    }
}

/* Begins the copies of the stage that is `ahead` stages after the current keys, into the stage `to`. */
template <class C, uint32_t ahead>
GPU_INLINE void small_m_load_ahead(const struct gpu_run *run, const mma_shared<C> *shared,
                                   const small_m_loop<C> *loop, uint32_t to, uint32_t tile, uint32_t done)
{
    constexpr bool values = ahead % 2 != 0;

    if (done + ahead < loop->count)
        small_m_load_stage<C>(run, shared, values ? &loop->value_copy : &loop->key_copy,
                              mma_stage<C>(loop->stages, loop->group, to),
                              small_m_address_stage<C>(loop->slot, ahead / 2), tile + ahead / 2 * C::TILES,
                              loop->key0, values, run->kv_aligned != 0, loop->is_fast >> ahead / 2 & 1);
    gpu_copy_commit();
}

/* Before the first iteration. */
template <class C>
GPU_INLINE void small_m_begin(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                              unsigned char *stages, const struct gpu_work_tile *p, small_m_loop<C> *loop)
{
    const uint32_t kv_len = shared->sequence.kv_len, end = p->end * GPU_TILE;

    loop->group = gpu_thread() / GPU_WARP;
    loop->key0 = loop->group * C::GROUP_KEYS;
    loop->count = (p->end - p->first + C::TILES - 1) / C::TILES * 2;
    loop->stages = stages;
    GPU_UNROLL
    for (uint32_t n = 0; n < C::DV / 16; n++)
        loop->o[n][0] = loop->o[n][1] = loop->o[n][2] = loop->o[n][3] = 0;
    /* Keys behind the work tile are another CTA's, although an iteration may reach them. */
    loop->range = mma_key_range_of(run, &shared->sequence, kv_len < end ? kv_len : end);
    loop->fast =
        small_m_fast_path_of<C>(run, &shared->sequence, &loop->range, p->kv_head, run->kv_aligned != 0);
    small_m_write_first_addresses<C>(run, shared, stages, p, loop);
    loop->key_copy = small_m_lane_copy_of<C>(C::K_BYTES);
    loop->value_copy = C::V_BYTES == C::K_BYTES ? loop->key_copy : small_m_lane_copy_of<C>(C::V_BYTES);
    mma_group_barrier<C>(); /* a warp writes the addresses of its own keys */
    mma_load_first_stages<C>(run, shared, stages, loop->group, p->first, loop->count, run->kv_aligned != 0);
    mma_load_queries<C>(run, shared, queries, p->row0, p->kv_head); /* while keys are copied */
    mma_find_visible_keys<C>(run, shared, p->row0, p->kv_head);
    if (gpu_thread() < C::GROUPS)
        shared->nonfinite_tile[gpu_thread()] = 0;
    gpu_barrier();
    loop->rules = mma_find_rules<C>(run, shared, p);
    loop->softmax = small_m_softmax_of<C>(shared, &loop->rules);
    if constexpr (C::Q_IN_REGISTERS)
        small_m_hold_queries<C>(queries, loop->q);
    loop->slot = loop->at = 0;
}

/* One KV iteration, after `done` stages. */
template <class C>
GPU_INLINE void small_m_iterate(const struct gpu_run *run, mma_shared<C> *shared,
                                const unsigned char *queries, const struct gpu_work_tile *p,
                                small_m_loop<C> *loop, uint32_t done)
{
    const uint32_t tile = p->first + done / 2 * C::TILES, later = tile + (C::ADDRESS_STAGES - 1) * C::TILES;
    const uint32_t key0 = loop->key0, slot = loop->slot, at = loop->at;
    const uint32_t previous = at == 0 ? C::STAGES - 1 : at - 1;
    const uint32_t next = at + 1 == C::STAGES ? 0 : at + 1;
    small_m_score_fragments<C> s;

    mma_wait_copies<C, C::STAGES - 2>(); /* the keys */
    small_m_load_ahead<C, C::STAGES - 1>(run, shared, loop, previous, tile, done);
    /* The entry arrives while scores are computed. */
    const struct gpu_entry entry = small_m_find_page<C>(run, &loop->range, &loop->fast, later, key0);
    if constexpr (!C::Q_IN_REGISTERS)
        small_m_hold_queries<C>(queries, loop->q);
    small_m_scores<C>(run, mma_stage<C>(loop->stages, loop->group, at), loop->q, s);
    const bool unmasked = small_m_apply_rules<C>(run, shared, &loop->range, &loop->rules, slot, tile, key0,
                                                 loop->is_fast & 1, s);
    mma_wait_copies<C, C::STAGES - 2>(); /* the values */
    unsigned char *values = mma_stage<C>(loop->stages, loop->group, next);
    small_m_load_ahead<C, C::STAGES>(run, shared, loop, at, tile, done);
    if (!unmasked && !small_m_all_finite<C>(run, shared, values, slot, key0)) {
        mma_clear_nonfinite<C>(run, shared, values, slot, tile, key0);
        if (shared->nonfinite_tile[loop->group] == tile + 1)
            small_m_spread_nonfinite<C>(shared, key0, s, loop->o);
    }
    small_m_exponentiate<C>(s, &loop->softmax, loop->o);
    small_m_values<C>(run, shared, values, slot, key0, unmasked, s, loop->o);
    loop->is_fast >>= 1;
    if (done + 2 * (C::ADDRESS_STAGES - 1) < loop->count)
        loop->is_fast |= (uint32_t)small_m_write_addresses<C>(
                             run, shared, &loop->range, &loop->fast, later,
                             small_m_address_stage<C>(slot, C::ADDRESS_STAGES - 1), key0, entry)
                         << (C::ADDRESS_STAGES - 2);
    loop->slot = small_m_address_stage<C>(slot, 1);
    loop->at = next + 1 == C::STAGES ? 0 : next + 1;
}

/* Attention of a work tile; results are in shared memory then, in place of queries and stages. */
template <class C>
GPU_INLINE void small_m_attend(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                               unsigned char *stages, const struct gpu_work_tile *p)
{
    small_m_loop<C> loop;

    small_m_begin<C>(run, shared, queries, stages, p, &loop);
    GPU_LOOP
    for (uint32_t done = 0; done < loop.count; done += 2)
        small_m_iterate<C>(run, shared, queries, p, &loop, done);
    GPU_COPY_WAIT(0);
    small_m_gather_results<C>(shared, (float *)(void *)queries, shared->sequence.q_len * run->group,
                              loop.softmax.max, loop.softmax.sum, loop.o);
}

#endif
