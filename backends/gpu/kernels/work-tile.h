/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which work tile of the schedule a CTA of a matrix kernel takes. */
#ifndef ATTN_GPU_WORK_TILE_H
#define ATTN_GPU_WORK_TILE_H

#include "quotient.h"
#include "sequence.h"
#include "splits.h"

/* Sum `i` of a schedule: its low half, for the work lists of these kernels do not outgrow 32 bits. */
GPU_INLINE uint32_t gpu_sum(const struct gpu_run *run, uint32_t i)
{
    return ((const uint32_t *)run->schedule)[2 * (uint64_t)i];
}

/* The first of 32 sequences among which is the one that holds position `at` of the work list, which is below
 * the last sum. All lanes of a warp call it together: a round of the search reads 32 sums at once. */
GPU_INLINE uint32_t gpu_find_block(const struct gpu_run *run, uint64_t at)
{
    uint32_t lo = 0, hi = run->batch.seqs;

    while (hi - lo > GPU_WARP) {
        const uint32_t step = (hi - lo + GPU_WARP - 1) / GPU_WARP, lane = gpu_thread() % GPU_WARP;
        const uint32_t probe = lo + (lane + 1) * step;
        const uint32_t above = ~gpu_ballot(probe < hi && gpu_sum(run, probe) <= at);
        const uint32_t passed = above != 0 ? gpu_first_bit(above) : GPU_WARP;
        lo += passed * step;
        hi = hi - lo > step ? lo + step : hi;
    }
    return lo;
}

/* Prefill: of keys and values, which a part of the L2 cache holds, and rows of tiles that are fast enough to
 * wait for more. */
#define GPU_SECTION_BYTES (UINT64_C(20) << 20)
#define GPU_SECTION_ROWS  128u

/* ---------------------------------------------------------------- work tiles */

/* Query rows of one sequence and KV head, and the KV tiles that they are multiplied with. */
struct gpu_work_tile {
    uint32_t seq;
    uint32_t kv_head;
    uint32_t row0;  /* first query row of the sequence and head */
    uint32_t first; /* KV tiles [first, end) of the sequence */
    uint32_t end;
    uint64_t next;          /* position of the CTA's next work tile in the work list; 0: there is none, unless
                               work tiles are counted off the list (mma/producer.h) */
    uint32_t splits;        /* KV splits of this sequence and head; 0: the CTA has no work */
    uint32_t split;         /* which of them this is */
    uint32_t first_partial; /* where split 0 lies in the split workspace, in tiles of rows */
    uint32_t rest_partial;  /* split i > 0 lies at rest_partial + i * partial_step */
    uint32_t partial_step;
};

/* a / b, b not 0: a 32-bit division where both fit. */
GPU_INLINE uint64_t gpu_divide_u64(uint64_t a, uint64_t b)
{
    return (a | b) >> 32 == 0 ? (uint32_t)a / (uint32_t)b : attn__quotient(a, b);
}

/* Where the stretch of a CTA begins in a work list of `all` tiles. */
GPU_INLINE uint64_t gpu_list_begin(uint64_t all, uint32_t cta, uint32_t ctas)
{
    return gpu_divide_u64(all * cta, ctas);
}

/* The CTA whose stretch of the work list holds position `at`. */
GPU_INLINE uint32_t gpu_list_cta(uint64_t all, uint64_t at, uint32_t ctas)
{
    return (uint32_t)gpu_divide_u64((at + 1) * ctas - 1, all);
}

/* Decode: the work tile of `rows` rows at position `at` of the work list, of a sequence whose sums are
 * `below` and `above`; the stretch of the CTA ends at `end`. */
GPU_INLINE struct gpu_work_tile gpu_decode_tile_at(const struct gpu_run *run, const struct gpu_sequence *s,
                                                   uint64_t at, uint64_t end, uint64_t all, uint32_t ctas,
                                                   uint32_t below, uint32_t above, uint32_t rows)
{
    const struct gpu_split_rules rules = gpu_split_rules_of(&run->problem, ATTN__DECODE, 0);
    const uint32_t heads = run->problem.kv_heads, length = above - below, cta = gpu_cta();
    const uint64_t base = (uint64_t)below * heads;
    struct gpu_work_tile p;

    p.seq = s->index;
    p.row0 = 0;
    p.kv_head = (uint32_t)gpu_divide_u64(at - base, length);
    const uint32_t inside = (uint32_t)(at - base - (uint64_t)p.kv_head * length);
    const uint64_t begin = at - inside;
    uint64_t stop = begin + length;
    uint32_t low;
    const uint32_t tiles = gpu_key_tiles(&rules, &s->visible, 0, s->q_len - 1, s->kv_len, &low);
    if (run->problem.det != 0) {
        const uint32_t size = gpu_det_split_tiles(s->kv_len, gpu_max_splits(rows, gpu_ctas(), heads));
        const uint32_t split = low / size + inside;
        p.first = split * size > low ? split * size : low;
        p.end = (split + 1) * size < low + tiles ? (split + 1) * size : low + tiles;
        p.next = at + gpu_ctas() < all ? at + gpu_ctas() : 0;
        p.splits = length;
        p.split = inside;
        p.first_partial = (uint32_t)begin;
        p.rest_partial = (uint32_t)begin;
        p.partial_step = 1;
        return p;
    }
    stop = stop < end ? stop : end;
    p.first = low + inside;
    p.end = low + inside + (uint32_t)(stop - at);
    if (p.end > low + tiles)
        p.end = low + tiles;
    p.next = stop < end ? stop : 0;
    const uint32_t from = gpu_list_cta(all, begin, ctas), to = gpu_list_cta(all, begin + length - 1, ctas);
    p.splits = to - from + 1;
    p.split = cta - from;
    /* A CTA stores the partial result of its first work tile at its even index, of its last one at the odd.
     */
    p.first_partial = 2 * from + (gpu_list_begin(all, from, ctas) < begin ? 1 : 0);
    p.rest_partial = 2 * from;
    p.partial_step = 2;
    return p;
}

