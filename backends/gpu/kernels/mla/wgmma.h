/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The KV loop of the MLA kernel on Hopper: two warp groups, which multiply matrices of shared memory.
 *
 * Even tiles of a work tile are those of warp group 0, odd ones of group 1, in a stage each. A group computes
 * the scores and P of its tiles, for all rows, and has half of the columns of O, to which it adds the
 * products of all tiles in their order: of its own ones with P in registers, of the others with P that the
 * other group has left in shared memory. While one group computes P or waits for copies, the other one
 * multiplies:
 *
 *   P of t - 1 times its values; scores of tile t, by the columns that arrive first; P of t; P times the
 * values of t; copies of t + 2 in place of the columns that both groups have read.
 *
 * A P is relative to the row maxima up to its tile, so a group that takes it over first scales its O to them.
 */
#ifndef ATTN_GPU_MLA_WGMMA_H
#define ATTN_GPU_MLA_WGMMA_H

#include "epilogue.h"
#include "wgmma-softmax.h"

template <class Config>
GPU_INLINE struct mla_group_places mla_group_places_of(struct mla_shared<Config> *shared,
                                                       unsigned char *buffer)
{
    const uint32_t group = mla_group();
    unsigned char *const queries = buffer + 2 * Config::tile_bytes;
    unsigned char *const odd_p = queries + mla_last_block * MLA_BLOCK_BYTES;
    struct mla_group_places places;

    places.group = group;
    places.own = buffer + group * Config::tile_bytes;
    places.other = buffer + (1 - group) * Config::tile_bytes;
    places.queries = queries;
    places.own_p = group == 0 ? shared->p : odd_p;
    places.other_p = group == 0 ? odd_p : shared->p;
    places.half = group * mla_half_blocks * MLA_BLOCK_BYTES;
    return places;
}

/* Takes the queries, and begins the rows. */
template <class Config>
GPU_INLINE void mla_group_begin(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                const unsigned char *queries, struct mla_group_state *state)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8;
    const uint32_t row = gpu_thread() / GPU_WARP % 4 * 16 + (matrix & 1) * 8 + lane % 8;

    mla_load_rows<Config>(run, shared, shared->work.row0);
    gpu_mbarrier_wait(&shared->queries_full, shared->queries_parity);
    gpu_wgmma_fence();
    gpu_barrier();
    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        gpu_load_matrix4(state->last_q[k],
                         queries + mla_chunk_offset<Config>(row, mla_last_block * 8 + k * 2 + (matrix >> 1)));
    mla_find_unmasked<Config>(run, shared);
    if (gpu_thread() == 0)
        shared->queries_parity ^= 1;
    gpu_barrier();
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        state->max[h] = -GPU_INFINITY;
        state->sum[h] = 0;
    }
    state->factor = shared->score_scale * mla_log2e;
    state->parity = shared->parity[mla_group()];
    state->unmasked_lo = shared->unmasked_lo;
    state->unmasked_hi = shared->unmasked_hi;
    GPU_UNROLL
    for (uint32_t n = 0; n < Config::out_fragments; n++)
        state->o[0][n][0] = state->o[0][n][1] = state->o[0][n][2] = state->o[0][n][3] = 0;
}

/* Waits for a part of the warp group's tile. */
template <class Config, uint32_t part>
GPU_INLINE void mla_wait_part(struct mla_shared<Config> *shared, const struct mla_group_places *places,
                              const struct mla_group_state *state)
{
    gpu_mbarrier_wait(&shared->full[places->group][part], state->parity);
    gpu_wgmma_fence();
}

/* Begins the products of queries and keys over `count` blocks of columns; `adds`: to what s has. */
template <class Config, uint32_t count>
GPU_INLINE void mla_begin_blocks(const unsigned char *queries, const unsigned char *keys, bool adds,
                                 float (&s)[8][4])
{
    gpu_matrix matrix[2];

    gpu_matrices_of_all<64>(queries, keys, matrix);
    GPU_UNROLL
    for (uint32_t k = 0; k < count * 4; k++) {
        const uint32_t at = k / 4 * MLA_BLOCK_BYTES + k % 4 * 32;
        gpu_wgmma_rows<Config::keys_bf16>(s, gpu_matrix_from(matrix[0], at), gpu_matrix_from(matrix[1], at),
                                          adds || k != 0);
    }
}

