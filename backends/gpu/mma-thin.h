/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Part of mma-body.h: kernels of at most 8 rows. A matrix has 16 rows and 8 columns: here its rows are keys,
 * then columns of values, and its columns are the rows of queries. Each of the four warps is a team.
 */

#include "mma-thin-load.h"

#include "mma-thin-score.h"

#include "mma-thin-value.h"

/* What a team has, into its place in shared memory: maxima in base 2, sums, and results of rows that exist.
 */
GPU_INLINE void mma_thin_put(struct mma_shared *shared, float *to, uint32_t rows, const float top[2],
                             const float sum[2], float o[MMA_DV / 16][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        float total = sum[e];
        for (uint32_t step = 4; step < GPU_WARP; step *= 2)
            total += gpu_shuffle_xor_f32(total, step);
        if (lane < 4) {
            shared->max[warp][lane * 2 + e] = top[e];
            shared->sum[warp][lane * 2 + e] = total;
        }
    }
    gpu_barrier(); /* the last tile has been read */
    GPU_UNROLL
    for (uint32_t e = 0; e < 2; e++) {
        const uint32_t row = lane % 4 * 2 + e;
        if (row < rows)
            GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 16; n++)
            GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++)
            to[warp * MMA_AREA + row * MMA_PITCH + n * 16 + mma_thin_column(h)] = o[n][2 * h + e];
    }
    gpu_barrier();
}

/* A later turn's place in the ring. */
GPU_INLINE uint32_t mma_thin_slot(uint32_t slot, uint32_t later)
{
    return slot + later < MMA_RING ? slot + later : slot + later - MMA_RING;
}

