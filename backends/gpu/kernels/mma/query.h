/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queries into shared memory. */
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
GPU_INLINE void mma_load_queries_unscaled(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *to,
                                          uint32_t row0, uint32_t kv_head)
{
    const struct gpu_sequence *s = &shared->sequence;
    const bool aligned =
        ((run->q.base | (uint64_t)run->q.token_stride | (uint64_t)run->q.head_stride) & 15) == 0;

    for (uint32_t i = gpu_thread(); i < C::ROWS * (C::DK / 16); i += C::THREADS) {
        const uint32_t row = i / (C::DK / 16), group = i % (C::DK / 16);
        uint32_t token, head, in[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (C::Q_SCALED && group == 0)
            mma_shared_of_cta<C>(shared)->q_scale[row] = 1;
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

/* Four elements of an f32 query from column d on, with zeros behind the last one. */
GPU_INLINE struct gpu_u128 mma_load_query4(uint64_t query, uint32_t d, uint32_t dim, bool aligned)
{
    const uint32_t *q = (const uint32_t *)query + d;
    struct gpu_u128 part = mma_zero_u128();

    if (aligned && d + 4 <= dim)
        return gpu_load_u128(q);
    GPU_UNROLL
    for (uint32_t j = 0; j < 4; j++)
        if (d + j < dim)
            part.x[j] = q[j];
    return part;
}

/* Queries as f32. */
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
            const uint64_t q = mma_query_address(run, s, token, head);
            part = C::ANY ? mma_any_query(run, q, chunk * 4) : mma_load_query4(q, chunk * 4, dim, aligned);
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

/* 8-bit queries as f16, or in products of bf16 as that, which both hold them. Scores are multiplied by their
 * scales, unless keys that were converted have taken the one of all. */
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
            if (C::Q_SCALED)
                scale =
                    gpu_scale_at(&run->q_scale, s->index, (int64_t)s->row + token, head / run->q_scale_group);
        }
        if (C::Q_SCALED && group == 0)
            mma_shared_of_cta<C>(shared)->q_scale[row] = scale;
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t pairs[2];
            gpu_quad8_as(run->problem.q_dtype, C::BF16_MMA, codes.x[j], pairs);
            GPU_UNROLL
            for (uint32_t h = 0; h < 2; h++)
                out[C::CODES ? h : j / 2].x[C::CODES ? j : j % 2 * 2 + h] = pairs[h];
        }
        gpu_store_u128(to + mma_swizzled<C>(row, group * 2, C::DK * 2), out[0]);
        gpu_store_u128(to + mma_swizzled<C>(row, group * 2 + 1, C::DK * 2), out[1]);
    }
}

/* Codes as they are. */
template <class C>
GPU_INLINE void mma_load_queries_e4m3(const struct gpu_run *run, const struct gpu_sequence *s,
                                      unsigned char *to, uint32_t row0, uint32_t kv_head)
{
    constexpr uint32_t chunks = C::Q_ROW / 16;

    GPU_LOOP
    for (uint32_t i = gpu_thread(); i < C::ROWS * chunks; i += C::THREADS) {
        const uint32_t row = i / chunks, chunk = i % chunks;
        uint32_t token, head;
        struct gpu_u128 codes = mma_zero_u128();
        if (mma_row_of(run, s, row0 + row, kv_head, &token, &head))
            codes = mma_load_query_codes(mma_query_address(run, s, token, head), chunk * 16,
                                         run->problem.head_dim);
        gpu_store_u128(to + mma_swizzled<C>(row, chunk, C::Q_ROW), codes);
    }
}

/* Queries into shared memory. */
template <class C>
GPU_INLINE void mma_load_queries(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *to,
                                 uint32_t row0, uint32_t kv_head)
{
    if constexpr (C::KV32)
        mma_load_queries_f32<C>(run, &shared->sequence, to, row0, kv_head);
    else if constexpr (C::E4M3)
        mma_load_queries_e4m3<C>(run, &shared->sequence, to, row0, kv_head);
    else if ((C::Q_SCALED || C::WGMMA) && GPU_SIZE(run->problem.q_dtype) == 1)
        mma_load_queries_8bit<C>(run, shared, to, row0, kv_head);
    else if (C::Q_SCALED && run->problem.q_dtype != ATTN_F16)
        mma_load_queries_scaled<C>(run, shared, to, row0, kv_head);
    else
        mma_load_queries_unscaled<C>(run, shared, to, row0, kv_head);
}

/*
 * Writes where the rows of queries lie that can be copied as they are, into an address stage that the first
 * iteration does not need yet. False if they have to be loaded.
 */
template <class C>
GPU_INLINE bool mma_write_query_addresses(const struct gpu_run *run, mma_shared<C> *shared, uint32_t row0,
                                          uint32_t kv_head, uint32_t slot)
{
    uint32_t token, head;

    if (C::GROUPS != 1 || C::ROWS < 64 || C::KV8 || C::KV32 || GPU_SIZE(run->problem.q_dtype) != 2 ||
        run->problem.head_dim != C::DK ||
        ((run->q.base | (uint64_t)run->q.token_stride | (uint64_t)run->q.head_stride) & 15) != 0)
        return false;
    for (uint32_t row = gpu_thread(); row < C::ROWS; row += C::THREADS)
        (row < C::OWN_KEYS ? shared->k_at : shared->v_at)[slot][row % C::OWN_KEYS] =
            mma_row_of(run, &shared->sequence, row0 + row, kv_head, &token, &head)
                ? mma_query_address(run, &shared->sequence, token, head)
                : MMA_NO_ADDRESS;
    return true;
}

/* Copies queries from these addresses. Rows that do not exist keep what shared memory held. */
template <class C>
GPU_INLINE void mma_copy_queries(const mma_shared<C> *shared, unsigned char *to, uint32_t slot)
{
    const uint32_t bytes = C::DK * 2;

    GPU_UNROLL
    for (uint32_t row = 0; row < C::ROWS; row += 64) {
        struct mma_copy copy =
            mma_copy_begin<C>((row < C::OWN_KEYS ? shared->k_at : shared->v_at)[slot] + row % C::OWN_KEYS,
                              bytes, bytes, to + mma_swizzled<C>(row, 0, bytes));
        GPU_UNROLL
        for (uint32_t step = 0; step < mma_copy_steps<C>(bytes); step++) {
            mma_copy_read_addresses(&copy, step);
            mma_copy_issue<C>(&copy, bytes, step);
        }
    }
}

#endif
