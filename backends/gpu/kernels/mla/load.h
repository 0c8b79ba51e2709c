/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loads queries and KV tiles of the MLA kernel into shared memory, and finds which keys its rows see. */
#ifndef ATTN_GPU_MLA_LOAD_H
#define ATTN_GPU_MLA_LOAD_H

#include "config.h"
#include "row.h"

static constexpr uint32_t mla_row_chunks = MLA_QK_DIM / 8; /* of 16 bytes */

/* Eight 16-bit numbers from an unaligned address, of which `count` are there. */
GPU_INLINE struct gpu_u128 mla_load_unaligned(uint64_t at, uint32_t count)
{
    const uint16_t *from = (const uint16_t *)at;
    struct gpu_u128 out = {{0, 0, 0, 0}};

    GPU_UNROLL
    for (uint32_t e = 0; e < 8; e++)
        out.x[e / 2] |= e < count ? (uint32_t)from[e] << (16 * (e % 2)) : 0;
    return out;
}

/* A chunk of a query row into shared memory; `aligned`: all chunks lie on 16 bytes and have one source. */
GPU_INLINE void mla_load_query_chunk(const struct gpu_run *run, uint64_t nope, uint64_t rope, uint32_t chunk,
                                     bool aligned, unsigned char *to)
{
    const uint32_t dim = run->problem.head_dim;
    const uint32_t split = run->q_rope.base != 0 ? run->problem.head_dim_vo : dim;
    struct gpu_u128 word = {{0, 0, 0, 0}};

    if (aligned) {
        const uint32_t d = chunk * 8;
        const uint64_t at = d < split ? nope + d * 2 : rope + (d - split) * 2;
        const bool present = nope != 0 && d < dim;
        gpu_copy_async16(to, (const void *)(present ? at : run->k.base), present ? 16 : 0);
        return;
    }
    GPU_UNROLL
    for (uint32_t e = 0; e < 8; e++) {
        const uint32_t d = chunk * 8 + e;
        const uint64_t at = d < split ? nope + d * 2 : rope + (d - split) * 2;
        if (nope != 0 && d < dim)
            word.x[e / 2] |= (uint32_t) * (const uint16_t *)at << (16 * (e % 2));
    }
    gpu_store_u128(to, word);
}

/* The CTA's query rows, laid out as those of a KV tile. */
template <class Config>
GPU_INLINE void mla_load_queries(const struct gpu_run *run, const struct gpu_sequence *s, unsigned char *to,
                                 uint32_t row0)
{
    constexpr uint32_t warp_rows = Config::rows / Config::warps;
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const struct gpu_tensor *q = &run->q, *r = &run->q_rope;
    const bool aligned = ((q->base | (uint64_t)q->token_stride | (uint64_t)q->head_stride | r->base |
                           (uint64_t)r->token_stride | (uint64_t)r->head_stride | run->problem.head_dim * 2 |
                           (r->base != 0 ? run->problem.head_dim_vo * 2 : 0)) &
                          15) == 0;

    GPU_LOOP
    for (uint32_t i = 0; i < warp_rows; i++) {
        const uint32_t row = warp * warp_rows + i;
        uint32_t token, head;
        uint64_t nope = 0, rope = 0;
        if (mla_row_of(run, s, row0 + row, &token, &head)) {
            const int64_t at = (int64_t)s->row + token;
            nope = q->base + (uint64_t)(at * q->token_stride + (int64_t)head * q->head_stride);
            rope = r->base + (uint64_t)(at * r->token_stride + (int64_t)head * r->head_stride);
        }
        for (uint32_t chunk = lane; chunk < mla_row_chunks; chunk += GPU_WARP)
            mla_load_query_chunk(run, nope, rope, chunk, aligned, to + mla_chunk_offset(row, chunk));
    }
}

/* First chunk of a warp's k-th 16 columns: 256 of the first 512, and 32 of the last 64. */
GPU_INLINE uint32_t mla_warp_chunk(uint32_t half, uint32_t k)
{
    return k < 16 ? half * 32 + k * 2 : 64 + half * 4 + (k - 16) * 2;
}

GPU_INLINE void mla_take_queries(const unsigned char *from, const struct mla_warp *w, uint32_t q[18][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8, in = lane % 8;

    GPU_UNROLL
    for (uint32_t k = 0; k < 18; k++)
        gpu_load_matrix4(q[k], from + mla_chunk_offset(w->block * 16 + (matrix & 1) * 8 + in,
                                                       mla_warp_chunk(w->half, k) + (matrix >> 1)));
}

/* Writes the addresses of the keys of a tile, 0 for missing ones. A warp locates the 8 keys that it loads.
 */
template <class Config>
GPU_INLINE void mla_locate(const struct gpu_run *run, struct mla_shared<Config> *shared, uint32_t tile)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t key = tile * MLA_KV_TILE + warp * 8 + lane;
    struct gpu_place place;
    uint64_t at = 0;

    if (lane >= 8)
        return;
    if (key < s->kv_len && gpu_locate(run, s, key, &place))
        at = gpu_vector(place.is_new ? &run->k_new : &run->k, place.page, place.token, 0);
    shared->key_address[warp][lane] = at;
    if constexpr (Config::kv8) {
        const struct gpu_cache *cache = at != 0 && place.is_new ? &run->k_new : &run->k;
        if (mla_scale_per_key(run))
            shared->key_scale[tile % 4][warp * 8 + lane] =
                at != 0 ? gpu_scale_at(&cache->scale, place.outer, place.token, 0) : 0;
    }
}

