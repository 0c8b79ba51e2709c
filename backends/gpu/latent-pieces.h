/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a CTA of a kernel for latent caches takes of the schedule. */
#ifndef ATTN_GPU_LATENT_PIECES_H
#define ATTN_GPU_LATENT_PIECES_H

#include "port.h"

#include "latent-cuts.h"
#include "sequence.h"

/* One piece: a tile of rows and tiles of its keys. */
struct latent_piece {
    uint32_t row0;  /* first row of the sequence */
    uint32_t first; /* tiles [first, end) of the sequence's keys */
    uint32_t end;
    uint32_t parts;      /* pieces of this tile of rows */
    uint32_t part;       /* which of them */
    uint32_t first_slot; /* of partial results: part p > 0 lies at rest_slot + p * slot_step */
    uint32_t rest_slot;
    uint32_t slot_step;
    uint32_t from; /* the CTA that has part 0 */
    uint64_t next; /* where the line goes on */
};

/* The block that the piece before lay in; a CTA goes along the line and finds the next one from there. */
struct latent_place {
    uint64_t begin; /* of the block */
    uint64_t end;   /* of the sequence; 0 = none yet */
    uint32_t number;
};

GPU_INLINE uint64_t latent_sum(const struct gpu_run *run, uint32_t seq)
{
    const uint64_t sum = ((const uint64_t *)run->schedule)[seq];

    return run->problem.det != 0 ? sum & 0xffffffffu : sum;
}

/* The last sequence that begins at `at` or before; at is below the last sum. */
GPU_INLINE uint32_t latent_find(const struct gpu_run *run, uint64_t at)
{
    uint32_t lo = 0, hi = run->batch.seqs;

    while (hi - lo > 1) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if (latent_sum(run, middle) <= at)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

/* Where the piece of a CTA begins: all pieces have as many tiles but for one. */
GPU_INLINE uint64_t latent_begin(uint64_t all, uint32_t cta, uint32_t ctas)
{
    return all / ctas * cta + all % ctas * cta / ctas;
}

/* The CTA whose piece holds a place. */
GPU_INLINE uint32_t latent_cta(uint64_t all, uint64_t at, uint32_t ctas)
{
    uint32_t lo = 0, hi = ctas;

    while (hi - lo > 1) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if (latent_begin(all, middle, ctas) <= at)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

/* CTAs that have a piece. */
GPU_INLINE uint32_t latent_ctas(const struct gpu_run *run, uint64_t all)
{
    const uint64_t least = run->problem.det != 0 ? 1 : GPU_LATENT_LEAST;
    const uint64_t most = (all + least - 1) / least;

    return most < gpu_ctas() ? (uint32_t)most : gpu_ctas();
}

/* det: part `at - begin` of a tile of rows whose parts begin at `begin`. */
GPU_INLINE void latent_fixed(const struct gpu_run *run, const struct latent_block *block, uint32_t seq,
                             uint32_t kv_len, uint64_t begin, uint64_t at, struct latent_piece *p)
{
    const uint64_t before = ((const uint64_t *)run->schedule)[seq];

    p->next = at + gpu_ctas();
    p->parts = block->units;
    p->part = (uint32_t)(at - begin);
    if (p->parts > 1) {
        const uint32_t cut = gpu_cut_tiles(kv_len), number = p->first / cut + p->part;
        p->first = number * cut > p->first ? number * cut : p->first;
        p->end = (number + 1) * cut < p->end ? (number + 1) * cut : p->end;
    }
    p->first_slot = p->rest_slot = (uint32_t)(before >> 32) + (uint32_t)(begin - (before & 0xffffffffu));
    p->slot_step = 1;
    p->from = 0;
}

/* The piece that begins at `at` and ends at `end` at the latest. `s` is its sequence afterwards. */
GPU_INLINE struct latent_piece latent_piece_at(const struct gpu_run *run, uint32_t rows, uint64_t all,
                                               uint64_t at, uint64_t end, uint32_t ctas,
                                               struct latent_place *place, struct gpu_sequence *s)
{
    const struct gpu_cuts keys = gpu_cuts_of(&run->problem, GPU_ALL_ROWS, rows);
    const struct latent_cuts cuts = latent_cuts_of(&keys);
    struct latent_piece p;

    if (at >= place->end) {
        const uint32_t seq = latent_find(run, at);
        *s = gpu_sequence(run, seq);
        place->begin = latent_sum(run, seq);
        place->end = latent_sum(run, seq + 1);
        place->number = 0;
    }
    struct latent_block block = latent_block_of(&cuts, &s->visible, s->q_len, s->kv_len, place->number);
    /* A schedule of other lengths than the batch's ends the search too: such rows are not there. */
    while (block.count != 0 && at - place->begin >= (uint64_t)block.count * block.units) {
        place->begin += (uint64_t)block.count * block.units;
        place->number++;
        block = latent_block_of(&cuts, &s->visible, s->q_len, s->kv_len, place->number);
    }
    const uint64_t tile = (at - place->begin) / block.units, begin = place->begin + tile * block.units;
    p.row0 = (place->number * cuts.blocks + (uint32_t)tile) * rows;
    p.first = block.first;
    p.end = block.first + block.tiles;
    if (run->problem.det != 0) {
        latent_fixed(run, &block, s->index, s->kv_len, begin, at, &p);
        return p;
    }
    p.next = begin + block.units < end ? begin + block.units : end;
    if (block.tiles != 0) {
        p.first = block.first + (uint32_t)(at - begin);
        p.end = block.first + (uint32_t)(p.next - begin);
    }
    const uint32_t from = latent_cta(all, begin, ctas), to = latent_cta(all, begin + block.units - 1, ctas);
    p.parts = to - from + 1;
    p.part = gpu_cta() - from;
    /* A CTA's first piece has its even slot, its last one the odd slot. No two tiles are cut at its end. */
    p.first_slot = 2 * from + (latent_begin(all, from, ctas) < begin ? 1 : 0);
    p.rest_slot = 2 * from;
    p.slot_step = 2;
    p.from = from;
    return p;
}

GPU_INLINE uint32_t latent_slot(const struct latent_piece *p, uint32_t part)
{
    return part == 0 ? p->first_slot : p->rest_slot + part * p->slot_step;
}

#endif