/* Begins the scores of the warp group's tile: of the columns that come first. */
template <class Config>
GPU_INLINE void mla_begin_scores(struct mla_shared<Config> *shared, const struct mla_group_places *places,
                                 const struct mla_group_state *state, float (&s)[8][4])
{
    constexpr uint32_t quarter = mla_half_blocks / 2;
    const uint32_t at = places->half, later = at + quarter * MLA_BLOCK_BYTES;

    mla_wait_part<Config, MLA_PART_FIRST>(shared, places, state);
    gpu_wgmma_begin();
    mla_begin_blocks<Config, quarter>(places->queries + at, places->own + at, false, s);
    mla_wait_part<Config, MLA_PART_SECOND>(shared, places, state);
    gpu_wgmma_begin();
    mla_begin_blocks<Config, quarter>(places->queries + later, places->own + later, true, s);
    const gpu_matrix last = gpu_matrix_of_all<64>(places->own + mla_last_block * MLA_BLOCK_BYTES);
    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        gpu_wgmma_rows<Config::keys_bf16>(s, state->last_q[k], gpu_matrix_from(last, k * 32));
    gpu_wgmma_commit();
}

/* The same of the others, whose sums are apart: matrix units truncate a sum at every step. */
template <class Config>
GPU_INLINE void mla_begin_other_scores(struct mla_shared<Config> *shared,
                                       const struct mla_group_places *places,
                                       const struct mla_group_state *state, float (&s)[8][4])
{
    const uint32_t other = mla_half_blocks * MLA_BLOCK_BYTES - places->half;

    mla_wait_part<Config, MLA_PART_OTHER>(shared, places, state);
    gpu_wgmma_begin();
    mla_begin_blocks<Config, mla_half_blocks>(places->queries + other, places->own + other, false, s);
    gpu_wgmma_commit();
}

/* Begins the product of the other group's P with this one's columns of its values. */
template <class Config>
GPU_INLINE void mla_begin_other_values(const struct mla_shared<Config> *shared,
                                       const struct mla_group_places *places, struct mla_group_state *state)
{
    const uint32_t other = 1 - places->group, row = mla_out_row<Config>(0, 0);

    gpu_barrier_part(MLA_BARRIER_P + other, MLA_THREADS);
    const float max[2] = {shared->base[other][row], shared->base[other][row + 8]};
    mla_raise_max<Config>(max, state);
    gpu_matrix matrix[2];
    gpu_matrices_of_all<64>(places->other_p, places->other + places->half, matrix);
    gpu_wgmma_keep(state->o[0]);
    gpu_wgmma_begin();
    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        gpu_wgmma_columns<Config::keys_bf16>(state->o[0], gpu_matrix_from(matrix[0], k * 32),
                                             gpu_matrix_from(matrix[1], k * 16 * 128));
    gpu_wgmma_commit();
}

/* Begins the product of P with its columns of the values of the warp group's own tile. */
template <class Config>
GPU_INLINE void mla_begin_own_values(const struct mla_group_places *places, const uint32_t p[4][4],
                                     struct mla_group_state *state)
{
    const gpu_matrix values = gpu_matrix_of_all<64>(places->own + places->half);

    gpu_wgmma_keep(state->o[0]);
    gpu_wgmma_begin();
    GPU_UNROLL
    for (uint32_t k = 0; k < 4; k++)
        gpu_wgmma_columns<Config::keys_bf16>(state->o[0], p[k], gpu_matrix_from(values, k * 16 * 128));
    gpu_wgmma_commit();
}

/* Scores of the warp group's tile `tile`; and unless it is the first one, P of the tile before times the
 * values. All products are done when this returns: behind a branch the compiler waits for those that are not.
 */
template <class Config, bool first>
GPU_INLINE void mla_group_scores(struct mla_shared<Config> *shared, const struct mla_group_places *places,
                                 uint32_t tile, struct mla_group_state *state, float (&s)[8][4])
{
    float others[8][4];

    if constexpr (!first)
        mla_begin_other_values<Config>(shared, places, state);
    mla_begin_scores<Config>(shared, places, state, s);
    mla_begin_other_scores<Config>(shared, places, state, others);
    state->parity ^= 1;
    if constexpr (!first) {
        gpu_wgmma_wait<2>();
        gpu_wgmma_keep(state->o[0]);
        if (tile + 1 < shared->work.end)
            gpu_barrier_arrive(MLA_BARRIER_READ + 1 - places->group, MLA_THREADS);
    }
    gpu_wgmma_wait<0>();
    gpu_wgmma_keep(s);
    gpu_wgmma_keep(others);
    GPU_UNROLL
    for (uint32_t i = 0; i < 32; i++)
        s[i / 4][i % 4] += others[i / 4][i % 4];
}

