/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The warp groups that multiply, on Hopper: each has 64 rows of a work tile. Scores of an iteration are
 * multiplied while the results of the one before are, and softmax is computed meanwhile.
 */
#ifndef ATTN_GPU_MMA_CONSUMER_H
#define ATTN_GPU_MMA_CONSUMER_H

#include "combine.h"
#include "pipeline.h"
#include "wgmma-rules.h"

/*
 * The warp groups begin their products in turns: while those of one are computed, the others compute softmax.
 * A group gives the turn to the next one, and only these two meet at a barrier.
 */
template <class C> GPU_INLINE void mma_wait_turn(uint32_t group)
{
    gpu_barrier_part(MMA_BARRIER_TURN + group, 2 * 128);
}
template <class C> GPU_INLINE void mma_give_turn(uint32_t group)
{
    gpu_barrier_arrive(MMA_BARRIER_TURN + (group + 1) % C::CONSUMERS, 2 * 128);
}

/* Begins the results of the iteration whose P is in registers. */
template <class C>
GPU_INLINE void mma_begin_results(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                  uint32_t n, mma_consumer<C> *own)
{
    mma_wait_full<C>(&shared->pipeline[1], n);
    mma_begin_results_of<C>(mma_p_bf16<C>(run), mma_pipeline_stage<C>(stages, true, n), own->p, own->o);
}

/*
 * Values that are not finite, where they are not trusted: rows that see them get them. The results before are
 * done, and their values have been read.
 */
template <class C>
GPU_INLINE void mma_spread_iteration(mma_shared<C> *shared, uint32_t tile, uint32_t n, mma_consumer<C> *own,
                                     mma_iteration_scores<C> s)
{
    if constexpr (C::E4M3) {
        const unsigned char *bits = (const unsigned char *)mma_nonfinite_at<C>(shared, n % C::ADDRESS_STAGES);
        GPU_UNROLL
        for (uint32_t t = 0; t < C::TILES; t++)
            mma_spread_nonfinite<C>(bits, t * GPU_TILE, 0, s[t], own->o);
    } else {
        mma_wait_full<C>(&shared->pipeline[1], n);
        GPU_UNROLL
        for (uint32_t t = 0; t < C::TILES; t++)
            if (shared->nonfinite_tile[t] == tile + t + 1)
                mma_spread_nonfinite<C>(shared, t * GPU_TILE, 0, s[t], own->o);
    }
}

/* Begins the scores of an iteration, the n-th use of the buffers, when it is the turn of the warp group. */
template <class C>
GPU_INLINE void mma_begin_iteration(mma_shared<C> *shared, unsigned char *stages, const mma_consumer<C> *own,
                                    uint32_t n, mma_iteration_scores<C> s)
{
    mma_wait_full<C>(&shared->pipeline[0], n);
    mma_wait_turn<C>(own->row_warp / 4);
    mma_begin_scores_of<C>(own->queries, mma_pipeline_stage<C>(stages, false, n), s);
}

/* The first half of the first KV iteration of a work tile: its scores. */
template <class C>
GPU_INLINE void mma_find_first_scores(mma_shared<C> *shared, unsigned char *stages, mma_consumer<C> *own,
                                      mma_iteration_scores<C> s)
{
    mma_begin_iteration<C>(shared, stages, own, own->begin, s);
    mma_give_turn<C>(own->row_warp / 4);
    mma_wait_scores<C, 0>(s);
    mma_release(&shared->pipeline[0], own->begin);
    mma_scale_iteration<C>(shared, own->begin, s);
}

/*
 * The same of another one, while results of the one before are under way. For the assembler what ends a group
 * of products elsewhere than next to the last of them, as behind a condition, is a product of its own, which
 * waits for those before. With 8-bit values, for whose P there is code of two types, it would make each
 * product wait otherwise: there it is the same for the first iteration. Returns whether the scores are plain,
 * which is asked while they are under way.
 */
template <class C>
GPU_INLINE bool mma_find_scores(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                mma_consumer<C> *own, uint32_t n, mma_iteration_scores<C> s)
{
    mma_begin_iteration<C>(shared, stages, own, n, s);
    if (!C::KV8 || n != own->begin)
        mma_begin_results<C>(run, shared, stages, n - 1, own);
    gpu_wgmma_commit();
    mma_give_turn<C>(own->row_warp / 4);
    const bool plain = mma_is_plain<C>(shared, own, n);
    mma_wait_scores<C, 1>(s);
    mma_release(&shared->pipeline[0], n);
    mma_scale_iteration<C>(shared, n, s);
    return plain;
}

