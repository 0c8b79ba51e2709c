/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Queries into shared memory, the keys that their rows see, and what all scores of a work tile have in
 * common.
 */
#ifndef ATTN_GPU_MMA_QUERY_H
#define ATTN_GPU_MMA_QUERY_H

#include "load.h"

GPU_INLINE uint64_t mma_query_address(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                                      uint32_t head)
{
    return run->q.base +
           (uint64_t)((int64_t)(s->row + token) * run->q.token_stride + (int64_t)head * run->q.head_stride);
}

/* 16 elements of a query from column d on, with zeros behind the last one. */
GPU_INLINE void mma_load_query16(const uint16_t *q, uint32_t d, uint32_t dim, bool aligned, uint32_t to[8])
{
    if (aligned && d + 16 <= dim) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const struct gpu_u128 part = gpu_load_u128(q + d + 8 * i);
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                to[4 * i + j] = part.x[j];
        }
        return;
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++, d += 2)
        to[i] = (d < dim ? q[d] : 0u) | (d + 1 < dim ? (uint32_t)q[d + 1] << 16 : 0u);
}

/*
 * Queries as they are. Where keys stay codes, each 16 columns are in the order in which gpu_quad8 converts
 * them.
 */
template <class C>
GPU_INLINE void mma_load_queries_unscaled(const struct gpu_run *run, const struct gpu_sequence *s,
                                          unsigned char *to, uint32_t row0, uint32_t kv_head)
{
    const bool aligned =
        ((run->q.base | (uint64_t)run->q.token_stride | (uint64_t)run->q.head_stride) & 15) == 0;

    for (uint32_t i = gpu_thread(); i < C::ROWS * (C::DK / 16); i += C::THREADS) {
        const uint32_t row = i / (C::DK / 16), group = i % (C::DK / 16);
        uint32_t token, head, in[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (mma_row_of(run, s, row0 + row, kv_head, &token, &head))
            mma_load_query16((const uint16_t *)mma_query_address(run, s, token, head), group * 16,
                             run->problem.head_dim, aligned, in);
        GPU_UNROLL
        for (uint32_t c = 0; c < 2; c++) {
            struct gpu_u128 out;
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                out.x[j] = in[C::CODES ? j * 2 + c : c * 4 + j];
            gpu_store_u128(to + mma_swizzled<C>(row, group * 2 + c, C::DK * 2), out);
        }
    }
}

/* 16 elements of a bf16 row as f16: those of lanes of consecutive groups of a row together are scaled alike.
 */
template <class C>
GPU_INLINE void mma_store_query_scaled(mma_shared<C> *shared, unsigned char *to, uint32_t row, uint32_t group,
                                       uint32_t lanes, const uint32_t in[8])
{
    uint32_t exponent_max = 20; /* its inverse is finite from here on */

    GPU_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t exponent = in[i / 2] >> (7 + i % 2 * 16) & 0xff;
        exponent_max = exponent > exponent_max && exponent < 255 ? exponent : exponent_max;
    }
    for (uint32_t step = 1; step < lanes; step *= 2) {
        const uint32_t other = gpu_shuffle_xor_u32(exponent_max, step);
        exponent_max = other > exponent_max ? other : exponent_max;
    }
    if (row >= C::ROWS || group >= C::DK / 16)
        return;
    const float up = gpu_f32_of_bits((127 + 14 + 127 - exponent_max) << 23);
    if (group == 0)
        mma_shared_of_cta<C>(shared)->q_scale[row] = gpu_f32_of_bits((exponent_max - 14) << 23);
    GPU_UNROLL
    for (uint32_t c = 0; c < 2; c++) {
        struct gpu_u128 out;
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t pair = in[C::CODES ? j * 2 + c : c * 4 + j];
            out.x[j] = gpu_pack_f16(gpu_bf16_to_f32((uint16_t)pair) * up,
                                    gpu_bf16_to_f32((uint16_t)(pair >> 16)) * up);
        }
        gpu_store_u128(to + mma_swizzled<C>(row, group * 2 + c, C::DK * 2), out);
    }
}

/*
 * bf16 queries as f16. A row is multiplied by the power of two that makes its largest element less than 2^15,
 * and its scores by the inverse. Elements 2^38 times smaller become 0, far below what an f32 sum keeps. Some
 * rows are read before the first is stored: the time is that of the loads.
 */
