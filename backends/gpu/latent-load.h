/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of latent-body.h: queries and keys into shared memory, and what the rows see. */

/* Eight numbers of 16 bits, of which `count` are there. */
GPU_INLINE struct gpu_u128 latent_gather(uint64_t at, uint32_t count)
{
    const uint16_t *from = (const uint16_t *)at;
    struct gpu_u128 out = {{0, 0, 0, 0}};

    GPU_UNROLL
    for (uint32_t e = 0; e < 8; e++)
        out.x[e / 2] |= e < count ? (uint32_t)from[e] << (16 * (e % 2)) : 0;
    return out;
}

/* Columns of a row of queries into shared memory; `whole`: all chunks lie on 16 bytes and have one source. */
GPU_INLINE void latent_load_chunk(const struct gpu_run *run, uint64_t latent, uint64_t rope, uint32_t chunk,
                                  bool whole, unsigned char *to)
{
    const uint32_t dim = run->problem.head_dim;
    const uint32_t split = run->q_rope.base != 0 ? run->problem.head_dim_vo : dim;
    struct gpu_u128 word = {{0, 0, 0, 0}};

    if (whole) {
        const uint32_t d = chunk * 8;
        const uint64_t at = d < split ? latent + d * 2 : rope + (d - split) * 2;
        const bool there = latent != 0 && d < dim;
        gpu_copy_async16(to, (const void *)(there ? at : run->k.base), there ? 16 : 0);
        return;
    }
    GPU_UNROLL
    for (uint32_t e = 0; e < 8; e++) {
        const uint32_t d = chunk * 8 + e;
        const uint64_t at = d < split ? latent + d * 2 : rope + (d - split) * 2;
        if (latent != 0 && d < dim)
            word.x[e / 2] |= (uint32_t) * (const uint16_t *)at << (16 * (e % 2));
    }
    gpu_store_u128(to, word);
}

/* Queries of the tile of rows, as rows of a tile of keys. */
GPU_INLINE void latent_load_queries(const struct gpu_run *run, const struct gpu_sequence *s,
                                    unsigned char *to, uint32_t row0)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const struct gpu_tensor *q = &run->q, *r = &run->q_rope;
    const bool whole = ((q->base | (uint64_t)q->token_stride | (uint64_t)q->head_stride | r->base |
                         (uint64_t)r->token_stride | (uint64_t)r->head_stride | run->problem.head_dim * 2 |
                         (r->base != 0 ? run->problem.head_dim_vo * 2 : 0)) &
                        15) == 0;

    GPU_LOOP
    for (uint32_t i = 0; i < LATENT_ROWS / LATENT_WARPS; i++) {
        const uint32_t row = warp * (LATENT_ROWS / LATENT_WARPS) + i;
        uint32_t token, head;
        uint64_t latent = 0, rope = 0;
        if (latent_row_of(run, s, row0 + row, &token, &head)) {
            const int64_t at = (int64_t)s->row + token;
            latent = q->base + (uint64_t)(at * q->token_stride + (int64_t)head * q->head_stride);
            rope = r->base + (uint64_t)(at * r->token_stride + (int64_t)head * r->head_stride);
        }
        for (uint32_t chunk = lane; chunk < GPU_LATENT_DIM / 8; chunk += GPU_WARP)
            latent_load_chunk(run, latent, rope, chunk, whole, to + LATENT_AT(row, chunk));
    }
}

/* First 16-byte chunk of a warp's k-th 16 columns: 256 of the first 512, and 32 of the last 64. */
GPU_INLINE uint32_t latent_chunk(uint32_t half, uint32_t k)
{
    return k < 16 ? half * 32 + k * 2 : 64 + half * 4 + (k - 16) * 2;
}