/* Which of the keys that this warp has located there are. */
template <class Config> GPU_INLINE void mla_note_present(struct mla_shared<Config> *shared, uint32_t stage)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t present = gpu_ballot(shared->key_address[warp][lane % 8] != 0);

    if (lane == 0)
        ((unsigned char *)&shared->present[stage])[warp] = (unsigned char)present;
}

/* Copies a chunk of a key, or zeros where there is none. */
GPU_INLINE void mla_copy_chunk(const struct gpu_run *run, uint64_t key, uint32_t chunk, unsigned char *to)
{
    const bool present = key != 0 && chunk * 8 < run->problem.head_dim;

    gpu_copy_async16(to, (const void *)(present ? key + chunk * 16 : run->k.base), present ? 16 : 0);
}

/* The keys of the tile that was located last, into a stage of the circular buffer. */
template <class Config>
GPU_INLINE void mla_load_keys(const struct gpu_run *run, struct mla_shared<Config> *shared,
                              unsigned char *buffer, uint32_t stage)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t used = run->problem.head_dim;
    const uint64_t *at = shared->key_address[warp];
    unsigned char *to = buffer + stage * MLA_KV_TILE_BYTES + warp * 8 * mla_row_bytes;

    gpu_warp_barrier();
    mla_note_present<Config>(shared, stage);
    if (shared->aligned) {
        GPU_UNROLL
        for (uint32_t row = 0; row < 8; row++) {
            mla_copy_chunk(run, at[row], lane, to + mla_chunk_offset(row, lane));
            mla_copy_chunk(run, at[row], 32 + lane, to + mla_chunk_offset(row, 32 + lane));
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) { /* the last 8 chunks, of four keys at once */
            const uint32_t row = i * 4 + lane / 8, chunk = 64 + lane % 8;
            mla_copy_chunk(run, at[row], chunk, to + mla_chunk_offset(row, chunk));
        }
    } else {
        GPU_LOOP
        for (uint32_t i = lane; i < 8 * mla_row_chunks; i += GPU_WARP) {
            const uint32_t row = i / mla_row_chunks, chunk = i % mla_row_chunks;
            const bool inside = at[row] != 0 && chunk * 8 < used;
            gpu_store_u128(to + mla_chunk_offset(row, chunk),
                           mla_load_unaligned(at[row] + chunk * 16, inside ? used - chunk * 8 : 0));
        }
    }
    gpu_warp_barrier(); /* the next tile may be located */
}

/* Which keys each row sees. Rows behind the sequence's last see all, so that they never cost a mask. */
template <class Config>
GPU_INLINE void mla_load_rows(const struct gpu_run *run, struct mla_shared<Config> *shared, uint32_t row0)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t row = gpu_thread();
    uint32_t token, head;

    if (row >= Config::rows)
        return;
    if (mla_row_of(run, s, row0 + row, &token, &head)) {
        shared->row[row] = gpu_row(run, s, token, head);
    } else {
        shared->row[row].lo = 0;
        shared->row[row].hi = 0xffffffffu;
        shared->row[row].mask = 0;
        shared->row[row].square = false;
    }
}

/* The keys that every row sees for certain: none if there is an explicit mask. */
template <class Config>
GPU_INLINE void mla_find_unmasked(const struct gpu_run *run, struct mla_shared<Config> *shared)
{
    uint32_t lo = 0, hi = 0xffffffffu;

    if (gpu_thread() >= GPU_WARP)
        return;
    for (uint32_t row = gpu_thread(); row < Config::rows; row += GPU_WARP) {
        lo = shared->row[row].lo > lo ? shared->row[row].lo : lo;
        hi = shared->row[row].hi < hi ? shared->row[row].hi : hi;
    }
    GPU_UNROLL
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2) {
        const uint32_t other_lo = gpu_shuffle_xor_u32(lo, mask), other_hi = gpu_shuffle_xor_u32(hi, mask);
        lo = other_lo > lo ? other_lo : lo;
        hi = other_hi < hi ? other_hi : hi;
    }
    if (gpu_thread() == 0) {
        shared->unmasked_lo = lo;
        shared->unmasked_hi = run->mask.base != 0 ? 0 : hi;
        shared->score_scale = run->softmax_scale;
        if (Config::kv8 && !mla_scale_per_key(run))
            shared->score_scale *= gpu_scale_at(&run->k.scale, 0, 0, 0);
    }
}

#endif
