/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Copies and converts whole rows: all heads of a token at once. A warp takes some rows. Each lane finds the
 * addresses of one of them, then all lanes go through the units of all rows in memory order, with several
 * loads in flight.
 */
#ifndef ATTN_GPU_KV_ROWS_H
#define ATTN_GPU_KV_ROWS_H

#include "kv-elements.h"
#include "kv-vector.h"

/* Units that a lane has in flight. */
constexpr uint32_t GPU_KV_MOVED_HELD = 4, GPU_KV_CONVERTED_HELD = 2;

/* A row, in the lane that looked it up: addresses of head 0, or 0. */
struct gpu_kv_row {
    uint64_t from;       /* 0: zeros */
    uint64_t rest;       /* of what is from elsewhere */
    uint64_t to;         /* 0: the row is skipped */
    uint64_t from_scale; /* of scales that are the row's own */
    uint64_t to_scale;
};

/* A unit of a warp's rows. */
struct gpu_kv_spot {
    uint32_t row, head, unit;
    bool there;
};

GPU_INLINE struct gpu_kv_spot gpu_kv_spot_of(const struct gpu_kv_rows *by, uint32_t at, uint32_t all)
{
    struct gpu_kv_spot spot;

    spot.row = gpu_quotient(at, &by->row);
    const uint32_t rest = at - spot.row * by->row.value;
    spot.head = gpu_quotient(rest, &by->vector);
    spot.unit = rest - spot.head * by->vector.value;
    spot.there = at < all && spot.unit < by->units;
    spot.row %= GPU_WARP; /* behind the end, any lane will do */
    return spot;
}

/* Address of a byte of a vector. */
GPU_INLINE uint64_t gpu_kv_end_at(const struct gpu_kv_end *end, uint64_t row, uint32_t head, uint32_t byte)
{
    return row +
           (uint64_t)((int64_t)head * end->head_stride + (int64_t)(byte >> end->x_shift) * end->x_stride) +
           (byte & ((1u << end->x_shift) - 1));
}

/* Source and target of a unit, of `bytes` bytes each. All lanes together. */
GPU_INLINE uint64_t gpu_kv_spot_from(const struct gpu_kv_rows *by, const struct gpu_kv_row *mine,
                                     const struct gpu_kv_spot *spot, uint32_t bytes)
{
    uint64_t row = gpu_shuffle_u64(mine->from, spot->row);
    uint32_t unit = spot->unit;

    if (by->split != 0) {
        const uint64_t rest = gpu_shuffle_u64(mine->rest, spot->row);
        row = unit < by->split ? row : rest;
        unit = unit < by->split ? unit : unit - by->split;
    }
    return row != 0 ? gpu_kv_end_at(&by->from, row, spot->head, unit * bytes) : 0;
}

GPU_INLINE uint64_t gpu_kv_spot_to(const struct gpu_kv_rows *by, const struct gpu_kv_row *mine,
                                   const struct gpu_kv_spot *spot, uint32_t bytes)
{
    const uint64_t row = gpu_shuffle_u64(mine->to, spot->row);

    return spot->there && row != 0 ? gpu_kv_end_at(&by->to, row, spot->head, spot->unit * bytes) : 0;
}

/* ---------------------------------------------------------------- copies */

/* Copies rows; warps that share them take every other iteration. */
GPU_INLINE void gpu_kv_rows_move(const struct gpu_kv_rows *by, const struct gpu_kv_row *mine, uint32_t rows,
                                 uint32_t share, uint32_t shares)
{
    const uint32_t all = rows * by->row.value, lane = gpu_thread() % GPU_WARP;
    struct gpu_u128 held[GPU_KV_MOVED_HELD];
    uint64_t to[GPU_KV_MOVED_HELD];

    for (uint32_t first = share * GPU_WARP * GPU_KV_MOVED_HELD; first < all;
         first += shares * GPU_WARP * GPU_KV_MOVED_HELD) {
        GPU_UNROLL
        for (uint32_t k = 0; k < GPU_KV_MOVED_HELD; k++) {
            const struct gpu_kv_spot spot = gpu_kv_spot_of(by, first + k * GPU_WARP + lane, all);
            const uint64_t from = gpu_kv_spot_from(by, mine, &spot, 16);
            to[k] = gpu_kv_spot_to(by, mine, &spot, 16);
            held[k].x[0] = held[k].x[1] = held[k].x[2] = held[k].x[3] = 0;
            if (to[k] != 0 && from != 0)
                held[k] = gpu_load_global_u128(from);
        }
        GPU_UNROLL
        for (uint32_t k = 0; k < GPU_KV_MOVED_HELD; k++)
            if (to[k] != 0)
                gpu_store_global_u128(to[k], held[k]);
    }
}

