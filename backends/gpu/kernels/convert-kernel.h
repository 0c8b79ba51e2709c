/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Converts the 8-bit keys and values of a step, or those in blocks, to 16 bits: every CTA takes as many
 * pieces of pages. Numbers are those of the codes, and kernels apply a scale that all have to sums. Where
 * keys have scales of their own, these go to the workspace, for rounded products with them would show in an
 * LSE; values are multiplied by theirs, and rounded like P. Of blocks, whose scales belong to 32 columns,
 * both are rounded.
 */
#ifndef ATTN_GPU_CONVERT_KERNEL_H
#define ATTN_GPU_CONVERT_KERNEL_H

#include "device.h"

#include "block-reads.h"
#include "codec8.h"
#include "convert.h"
#include "kv-place.h"
#include "sequence.h"
#include "splits.h"

/* Units of eight columns that a thread has in flight. */
constexpr uint32_t GPU_CONVERT_HELD = 4;
/* Most tokens of a piece. */
constexpr uint32_t GPU_CONVERT_TOKENS = 64;

/* Keys [from, to) of a sequence that lie in a page, the first of them at `place`. */
struct gpu_convert_piece {
    uint32_t page;  /* of the workspace */
    uint32_t token; /* of the page, where key `from` is */
    uint32_t from, to;
    struct gpu_place place;
};

/* Keys or values: the units of a vector and of a row, which has the vectors of all heads. */
struct gpu_convert_side {
    const struct gpu_cache *cache;
    uint64_t to;
    struct gpu_divisor vector, row;
    bool aligned; /* units are words of eight bytes */
};

GPU_INLINE struct gpu_convert_side gpu_convert_side_of(const struct gpu_convert *a, bool values)
{
    struct gpu_convert_side side;

    side.cache = values ? &a->run.v : &a->run.k;
    side.to = values ? a->v : a->k;
    side.vector = a->vector[values];
    side.row = a->row[values];
    side.aligned = side.cache->x_stride == 0 &&
                   ((side.cache->base | (uint64_t)side.cache->page_stride |
                     (uint64_t)side.cache->token_stride | (uint64_t)side.cache->head_stride) &
                    7) == 0;
    return side;
}

/* A unit of a piece: which token and head it is of, where their vector begins, and its number in it. */
struct gpu_convert_place {
    uint32_t token, head, number;
    uint64_t offset; /* from the first vector of the piece */
};

GPU_INLINE struct gpu_convert_place gpu_convert_place_of(const struct gpu_convert_side *side, uint32_t unit)
{
    const uint32_t token = gpu_quotient(unit, &side->row), rest = unit - token * side->row.value,
                   head = gpu_quotient(rest, &side->vector), number = rest - head * side->vector.value;

    return {token, head, number,
            (uint64_t)(token * side->cache->token_stride + head * side->cache->head_stride)};
}

/* The codes of a unit of a vector. */
GPU_INLINE void gpu_convert_load(const struct gpu_convert_side *side, uint64_t vector, uint32_t unit,
                                 uint32_t codes[2])
{
    if (side->aligned) {
        const uint64_t all = gpu_at<const uint64_t>(vector, unit);
        codes[0] = (uint32_t)all;
        codes[1] = (uint32_t)(all >> 32);
        return;
    }
    codes[0] = codes[1] = 0;
    GPU_UNROLL
    for (uint32_t i = 0; i < GPU_CONVERTED_COLUMNS; i++)
        codes[i / 4] |= (uint32_t)GPU_U8(vector)[gpu_column(side->cache, unit * GPU_CONVERTED_COLUMNS + i)]
                        << i % 4 * 8;
}

/* A unit in 16 bits, exactly, or `times` a factor. */
GPU_INLINE struct gpu_u128 gpu_convert_unit(uint32_t dtype, bool bf16, const uint32_t codes[2], bool times,
                                            float factor)
{
    struct gpu_u128 out;

    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        if (!times) {
            gpu_quad8_as(dtype, bf16, codes[i], &out.x[2 * i]);
            continue;
        }
        float x[4];
        gpu_quad8_f32(dtype, codes[i], x);
        GPU_UNROLL
        for (uint32_t j = 0; j < 2; j++)
            out.x[2 * i + j] = bf16 ? gpu_pack_bf16(x[2 * j] * factor, x[2 * j + 1] * factor)
                                    : gpu_pack_f16(x[2 * j] * factor, x[2 * j + 1] * factor);
    }
    return out;
}

/* The keys, or values, of a piece: times the scales of values, or what makes the scale of all keys regular.
 */
