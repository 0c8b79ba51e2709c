/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: keys and values into shared memory. */

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

/* The next step of a team begins. */
GPU_INLINE void mma_wait(void)
{
    if (MMA_TEAM == GPU_WARP)
        gpu_warp_barrier();
    else
        gpu_barrier();
}

/* The key of a tile that a thread of a team looks up. */
static_assert(MMA_TEAM >= MMA_KEYS, "a thread for each key");
GPU_INLINE uint32_t mma_key(uint32_t tile, uint32_t key0)
{
    return tile * GPU_TILE + key0 + gpu_thread() % MMA_KEYS;
}

/* Asks where a thread's key of a tile lies. */
GPU_INLINE struct gpu_entry mma_find(const struct gpu_run *run, const struct mma_reach *reach, uint32_t tile,
                                     uint32_t key0)
{
    const uint32_t key = mma_key(tile, key0);
    struct gpu_entry entry;

    entry.low = entry.high = 0;
    if (key < reach->cached)
        entry = gpu_entry(run, reach->entries, key);
    return entry;
}

/* Notes address and scale of a key, or a value, that was found. */
GPU_INLINE void mma_note_one(const struct gpu_run *run, struct mma_shared *shared,
                             const struct mma_reach *reach, uint32_t tile, uint32_t ring, uint32_t kv_head,
                             uint32_t key0, struct gpu_entry entry, bool value)
{
    const uint32_t row = key0 + gpu_thread() % MMA_KEYS, key = mma_key(tile, key0);
    const struct gpu_origin *origin = &shared->origin[value][key >= shared->sequence.fresh];
    int64_t page = 0, token = key;

    if (key < reach->cached) {
        token = key - gpu_page_of(run, key) * run->batch.block;
        page = gpu_entry_page(run, entry);
    }
    const bool exists = key < reach->keys && page >= 0;
    (value ? shared->v_at : shared->k_at)[ring][row] =
        exists ? origin->base + (uint64_t)(page * origin->page_stride + token * origin->token_stride)
               : MMA_NOWHERE;
    if (mma_by_key(run->problem.k_scale) || mma_by_key(run->problem.v_scale)) {
        struct gpu_place place;
        float scale = 1;
        if (exists && gpu_place_of(run, &shared->sequence, key, entry, &place))
            scale = gpu_scale_at(place.fresh ? (value ? &run->v_new.scale : &run->k_new.scale)
                                             : (value ? &run->v.scale : &run->k.scale),
                                 place.outer, place.token, kv_head);
        (value ? shared->v_scale : shared->k_scale)[ring][row] = scale;
    }
}

/* Notes what was found. Where a team has two threads for a key, one takes the value. */
GPU_INLINE void mma_note(const struct gpu_run *run, struct mma_shared *shared, const struct mma_reach *reach,
                         uint32_t tile, uint32_t ring, uint32_t kv_head, uint32_t key0,
                         struct gpu_entry entry)
{
    if (MMA_TEAM >= 2 * MMA_KEYS) {
        mma_note_one(run, shared, reach, tile, ring, kv_head, key0, entry,
                     gpu_thread() % MMA_TEAM >= MMA_KEYS);
        return;
    }
    GPU_LOOP
    for (uint32_t value = 0; value < 2; value++)
        mma_note_one(run, shared, reach, tile, ring, kv_head, key0, entry, value != 0);
}

/* Vectors that do not lie on 16 bytes, or in pieces. */
GPU_INLINE void mma_fetch_odd(const struct gpu_cache *cached, const struct gpu_cache *fresh,
                              const uint64_t *at, uint32_t fresh_row, uint32_t bytes, unsigned char *to)
{
    const uint32_t chunks = bytes / 16;

    GPU_LOOP
    for (uint32_t i = gpu_thread() % MMA_TEAM; i < MMA_KEYS * chunks; i += MMA_TEAM) {
        const uint32_t row = i / chunks, chunk = i % chunks;
        if (at[row] != MMA_NOWHERE)
            gpu_store_u128(to + MMA_AT(row, chunk, bytes),
                           mma_gather(row >= fresh_row ? fresh : cached, at[row], chunk));
    }
}

/*
 * A team's vectors of `bytes` bytes into a half. What is not there is left as it is: nobody sees it, and
 * mma_clean sees to it that it is a number.
 */
GPU_INLINE void mma_fetch(const uint64_t *at, uint32_t used, uint32_t bytes, unsigned char *to)
{
    const uint32_t chunks = bytes / 16, thread = gpu_thread() % MMA_TEAM;

    if (MMA_TEAM % chunks != 0) {
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_KEYS * chunks / MMA_TEAM; j++) {
            const uint32_t i = j * MMA_TEAM + thread, row = i / chunks, chunk = i % chunks;
            gpu_copy_async16_if(to + MMA_AT(row, chunk, bytes), at[row] + chunk * 16u,
                                ((uint32_t)at[row] & 1) == 0 && chunk * 16u < used);
        }
        return;
    }
    /* A thread has one column of rows that follow one another. */
    const uint32_t rows = MMA_KEYS * chunks / MMA_TEAM, first = thread / chunks * rows,
                   chunk = thread % chunks;
    const uint32_t turned = chunk ^ MMA_TURN(first, bytes), column = chunk * 16u;
    const bool inside = column < used;
    at += first;
    to += first * bytes;
    GPU_UNROLL
    for (uint32_t j = 0; j < rows; j += 2) {
        const struct gpu_u128 two = gpu_load_u128(at + j);
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const uint64_t vector = (uint64_t)two.x[2 * i + 1] << 32 | two.x[2 * i];
            gpu_copy_async16_if(to + (j + i) * bytes + (turned ^ MMA_TURN(j + i, bytes)) * 16u,
                                vector + column, inside && (two.x[2 * i] & 1) == 0);
        }
    }
}