/* Copies a tile into the warp group's stage, whose columns of this group have been read. */
template <class Config>
GPU_INLINE void mla_group_fetch(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                const struct mla_group_places *places, const struct mla_located *key)
{
    const uint32_t group = places->group;
    const bool boxed = mla_has_box(run, key);

    mla_group_barrier(group); /* by all its warps */
    mla_note_group_keys<Config>(shared, group, key);
    GPU_LOOP
    for (uint32_t part = 0; part < MLA_PARTS; part++) {
        if (part == MLA_PART_OTHER)
            gpu_barrier_part(MLA_BARRIER_READ + group, MLA_THREADS);
        mla_copy_part<Config>(run, shared, key, boxed, places->own, group, part);
    }
}

/* P of the scores of tile `tile`, times its values; copies the warp group's next tile, of which the lanes
 * have the address of a key each, and finds the one after that. */
template <class Config>
GPU_INLINE void mla_group_values(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                 const struct mla_group_places *places, const struct mla_warp *w,
                                 uint32_t tile, float s[8][4], struct mla_group_state *state)
{
    const struct mla_located key = state->key;
    uint32_t p[4][4];

    mla_group_softmax<Config>(run, shared, places, w, tile, s, state, p);
    mla_begin_own_values<Config>(places, p, state);
    const struct gpu_entry entry = mla_find_entry(run, shared, mla_group_key(tile + 4));
    state->key = mla_find_group_key(run, shared, tile + 4, entry);
    gpu_wgmma_wait<0>();
    gpu_wgmma_keep(state->o[0]);
    if (tile + 2 < shared->work.end)
        mla_group_fetch<Config>(run, shared, places, &key);
}

GPU_INLINE struct mla_warp mla_group_warp(void)
{
    return {0, 0, 0, gpu_thread() / GPU_WARP % 4, mla_group()};
}

/* The KV loop of a work tile. */
template <class Config>
GPU_INLINE void mla_group_attend(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                 unsigned char *buffer, struct mla_group_state *state)
{
    const struct mla_group_places own = mla_group_places_of<Config>(shared, buffer), *places = &own;
    const struct mla_warp w = mla_group_warp();

    mla_group_begin<Config>(run, shared, places->queries, state);
    const uint32_t first = shared->work.first, end = shared->work.end;
    uint32_t tile = first + places->group;
    state->key =
        mla_find_group_key(run, shared, tile + 2, mla_find_entry(run, shared, mla_group_key(tile + 2)));
    if (tile < end) {
        float s[8][4];
        if (tile == first)
            mla_group_scores<Config, true>(shared, places, tile, state, s);
        else
            mla_group_scores<Config, false>(shared, places, tile, state, s);
        GPU_LOOP
        for (;;) {
            mla_group_values<Config>(run, shared, places, &w, tile, s, state);
            tile += 2;
            if (tile >= end)
                break;
            mla_group_scores<Config, false>(shared, places, tile, state, s);
        }
    }
    if (tile == end && tile > first) {
        mla_begin_other_values<Config>(shared, places, state);
        gpu_wgmma_wait<0>();
        gpu_wgmma_keep(state->o[0]);
    }
    if (gpu_thread() % (4 * GPU_WARP) == 0)
        shared->parity[places->group] = state->parity;
}

/* Stores the results of the work tile. */
template <class Config>
GPU_INLINE void mla_group_store(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                unsigned char *buffer, const struct mla_group_state *state)
{
    const uint32_t row = mla_out_row<Config>(0, 0);
    const struct mla_warp w = mla_group_warp();

    if (w.group == 0 && gpu_thread() % 4 == 0) {
        shared->row_max[row] = state->max[0];
        shared->row_max[row + 8] = state->max[1];
    }
    mla_store<Config>(run, shared, (float *)(void *)buffer, &w, state->sum, state->o);
}

#endif