template <bool values>
GPU_INLINE void gpu_convert_units(const struct gpu_convert *a, const struct gpu_convert_side *side,
                                  const struct gpu_convert_piece *piece, float factor)
{
    const struct gpu_cache *cache = side->cache;
    const struct gpu_place *place = &piece->place;
    const bool scaled = a->k_scale_stride != 0, times = scaled ? values : factor != 1;
    const uint32_t first = piece->page * a->run.batch.block + piece->token; /* token of the workspace */
    const uint32_t all = (piece->to - piece->from) * side->row.value;
    const uint64_t from = gpu_vector(cache, place->page, place->token, 0),
                   to = side->to + (uint64_t)first * side->row.value * sizeof(struct gpu_u128);

    for (uint32_t base = gpu_thread(); base < all; base += GPU_CONVERT_THREADS * GPU_CONVERT_HELD) {
        uint32_t codes[GPU_CONVERT_HELD][2];
        float scale[GPU_CONVERT_HELD];
        GPU_UNROLL
        for (uint32_t i = 0; i < GPU_CONVERT_HELD; i++) {
            const uint32_t at = base + i * GPU_CONVERT_THREADS, of = at < all ? at : base;
            const struct gpu_convert_place unit = gpu_convert_place_of(side, of);
            gpu_convert_load(side, from + unit.offset, unit.number, codes[i]);
            scale[i] = factor;
            if (scaled && (values || unit.number == 0))
                scale[i] = gpu_scale_at(&cache->scale, place->outer, place->token + unit.token, unit.head);
            if (scaled && !values && unit.number == 0)
                gpu_at<float>(a->k_scale + (uint64_t)(unit.head * a->k_scale_stride), first + unit.token) =
                    scale[i] * factor;
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < GPU_CONVERT_HELD; i++) {
            const uint32_t at = base + i * GPU_CONVERT_THREADS;
            if (at < all)
                gpu_store_global_u128(
                    to + (uint64_t)at * sizeof(struct gpu_u128),
                    gpu_convert_unit(cache->dtype, a->bf16 != 0, codes[i], times, scale[i]));
        }
    }
}

/*
 * What a piece of a page of a sequence has to convert, which begins at a key: nothing that no query sees by
 * its place alone. False in an invalid block.
 */
GPU_INLINE bool gpu_convert_find(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t page_key,
                                 uint32_t key, struct gpu_convert_piece *piece)
{
    const struct gpu_split_rules rules = gpu_split_rules_of(&run->problem, ATTN__PREFILL, 0);
    uint32_t end = page_key + run->batch.block, tile;

    gpu_key_tiles(&rules, &s->visible, 0, s->q_len - 1, s->kv_len, &tile);
    end = end < s->kv_len ? end : s->kv_len;
    end = end < key + GPU_CONVERT_TOKENS ? end : key + GPU_CONVERT_TOKENS;
    piece->from = tile * GPU_TILE > key ? tile * GPU_TILE : key;
    piece->to = piece->from < end ? end : piece->from;
    piece->token = piece->from - page_key;
    return gpu_locate(run, s, piece->from < end ? piece->from : page_key, &piece->place);
}

/* The scale of all keys times that of all queries: written to the workspace without what keys take of it.
 * Where every key has a scale, that of queries, which those are multiplied by. */
GPU_INLINE float gpu_convert_key_scale(const struct gpu_convert *a)
{
    const float of_queries = gpu_scale_at(&a->run.q_scale, 0, 0, 0);
    float rest;

    if (a->k_scale_stride != 0)
        return of_queries;
    const float factor = gpu_regular_scale(gpu_scale_at(&a->run.k.scale, 0, 0, 0) * of_queries, &rest);
    if (gpu_thread() == 0)
        gpu_at<float>(a->k_scale, 0) = rest;
    return factor;
}

