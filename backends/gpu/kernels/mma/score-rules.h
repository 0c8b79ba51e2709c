/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The keys that the rows of a work tile see, and what all of its scores have in common. */
#ifndef ATTN_GPU_MMA_SCORE_RULES_H
#define ATTN_GPU_MMA_SCORE_RULES_H

#include "config.h"

/* The keys that each row sees, and where its results go. The last threads begin: the first ones load queries.
 * Small M: every warp finds them for itself; warp groups that multiply, for their rows, before the sequence
 * is another one. */
template <class C>
GPU_INLINE void mma_find_visible_keys(const struct gpu_run *run, mma_shared<C> *shared, uint32_t row0,
                                      uint32_t kv_head)
{
    const struct gpu_sequence *s = mma_computed_sequence<C>(shared);

    const uint32_t first = C::SMALL_M ? gpu_thread() % GPU_WARP
                           : C::WGMMA ? mma_first_row<C>() + gpu_thread() % 128
                                      : C::CTA_THREADS - 1 - gpu_thread();
    const uint32_t end = C::WGMMA ? mma_first_row<C>() + C::COMPUTED_ROWS : C::ROWS;

    for (uint32_t row = first; row < end; row += C::THREADS) {
        uint32_t token, head;
        const bool exists = mma_row_of(run, s, row0 + row, kv_head, &token, &head);
        /* Rows behind the last one have its mask, which is read for them, too. */
        if constexpr (C::RULES)
            shared->row[row] = gpu_row(run, s, exists ? token : s->q_len - 1, head);
        else
            gpu_visible_find(&s->visible, gpu_position(run, s, exists ? token : s->q_len - 1),
                             &shared->row[row].lo, &shared->row[row].hi);
        if constexpr (!C::SMALL_M)
            gpu_clip_reach(run, s, exists ? token : s->q_len - 1, &shared->row[row].lo, &shared->row[row].hi);
        if (!exists)
            shared->row[row].lo = shared->row[row].hi = 0;
        if constexpr (C::STORES_ROWS)
            shared->out[row] = exists ? mma_output_of(run, s, token, head) : 0;
    }
}

/* Keys of other ranks have other positions, and a square mask covers only the last ones. */
template <class C> GPU_INLINE bool mma_has_plain_keys(const struct gpu_run *run)
{
    return run->batch.cp_world == 0 && (!mma_has_mask<C>(run) || run->problem.span != ATTN_SPAN_SQUARE);
}

/* What the rules of a work tile do with a score: a soft cap; ALiBi; a mask of values, which may be multiplied
 * by ALiBi's slopes; scores are multiplied by their unit first; all of this, by code that holds for all
 * positions, scales and types. */
constexpr uint32_t MMA_SOFT_CAP = 1, MMA_ALIBI = 2, MMA_MASK = 4, MMA_UNIT_FIRST = 8, MMA_GENERAL = 16;

/* Whether nothing of a row matters but the keys that it sees; where warp groups multiply, these are found for
 * a work tile when it is looked up. */
template <class C> GPU_INLINE bool mma_rows_are_ranges(const struct gpu_run *run)
{
    return C::WGMMA && !C::Q_SCALED && !mma_has_mask<C>(run) && !mma_has_slopes<C>(run);
}

/* The scale of a row's scores; small M: which the CTA's warps have found together. */
template <class C> GPU_INLINE float mma_q_scale(const mma_shared<C> *shared, uint32_t row)
{
    return (C::SMALL_M ? shared - gpu_thread() / GPU_WARP : shared)->q_scale[row];
}

/* A finite positive factor keeps a masked score minus infinity and a product of 0 at 0. */
GPU_INLINE float mma_finite_factor(float factor)
{
    return fminf(fmaxf(factor, 0x1p-126f), 0x1.fffffep127f);
}

/* Whether a position is so far from all keys that their differences do not fit into 32 bits. */
GPU_INLINE bool mma_is_far(int64_t position)
{
    return (uint64_t)position + 0x40000000 >= 0x80000000;
}

/* The argument of tanh where that of mma_small_tanh is 1. */
constexpr float MMA_CAP_STEP = 0.225f;