GPU_INLINE void latent_take_queries(const unsigned char *from, const struct latent_warp *w, uint32_t q[18][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, matrix = lane / 8, in = lane % 8;

    GPU_UNROLL
    for (uint32_t k = 0; k < 18; k++)
        gpu_load_matrix4(q[k], from + LATENT_AT(w->block * 16 + (matrix & 1) * 8 + in,
                                                latent_chunk(w->half, k) + (matrix >> 1)));
}

/*
 * Notes where the keys of a tile are, of which each warp loads 8; 0 = it is not there. Warps keep to their
 * own.
 */
GPU_INLINE void latent_locate(const struct gpu_run *run, struct latent_shared *shared, uint32_t tile)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t key = tile * GPU_TILE + warp * 8 + lane;
    struct gpu_place place;
    uint64_t at = 0;

    if (lane >= 8)
        return;
    if (key < s->kv_len && gpu_locate(run, s, key, &place))
        at = gpu_vector(place.fresh ? &run->k_new : &run->k, place.page, place.token, 0);
    shared->at[warp][lane] = at;
}

/* Copies a chunk of a key, or zeros where there is none. */
GPU_INLINE void latent_copy(const struct gpu_run *run, uint64_t vector, uint32_t chunk, unsigned char *to)
{
    const bool present = vector != 0 && chunk * 8 < run->problem.head_dim;

    gpu_copy_async16(to, (const void *)(present ? vector + chunk * 16 : run->k.base), present ? 16 : 0);
}

/* The keys of the tile that was located last, into a stage. */
GPU_INLINE void latent_load(const struct gpu_run *run, struct latent_shared *shared, unsigned char *stages,
                            uint32_t stage)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t used = run->problem.head_dim;
    const uint64_t *at = shared->at[warp];
    unsigned char *to = stages + stage * GPU_LATENT_STAGE + warp * 8 * LATENT_PITCH;

    gpu_warp_barrier();
    const uint32_t there = gpu_ballot(at[lane % 8] != 0);
    if (lane == 0)
        ((unsigned char *)&shared->there[stage])[warp] = (unsigned char)there;
    if (shared->whole) {
        GPU_UNROLL
        for (uint32_t row = 0; row < 8; row++) {
            latent_copy(run, at[row], lane, to + LATENT_AT(row, lane));
            latent_copy(run, at[row], 32 + lane, to + LATENT_AT(row, 32 + lane));
        }
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) { /* the last 8 chunks, of four keys at once */
            const uint32_t row = i * 4 + lane / 8, chunk = 64 + lane % 8;
            latent_copy(run, at[row], chunk, to + LATENT_AT(row, chunk));
        }
    } else {
        GPU_LOOP
        for (uint32_t i = lane; i < 8 * GPU_LATENT_DIM / 8; i += GPU_WARP) {
            const uint32_t row = i / (GPU_LATENT_DIM / 8), chunk = i % (GPU_LATENT_DIM / 8);
            const bool present = at[row] != 0 && chunk * 8 < used;
            gpu_store_u128(to + LATENT_AT(row, chunk),
                           latent_gather(at[row] + chunk * 16, present ? used - chunk * 8 : 0));
        }
    }
    gpu_warp_barrier(); /* the next tile may be located */
}

/* What the rows see. */
GPU_INLINE void latent_load_rows(const struct gpu_run *run, struct latent_shared *shared, uint32_t row0)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t row = gpu_thread();
    uint32_t token, head;

    if (row >= LATENT_ROWS)
        return;
    if (latent_row_of(run, s, row0 + row, &token, &head)) {
        shared->row[row] = gpu_row(run, s, token, head);
    } else {
        shared->row[row].lo = 0;
        shared->row[row].hi = 0xffffffffu;
        shared->row[row].mask = 0;
        shared->row[row].square = false;
    }
}

/* The keys that every row sees without being asked. Rows that are not there see all: nobody wants them. */
GPU_INLINE void latent_find_plain(const struct gpu_run *run, struct latent_shared *shared)
{
    uint32_t lo = 0, hi = 0xffffffffu;

    if (gpu_thread() >= GPU_WARP)
        return;
    for (uint32_t row = gpu_thread(); row < LATENT_ROWS; row += GPU_WARP) {
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
        shared->row_lo = lo;
        shared->row_hi = run->mask.base != 0 ? 0 : hi;
    }
}