template <class C>
GPU_INLINE void mma_load_queries_scaled(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *to,
                                        uint32_t row0, uint32_t kv_head)
{
    constexpr uint32_t lanes = C::DK > 256 ? 32 : C::DK > 128 ? 16 : C::DK / 16; /* of a row */
    constexpr uint32_t rows = C::THREADS / lanes, steps = C::ROWS > rows ? C::ROWS / rows : 1;
    constexpr uint32_t at_once = steps < 4 ? steps : 4;
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t group = gpu_thread() % lanes;
    const bool aligned =
        ((run->q.base | (uint64_t)run->q.token_stride | (uint64_t)run->q.head_stride) & 15) == 0;

    GPU_LOOP
    for (uint32_t first = gpu_thread() / lanes; first < steps * rows; first += at_once * rows) {
        uint32_t in[at_once][8];
        GPU_UNROLL
        for (uint32_t i = 0; i < at_once; i++) {
            uint32_t token, head;
            GPU_UNROLL
            for (uint32_t j = 0; j < 8; j++)
                in[i][j] = 0;
            if (group < C::DK / 16 && mma_row_of(run, s, row0 + first + i * rows, kv_head, &token, &head))
                mma_load_query16((const uint16_t *)mma_query_address(run, s, token, head), group * 16,
                                 run->problem.head_dim, aligned, in[i]);
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < at_once; i++)
            mma_store_query_scaled<C>(shared, to, first + i * rows, group, lanes, in[i]);
    }
}

/* f32 queries as they are. */
template <class C>
GPU_INLINE void mma_load_queries_f32(const struct gpu_run *run, const struct gpu_sequence *s,
                                     unsigned char *to, uint32_t row0, uint32_t kv_head)
{
    const uint32_t dim = run->problem.head_dim;
    const bool aligned =
        ((run->q.base | (uint64_t)run->q.token_stride | (uint64_t)run->q.head_stride) & 15) == 0;

    for (uint32_t i = gpu_thread(); i < C::ROWS * (C::DK / 4); i += C::THREADS) {
        const uint32_t row = i / (C::DK / 4), chunk = i % (C::DK / 4);
        struct gpu_u128 part = mma_zero_u128();
        uint32_t token, head;
        if (mma_row_of(run, s, row0 + row, kv_head, &token, &head)) {
            const uint32_t *q = (const uint32_t *)mma_query_address(run, s, token, head) + chunk * 4;
            if (aligned && chunk * 4 + 4 <= dim)
                part = gpu_load_u128(q);
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                if (!(aligned && chunk * 4 + 4 <= dim) && chunk * 4 + j < dim)
                    part.x[j] = q[j];
        }
        gpu_store_u128(to + mma_swizzled<C>(row, chunk, C::Q_BYTES), part);
    }
}

/* 16 codes of a query from column d on, with zeros behind the last one. */
GPU_INLINE struct gpu_u128 mma_load_query_codes(uint64_t q, uint32_t d, uint32_t dim)
{
    struct gpu_u128 codes = {{0, 0, 0, 0}};

    if ((q & 15) == 0 && d + 16 <= dim)
        return gpu_load_u128((const void *)(q + d));
    GPU_LOOP
    for (uint32_t i = 0; i < 16 && d + i < dim; i++) {
        const uint32_t bits = (uint32_t)GPU_U8(q)[d + i] << i % 4 * 8;
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            codes.x[j] |= i / 4 == j ? bits : 0;
    }
    return codes;
}

/* 8-bit queries as f16, which holds them; scores are multiplied by their scales. */
template <class C>
GPU_INLINE void mma_load_queries_8bit(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *to,
                                      uint32_t row0, uint32_t kv_head)
{
    const struct gpu_sequence *s = &shared->sequence;
    constexpr uint32_t groups = C::DK / 16;

    GPU_LOOP
    for (uint32_t i = gpu_thread(); i < C::ROWS * groups; i += C::THREADS) {
        const uint32_t row = i / groups, group = i % groups;
        uint32_t token, head;
        struct gpu_u128 codes = {{0, 0, 0, 0}}, out[2];
        float scale = 1;
        if (mma_row_of(run, s, row0 + row, kv_head, &token, &head)) {
            codes = mma_load_query_codes(mma_query_address(run, s, token, head), group * 16,
                                         run->problem.head_dim);
            scale = gpu_scale_at(&run->q_scale, s->index, (int64_t)s->row + token, head / run->q_scale_group);
        }
        if (group == 0)
            mma_shared_of_cta<C>(shared)->q_scale[row] = scale;
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t pairs[2];
            gpu_quad8(run->problem.q_dtype, codes.x[j], pairs);
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++)
                out[C::CODES ? h : j / 2].x[C::CODES ? j : j % 2 * 2 + h] = pairs[h];
        }
        gpu_store_u128(to + mma_swizzled<C>(row, group * 2, C::DK * 2), out[0]);
        gpu_store_u128(to + mma_swizzled<C>(row, group * 2 + 1, C::DK * 2), out[1]);
    }
}