/* What happens to the scores where rules change them, or values are checked. */
template <class C>
GPU_INLINE void mma_change_scores(const struct gpu_run *run, mma_shared<C> *shared,
                                  const struct gpu_work_tile *p, mma_consumer<C> *own, uint32_t n,
                                  bool checked, mma_iteration_scores<C> s, float offset[2])
{
    const uint32_t tile = p->first + (n - own->begin) * C::TILES;

    offset[0] = offset[1] = 0;
    mma_apply_iteration_rules<C>(run, shared, own, n % C::ADDRESS_STAGES, tile, s, offset);
    if (checked) {
        mma_wait_results<C>(own->o);
        if (n != own->begin)
            mma_release(&shared->pipeline[1], n - 1);
        mma_spread_iteration<C>(shared, tile, n, own, s);
    }
}

/* The same. What a warp has beside large fragments waits in memory for the end of it, or the assembler would
 * keep it there in iterations that no rule changes, too. */
template <class C>
GPU_INLINE uint32_t mma_change_scores_apart(const struct gpu_run *run, mma_shared<C> *shared,
                                            const struct gpu_work_tile *p, mma_consumer<C> *own, uint32_t n,
                                            bool checked, mma_iteration_scores<C> s, float offset[2])
{
    volatile float rows[4];
    volatile uint32_t uses[5];

    rows[0] = own->max[0][0];
    rows[1] = own->max[0][1];
    rows[2] = own->sum[0][0];
    rows[3] = own->sum[0][1];
    uses[0] = own->begin;
    uses[1] = own->end;
    uses[2] = own->plain_begin;
    uses[3] = own->plain_end;
    uses[4] = n;
    mma_change_scores<C>(run, shared, p, own, n, checked, s, offset);
    own->max[0][0] = rows[0];
    own->max[0][1] = rows[1];
    own->sum[0][0] = rows[2];
    own->sum[0][1] = rows[3];
    own->begin = uses[0];
    own->end = uses[1];
    own->plain_begin = uses[2];
    own->plain_end = uses[3];
    return uses[4];
}

/* The second half: P of it, and the end of the results before, whose values are released unless they have
 * been. `known`: row maxima are, and no score has an offset. */
template <class C, bool known>
GPU_INLINE void mma_find_p(const struct gpu_run *run, mma_shared<C> *shared, mma_consumer<C> *own, uint32_t n,
                           bool released, const float offset[2], mma_iteration_scores<C> s)
{
    float correction[2];

    const bool grown = known ? mma_softmax_known<C>(shared, own, s, correction)
                             : mma_softmax_iteration<C>(own, s, offset, correction);
    mma_keep_scores<C>(s);
    /* In a branch: otherwise the assembler moves this before the exponents. The first iteration has no
     * results, and to rescale those outside would make the assembler wait for each product. */
    if (n != own->begin) {
        mma_wait_results<C>(own->o);
        if (!released)
            mma_release(&shared->pipeline[1], n - 1);
        if (grown)
            mma_rescale_rows(correction, own->o[0]);
        if constexpr (C::E4M3)
            if ((n - own->begin) % C::ASIDE_ITERATIONS == 0)
                mma_set_aside<C>(run, n - own->begin, false, own);
    }
    if constexpr (C::E4M3)
        mma_pack_iteration_e4m3<C>(s, own->p);
    else if (C::KV8 && mma_p_bf16<C>(run))
        mma_pack_iteration<C>(true, shared->v_scale[n % C::ADDRESS_STAGES], s, own->p);
    else
        mma_pack_iteration<C>(C::BF16_MMA, NULL, s, own->p);
}

/* All KV iterations with 8-bit keys, of which rules may change each. */
template <class C>
GPU_INLINE void mma_iterate_changed(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                    const struct gpu_work_tile *p, mma_consumer<C> *own)
{
    mma_iteration_scores<C> s;
    uint32_t n = own->begin;

    GPU_LOOP
    do {
        float offset[2];
        (void)mma_find_scores<C>(run, shared, stages, own, n, s);
        const bool checked = mma_is_checked<C>(shared, own);
        n = mma_change_scores_apart<C>(run, shared, p, own, n, checked, s, offset);
        mma_find_p<C, false>(run, shared, own, n, checked, offset, s);
    } while (++n != own->end);
}

/* All KV iterations. The inner loop has those that no rule changes, and no code of rules, over which it would
 * have to jump: it is left for an iteration of others. */
