/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: queries, keys and values into shared memory, and what the rows see. */

/* Scales that may differ from key to key. What decides is the problem, so that strides never change a bit. */
GPU_INLINE bool mma_by_key(uint32_t granularity)
{
    return MMA_EIGHT && granularity >= ATTN_SCALES_HEAD;
}

/* Elements of a 16-byte chunk of a vector, one by one; what lies behind it is zero. */
GPU_INLINE struct gpu_u128 mma_gather(const struct gpu_cache *cache, uint64_t vector, uint32_t chunk)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};
    const uint32_t size = cache->size, each = 16 / size;

    for (uint32_t e = 0; e < each; e++) {
        const uint32_t d = chunk * each + e;
        if (d >= cache->dim)
            break;
        const unsigned char *at = GPU_U8(vector + (uint64_t)gpu_column(cache, d));
        for (uint32_t b = 0; b < size; b++)
            out.x[(e * size + b) / 4] |= (uint32_t)at[b] << (8 * ((e * size + b) % 4));
    }
    return out;
}

GPU_INLINE struct gpu_u128 mma_zero(void)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};
    return out;
}

/* 16 bytes of a key or value on their way to shared memory. */
GPU_INLINE void mma_fetch(const struct gpu_cache *cache, const struct gpu_place *place, bool exists,
                          bool whole, uint32_t head, uint32_t chunk, unsigned char *to)
{
    const uint64_t vector = exists ? gpu_vector(cache, place->page, place->token, head) : cache->base;

    if (whole)
        gpu_copy_async16(to, (const void *)(vector + (exists ? chunk * 16u : 0u)),
                         exists && chunk * 16u < cache->dim * cache->size ? 16 : 0);
    else if (exists)
        gpu_store_u128(to, mma_gather(cache, vector, chunk));
    else
        gpu_store_u128(to, mma_zero());
}

/* Keys and values of a tile. `whole`: vectors lie on 16 bytes in one piece. */
GPU_INLINE void mma_load(const struct gpu_run *run, struct mma_shared *shared, unsigned char *stage,
                         uint32_t slot, uint32_t tile, uint32_t kv_head, bool whole)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t wide = MMA_KB > MMA_VB ? MMA_KB / 16 : MMA_VB / 16;

    for (uint32_t i = gpu_thread(); i < 64 * wide; i += 128) {
        const uint32_t row = i / wide, chunk = i % wide, key = tile * GPU_TILE + row;
        struct gpu_place place;
        const bool exists = key < s->kv_len && gpu_locate(run, s, key, &place);
        const struct gpu_cache *k = exists && place.fresh ? &run->k_new : &run->k;
        const struct gpu_cache *v = exists && place.fresh ? &run->v_new : &run->v;
        if (chunk < MMA_KB / 16)
            mma_fetch(k, &place, exists, whole, kv_head, chunk, stage + MMA_AT(row, chunk, MMA_KB));
        if (chunk < MMA_VB / 16)
            mma_fetch(v, &place, exists, whole, kv_head, chunk,
                      stage + 64 * MMA_KB + MMA_AT(row, chunk, MMA_VB));
        if (chunk != 0)
            continue;
        shared->exists[slot][row] = exists;
        if (mma_by_key(run->problem.k_scale))
            shared->k_scale[slot][row] =
                exists ? gpu_scale_at(&k->scale, place.outer, place.token, kv_head) : 1;
        if (mma_by_key(run->problem.v_scale))
            shared->v_scale[slot][row] =
                exists ? gpu_scale_at(&v->scale, place.outer, place.token, kv_head) : 1;
    }
}

/* Token and head of a row of the sequence; false behind its last one. */
GPU_INLINE bool mma_row_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t row,
                           uint32_t kv_head, uint32_t *token, uint32_t *head)
{
    *token = row / run->group;
    *head = kv_head * run->group + row % run->group;
    return *token < s->q_len;
}

/* Queries into shared memory. With 8-bit keys the columns of 16 are in the order in which codes come. */
GPU_INLINE void mma_load_queries(const struct gpu_run *run, const struct gpu_sequence *s, unsigned char *to,
                                 uint32_t row0, uint32_t kv_head)
{
    const uint32_t dim = run->problem.head_dim;

    for (uint32_t i = gpu_thread(); i < MMA_ROWS * (MMA_DK / 2); i += 128) {
        const uint32_t row = i / (MMA_DK / 2), pair = i % (MMA_DK / 2), group = pair / 8, in = pair % 8;
        uint32_t token, head, d = pair * 2;
        if (MMA_EIGHT)
            d = group * 16 + (in % 4) * 4 + in / 4 * 2;
        uint32_t word = 0;
        if (mma_row_of(run, s, row0 + row, kv_head, &token, &head)) {
            const uint16_t *q =
                (const uint16_t *)(run->q.base + (uint64_t)((int64_t)(s->row + token) * run->q.token_stride +
                                                            (int64_t)head * run->q.head_stride));
            word = (d < dim ? q[d] : 0u) | (d + 1 < dim ? (uint32_t)q[d + 1] << 16 : 0u);
        }
        *(uint32_t *)(void *)(to + MMA_AT(row, pair / 4, MMA_DK * 2) + pair % 4 * 4) = word;
    }
}

/* What the rows see, and what their scores are multiplied with. */
GPU_INLINE void mma_load_rows(const struct gpu_run *run, struct mma_shared *shared, uint32_t row0,
                              uint32_t kv_head)
{
    const struct gpu_sequence *s = &shared->sequence;
    const bool by_key = mma_by_key(run->problem.k_scale);

    for (uint32_t row = gpu_thread(); row < MMA_ROWS; row += 128) {
        uint32_t token, head;
        shared->scale[row] = 0;
        shared->row[row].lo = shared->row[row].hi = 0;
        if (!mma_row_of(run, s, row0 + row, kv_head, &token, &head))
            continue;
        shared->row[row] = gpu_row(run, s, token, head);
        shared->scale[row] = run->softmax_scale;
        if (MMA_EIGHT && !by_key)
            shared->scale[row] *= gpu_scale_at(&run->k.scale, 0, 0, kv_head);
    }
}

/* The keys that every row sees without being asked. */
GPU_INLINE void mma_find_plain(const struct gpu_run *run, struct mma_shared *shared)
{
    if (gpu_thread() != 0)
        return;
    shared->odd_tile = 0;
    uint32_t lo = 0, hi = 0xffffffffu;
    for (uint32_t row = 0; row < MMA_ROWS; row++) {
        if (shared->scale[row] == 0)
            continue;
        lo = shared->row[row].lo > lo ? shared->row[row].lo : lo;
        hi = shared->row[row].hi < hi ? shared->row[row].hi : hi;
    }
    shared->row_lo = lo;
    shared->row_hi = run->mask.base != 0 ? 0 : hi;
}