/*
 * A fetch of four warps, in steps between other work. A thread has one column of rows that follow one
 * another, and those that are a whole number of `lanes` chunks further.
 */
struct mma_fetching {
    const uint64_t *at; /* of its first row */
    unsigned char *to;
    uint32_t column;
    uint32_t used; /* bytes of a vector; 0: nothing is fetched */
    struct gpu_u128 two;
};
#define MMA_SHARERS(bytes) ((bytes) % 128 == 0 ? 8u : 4u) /* threads of a row */
#define MMA_STEPS(bytes)   (MMA_SHARERS(bytes) / 4)       /* of two rows each */
#define MMA_EVERY(n, bytes)                                                                                  \
    (MMA_RB == 4 ? (n) / MMA_STEPS(bytes) : 1u) /* of n pieces of work, one begins a step */

GPU_INLINE struct mma_fetching mma_begin(const uint64_t *at, uint32_t used, uint32_t bytes, unsigned char *to)
{
    const uint32_t sharers = MMA_SHARERS(bytes), row = gpu_thread() / sharers * (sharers / 2);
    struct mma_fetching fetch;

    fetch.at = at + row;
    fetch.column = gpu_thread() % sharers * 16;
    fetch.to = to + row * MMA_STRIDE(bytes) + fetch.column;
    fetch.used = used;
    return fetch;
}

/* The addresses of a step. */
GPU_INLINE void mma_ask(struct mma_fetching *fetch, uint32_t step)
{
    fetch->two = gpu_load_u128(fetch->at + 2 * step);
}

/* The copies of a step whose addresses were asked for. */
GPU_INLINE void mma_send(const struct mma_fetching *fetch, uint32_t bytes, uint32_t step)
{
    const uint32_t apart = MMA_SHARERS(bytes) * 16;

    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t low = fetch->two.x[2 * i];
        const uint64_t vector = ((uint64_t)fetch->two.x[2 * i + 1] << 32 | low) + fetch->column;
        GPU_UNROLL
        for (uint32_t c = 0; c < bytes; c += apart)
            gpu_copy_async16_if(fetch->to + (2 * step + i) * MMA_STRIDE(bytes) + c, vector + c,
                                (low & 1) == 0 && fetch->column + c < fetch->used);
    }
}

/* A team's keys, or values, of a tile whose places are noted. `whole`: all lie on 16 bytes in one piece. */
GPU_INLINE void mma_load(const struct gpu_run *run, const struct mma_shared *shared, unsigned char *half,
                         uint32_t ring, uint32_t tile, uint32_t key0, bool values, bool whole)
{
    const struct gpu_cache *cached = values ? &run->v : &run->k, *fresh = values ? &run->v_new : &run->k_new;
    const uint64_t *at = (values ? shared->v_at[ring] : shared->k_at[ring]) + key0;
    const uint32_t bytes = values ? MMA_VB : MMA_KB;

    if (whole && MMA_RB == 4) {
        struct mma_fetching fetch = mma_begin(at, cached->dim * cached->size, bytes, half);
        GPU_UNROLL
        for (uint32_t step = 0; step < MMA_STEPS(bytes); step++) {
            mma_ask(&fetch, step);
            mma_send(&fetch, bytes, step);
        }
        return;
    }
    if (whole) {
        mma_fetch(at, cached->dim * cached->size, bytes, half);
        return;
    }
    const uint32_t first = tile * GPU_TILE + key0, new_key = shared->sequence.fresh;
    mma_fetch_odd(cached, fresh, at, new_key > first ? new_key - first : 0, bytes, half);
}

/* The same, `whole` vectors in steps; with `go` false nothing is fetched. */
GPU_INLINE struct mma_fetching mma_load_steps(const struct gpu_run *run, const struct mma_shared *shared,
                                              unsigned char *half, uint32_t ring, uint32_t tile, bool values,
                                              bool whole, bool go)
{
    const struct gpu_cache *cached = values ? &run->v : &run->k;

    if (go && !whole)
        mma_load(run, shared, half, ring, tile, 0, values, false);
    return mma_begin(values ? shared->v_at[ring] : shared->k_at[ring],
                     go && whole ? cached->dim * cached->size : 0, values ? MMA_VB : MMA_KB, half);
}

/* Columns behind the vectors' last ones are zero from the first tile to the last. */
GPU_INLINE void mma_pad(const struct gpu_run *run, unsigned char *halves)
{
    if (run->k.dim == MMA_DK && run->v.dim == MMA_DV)
        return;
    GPU_LOOP
    for (uint32_t i = gpu_thread(); i < MMA_HALVES * MMA_KG * MMA_HALF / 16; i += 128)
        gpu_store_u128(halves + i * 16, mma_zero());
    gpu_barrier();
}
