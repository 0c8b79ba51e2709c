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

/* Where the keys and values of a tile are, and their scales: a row for each of 64 threads. */
GPU_INLINE bool mma_find(const struct gpu_run *run, const struct mma_shared *shared, uint32_t tile,
                         struct gpu_place *place)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t key = tile * GPU_TILE + gpu_thread();

    return gpu_thread() < 64 && key < s->kv_len && gpu_locate(run, s, key, place);
}

GPU_INLINE void mma_note(const struct gpu_run *run, struct mma_shared *shared, uint32_t ring,
                         uint32_t kv_head, const struct gpu_place *place, bool exists)
{
    const uint32_t row = gpu_thread();
    const struct gpu_cache *k = exists && place->fresh ? &run->k_new : &run->k;
    const struct gpu_cache *v = exists && place->fresh ? &run->v_new : &run->v;

    if (row >= 64)
        return;
    shared->k_at[ring][row] = exists ? gpu_vector(k, place->page, place->token, kv_head) : 0;
    shared->v_at[ring][row] = exists ? gpu_vector(v, place->page, place->token, kv_head) : 0;
    if (mma_by_key(run->problem.k_scale))
        shared->k_scale[ring][row] =
            exists ? gpu_scale_at(&k->scale, place->outer, place->token, kv_head) : 1;
    if (mma_by_key(run->problem.v_scale))
        shared->v_scale[ring][row] =
            exists ? gpu_scale_at(&v->scale, place->outer, place->token, kv_head) : 1;
}

/* A tile's vectors of `bytes` bytes into shared memory. `whole`: they lie on 16 bytes in one piece. */
GPU_INLINE void mma_fetch(const struct gpu_cache *cached, const struct gpu_cache *fresh,
                          const uint64_t at[64], uint32_t fresh_row, uint32_t bytes, bool whole,
                          unsigned char *to)
{
    const uint32_t chunks = bytes / 16, used = cached->dim * cached->size;

    GPU_UNROLL
    for (uint32_t j = 0; j < 64 * chunks / 128; j++) {
        const uint32_t i = j * 128 + gpu_thread(), row = i / chunks, chunk = i % chunks;
        unsigned char *place = to + MMA_AT(row, chunk, bytes);
        const uint64_t vector = at[row];
        if (whole)
            gpu_copy_async16(place, (const void *)(vector != 0 ? vector + chunk * 16u : cached->base),
                             vector != 0 && chunk * 16u < used ? 16 : 0);
        else
            gpu_store_u128(place, vector != 0 ? mma_gather(row >= fresh_row ? fresh : cached, vector, chunk)
                                              : mma_zero());
    }
}

/* Keys and values of a tile whose places are noted. */
GPU_INLINE void mma_load(const struct gpu_run *run, const struct mma_shared *shared, unsigned char *stage,
                         uint32_t ring, uint32_t tile, bool whole)
{
    const uint32_t first = tile * GPU_TILE, fresh = shared->sequence.fresh;
    const uint32_t fresh_row = fresh > first ? fresh - first : 0;

    mma_fetch(&run->k, &run->k_new, shared->k_at[ring], fresh_row, MMA_KB, whole, stage);
    mma_fetch(&run->v, &run->v_new, shared->v_at[ring], fresh_row, MMA_VB, whole, stage + 64 * MMA_KB);
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
