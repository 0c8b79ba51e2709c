/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a CTA of an MLA kernel takes of the schedule. */
#ifndef ATTN_GPU_MLA_WORK_TILE_H
#define ATTN_GPU_MLA_WORK_TILE_H

#include "device.h"

#include "sequence.h"

#include "schedule.h"
#include "sizes.h"

/* A row tile and KV tiles of it. */
struct mla_work_tile {
    uint32_t row0;  /* first row of the sequence */
    uint32_t first; /* KV tiles [first, end) of the sequence */
    uint32_t end;
    uint32_t splits;        /* work tiles of this row tile */
    uint32_t split;         /* which of them */
    uint32_t first_partial; /* in the split workspace: split s > 0 lies at rest_partial + s * partial_step */
    uint32_t rest_partial;
    uint32_t partial_step;
    uint64_t next; /* position behind it in the work list */
};

/* The block of a work tile, from where a CTA finds the next one of the sequence in the list. */
struct mla_cursor {
    uint64_t begin; /* of the block */
    uint64_t end;   /* of the sequence */
    uint32_t number;
};

/* A work tile, and where its keys are. */
struct mla_taken {
    struct gpu_sequence sequence;
    struct mla_work_tile work;
    uint64_t entries; /* of the sequence's page table, 0 = there is none */
};

/* The work tile behind the one that a CTA is at. */
struct mla_next_tile : public mla_taken {
    struct mla_cursor cursor;
    bool has_work; /* else there is no such tile */
};

/* What the combining kernel reads of a row tile whose keys are split, at the place of the CTA that has the
 * first split, in the split workspace. */
struct mla_split_tile {
    uint32_t splits; /* 0: no row tile's first split is this CTA's */
    uint32_t row0;
    uint32_t first_partial;
    uint32_t rest_partial;
    uint32_t seq;
    uint32_t row; /* of the sequence's query token 0 */
    uint32_t q_len;
    uint32_t partial_step;
};

static_assert(sizeof(struct mla_split_tile) == MLA_NOTE_BYTES, "the host reserves as much");

/* Notes the row tile of a split for the combining kernel; `work` 0: there is none. */
GPU_INLINE void mla_note_split(const struct gpu_run *run, const struct gpu_sequence *s,
                               const struct mla_work_tile *work)
{
    struct mla_split_tile *to = GPU_GLOBAL(struct mla_split_tile, run->scratch) + gpu_cta();

    if (run->problem.det != 0)
        return;
    to->splits = work != 0 ? work->splits : 0;
    if (work == 0)
        return;
    to->row0 = work->row0;
    to->first_partial = work->first_partial;
    to->rest_partial = work->rest_partial;
    to->partial_step = work->partial_step;
    to->seq = s->index;
    to->row = s->row;
    to->q_len = s->q_len;
}

GPU_INLINE struct mla_splits mla_run_splits(const struct gpu_run *run, uint32_t rows)
{
    const struct gpu_split_rules keys = gpu_split_rules_of(&run->problem, GPU_ALL_PHASES, rows);

    return mla_splits_of(&keys);
}

/* Units of the work list before sequence `seq`. */
GPU_INLINE uint64_t mla_schedule_at(const struct gpu_run *run, uint32_t seq)
{
    const uint64_t sum = ((const uint64_t *)run->schedule)[seq];

    return run->problem.det != 0 ? sum & 0xffffffffu : sum;
}

/* The first of 32 sequences among which is the one that holds position `at`, which is below the last sum. All
 * lanes of a warp call it together: a round of the search reads 32 sums at once. */
GPU_INLINE uint32_t mla_find_block(const struct gpu_run *run, uint64_t at)
{
    uint32_t lo = 0, hi = run->batch.seqs;

    while (hi - lo > GPU_WARP) {
        const uint32_t step = (hi - lo + GPU_WARP - 1) / GPU_WARP, lane = gpu_thread() % GPU_WARP;
        const uint32_t probe = lo + (lane + 1) * step;
        const uint32_t above = ~gpu_ballot(probe < hi && mla_schedule_at(run, probe) <= at);
        const uint32_t passed = above != 0 ? gpu_first_bit(above) : GPU_WARP;
        lo += passed * step;
        hi = hi - lo > step ? lo + step : hi;
    }
    return lo;
}

