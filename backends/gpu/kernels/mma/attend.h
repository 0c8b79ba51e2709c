/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The KV loop over a work tile of 16 query rows and more. */
#ifndef ATTN_GPU_MMA_ATTEND_H
#define ATTN_GPU_MMA_ATTEND_H

#include "combine.h"
#include "convert.h"
#include "exchange.h"
#include "nonfinite.h"
#include "query.h"
#include "score.h"
#include "value.h"

/* What a warp keeps in registers from one KV iteration to the next. */
template <class C> struct mma_loop {
    mma_out_fragments<C> o;
    mma_row_pairs<C> max, sum;
    mma_query_fragments<C> q;
    mma_total<C> total; /* of f32 */
    struct mma_rules rules;
    struct mma_key_range range;
    unsigned char *stages;    /* of the group */
    uint32_t row_warp, group; /* the warp's */
    uint32_t column_warp;
    uint32_t key0; /* the group's first key of a tile */
    uint32_t slot; /* address stage of the current tile */
    uint32_t at;   /* stage of its keys, or raw stage */
    bool aligned;
};

template <class C> GPU_INLINE void mma_clear_results(mma_loop<C> *loop)
{
    GPU_UNROLL
    for (uint32_t m = 0; m < C::M_FRAGMENTS; m++) {
        loop->max[m][0] = loop->max[m][1] = -GPU_INFINITY;
        loop->sum[m][0] = loop->sum[m][1] = 0;
        GPU_UNROLL
        for (uint32_t n = 0; n < C::WARP_DV / 8; n++)
            loop->o[m][n][0] = loop->o[m][n][1] = loop->o[m][n][2] = loop->o[m][n][3] = 0;
    }
}

/* Finds and writes the addresses of the first tiles. */
template <class C>
GPU_INLINE void mma_write_first_addresses(const struct gpu_run *run, mma_shared<C> *shared,
                                          unsigned char *stages, const struct gpu_work_tile *p,
                                          const mma_loop<C> *loop)
{
    struct gpu_entry entries[C::ADDRESS_STAGES - 1];

    GPU_UNROLL
    for (uint32_t i = 0; i < C::ADDRESS_STAGES - 1; i++)
        entries[i] = mma_find_page<C>(run, &loop->range, p->first + i, loop->key0);
    mma_zero_padding<C>(run, stages);
    GPU_UNROLL
    for (uint32_t i = 0; i < C::ADDRESS_STAGES - 1; i++)
        mma_write_addresses<C>(run, shared, &loop->range, p->first + i, i, loop->key0, entries[i]);
}

/* Converts the keys of the first iteration, and copies others into their place. */
template <class C>
GPU_INLINE void mma_convert_first_keys(const struct gpu_run *run, const mma_shared<C> *shared,
                                       unsigned char *stages, const struct gpu_work_tile *p, bool aligned)
{
    unsigned char *raw = mma_raw_stage<C>(stages, 0, false);
    mma_codes<C> codes;

    GPU_COPY_WAIT(2 * C::RAW_STAGES - 1);
    mma_read_codes<C>(raw, C::K_BYTES, &codes);
    if (p->first < p->end)
        mma_convert_keys<C>(run, &codes, raw, stages);
    if (p->first + C::RAW_STAGES < p->end)
        mma_load_stage<C>(run, shared, raw, C::RAW_STAGES, p->first + C::RAW_STAGES, 0, false, aligned);
    gpu_copy_commit();
}

/* Before the first iteration. */
template <class C>
GPU_INLINE void mma_begin(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                          unsigned char *stages, const struct gpu_work_tile *p, mma_loop<C> *loop)
{
    const uint32_t warp = gpu_thread() / GPU_WARP;

    loop->row_warp = warp / C::GROUPS / C::COLUMN_WARPS;
    loop->column_warp = warp % C::COLUMN_WARPS;
    loop->group = warp % C::GROUPS;
    loop->key0 = loop->group * C::GROUP_KEYS;
    loop->stages = stages + loop->group * (C::STAGES * C::STAGE_BYTES);
    mma_clear_results<C>(loop);
    if constexpr (C::KV32)
        mma_clear_total<C>(&loop->total);
    loop->range = mma_key_range_of(run, &shared->sequence, shared->sequence.kv_len);
    mma_write_first_addresses<C>(run, shared, stages, p, loop);
    const bool copied = mma_write_query_addresses<C>(run, shared, p->row0, p->kv_head, C::ADDRESS_STAGES - 1);
    mma_group_barrier<C>();
    if (copied)
        mma_copy_queries<C>(shared, queries, C::ADDRESS_STAGES - 1); /* together with the first keys */
    mma_load_first_stages<C>(run, shared, stages, loop->group, p->first, 2 * (p->end - p->first),
                             loop->aligned);
    if (!copied)
        mma_load_queries<C>(run, shared, queries, p->row0, p->kv_head); /* while keys are copied */
    mma_find_visible_keys<C>(run, shared, p->row0, p->kv_head);
    if (gpu_thread() < C::GROUPS)
        shared->nonfinite_tile[gpu_thread()] = 0;
    if constexpr (C::CONVERTS)
        mma_convert_first_keys<C>(run, shared, stages, p, loop->aligned);
    gpu_barrier();
    loop->rules = mma_find_rules<C>(run, shared, p);
    if constexpr (C::Q_IN_REGISTERS)
        mma_hold_queries<C>(queries, loop->q);
    loop->slot = loop->at = 0;
}