/* All tiles of a piece. */
GPU_INLINE void mma_attend(const struct gpu_run *run, struct mma_shared *shared, unsigned char *queries,
                           unsigned char *halves, const struct gpu_piece *p, bool whole)
{
    const uint32_t team = gpu_thread() / GPU_WARP, key0 = team * MMA_KEYS, pair = MMA_STEP / GPU_TILE;
    const uint32_t first = p->first, end = p->end, all = (end - first + pair - 1) / pair * 2;
    unsigned char *own = halves + team * (MMA_HALVES * MMA_HALF);
    float o[MMA_DV / 16][4];
    uint32_t q[MMA_DK / 16][2];
    struct mma_reach reach;

    GPU_UNROLL
    for (uint32_t n = 0; n < MMA_DV / 16; n++)
        o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
    /* What lies behind the piece is another CTA's, though a turn may have it. */
    reach.entries = gpu_entries(run, &shared->sequence);
    reach.keys = shared->sequence.kv_len < end * GPU_TILE ? shared->sequence.kv_len : end * GPU_TILE;
    reach.cached = reach.entries == 0                    ? 0
                   : shared->sequence.fresh < reach.keys ? shared->sequence.fresh
                                                         : reach.keys;
    const struct mma_thin_base base = mma_thin_base_of(run, &shared->sequence, &reach, p->kv_head, whole);
    struct gpu_entry early[MMA_RING - 1];
    GPU_UNROLL
    for (uint32_t i = 0; i < MMA_RING - 1; i++)
        early[i] = mma_thin_find(run, &reach, &base, first + i * pair, key0);
    mma_pad(run, halves);
    uint32_t simple = 0; /* a bit for a turn, the current one's first */
    GPU_LOOP
    for (uint32_t i = 0; i < MMA_RING - 1; i++) {
        simple |= (uint32_t)mma_thin_note(run, shared, &reach, &base, first + i * pair, i, p->kv_head, key0,
                                          early[0])
                  << i;
        GPU_UNROLL
        for (uint32_t j = 0; j + 2 < MMA_RING; j++)
            early[j] = early[j + 1];
    }
    const struct mma_lane key_lane = mma_thin_lane(MMA_KB);
    const struct mma_lane value_lane = MMA_VB == MMA_KB ? key_lane : mma_thin_lane(MMA_VB);
    mma_wait(); /* a warp notes its own keys */
    GPU_LOOP
    for (uint32_t i = 0; i < MMA_HALVES - 1; i++) {
        if (i < all)
            mma_load(run, shared, own + i * MMA_HALF, i / 2, first + i / 2 * pair, key0, i % 2 != 0, whole);
        gpu_copy_commit();
    }
    mma_load_queries(run, shared, queries, p->row0, p->kv_head); /* while keys are under way */
    mma_load_rows(run, shared, p->row0, p->kv_head);
    if (gpu_thread() < MMA_KG)
        shared->odd_tile[gpu_thread()] = 0;
    gpu_barrier();
    const struct mma_rules rules = mma_find_rules(run, shared, p);
    struct mma_thin_peaks peaks = mma_thin_peaks_of(shared, &rules);
    mma_thin_hold(queries, q);
    uint32_t slot = 0, at = 0; /* of the turn's places in their ring, of its keys in theirs */
    GPU_LOOP
    for (uint32_t done = 0; done < all; done += 2) {
        const uint32_t tile = first + done / 2 * pair, later = tile + (MMA_RING - 1) * pair;
        const uint32_t next = at == 0 ? MMA_HALVES - 1 : at - 1;
        const uint32_t behind = at + 1 == MMA_HALVES ? 0 : at + 1;
        float s[MMA_KEYS / 16][4];
        struct gpu_entry entry;
        MMA_WAIT(MMA_HALVES - 2); /* the keys */
        if (done + MMA_HALVES - 1 < all)
            mma_thin_load(run, shared, MMA_HALVES % 2 != 0 ? &key_lane : &value_lane, own + next * MMA_HALF,
                          mma_thin_slot(slot, (MMA_HALVES - 1) / 2), tile + (MMA_HALVES - 1) / 2 * pair, key0,
                          MMA_HALVES % 2 == 0, whole, simple >> (MMA_HALVES - 1) / 2 & 1);
        gpu_copy_commit();
        entry = mma_thin_find(run, &reach, &base, later, key0); /* arrives meanwhile */
        mma_thin_scores(run, own + at * MMA_HALF, q, s);
        const bool plain =
            mma_thin_rules(run, shared, &reach, &rules, peaks.back, slot, tile, key0, simple & 1, s);
        MMA_WAIT(MMA_HALVES - 2); /* the values */
        unsigned char *values = own + behind * MMA_HALF;
        if (done + MMA_HALVES < all)
            mma_thin_load(run, shared, MMA_HALVES % 2 != 0 ? &value_lane : &key_lane, own + at * MMA_HALF,
                          mma_thin_slot(slot, MMA_HALVES / 2), tile + MMA_HALVES / 2 * pair, key0,
                          MMA_HALVES % 2 != 0, whole, simple >> MMA_HALVES / 2 & 1);
        gpu_copy_commit();
        if (!plain)
            mma_clean(run, shared, values, slot, tile, key0);
        if (!plain && shared->odd_tile[team] == tile + 1)
            mma_thin_mark(shared, key0, s, o);
        mma_thin_softmax(s, &peaks, o);
        mma_thin_values(run, shared, values, slot, key0, plain, s, o);
        simple >>= 1;
        if (later < end)
            simple |= (uint32_t)mma_thin_note(run, shared, &reach, &base, later,
                                              mma_thin_slot(slot, MMA_RING - 1), p->kv_head, key0, entry)
                      << (MMA_RING - 2);
        slot = mma_thin_slot(slot, 1);
        at = behind + 1 == MMA_HALVES ? 0 : behind + 1;
    }
    GPU_COPY_WAIT(0);
    const uint32_t rows = shared->sequence.q_len * run->group;
    mma_thin_put(shared, (float *)(void *)queries, rows, peaks.top, peaks.sum, o);
}