/* `far`: the position of a row is far. `irregular`: the scale of a row is not finite and positive. */
template <class C>
GPU_INLINE uint32_t mma_elementwise_rules(const struct gpu_run *run, float scale, float unit, bool far,
                                          bool irregular)
{
    const bool cap = mma_softcap<C>(run) > 0;
    const bool finite = scale > 0 && scale < GPU_INFINITY;
    const bool values = mma_has_mask<C>(run) && run->mask.dtype != 0;
    const bool alibi = mma_has_slopes<C>(run) && run->problem.alibi != ATTN_ALIBI_MASK;
    if (!C::RULES && !C::KV8) /* the scale is finite and positive */
        return 0;
    const uint32_t rules = (cap ? MMA_SOFT_CAP : 0u) | (alibi ? MMA_ALIBI : 0u) | (values ? MMA_MASK : 0u);

    if (rules == 0 && !mma_has_mask<C>(run) && finite && !irregular)
        return 0;
    /* The results of f32 would show the error of a fast tanh. */
    if (C::SMALL_M || !finite || irregular || !mma_has_plain_keys<C>(run) || (C::KV32 && cap) || far)
        return rules | MMA_GENERAL;
    const bool large = (values && run->mask.dtype != ATTN_F16) || unit < 0x1p-60f || unit > 0x1p60f;
    return rules | (rules != 0 && large ? MMA_UNIT_FIRST : 0u);
}

/* The keys that all rows see, of a range for each lane. */
GPU_INLINE struct mma_range mma_common_range(struct mma_range own)
{
    for (uint32_t step = 1; step < GPU_WARP; step *= 2) {
        const uint32_t lo = gpu_shuffle_xor_u32(own.lo, step), hi = gpu_shuffle_xor_u32(own.hi, step);
        own.lo = lo > own.lo ? lo : own.lo;
        own.hi = hi < own.hi ? hi : own.hi;
    }
    return own;
}

/* The rules of rows that all see `range`. */
template <class C>
GPU_INLINE struct mma_rules mma_rules_of_range(const struct gpu_run *run, const struct gpu_sequence *s,
                                               const struct gpu_work_tile *p, struct mma_range range,
                                               bool far, bool irregular)
{
    struct mma_rules rules;

    rules.lo = range.lo;
    rules.hi = range.hi;
    rules.scale = run->softmax_scale * C::SCORE_GAIN;
    if constexpr (C::E4M3) { /* the keys of the workspace have the rest */
        float scale;
        (void)gpu_regular_scale(gpu_e4m3_key_scale(run, s->index, p->kv_head), &scale);
        rules.scale *= scale;
    } else if (C::SCALES && !mma_scale_per_key<C>(run->problem.k_scale)) {
        rules.scale *= gpu_scale_at(&run->k.scale, 0, 0, p->kv_head);
    }
    const float cap = mma_softcap<C>(run), unit = cap > 0 ? cap : rules.scale;
    rules.elementwise = mma_elementwise_rules<C>(run, rules.scale, unit, far, irregular);
    rules.factor = mma_finite_factor(unit * GPU_LOG2E);
    rules.bias = gpu_divide(1, unit);
    const float cap_factor = gpu_divide(rules.scale, unit * MMA_CAP_STEP);
    rules.cap_factor = gpu_f32_of_bits(gpu_keep(gpu_f32_bits(cap_factor)));
    if ((rules.elementwise & (MMA_UNIT_FIRST | MMA_GENERAL)) != 0) {
        rules.factor = 1;
        rules.bias = GPU_LOG2E;
    }
    return rules;
}

template <class C>
GPU_INLINE struct mma_rules mma_find_rules(const struct gpu_run *run, const mma_shared<C> *shared,
                                           const struct gpu_work_tile *p)
{
    const struct gpu_sequence *s = mma_computed_sequence<C>(shared);
    const uint32_t rows = s->q_len * run->group - p->row0;
    const uint32_t first = mma_first_row<C>(), end = first + C::COMPUTED_ROWS;
    struct mma_range range = {0, 0xffffffffu};
    bool irregular = false, far = false;

    for (uint32_t row = first + gpu_thread() % GPU_WARP; row < end && row < rows; row += GPU_WARP) {
        range.lo = shared->row[row].lo > range.lo ? shared->row[row].lo : range.lo;
        range.hi = shared->row[row].hi < range.hi ? shared->row[row].hi : range.hi;
        far = far || (mma_has_slopes<C>(run) && mma_is_far(shared->row[row].position));
        if constexpr (C::Q_SCALED)
            irregular =
                irregular || !(mma_q_scale<C>(shared, row) > 0 && mma_q_scale<C>(shared, row) < GPU_INFINITY);
    }
    range = mma_common_range(range);
    return mma_rules_of_range<C>(run, s, p, range, gpu_ballot(far) != 0, gpu_ballot(irregular) != 0);
}

/* What turns a row's products into scores in base 2, after the rules. */
template <class C>
GPU_INLINE float mma_row_factor(const mma_shared<C> *shared, const struct mma_rules *rules, uint32_t row)
{
    if (!C::Q_SCALED || rules->elementwise)
        return rules->factor;
    return mma_finite_factor(rules->factor * mma_q_scale<C>(shared, row));
}

#endif