/*
 * Begins the copies of the stage that is `ahead` stages after the current keys, into the stage `to`. Row
 * warps issue them in steps of `copy` and commit them afterwards.
 */
template <class C, uint32_t ahead>
GPU_INLINE void mma_load_ahead(const struct gpu_run *run, const mma_shared<C> *shared,
                               const mma_loop<C> *loop, uint32_t to, uint32_t tile, struct mma_copy *copy)
{
    unsigned char *stage = loop->stages + to * C::STAGE_BYTES;
    const uint32_t slot = (loop->slot + ahead / 2) % C::ADDRESS_STAGES;
    const bool wanted = tile + ahead / 2 < shared->work.end;

    if constexpr (C::GROUPS == 1) {
        *copy = mma_load_stage_begin<C>(run, shared, stage, slot, tile + ahead / 2, ahead % 2 != 0,
                                        loop->aligned, wanted);
    } else {
        if (wanted)
            mma_load_stage<C>(run, shared, stage, slot, tile + ahead / 2, loop->key0, ahead % 2 != 0,
                              loop->aligned);
        gpu_copy_commit();
    }
}

/*
 * Waits for the keys of an iteration, and begins the copies that are issued while scores are computed. Values
 * that have arrived are converted first: those that take their place are copied. A thread reads the codes
 * that it has copied itself before it waits for others.
 */
template <class C>
GPU_INLINE void mma_begin_scores(const struct gpu_run *run, const mma_shared<C> *shared,
                                 const mma_loop<C> *loop, uint32_t tile, struct mma_copy *copy)
{
    if constexpr (C::CONVERTS) {
        unsigned char *raw = mma_raw_stage<C>(loop->stages, loop->at, true);
        mma_codes<C> codes;
        GPU_COPY_WAIT(2 * C::RAW_STAGES - 1);
        mma_read_codes<C>(raw, C::V_BYTES, &codes);
        mma_group_barrier<C>();
        mma_convert_values<C>(run, &codes, raw, loop->stages + C::STAGE_BYTES);
        *copy = mma_load_stage_begin<C>(run, shared, raw, (loop->slot + C::RAW_STAGES) % C::ADDRESS_STAGES,
                                        tile + C::RAW_STAGES, true, loop->aligned,
                                        tile + C::RAW_STAGES < shared->work.end);
    } else {
        mma_wait_copies<C, C::STAGES - 2>();
        mma_load_ahead<C, C::STAGES - 1>(run, shared, loop, loop->at == 0 ? C::STAGES - 1 : loop->at - 1,
                                         tile, copy);
    }
}

/* The same for values, while P is multiplied; the keys of the next iteration are converted. */
template <class C>
GPU_INLINE void mma_begin_values(const struct gpu_run *run, const mma_shared<C> *shared,
                                 const mma_loop<C> *loop, uint32_t tile, struct mma_copy *copy)
{
    if constexpr (C::CONVERTS) {
        const uint32_t next = loop->at + 1 == C::RAW_STAGES ? 0 : loop->at + 1;
        unsigned char *raw = mma_raw_stage<C>(loop->stages, next, false);
        mma_codes<C> codes;
        GPU_COPY_WAIT(2 * C::RAW_STAGES - 1);
        mma_read_codes<C>(raw, C::K_BYTES, &codes);
        mma_group_barrier<C>();
        if (tile + 1 < shared->work.end)
            mma_convert_keys<C>(run, &codes, raw, loop->stages);
        *copy = mma_load_stage_begin<C>(
            run, shared, raw, (loop->slot + C::RAW_STAGES + 1) % C::ADDRESS_STAGES, tile + C::RAW_STAGES + 1,
            false, loop->aligned, tile + C::RAW_STAGES + 1 < shared->work.end);
    } else {
        mma_wait_copies<C, C::STAGES - 2>();
        mma_load_ahead<C, C::STAGES>(run, shared, loop, loop->at, tile, copy);
    }
}