template <class C>
GPU_INLINE void mma_iterate_plain(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                  const struct gpu_work_tile *p, mma_consumer<C> *own)
{
    const float none[2] = {0, 0};
    mma_iteration_scores<C> s;
    uint32_t n = own->begin;

    mma_find_first_scores<C>(shared, stages, own, s);
    bool plain = mma_is_plain<C>(shared, own, n);
    GPU_LOOP
    for (;;) {
        float offset[2] = {0, 0};
        const bool checked = plain ? false : mma_is_marked<C>(shared, own, n);
        if (!plain && !checked && mma_only_hides<C>(run, shared, own, n))
            mma_hide_ranges<C>(shared, own, (p->first + (n - own->begin) * C::TILES) * GPU_TILE, s);
        else if (!plain)
            n = mma_change_scores_apart<C>(run, shared, p, own, n, checked, s, offset);
        mma_find_p<C, false>(run, shared, own, n, checked, offset, s);
        if (++n == own->end)
            return;
        const bool known = !C::FINDS_OVERFLOW || mma_knows_maxima<C>(own);
        GPU_LOOP
        for (;;) {
            plain = mma_find_scores<C>(run, shared, stages, own, n, s);
            if (!plain || !known)
                break;
            mma_find_p<C, C::FINDS_OVERFLOW>(run, shared, own, n, false, none, s);
            if (++n == own->end)
                return;
        }
    }
}

/* Attention of the n-th work tile by the rows of a warp. */
template <class C>
GPU_INLINE void mma_consume(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                            const struct gpu_work_tile *p, uint32_t n, mma_consumer<C> *own)
{
    own->begin = own->end;
    own->end += mma_iterations<C>(p);
    mma_clear_consumer<C>(own);
    if (own->end == own->begin)
        return;
    if (!C::Q_SCALED) /* otherwise rules depend on scales that are found while queries are loaded */
        mma_begin_rules<C>(run, shared, p, n > 0 && mma_rows_are_ranges<C>(run), own);
    gpu_mbarrier_wait(&shared->handover.queries_full[n % 2], n / 2 % 2);
    gpu_wgmma_fence();
    if (C::Q_SCALED)
        mma_begin_rules<C>(run, shared, p, false, own);
    if constexpr (C::KV8)
        mma_iterate_changed<C>(run, shared, stages, p, own);
    else
        mma_iterate_plain<C>(run, shared, stages, p, own);
    mma_begin_results<C>(run, shared, stages, own->end - 1, own);
    gpu_wgmma_commit();
    mma_wait_results<C>(own->o);
    mma_release(&shared->pipeline[1], own->end - 1);
    if constexpr (C::E4M3)
        mma_set_aside<C>(run, own->end - own->begin, true, own);
    GPU_UNROLL
    for (uint32_t h = 0; C::E4M3 && h < 2; h++) /* one of four lanes has it, the others zeros */
        own->sum[0][h] = own->o[0][C::OUT_FRAGMENTS - 1][2 * h];
}

/* Whether a P of the work tile was too large. */
template <class C> GPU_INLINE bool mma_has_overflowed(const mma_shared<C> *shared, const mma_consumer<C> *own)
{
    return C::FINDS_OVERFLOW && own->end != own->begin && !mma_is_checked<C>(shared, own) &&
           shared->handover.overflow[own->row_warp] != 0;
}

/* Whether results may be NaN by values of keys that a row does not see, which were taken for finite. */
template <class C>
GPU_INLINE bool mma_may_be_nonfinite(const struct gpu_run *run, const mma_shared<C> *shared,
                                     const struct gpu_work_tile *p, const mma_consumer<C> *own)
{
    const uint32_t keys = mma_computed_sequence<C>(shared)->kv_len;
    const uint32_t end = p->end * GPU_TILE < keys ? p->end * GPU_TILE : keys;

    if (C::E4M3 || own->end == own->begin || mma_is_checked<C>(shared, own))
        return false;
    const struct mma_rules *rules = mma_rules_of<C>(shared, own);
    return mma_has_mask<C>(run) || p->first * GPU_TILE < rules->lo || end > rules->hi;
}

/* Whether a result of the lane's rows, of which `rows` exist in the work tile, is not finite. */
template <class C> GPU_INLINE bool mma_has_nonfinite(uint32_t rows, const mma_consumer<C> *own)
{
    bool found = false;

    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = own->row_warp * 16 + h * 8 + gpu_thread() % GPU_WARP / 4;
        float zero[2] = {0, 0};
        GPU_UNROLL
        for (uint32_t n = 0; n < C::WARP_DV / 8; n++) {
            zero[0] = gpu_fma(own->o[0][n][2 * h], 0, zero[0]);
            zero[1] = gpu_fma(own->o[0][n][2 * h + 1], 0, zero[1]);
        }
        found = found || (row < rows && !(zero[0] + zero[1] == 0));
    }
    return found;
}

/* Takes what has been found of the warp's rows when the work tile was looked up. */
template <class C> GPU_INLINE void mma_take_ranges(mma_shared<C> *shared, const mma_consumer<C> *own)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, row = own->row_warp * 16 + lane % 16;
    const struct mma_range range = shared->handover.next_ranges[row];

    if (lane < 16) {
        shared->row[row].lo = range.lo;
        shared->row[row].hi = range.hi;
        shared->out[row] = shared->handover.next_out[row];
    }
    if (lane == 16)
        shared->handover.rules[own->row_warp] = shared->handover.next_rules[own->row_warp / 4];
}

