/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a CTA of a matrix kernel takes of the schedule. */
#ifndef ATTN_GPU_PIECES_H
#define ATTN_GPU_PIECES_H

#include "cuts.h"
#include "sequence.h"

/* Sum `i` of a schedule. Its low half: no line of the matrix kernels outgrows 32 bits. */
GPU_INLINE uint32_t gpu_sum(const struct gpu_run *run, uint32_t i)
{
    return ((const uint32_t *)run->schedule)[2 * (uint64_t)i];
}

/* The first of 32 sequences one of which holds the place `at`; `at` is below the last sum. All lanes of a
 * warp together: each round asks for 32 sums at once. */
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

/* ---------------------------------------------------------------- pieces of the line */

/* One piece: tiles of one sequence and kv head, and whether the keys of these are cut. */
struct gpu_piece {
    uint32_t seq;
    uint32_t kv_head;
    uint32_t row0;  /* first query row of the sequence and head */
    uint32_t first; /* tiles [first, end) of the sequence's keys */
    uint32_t end;
    uint64_t next;       /* place of the CTA's next piece; 0: there is none */
    uint32_t parts;      /* pieces of this sequence and head; 0: this is none */
    uint32_t part;       /* which of them */
    uint32_t first_slot; /* of partial results: part p > 0 lies at rest_slot + p * slot_step */
    uint32_t rest_slot;
    uint32_t slot_step;
};

/* a / b, b not 0: short where both are. */
GPU_INLINE uint64_t gpu_divide_u64(uint64_t a, uint64_t b)
{
    return (a | b) >> 32 == 0 ? (uint32_t)a / (uint32_t)b : attn__quotient(a, b);
}

/* Where the piece of a CTA begins. */
GPU_INLINE uint64_t gpu_line_begin(uint64_t all, uint32_t cta, uint32_t ctas)
{
    return gpu_divide_u64(all * cta, ctas);
}

/* The CTA whose piece holds a place. */
GPU_INLINE uint32_t gpu_line_cta(uint64_t all, uint64_t at, uint32_t ctas)
{
    return (uint32_t)gpu_divide_u64((at + 1) * ctas - 1, all);
}

/* The piece at `at` of a sequence of few rows, whose sums are `below` and `above`; the CTA's places end at
 * `end`. */
GPU_INLINE struct gpu_piece gpu_piece_at(const struct gpu_run *run, const struct gpu_sequence *s, uint64_t at,
                                         uint64_t end, uint64_t all, uint32_t ctas, uint32_t below,
                                         uint32_t above)
{
    const struct gpu_cuts cuts = gpu_cuts_of(&run->problem, GPU_FEW_ROWS, 0);
    const uint32_t heads = run->problem.kv_heads, length = above - below, cta = gpu_cta();
    const uint64_t base = (uint64_t)below * heads;
    struct gpu_piece p;

    p.seq = s->index;
    p.row0 = 0;
    p.kv_head = (uint32_t)gpu_divide_u64(at - base, length);
    const uint32_t inside = (uint32_t)(at - base - (uint64_t)p.kv_head * length);
    const uint64_t begin = at - inside;
    uint64_t stop = begin + length;
    uint32_t low;
    const uint32_t tiles = gpu_key_tiles(&cuts, &s->visible, 0, s->q_len - 1, s->kv_len, &low);
    if (run->problem.det != 0) {
        const uint32_t cut = gpu_cut_tiles(s->kv_len), number = low / cut + inside;
        p.first = number * cut > low ? number * cut : low;
        p.end = (number + 1) * cut < low + tiles ? (number + 1) * cut : low + tiles;
        p.next = at + gpu_ctas() < all ? at + gpu_ctas() : 0;
        p.parts = length;
        p.part = inside;
        p.first_slot = (uint32_t)begin;
        p.rest_slot = (uint32_t)begin;
        p.slot_step = 1;
        return p;
    }
    stop = stop < end ? stop : end;
    p.first = low + inside;
    p.end = low + inside + (uint32_t)(stop - at);
    if (p.end > low + tiles)
        p.end = low + tiles;
    p.next = stop < end ? stop : 0;
    const uint32_t from = gpu_line_cta(all, begin, ctas), to = gpu_line_cta(all, begin + length - 1, ctas);
    p.parts = to - from + 1;
    p.part = cta - from;
    /* A CTA's first piece has its even slot, its last one the odd slot. */
    p.first_slot = 2 * from + (gpu_line_begin(all, from, ctas) < begin ? 1 : 0);
    p.rest_slot = 2 * from;
    p.slot_step = 2;
    return p;
}

/*
 * The tile of `rows` rows at `at` of a sequence of many, of which `below` come before it: those that see the
 * most keys, its last ones, come first.
 */
GPU_INLINE struct gpu_piece gpu_tile_at(const struct gpu_run *run, const struct gpu_sequence *s, uint64_t at,
                                        uint64_t all, uint32_t below, uint32_t rows)
{
    const struct gpu_cuts cuts = gpu_cuts_of(&run->problem, GPU_MANY_ROWS, rows);
    const uint32_t heads = run->problem.kv_heads;
    const uint32_t inside = (uint32_t)(all - 1 - at - (uint64_t)below * heads);
    struct gpu_piece p;

    p.seq = s->index;
    p.kv_head = inside % heads;
    p.row0 = inside / heads * rows;
    const uint32_t last = (p.row0 + rows - 1) / run->group;
    p.end = gpu_key_tiles(&cuts, &s->visible, p.row0 / run->group, last < s->q_len ? last : s->q_len - 1,
                          s->kv_len, &p.first);
    p.end += p.first;
    p.next = at + gpu_ctas() < all ? at + gpu_ctas() : 0;
    p.parts = 1;
    p.part = p.first_slot = p.rest_slot = p.slot_step = 0;
    return p;
}

GPU_INLINE uint32_t gpu_slot(const struct gpu_piece *p, uint32_t part)
{
    return part == 0 ? p->first_slot : p->rest_slot + part * p->slot_step;
}

#endif