/* ---------------------------------------------------------------- scales of rows */

/* Address of the scale of head 0, 0 if scales are no array. */
GPU_INLINE uint64_t gpu_kv_row_scale(const struct gpu_kv_side *side, int64_t page, int64_t token)
{
    return side->cache.scale.base != 0 ? gpu_kv_scale_place(&side->cache.scale, page, token, 0) : 0;
}

/* Scale of a vector; `row` is the address of its row's scales. All lanes together. */
GPU_INLINE float gpu_kv_spot_scale(const struct gpu_kv_side *side, uint64_t row,
                                   const struct gpu_kv_spot *spot)
{
    if (side->by_head != 0)
        return side->values[spot->there ? spot->head : 0];
    if (side->cache.scale.base == 0)
        return side->cache.scale.value;
    const uint64_t own = gpu_shuffle_u64(row, spot->row);
    return spot->there && own != 0
               ? gpu_at<const float>(own + (uint64_t)((int64_t)spot->head * side->cache.scale.head_stride), 0)
               : 1.0f;
}

/* Copies the scales of all heads of the rows; a row without a source has scale 1. */
GPU_INLINE void gpu_kv_rows_scales(const struct gpu_kv_side *from, int64_t to_stride,
                                   const struct gpu_kv_row *mine, uint32_t rows, uint32_t heads)
{
    const uint32_t all = rows * heads;

    for (uint32_t first = 0; first < all; first += GPU_WARP) {
        const uint32_t at = first + gpu_thread() % GPU_WARP;
        struct gpu_kv_spot spot;
        spot.row = at / heads;
        spot.head = at - spot.row * heads;
        spot.unit = 0;
        spot.row %= GPU_WARP;
        spot.there = at < all;
        const float scale = gpu_kv_spot_scale(from, mine->from_scale, &spot);
        const uint64_t source = gpu_shuffle_u64(mine->from, spot.row);
        const uint64_t target = gpu_shuffle_u64(mine->to_scale, spot.row);
        if (spot.there && target != 0)
            gpu_at<float>(target + (uint64_t)((int64_t)spot.head * to_stride), 0) =
                source != 0 ? scale : 1.0f;
    }
}

/* The scale of a vector that has its own, from the eight elements of each of its lanes, which are together.
 */
GPU_INLINE float gpu_kv_lanes_scale(const float values[8], bool there, uint32_t lanes, uint32_t dtype)
{
    uint32_t max = 0; /* as integers, floats >= 0 keep their order, and NaN is above all */

    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t bits = there ? gpu_f32_bits(values[i]) & 0x7fffffffu : 0;
        max = bits > max ? bits : max;
    }
    for (uint32_t mask = lanes / 2; mask > 0; mask /= 2) {
        const uint32_t other = gpu_shuffle_xor_u32(max, mask);
        max = other > max ? other : max;
    }
    return gpu_kv_scale_of_largest(max, dtype);
}

/* ---------------------------------------------------------------- conversions */

/*
 * Converts and stores a unit, which has been loaded: `scale` is of its source, `to` the target's side or
 * NULL, `at` the target's address. All lanes together.
 */
GPU_INLINE void gpu_kv_spot_convert(const struct gpu_kv_rows *by, const struct gpu_kv_row *mine,
                                    const struct gpu_kv_spot *spot, const struct gpu_kv_side *to,
                                    struct gpu_kv_elements *all, float scale, uint64_t at)
{
    float values[8], divisor = 1;