/*
 * Takes the n-th work tile of the CTA, of which the warp group that copies looks up the next one then: what
 * it says, and which keys the group's rows see. False if there is none.
 */
template <class C>
GPU_INLINE bool mma_take_work(const struct gpu_run *run, mma_shared<C> *shared, mma_consumer<C> *own,
                              uint32_t n)
{
    const uint32_t group = own->row_warp / 4, lane = gpu_thread() % GPU_WARP;
    const struct mma_computed *next = shared;
    struct mma_computed *mine = &shared->handover.computed[own->row_warp];

    if (n > 0) {
        gpu_mbarrier_wait(&shared->handover.looked_up, (n - 1) % 2);
        next = &shared->handover.next;
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < sizeof *mine / 4; i += GPU_WARP)
        if (i + lane < sizeof *mine / 4)
            ((uint32_t *)(void *)mine)[i + lane] = ((const uint32_t *)(const void *)next)[i + lane];
    gpu_warp_barrier();
    if (n > 0 && mma_rows_are_ranges<C>(run)) {
        mma_take_ranges<C>(shared, own);
    } else {
        gpu_barrier_part(MMA_BARRIER_GROUP + group, 128); /* all of the group are done with the last one */
        if (mine->work.splits != 0)
            mma_find_visible_keys<C>(run, shared, mine->work.row0, mine->work.kv_head);
        gpu_barrier_part(MMA_BARRIER_GROUP + group, 128);
    }
    if (C::FINDS_OVERFLOW && lane == 0)
        shared->handover.overflow[own->row_warp] = 0;
    gpu_warp_barrier();
    if (lane == 0)
        gpu_mbarrier_arrive(&shared->handover.taken);
    return mine->work.splits != 0;
}

/* Stores the results of a work tile in the output or the split workspace. `looks`: returns whether one of
 * them is not finite. */
template <class C>
GPU_INLINE bool mma_store_work(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                               uint32_t n, const struct gpu_work_tile *p, bool looks, mma_consumer<C> *own)
{
    const struct gpu_sequence *s = mma_computed_sequence<C>(shared);
    const uint32_t rows = s->q_len * run->group - p->row0;
    const bool direct = mma_stores_directly<C>(run, p);
    const bool marked = direct && run->problem.out_dtype != ATTN_F32; /* while results are rounded */
    bool found = !marked && looks && mma_has_nonfinite<C>(rows, own);

    if (direct) {
        const bool marks = mma_store_rows<C>(run, shared, mma_query_stage<C>(run, queries, n), p, own->max,
                                             own->sum, own->o);
        found = found || (marks && looks);
    } else if (mma_stores_partials<C>(p)) {
        mma_store_partials<C>(run, p, rows, own->row_warp, 0, own->max, own->sum, own->o);
    } else {
        float *gathered = (float *)(void *)queries; /* in place of queries and stages */
        mma_gather_results<C>(shared, gathered, rows, own->row_warp, 0, 0, own->max, own->sum, own->o);
        mma_store_tile<C>(run, s, shared, gathered, p, C::GROUPS, own->row_warp, C::WARPS);
        gpu_wgmma_fence(); /* before what is copied there */
    }
    return found;
}

/* The part of these warp groups in the work tiles of the CTA. */
template <class C>
GPU_INLINE void mma_consume_tiles(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                                  unsigned char *stages)
{
    mma_consumer<C> own;

    own.row_warp = gpu_shuffle_u32(gpu_thread() / GPU_WARP - C::FIRST_WARP, 0); /* the same of all lanes */
    own.end = 0;
    const struct gpu_work_tile *p = &shared->handover.computed[own.row_warp].work;
    if (own.row_warp / 4 == C::CONSUMERS - 1)
        mma_give_turn<C>(C::CONSUMERS - 1); /* the first one begins */
    GPU_LOOP
    for (uint32_t n = 0; mma_take_work<C>(run, shared, &own, n); n++) {
        own.queries =
            mma_query_stage<C>(run, queries, n) + mma_swizzled<C>(own.row_warp / 4 * 64, 0, C::K_ROW);
        mma_consume<C>(run, shared, stages, p, n, &own);
        const bool looks = mma_may_be_nonfinite<C>(run, shared, p, &own);
        if (mma_store_work<C>(run, shared, queries, n, p, looks, &own) || mma_has_overflowed<C>(shared, &own))
            shared->handover.again[n % 2] = 1;
        gpu_wgmma_fence(); /* before queries are copied where results were staged */
        gpu_warp_barrier();
        if (gpu_thread() % GPU_WARP == 0)
            gpu_mbarrier_arrive(&shared->handover.done);
    }
}

#endif