/* Whether masked tiles are taken for finite: those of warps that would wait for each other to check them. */
template <class C> GPU_INLINE bool mma_is_trusted(const mma_shared<C> *shared)
{
    return C::GROUPS == 1 && shared->trust != MMA_CHECKED;
}

/* Whether all keys of a group's tile exist: what others hold is no vector, and often not finite. */
template <class C> GPU_INLINE bool mma_is_whole(const mma_loop<C> *loop, uint32_t tile, uint64_t present)
{
    return present == C::ALL_PRESENT && tile * GPU_TILE + loop->key0 + C::GROUP_KEYS <= loop->range.keys;
}

/* Values of a masked tile that are not finite, where they are not trusted: only rows that see them get them.
 */
template <class C>
GPU_INLINE void mma_check_values(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *values,
                                 uint32_t tile, uint64_t present, mma_loop<C> *loop, mma_score_fragments<C> s)
{
    if (mma_is_trusted<C>(shared) && mma_is_whole<C>(loop, tile, present))
        return;
    mma_clear_nonfinite<C>(run, shared, values, loop->slot, tile, loop->key0);
    if (shared->nonfinite_tile[loop->group] == tile + 1)
        mma_spread_nonfinite<C>(shared, loop->key0, loop->column_warp * C::WARP_DV, s, loop->o);
}

/* Scores and results of a KV iteration. */
template <class C>
GPU_INLINE void mma_multiply_tile(const struct gpu_run *run, mma_shared<C> *shared,
                                  const unsigned char *queries, const unsigned char *keys,
                                  unsigned char *values, uint32_t tile, uint64_t present, mma_loop<C> *loop,
                                  struct mma_copy *copy)
{
    const uint32_t key0 = loop->key0, slot = loop->slot;
    mma_score_fragments<C> s;
    mma_row_pairs<C> tile_max, factor;
    bool unmasked;

    if constexpr (C::COLUMN_WARPS > 1) {
        mma_own_fragments<C> own;
        unsigned char *exchange = loop->stages + C::STAGES * C::STAGE_BYTES;
        mma_scores<C>(run, queries, keys + loop->column_warp * C::WARP_KEYS * mma_row_pitch<C>(C::K_ROW),
                      loop->row_warp, loop->q, own, copy);
        gpu_copy_commit();
        mma_send_scores<C>(exchange, own);
        mma_begin_values<C>(run, shared, loop, tile, copy); /* all have sent theirs */
        mma_receive_scores<C>(exchange, loop->row_warp, loop->column_warp, own, s);
        unmasked =
            mma_apply_rules<C>(run, shared, &loop->rules, slot, loop->row_warp, tile, key0, present, s);
    } else {
        mma_scores<C>(run, queries, keys, loop->row_warp, loop->q, s, copy);
        if constexpr (C::GROUPS == 1)
            gpu_copy_commit();
        unmasked =
            mma_apply_rules<C>(run, shared, &loop->rules, slot, loop->row_warp, tile, key0, present, s);
        mma_begin_values<C>(run, shared, loop, tile, copy);
    }
    if (!unmasked)
        mma_check_values<C>(run, shared, values, tile, present, loop, s);
    mma_row_factors<C>(shared, &loop->rules, loop->row_warp, factor);
    mma_row_max<C>(s, factor, tile_max);
    mma_rescale<C>(tile_max, loop->max, loop->sum, loop->o);
    mma_values<C>(run, shared, values + loop->column_warp * C::WARP_DV * C::KV_SIZE, slot, key0, s, loop->max,
                  loop->sum, factor, loop->o, copy);
    if constexpr (C::GROUPS == 1)
        gpu_copy_commit();
}