/* The keys, or values, of a piece, from blocks. */
template <gpu_read_kind kind>
GPU_INLINE void gpu_convert_blocks_of(const struct gpu_convert_side *side,
                                      const struct gpu_convert_piece *piece, uint32_t first)
{
    const struct gpu_cache *cache = side->cache;
    const uint32_t all = (piece->to - piece->from) * side->row.value;
    const uint64_t from = gpu_vector(cache, piece->place.page, piece->place.token, 0),
                   to = side->to + (uint64_t)first * side->row.value * sizeof(struct gpu_u128);

    for (uint32_t base = gpu_thread(); base < all; base += GPU_CONVERT_THREADS * GPU_CONVERT_HELD) {
        struct gpu_block_read read[GPU_CONVERT_HELD][2];
        uint32_t column[GPU_CONVERT_HELD];
        GPU_UNROLL
        for (uint32_t i = 0; i < GPU_CONVERT_HELD; i++) {
            const uint32_t at = base + i * GPU_CONVERT_THREADS, of = at < all ? at : base;
            const struct gpu_convert_place unit = gpu_convert_place_of(side, of);
            column[i] = unit.number * GPU_CONVERTED_COLUMNS;
            GPU_UNROLL
            for (uint32_t j = 0; j < 2; j++)
                read[i][j] = gpu_block_read_four<kind>(cache->dtype, from + unit.offset, column[i] + j * 4);
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < GPU_CONVERT_HELD; i++) {
            const uint32_t at = base + i * GPU_CONVERT_THREADS;
            struct gpu_u128 out;
            GPU_UNROLL
            for (uint32_t j = 0; j < 2; j++) {
                const struct gpu_u128 x =
                    gpu_block_convert_four<kind>(cache->dtype, &read[i][j], column[i] + j * 4);
                out.x[2 * j] = gpu_pack_f16(gpu_f32_of_bits(x.x[0]), gpu_f32_of_bits(x.x[1]));
                out.x[2 * j + 1] = gpu_pack_f16(gpu_f32_of_bits(x.x[2]), gpu_f32_of_bits(x.x[3]));
            }
            if (at < all)
                gpu_store_global_u128(to + (uint64_t)at * sizeof(struct gpu_u128), out);
        }
    }
}

GPU_INLINE void gpu_convert_blocks_units(const struct gpu_convert *a, const struct gpu_convert_side *side,
                                         const struct gpu_convert_piece *piece)
{
    const uint32_t first = piece->page * a->run.batch.block + piece->token; /* token of the workspace */

    if (side->cache->dtype == ATTN_Q8_0)
        gpu_convert_blocks_of<GPU_READ_Q8_0>(side, piece, first);
    else if (side->cache->dtype == ATTN_IQ4_NL)
        gpu_convert_blocks_of<GPU_READ_IQ4_NL>(side, piece, first);
    else
        gpu_convert_blocks_of<GPU_READ_NIBBLES>(side, piece, first);
}

/* Converts all pieces of a CTA, which are numbered through all sequences. */
template <bool blocks> GPU_INLINE void gpu_convert_pieces(const struct gpu_convert *a)
{
    const struct gpu_run *run = &a->run;
    const uint32_t *first = GPU_GLOBAL(const uint32_t, run->schedule);
    const uint32_t block = run->batch.block, pieces = (block + GPU_CONVERT_TOKENS - 1) / GPU_CONVERT_TOKENS;
    const uint64_t all = (uint64_t)first[run->batch.seqs] * pieces, end = all * (gpu_cta() + 1) / gpu_ctas();
    const struct gpu_convert_side keys = gpu_convert_side_of(a, false), values = gpu_convert_side_of(a, true);
    uint64_t at = all * gpu_cta() / gpu_ctas();

    if (at == end || gpu_has_other_masks(run))
        return;
    const float factor = gpu_convert_key_scale(a);
    for (uint32_t i = gpu_kv_find(run->schedule, run->batch.seqs, (uint32_t)(at / pieces)); at < end; i++) {
        const struct gpu_sequence s = gpu_sequence(run, i);
        for (; at < end && at < (uint64_t)first[i + 1] * pieces; at++) {
            struct gpu_convert_piece piece;
            piece.page = (uint32_t)(at / pieces);
            const uint32_t page_key = (piece.page - first[i]) * block,
                           key = page_key + (uint32_t)(at % pieces) * GPU_CONVERT_TOKENS;
            const bool exists = gpu_convert_find(run, &s, page_key, key, &piece);
            if (gpu_thread() == 0 && key == page_key)
                gpu_at<int32_t>(a->entries, piece.page) = exists ? (int32_t)piece.page : -1;
            if (!exists)
                continue;
            if constexpr (blocks) {
                gpu_convert_blocks_units(a, &keys, &piece);
                gpu_convert_blocks_units(a, &values, &piece);
            } else {
                gpu_convert_units<false>(a, &keys, &piece, factor);
                gpu_convert_units<true>(a, &values, &piece, 1);
            }
        }
    }
}

GPU_KERNEL(gpu_convert, GPU_CONVERT_THREADS, 4)(GPU_ARGUMENT(struct gpu_convert, argument))
{
    gpu_convert_pieces<false>((const struct gpu_convert *)gpu_argument(&argument));
}

GPU_KERNEL(gpu_convert_blocks, GPU_CONVERT_THREADS, 4)(GPU_ARGUMENT(struct gpu_convert, argument))
{
    gpu_convert_pieces<true>((const struct gpu_convert *)gpu_argument(&argument));
}

#endif