/* Queries into shared memory. */
template <class C>
GPU_INLINE void mma_load_queries(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *to,
                                 uint32_t row0, uint32_t kv_head)
{
    if constexpr (C::KV32)
        mma_load_queries_f32<C>(run, &shared->sequence, to, row0, kv_head);
    else if (C::Q_SCALED && GPU_SIZE(run->problem.q_dtype) == 1)
        mma_load_queries_8bit<C>(run, shared, to, row0, kv_head);
    else if constexpr (C::Q_SCALED)
        mma_load_queries_scaled<C>(run, shared, to, row0, kv_head);
    else
        mma_load_queries_unscaled<C>(run, &shared->sequence, to, row0, kv_head);
}

/*
 * Writes where the rows of queries lie that can be copied as they are, into the address stage that the first
 * iteration does not need yet. False if they have to be loaded.
 */
template <class C>
GPU_INLINE bool mma_write_query_addresses(const struct gpu_run *run, mma_shared<C> *shared, uint32_t row0,
                                          uint32_t kv_head)
{
    const uint32_t row = gpu_thread();
    uint32_t token, head;

    if (C::GROUPS != 1 || C::ROWS < 64 || C::KV8 || C::KV32 || run->problem.head_dim != C::DK ||
        ((run->q.base | (uint64_t)run->q.token_stride | (uint64_t)run->q.head_stride) & 15) != 0)
        return false;
    if (row < C::ROWS)
        (row < 64 ? shared->k_at : shared->v_at)[C::ADDRESS_STAGES - 1][row % 64] =
            mma_row_of(run, &shared->sequence, row0 + row, kv_head, &token, &head)
                ? mma_query_address(run, &shared->sequence, token, head)
                : MMA_NO_ADDRESS;
    return true;
}

/* Copies queries from these addresses. Rows that do not exist keep what shared memory held. */
template <class C> GPU_INLINE void mma_copy_queries(const mma_shared<C> *shared, unsigned char *to)
{
    const uint32_t bytes = C::DK * 2;

    GPU_UNROLL
    for (uint32_t row = 0; row < C::ROWS; row += 64) {
        struct mma_copy copy =
            mma_copy_begin<C>((row == 0 ? shared->k_at : shared->v_at)[C::ADDRESS_STAGES - 1], bytes, bytes,
                              to + row * mma_row_pitch<C>(bytes));
        GPU_UNROLL
        for (uint32_t step = 0; step < mma_copy_steps<C>(bytes); step++) {
            mma_copy_read_addresses(&copy, step);
            mma_copy_issue<C>(&copy, bytes, step);
        }
    }
}

/* The keys that each row sees. The last threads begin: the first ones load queries. Small M: every warp
 * finds them for itself. */
template <class C>
GPU_INLINE void mma_find_visible_keys(const struct gpu_run *run, mma_shared<C> *shared, uint32_t row0,
                                      uint32_t kv_head)
{
    const struct gpu_sequence *s = &shared->sequence;

    const uint32_t first = C::SMALL_M ? gpu_thread() % GPU_WARP : C::THREADS - 1 - gpu_thread();

    for (uint32_t row = first; row < C::ROWS; row += C::THREADS) {
        uint32_t token, head;
        const bool exists = mma_row_of(run, s, row0 + row, kv_head, &token, &head);
        /* Rows behind the last one have its mask, which is read for them, too. */
        shared->row[row] = gpu_row(run, s, exists ? token : s->q_len - 1, head);
        if (!exists)
            shared->row[row].lo = shared->row[row].hi = 0;
    }
}

/* Keys of other ranks have other positions, and a square mask covers only the last ones. */
GPU_INLINE bool mma_has_plain_keys(const struct gpu_run *run)
{
    return run->batch.cp_world == 0 && (run->mask.base == 0 || run->problem.span != ATTN_SPAN_SQUARE);
}

/* What the rules of a work tile do with a score: a soft cap; ALiBi; a mask of values, which may be multiplied
 * by ALiBi's slopes; scores are multiplied by their unit first; all of this, by code that holds for all
 * positions, scales and types. */