/* A quotient; of numbers of 64 bits it takes many times as long. */
GPU_INLINE uint64_t mla_divide(uint64_t a, uint64_t b)
{
    return (a | b) >> 32 == 0 ? (uint32_t)a / (uint32_t)b : a / b;
}

/* det=0: length of the stretch of each of `ctas` CTAs; the last ones have less, or none. */
GPU_INLINE uint64_t mla_stretch(const struct gpu_run *run, uint64_t all, uint32_t ctas)
{
    const uint64_t same = ((const uint64_t *)run->schedule)[run->batch.seqs + 1];
    const uint64_t even = mla_divide(all + ctas - 1, ctas), least = MLA_MIN_TILES;
    const uint64_t each = even > least ? even : least;

    if (same == 0)
        return each;
    const uint64_t whole = mla_divide(each + same - 1, same) * same;
    return whole - each <= MLA_SPLIT_COST ? whole : each;
}

/* det: split `at - begin` of a row tile whose splits begin at `begin`. */
GPU_INLINE void mla_fixed_split(const struct gpu_run *run, const struct mla_block *block, uint32_t seq,
                                uint32_t kv_len, uint64_t begin, uint64_t at, struct mla_work_tile *work)
{
    const uint64_t before = ((const uint64_t *)run->schedule)[seq];

    work->next = at + gpu_ctas();
    work->splits = block->units;
    work->split = (uint32_t)(at - begin);
    if (work->splits > 1) {
        const uint32_t size = gpu_split_tiles(kv_len, GPU_MAX_SPLITS),
                       split = work->first / size + work->split;
        work->first = split * size > work->first ? split * size : work->first;
        work->end = (split + 1) * size < work->end ? (split + 1) * size : work->end;
    }
    work->first_partial = work->rest_partial =
        (uint32_t)(before >> 32) + (uint32_t)(begin - (before & 0xffffffffu));
    work->partial_step = 1;
}

/* The work tile of sequence `s` that begins at `at`, not before the cursor, and ends at `end` at the latest;
 * det=0: with stretches of such a length. */
GPU_INLINE struct mla_work_tile mla_work_tile_at(const struct gpu_run *run, uint32_t rows, uint64_t at,
                                                 uint64_t end, uint64_t stretch, struct mla_cursor *cursor,
                                                 const struct gpu_sequence *s)
{
    const struct mla_splits splits = mla_run_splits(run, rows);
    const uint32_t sharers = splits.sharers;
    struct mla_work_tile work;

    struct mla_block block = mla_block_of(&splits, &s->visible, s->q_len, s->kv_len, cursor->number);
    /* block.count == 0: the schedule was planned for longer sequences than the batch has. */
    while (block.count != 0 && at - cursor->begin >= (uint64_t)(block.count / sharers) * block.units) {
        cursor->begin += (uint64_t)(block.count / sharers) * block.units;
        cursor->number++;
        block = mla_block_of(&splits, &s->visible, s->q_len, s->kv_len, cursor->number);
    }
    const uint64_t tile = mla_divide(at - cursor->begin, block.units),
                   begin = cursor->begin + tile * block.units;
    work.row0 = (cursor->number * splits.block_tiles + (uint32_t)tile * sharers + gpu_cta() % sharers) * rows;
    work.first = block.first;
    work.end = block.first + block.tiles;
    if (run->problem.det != 0) {
        mla_fixed_split(run, &block, s->index, s->kv_len, begin, at, &work);
        return work;
    }
    work.next = begin + block.units < end ? begin + block.units : end;
    if (block.tiles != 0) {
        work.first = block.first + (uint32_t)(at - begin);
        work.end = block.first + (uint32_t)(work.next - begin);
    }
    const uint32_t from = (uint32_t)mla_divide(begin, stretch),
                   to = (uint32_t)mla_divide(begin + block.units - 1, stretch);
    work.splits = to - from + 1;
    work.split = gpu_cta() / sharers - from;
    /* A CTA stores the partial result of its first work tile at its even index, of its last one at the odd.
     */
    work.rest_partial = 2 * from * sharers + gpu_cta() % sharers;
    work.first_partial = work.rest_partial + (from * stretch < begin ? sharers : 0);
    work.partial_step = 2 * sharers;
    return work;
}

/* Where a split's partial O and LSE lie in the split workspace, in row tiles. */
GPU_INLINE uint32_t mla_partial_index(const struct mla_work_tile *work, uint32_t split)
{
    return split == 0 ? work->first_partial : work->rest_partial + split * work->partial_step;
}

#endif
