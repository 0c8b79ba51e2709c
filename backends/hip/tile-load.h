/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of tile-body.h: queries, and where the keys and values of a tile lie. */

/* Token and head of a row of the sequence; false behind its last one. */
GPU_INLINE bool tile_row_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t row,
                            uint32_t kv_head, uint32_t *token, uint32_t *head)
{
    *token = row / run->group;
    *head = kv_head * run->group + row % run->group;
    return *token < s->q_len;
}

/* Queries into shared memory, a chunk of 8 columns in turn; what is not there is zero. */
GPU_INLINE void tile_load_queries(const struct gpu_run *run, const struct tile_shared *shared,
                                  unsigned char *to, const struct gpu_piece *p, uint32_t rows)
{
    const bool aligned =
        ((run->q.base | (uint64_t)run->q.token_stride | (uint64_t)run->q.head_stride) & 15) == 0;
    const uint32_t chunks = TILE_DK / 8, dim = run->problem.head_dim;

    GPU_LOOP
    for (uint32_t i = tile_thread(); i < rows * chunks; i += TILE_THREADS) {
        const uint32_t row = i / chunks, d = i % chunks * 8;
        struct gpu_u128 part = {{0, 0, 0, 0}};
        uint32_t token, head;
        if (tile_row_of(run, &shared->sequence, p->row0 + row, p->kv_head, &token, &head)) {
            const uint64_t q =
                run->q.base + (uint64_t)((int64_t)(shared->sequence.row + token) * run->q.token_stride +
                                         (int64_t)head * run->q.head_stride);
            if (aligned && d + 8 <= dim)
                part = gpu_load_global_u128(q + d * 2);
            else
                GPU_UNROLL
            for (uint32_t j = 0; j < 8; j++)
                if (d + j < dim)
                    part.x[j / 2] |= (uint32_t)GPU_GLOBAL(const uint16_t, q)[d + j] << j % 2 * 16;
        }
        gpu_store_u128(to + row * HIP_TILE_PITCH(TILE_DK) + d * 2, part);
    }
}

/* What the rows see. */
GPU_INLINE void tile_load_rows(const struct gpu_run *run, struct tile_shared *shared,
                               const struct gpu_piece *p, uint32_t rows)
{
    const uint32_t row = tile_thread();
    uint32_t token, head;

    if (row >= rows)
        return;
    if (tile_row_of(run, &shared->sequence, p->row0 + row, p->kv_head, &token, &head))
        shared->row[row] = gpu_row(run, &shared->sequence, token, head);
    else
        shared->row[row].lo = shared->row[row].hi = 0;
}

/* Scales that may differ from key to key. What decides is the problem, so that strides never change a bit. */
GPU_INLINE bool tile_by_key(uint32_t granularity)
{
    return TILE_EIGHT && granularity >= ATTN_SCALES_HEAD;
}

/* Asks for the page of a thread's key of a tile: keys of 64 threads, and values of the next 64. */
GPU_INLINE struct gpu_entry tile_find(const struct gpu_run *run, const struct tile_reach *reach,
                                      uint32_t tile)
{
    const uint32_t thread = tile_thread(), key = tile * GPU_TILE + thread % GPU_TILE;
    struct gpu_entry entry;

    entry.low = entry.high = 0;
    if (thread < 2 * GPU_TILE && key < reach->cached)
        entry = gpu_entry(run, reach->entries, key);
    return entry;
}

/* Notes address and scale of what was found. */
GPU_INLINE void tile_note(const struct gpu_run *run, struct tile_shared *shared,
                          const struct tile_reach *reach, uint32_t tile, uint32_t kv_head,
                          struct gpu_entry entry)
{
    const uint32_t thread = tile_thread(), row = thread % GPU_TILE, key = tile * GPU_TILE + row;
    const uint32_t slot = tile % 2;
    const bool value = thread >= GPU_TILE;

    if (thread >= 2 * GPU_TILE)
        return;
    const struct gpu_origin *origin = &shared->origin[value][key >= shared->sequence.fresh];
    int64_t page = 0, token = key;
    if (key < reach->cached) {
        token = key - gpu_page_of(run, key) * run->batch.block;
        page = gpu_entry_page(run, entry);
    }
    const bool exists = key < reach->keys && page >= 0;
    const uint32_t present = gpu_ballot(exists);
    if (thread % GPU_WARP == 0 && !value)
        shared->present[slot][row / GPU_WARP] = present;
    shared->at[value][slot][row] =
        origin->base + (uint64_t)(page * origin->page_stride + token * origin->token_stride);
    if (tile_by_key(run->problem.k_scale) || tile_by_key(run->problem.v_scale)) {
        struct gpu_place place;
        float scale = 1;
        if (exists && gpu_place_of(run, &shared->sequence, key, entry, &place))
            scale = gpu_scale_at(place.fresh ? (value ? &run->v_new.scale : &run->k_new.scale)
                                             : (value ? &run->v.scale : &run->k.scale),
                                 place.outer, place.token, kv_head);
        shared->scale[value][slot][row] = scale;
    }
}

/* Which keys of a tile are there, a bit for each. */
GPU_INLINE uint64_t tile_present(const struct tile_shared *shared, uint32_t tile)
{
    return (uint64_t)tile_same(shared->present[tile % 2][1]) << 32 | tile_same(shared->present[tile % 2][0]);
}