    gpu_kv_elements_decode(by->from.dtype, all, values);
    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        values[i] *= scale;
    if (to != NULL && to->token_head != 0) {
        const uint64_t row = gpu_shuffle_u64(mine->to_scale, spot->row);
        divisor = gpu_kv_lanes_scale(values, at != 0, by->vector.value, by->to.dtype);
        if (at != 0 && spot->unit == 0)
            gpu_at<float>(row + (uint64_t)((int64_t)spot->head * to->cache.scale.head_stride), 0) = divisor;
    } else if (to != NULL && by->to.size == 1) {
        divisor = gpu_kv_spot_scale(to, mine->to_scale, spot);
    }
    if (at == 0)
        return;
    if (divisor != 1) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            values[i] = gpu_divide(values[i], divisor);
    }
    gpu_kv_elements_encode(by->to.dtype, values, all);
    gpu_kv_elements_store(at, by->to.size, all);
}

/* `from` and `to` are NULL where that end has no scales. */
GPU_INLINE void gpu_kv_rows_convert(const struct gpu_kv_rows *by, const struct gpu_kv_row *mine,
                                    uint32_t rows, uint32_t share, uint32_t shares,
                                    const struct gpu_kv_side *from, const struct gpu_kv_side *to)
{
    const uint32_t all = rows * by->row.value, lane = gpu_thread() % GPU_WARP;
    struct gpu_kv_elements held[GPU_KV_CONVERTED_HELD];
    struct gpu_kv_spot spot[GPU_KV_CONVERTED_HELD];
    float scale[GPU_KV_CONVERTED_HELD];
    uint64_t at[GPU_KV_CONVERTED_HELD];

    for (uint32_t first = share * GPU_WARP * GPU_KV_CONVERTED_HELD; first < all;
         first += shares * GPU_WARP * GPU_KV_CONVERTED_HELD) {
        by = (const struct gpu_kv_rows *)gpu_again(by);
        GPU_UNROLL
        for (uint32_t k = 0; k < GPU_KV_CONVERTED_HELD; k++) {
            spot[k] = gpu_kv_spot_of(by, first + k * GPU_WARP + lane, all);
            const uint64_t source = gpu_kv_spot_from(by, mine, &spot[k], 8 * by->from.size);
            at[k] = gpu_kv_spot_to(by, mine, &spot[k], 8 * by->to.size);
            scale[k] = from != NULL ? gpu_kv_spot_scale(from, mine->from_scale, &spot[k]) : 1.0f;
            scale[k] = source != 0 ? scale[k] : 1.0f;
            GPU_UNROLL
            for (uint32_t i = 0; i < 8; i++)
                held[k].x[i] = 0; /* 0 in every type */
            if (at[k] != 0 && source != 0)
                gpu_kv_elements_load(source, by->from.size, &held[k]);
        }
        GPU_UNROLL
        for (uint32_t k = 0; k < GPU_KV_CONVERTED_HELD; k++)
            gpu_kv_spot_convert(by, mine, &spot[k], to, &held[k], scale[k], at[k]);
    }
}

/* ---------------------------------------------------------------- a warp's rows */

/* Rows that a warp takes at once: how many, and the row of this lane, which is behind the last if it has
 * none. */
struct gpu_kv_taken {
    uint32_t rows;
    uint32_t own;
};

/* Rows from `first` on, of `all`; not more than `each`. */
GPU_INLINE struct gpu_kv_taken gpu_kv_rows_take(uint32_t first, uint32_t each, uint32_t all)
{
    const uint32_t left = all - first, lane = gpu_thread() % GPU_WARP;
    struct gpu_kv_taken taken;

    taken.rows = left < each ? left : each;
    taken.own = lane < taken.rows ? first + lane : all;
    return taken;
}

/* Moves them, or converts them: `from` and `to` are NULL where that end has no scales. */
GPU_INLINE void gpu_kv_rows_do(const struct gpu_kv_rows *by, const struct gpu_kv_row *mine, uint32_t rows,
                               uint32_t share, uint32_t shares, const struct gpu_kv_side *from,
                               const struct gpu_kv_side *to)
{
    if (by->method == GPU_KV_MOVED)
        gpu_kv_rows_move(by, mine, rows, share, shares);
    else
        gpu_kv_rows_convert(by, mine, rows, share, shares, from, to);
}

#endif