/* One KV iteration. */
template <class C>
GPU_INLINE void mma_iterate(const struct gpu_run *run, mma_shared<C> *shared, const unsigned char *queries,
                            const struct gpu_work_tile *p, mma_loop<C> *loop, uint32_t tile)
{
    const uint32_t later = tile + C::ADDRESS_STAGES - 1;
    const uint32_t key0 = loop->key0, slot = loop->slot;
    const uint32_t at = C::CONVERTS ? 0 : loop->at, next = at + 1 == C::STAGES ? 0 : at + 1;
    struct mma_copy copy;

    mma_begin_scores<C>(run, shared, loop, tile, &copy);
    /* The entry arrives while scores are computed. */
    const struct gpu_entry entry = mma_find_page<C>(run, &loop->range, later, key0);
    const uint64_t present = mma_present_keys<C>(run, shared, slot, key0);
    const unsigned char *keys = loop->stages + at * C::STAGE_BYTES;
    unsigned char *values = loop->stages + next * C::STAGE_BYTES;
    mma_multiply_tile<C>(run, shared, queries, keys, values, tile, present, loop, &copy);
    if constexpr (C::KV32)
        if ((tile + 1 - p->first) % C::SPAN_TILES == 0)
            mma_end_span<C>(&loop->total, loop->max, loop->sum, loop->o);
    if (later < p->end)
        mma_write_addresses<C>(run, shared, &loop->range, later,
                               (slot + C::ADDRESS_STAGES - 1) % C::ADDRESS_STAGES, key0, entry);
    loop->slot = slot + 1 == C::ADDRESS_STAGES ? 0 : slot + 1;
    if constexpr (C::CONVERTS)
        loop->at = loop->at + 1 == C::RAW_STAGES ? 0 : loop->at + 1;
    else
        loop->at = next + 1 == C::STAGES ? 0 : next + 1;
}

/*
 * Whether to compute the work tile once more, checking values: a row may have got NaN from a key that it does
 * not see, if a masked tile was taken for finite and a result is not.
 */
template <class C>
GPU_INLINE bool mma_begins_again(const struct gpu_run *run, mma_shared<C> *shared,
                                 const struct gpu_work_tile *p, mma_loop<C> *loop)
{
    const uint32_t rows = shared->sequence.q_len * run->group - p->row0;
    const uint32_t end = p->end * GPU_TILE < loop->range.keys ? p->end * GPU_TILE : loop->range.keys;
    bool found = false;

    if (!mma_has_mask<C>(run) && p->first * GPU_TILE >= loop->rules.lo && end <= loop->rules.hi)
        return false;
    GPU_UNROLL
    for (uint32_t i = 0; i < C::M_FRAGMENTS * 2; i++) {
        const uint32_t m = i / 2, h = i % 2;
        const uint32_t row = (loop->row_warp * C::M_FRAGMENTS + m) * 16 + h * 8 + gpu_thread() % GPU_WARP / 4;
        float zero[2] = {0, 0};
        GPU_UNROLL
        for (uint32_t n = 0; n < C::WARP_DV / 8; n++) {
            zero[0] = gpu_fma(loop->o[m][n][2 * h], 0, zero[0]);
            zero[1] = gpu_fma(loop->o[m][n][2 * h + 1], 0, zero[1]);
        }
        found = found || (row < rows && !(zero[0] + zero[1] == 0));
    }
    const bool trusted = mma_is_trusted<C>(shared);
    gpu_barrier(); /* all have read it */
    if (found && trusted)
        shared->trust = MMA_NOT_FINITE;
    gpu_barrier();
    if (shared->trust != MMA_NOT_FINITE)
        return false;
    gpu_barrier(); /* all have read it */
    shared->trust = MMA_CHECKED;
    return true;
}

/* Attention of a work tile. Results are stored, in the output or the split workspace, or in shared memory in
 * place of queries and stages. */
template <class C>
GPU_INLINE void mma_attend(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                           unsigned char *stages, const struct gpu_work_tile *p)
{
    mma_loop<C> loop;

    loop.aligned = !C::ANY && run->kv_aligned != 0;

    do {
        mma_begin<C>(run, shared, queries, stages, p, &loop);
        GPU_LOOP
        for (uint32_t tile = p->first; tile < p->end; tile++)
            mma_iterate<C>(run, shared, queries, p, &loop, tile);
        GPU_COPY_WAIT(0);
        if (p->first >= p->end)
            gpu_barrier(); /* no iteration has waited for the queries that others copy */
        if constexpr (C::KV32)
            mma_add_total<C>(&loop.total, loop.max, loop.sum, loop.o);
    } while (C::GROUPS == 1 && mma_begins_again<C>(run, shared, p, &loop));
    if (mma_stores_directly<C>(run, p)) {
        (void)mma_store_rows<C>(run, shared, queries, p, loop.max, loop.sum, loop.o);
        return;
    }
    const uint32_t rows = shared->sequence.q_len * run->group - p->row0;
    if (mma_stores_partials<C>(p)) {
        mma_store_partials<C>(run, p, rows, loop.row_warp, loop.column_warp, loop.max, loop.sum, loop.o);
        return;
    }
    mma_gather_results<C>(shared, (float *)(void *)queries, rows, loop.row_warp, loop.group, loop.column_warp,
                          loop.max, loop.sum, loop.o);
}

#endif