constexpr uint32_t MMA_SOFT_CAP = 1, MMA_ALIBI = 2, MMA_MASK = 4, MMA_UNIT_FIRST = 8, MMA_GENERAL = 16;

/* The scale of a row's scores; small M: which the CTA's warps have found together. */
template <class C> GPU_INLINE float mma_q_scale(const mma_shared<C> *shared, uint32_t row)
{
    return (C::SMALL_M ? shared - gpu_thread() / GPU_WARP : shared)->q_scale[row];
}

/*
 * What all scores of a work tile have in common. `factor` makes scores in base 2 of what the rules leave;
 * where no score changes, the scales of queries are applied with it. As it is positive, row maxima are found
 * before. The rules see products, whose unit is the scale, and after a soft cap numbers whose unit is the
 * cap; what they add has to be of that unit. Where an f32 may not hold that, products are multiplied by the
 * unit first, and the factor is 1.
 */
struct mma_rules {
    float scale;
    float factor;
    float bias;           /* makes numbers of the unit of what is added */
    float cap_factor;     /* makes of products what mma_small_tanh takes */
    uint32_t elementwise; /* MMA_SOFT_CAP and others; 0: no score changes, but a mask's bits may hide keys */
    uint32_t lo, hi;      /* every row sees these keys, unless a mask hides them */
};

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
    const bool cap = run->problem.softcap > 0;
    const bool finite = scale > 0 && scale < GPU_INFINITY;
    const bool values = run->mask.base != 0 && run->mask.dtype != 0;
    const bool alibi = run->slopes != 0 && run->problem.alibi != ATTN_ALIBI_MASK;
    const uint32_t rules = (cap ? MMA_SOFT_CAP : 0u) | (alibi ? MMA_ALIBI : 0u) | (values ? MMA_MASK : 0u);

    if (rules == 0 && run->mask.base == 0 && finite && !irregular)
        return 0;
    /* The results of f32 would show the error of a fast tanh. */
    if (C::SMALL_M || !finite || irregular || !mma_has_plain_keys(run) || (C::KV32 && cap) || far)
        return rules | MMA_GENERAL;
    const bool large = (values && run->mask.dtype != ATTN_F16) || unit < 0x1p-60f || unit > 0x1p60f;
    return rules | (rules != 0 && large ? MMA_UNIT_FIRST : 0u);
}

template <class C>
GPU_INLINE struct mma_rules mma_find_rules(const struct gpu_run *run, const mma_shared<C> *shared,
                                           const struct gpu_work_tile *p)
{
    const uint32_t rows = shared->sequence.q_len * run->group - p->row0;
    struct mma_rules rules;
    bool irregular = false, far = false;

    rules.lo = 0;
    rules.hi = 0xffffffffu;
    for (uint32_t row = gpu_thread() % GPU_WARP; row < C::ROWS && row < rows; row += GPU_WARP) {
        rules.lo = shared->row[row].lo > rules.lo ? shared->row[row].lo : rules.lo;
        rules.hi = shared->row[row].hi < rules.hi ? shared->row[row].hi : rules.hi;
        far = far || (run->slopes != 0 && mma_is_far(shared->row[row].position));
        if constexpr (C::Q_SCALED)
            irregular =
                irregular || !(mma_q_scale<C>(shared, row) > 0 && mma_q_scale<C>(shared, row) < GPU_INFINITY);
    }
    for (uint32_t step = 1; step < GPU_WARP; step *= 2) {
        const uint32_t lo = gpu_shuffle_xor_u32(rules.lo, step), hi = gpu_shuffle_xor_u32(rules.hi, step);
        rules.lo = lo > rules.lo ? lo : rules.lo;
        rules.hi = hi < rules.hi ? hi : rules.hi;
    }
    rules.scale = run->softmax_scale;
    if (C::KV8 && !mma_scale_per_key<C>(run->problem.k_scale))
        rules.scale *= gpu_scale_at(&run->k.scale, 0, 0, p->kv_head);
    const float unit = run->problem.softcap > 0 ? run->problem.softcap : rules.scale;
    rules.elementwise =
        mma_elementwise_rules<C>(run, rules.scale, unit, gpu_ballot(far) != 0, gpu_ballot(irregular) != 0);
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

/* What turns a row's products into scores in base 2, after the rules. */
template <class C>
GPU_INLINE float mma_row_factor(const mma_shared<C> *shared, const struct mma_rules *rules, uint32_t row)
{
    if (!C::Q_SCALED || rules->elementwise)
        return rules->factor;
    return mma_finite_factor(rules->factor * mma_q_scale<C>(shared, row));
}

#endif
