/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loads queries and KV tiles of the MLA kernel into shared memory, and finds which keys its rows see. */
#ifndef ATTN_GPU_MLA_LOAD_H
#define ATTN_GPU_MLA_LOAD_H

#include "config.h"
#include "row.h"

static constexpr uint32_t mla_row_chunks = MLA_QK_DIM / 8; /* of 16 bytes */

/* Up to 16 bytes of a key from an unaligned address; the others are 0. */
template <class Config> GPU_INLINE struct gpu_u128 mla_load_unaligned(uint64_t at, uint32_t bytes)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};

    if constexpr (Config::kv8) {
        GPU_UNROLL
        for (uint32_t e = 0; e < 16; e++)
            out.x[e / 4] |= e < bytes ? (uint32_t)GPU_U8(at)[e] << (8 * (e % 4)) : 0;
    } else {
        GPU_UNROLL
        for (uint32_t e = 0; e < 8; e++)
            out.x[e / 2] |= e < bytes / 2 ? (uint32_t)((const uint16_t *)at)[e] << (16 * (e % 2)) : 0;
    }
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

    uint32_t token, head;
    uint64_t nope = 0, rope = 0; /* of one of the warp's rows in each lane */
    if (mla_row_of(run, s, row0 + warp * warp_rows + lane % warp_rows, &token, &head)) {
        const int64_t at = (int64_t)s->row + token;
        nope = q->base + (uint64_t)(at * q->token_stride + (int64_t)head * q->head_stride);
        rope = r->base + (uint64_t)(at * r->token_stride + (int64_t)head * r->head_stride);
    }
    GPU_LOOP
    for (uint32_t i = 0; i < warp_rows; i++) {
        const uint64_t row_nope = gpu_shuffle_u64(nope, i), row_rope = gpu_shuffle_u64(rope, i);
        for (uint32_t chunk = lane; chunk < mla_row_chunks; chunk += GPU_WARP)
            mla_load_query_chunk(run, row_nope, row_rope, chunk, aligned,
                                 to + mla_chunk_offset<Config>(warp * warp_rows + i, chunk));
    }
}

/* bf16 queries that become f16: the power of two of each row, which makes its largest number at most 2^16. */
template <class Config>
GPU_INLINE void mla_scale_queries(struct mla_shared<Config> *shared, const unsigned char *from)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;

    GPU_LOOP
    for (uint32_t row = warp; row < Config::rows; row += Config::warps) {
        uint32_t largest = 0;
        for (uint32_t chunk = lane; chunk < mla_row_chunks; chunk += GPU_WARP) {
            const struct gpu_u128 word = gpu_load_u128(from + mla_chunk_offset<Config>(row, chunk));
            GPU_UNROLL
            for (uint32_t e = 0; e < 8; e++) {
                const uint32_t size = word.x[e / 2] >> (16 * (e % 2)) & 0x7fff;
                largest = size > largest ? size : largest;
            }
        }
        GPU_UNROLL
        for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2) {
            const uint32_t other = gpu_shuffle_xor_u32(largest, mask);
            largest = other > largest ? other : largest;
        }
        const uint32_t exponent = largest >> 7 > 16 ? largest >> 7 : 16;
        if (lane == 0)
            shared->query_scale[row] = gpu_f32_of_bits((exponent - 15) << 23);
    }
}

/* Two neighbouring queries of a row whose numbers are multiplied by `scale`, as f16. */
GPU_INLINE uint32_t mla_scaled_pair(uint32_t pair, float scale)
{
    return gpu_pack_f16(gpu_bf16_to_f32((uint16_t)pair) * scale,
                        gpu_bf16_to_f32((uint16_t)(pair >> 16)) * scale);
}

/*
 * This warp's part of the queries of its warp group. Codes come in other places of a fragment than 16-bit
 * numbers: a lane has four neighbours of them, and so of the queries' columns.
 */
template <class Config>
GPU_INLINE void mla_take_queries(const struct mla_shared<Config> *shared, const unsigned char *from,
                                 const struct mla_warp *w, uint32_t q[Config::group_blocks][Config::steps][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8, in = lane % 8;

    GPU_UNROLL
    for (uint32_t i = 0; i < Config::group_blocks * Config::steps; i++) {
        uint32_t *to = q[i / Config::steps][i % Config::steps];
        const uint32_t row = w->row0 + i / Config::steps * 16;
        const uint32_t chunk = mla_column<Config>(w->part, i % Config::steps) / 8;
        if constexpr (!Config::kv8)
            gpu_load_matrix4(
                to, from + mla_chunk_offset<Config>(row + (matrix & 1) * 8 + in, chunk + (matrix >> 1)));
        GPU_UNROLL
        for (uint32_t e = 0; Config::kv8 && e < 4; e++) {
            const uint32_t at = row + e % 2 * 8 + lane / 4;
            const unsigned char *pair =
                from + mla_chunk_offset<Config>(at, chunk + lane % 4 / 2) + lane % 2 * 8;
            to[e] = *(const uint32_t *)(const void *)(pair + e / 2 * 4);
            if constexpr (Config::scales_queries) {
                const uint32_t inverse = (254u << 23) - gpu_f32_bits(shared->query_scale[at]);
                to[e] = mla_scaled_pair(to[e], gpu_f32_of_bits(inverse));
            }
        }
    }
}

/* The key that a lane locates: one of the 8 of a tile that its warp loads. */
GPU_INLINE uint32_t mla_own_key(uint32_t tile)
{
    return tile * MLA_KV_TILE + gpu_thread() / GPU_WARP * 8 + gpu_thread() % 8;
}

/* The page table's entry of a key, of which nothing is computed before it is needed (mla_locate). `Taken` is
 * a struct mla_taken or has one: a pointer to the part is a register more, and what is spilled for it. */
template <class Taken>
GPU_INLINE struct gpu_entry mla_find_entry(const struct gpu_run *run, const Taken *taken, uint32_t key)
{
    const struct gpu_sequence *s = &taken->sequence;
    struct gpu_entry entry = {0, 0};

    if (taken->entries != 0 && key < s->kv_len && key < s->new_begin)
        entry = gpu_entry(run, taken->entries, key);
    return entry;
}

/* The address of a key of the sequence by its entry, and its place; 0 if it is missing. */
template <class Taken>
GPU_INLINE uint64_t mla_address_of(const struct gpu_run *run, const Taken *taken, uint32_t key,
                                   struct gpu_entry entry, struct gpu_place *place)
{
    const struct gpu_sequence *s = &taken->sequence;

    if (key >= s->kv_len || !gpu_place_of(run, s, key, entry, place))
        return 0;
    return gpu_vector(place->is_new ? &run->k_new : &run->k, place->page, place->token, 0);
}

/* Writes the addresses of the keys of a tile, 0 for missing ones: `entry` is that of mla_own_key(tile). */
template <class Config>
GPU_INLINE void mla_locate(const struct gpu_run *run, struct mla_shared<Config> *shared, uint32_t tile,
                           struct gpu_entry entry)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    struct gpu_place place;

    if (lane >= 8)
        return;
    const uint64_t at = mla_address_of(run, shared, mla_own_key(tile), entry, &place);
    shared->key_address[warp][lane] = at;
    if constexpr (Config::kv8) {
        const struct gpu_cache *cache = at != 0 && place.is_new ? &run->k_new : &run->k;
        if (mla_scale_per_key(run))
            shared->next_scale[warp * 8 + lane] =
                at != 0 ? gpu_scale_at(&cache->scale, place.outer, place.token, 0) : 0;
    }
}