/* Prefill: cuts the KV tiles of a row tile into `splits` even parts, of which this is `split`. */
GPU_INLINE void gpu_cut_tiles(struct gpu_work_tile *p, uint32_t tiles, uint32_t splits, uint32_t split)
{
    const uint32_t first = p->first, each = tiles / splits, longer = tiles % splits;

    p->first = first + split * each + (split < longer ? split : longer);
    p->end = p->first + each + (split < longer ? 1 : 0);
}

/*
 * Prefill: KV heads whose row tiles are computed one after the other, before those of other heads. Their keys
 * and values are read by all CTAs of a launch, and stay in the L2 cache until the last has read them.
 */
GPU_INLINE uint32_t gpu_section_heads(const struct gpu_run *run, const struct gpu_sequence *s)
{
    const uint32_t heads = run->problem.kv_heads;
    const uint64_t token = (uint64_t)run->k.dim * run->k.size + (uint64_t)run->v.dim * run->v.size;
    const uint64_t bytes = s->kv_len * token;

    if (bytes * heads <= GPU_SECTION_BYTES)
        return heads;
    const uint32_t most = (uint32_t)gpu_divide_u64(GPU_SECTION_BYTES, bytes);
    if (most < 2)
        return 1;
    const uint32_t sections = (heads + most - 1) / most;
    return (heads + sections - 1) / sections;
}

/*
 * Prefill: the tile of `rows` query rows, or split of one, at position `at` of the work list; `below` and
 * `above` are the sums of its sequence. The last rows of a section of heads come first, because they see the
 * most keys. Work tiles are numbered from the end of the list, splits of a row tile `heads` apart; that is
 * their place in the split workspace.
 */
GPU_INLINE struct gpu_work_tile gpu_prefill_tile_at(const struct gpu_run *run, const struct gpu_sequence *s,
                                                    uint64_t at, uint64_t all, uint32_t below, uint32_t above,
                                                    uint32_t rows)
{
    const struct gpu_split_rules rules = gpu_split_rules_of(&run->problem, ATTN__PREFILL, rows);
    const uint32_t heads = run->problem.kv_heads, row_tiles = gpu_row_tiles(&rules, s->q_len);
    const uint32_t splits = above - below > row_tiles ? (above - below) / row_tiles : 1;
    const uint32_t number = (uint32_t)(all - 1 - at), inside = number - below * heads;
    const uint32_t section = rows >= GPU_SECTION_ROWS && splits == 1 ? gpu_section_heads(run, s) : heads;
    /* A warp waits for each division: most row tiles have one split, and steps one section. */
    const uint32_t first = section < heads ? inside / (section * row_tiles * splits) * section : 0;
    const uint32_t own = heads - first < section ? heads - first : section; /* heads of this section */
    const uint32_t place = inside - first * row_tiles * splits, unit = place / own;
    const uint32_t row_tile = splits > 1 ? unit / splits : unit;
    struct gpu_work_tile p;

    p.seq = s->index;
    p.kv_head = first + (place - unit * own);
    p.row0 = row_tile * rows;
    p.splits = splits;
    p.split = unit - row_tile * splits;
    const uint32_t first_token = gpu_quotient(p.row0, &run->by_group),
                   last = gpu_quotient(p.row0 + rows - 1, &run->by_group);
    const uint32_t tiles = gpu_key_tiles(&rules, &s->visible, first_token,
                                         last < s->q_len ? last : s->q_len - 1, s->kv_len, &p.first);
    p.end = p.first + tiles;
    if (splits > 1)
        gpu_cut_tiles(&p, tiles, splits, p.split);
    p.next = at + gpu_ctas() < all ? at + gpu_ctas() : 0;
    p.first_partial = p.rest_partial = number - p.split * heads;
    p.partial_step = heads;
    return p;
}

/* Index of a split in the split workspace. */
GPU_INLINE uint32_t gpu_partial_index(const struct gpu_work_tile *p, uint32_t split)
{
    return split == 0 ? p->first_partial : p->rest_partial + split * p->partial_step;
}

#endif