/* Which of the keys that this warp has located there are, and their scales. */
template <class Config>
GPU_INLINE void mla_note_keys(const struct gpu_run *run, struct mla_shared<Config> *shared, uint32_t stage)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t present = gpu_ballot(shared->key_address[warp][lane % 8] != 0);

    if (lane == 0)
        ((unsigned char *)&shared->present[stage])[warp] = (unsigned char)present;
    if constexpr (Config::kv8) {
        if (mla_scale_per_key(run) && lane < 8)
            shared->key_scale[stage][warp * 8 + lane] = shared->next_scale[warp * 8 + lane];
    }
}

/* Copies a chunk of a key, or zeros where there is none. */
template <class Config>
GPU_INLINE void mla_copy_chunk(const struct gpu_run *run, uint64_t key, uint32_t chunk, unsigned char *to)
{
    const bool present = key != 0 && chunk * 16 < run->problem.head_dim * (Config::kv8 ? 1 : 2);

    gpu_copy_async16(to, (const void *)(present ? key + chunk * 16 : run->k.base), present ? 16 : 0);
}

/* The keys of the tile that was located last, into a stage of the circular buffer. */
template <class Config>
GPU_INLINE void mla_load_keys(const struct gpu_run *run, struct mla_shared<Config> *shared,
                              unsigned char *buffer, uint32_t stage)
{
    constexpr uint32_t chunks = Config::key_bytes / 16, whole = chunks / GPU_WARP, rest = chunks % GPU_WARP;
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t used = run->problem.head_dim * (Config::kv8 ? 1 : 2);
    const uint64_t *at = shared->key_address[warp];
    unsigned char *to = buffer + stage * Config::tile_bytes + warp * 8 * Config::key_bytes;

    gpu_warp_barrier();
    mla_note_keys<Config>(run, shared, stage);
    if (shared->aligned) {
        uint64_t key[8]; /* all are read before the first copy, which a read after it would wait for */
        GPU_UNROLL
        for (uint32_t row = 0; row < 8; row++)
            key[row] = at[row];
        GPU_UNROLL
        for (uint32_t i = 0; i < 8 * whole; i++) {
            const uint32_t row = i / whole, chunk = i % whole * GPU_WARP + lane;
            mla_copy_chunk<Config>(run, key[row], chunk, to + mla_key_offset<Config>(row, chunk));
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < rest / 4; i++) { /* the last chunks, of several keys at once */
            const uint32_t row = i * (GPU_WARP / rest) + lane / rest, chunk = whole * GPU_WARP + lane % rest;
            mla_copy_chunk<Config>(run, at[row], chunk, to + mla_key_offset<Config>(row, chunk));
        }
    } else {
        GPU_LOOP
        for (uint32_t i = lane; i < 8 * chunks; i += GPU_WARP) {
            const uint32_t row = i / chunks, chunk = i % chunks;
            const bool inside = at[row] != 0 && chunk * 16 < used;
            gpu_store_u128(to + mla_key_offset<Config>(row, chunk),
                           mla_load_unaligned<Config>(at[row] + chunk * 16, inside ? used - chunk * 16 : 0));
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
    if (!mla_row_of(run, s, row0 + row, &token, &head)) {
        shared->row[row].lo = 0;
        shared->row[row].hi = 0xffffffffu;
        if constexpr (Config::score_rules) {
            shared->row[row].mask = 0;
            shared->row[row].square = false;
        }
        return;
    }
    const struct gpu_row own = gpu_row(run, s, token, head);
    if constexpr (Config::score_rules)
        shared->row[row] = own;
    else
        shared->row[row] = {own.lo, own.hi};
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
        shared->score_scale = run->softmax_scale * Config::score_gain;
        if (Config::kv8 && !mla_scale_per_key(run))
            shared->score_scale *= gpu_scale_at(&run->k.scale, 0, 0, 0);
    }
}

#endif
