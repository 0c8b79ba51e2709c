/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Part of mma-thin.h: where keys lie and how they are fetched, by a short way for turns whose keys are all in
 * the cache. All lanes of a warp know which turns these are.
 */

/*
 * What a piece's turns have in common. Keys below `simple` lie in the cache, a token's place in its page is
 * its lowest bits, and vectors fill their rows in whole chunks.
 */
struct mma_thin_base {
    uint64_t k, v; /* of the head: page 0, or of dense keys the first one */
    uint64_t k_scale, v_scale;
    uint64_t entries;
    uint32_t mask, shift;
    uint32_t simple;
    bool wide; /* entries of 64 bits */
};

/* Address of the scale of the same place; 0 = all are one value. */
GPU_INLINE uint64_t mma_thin_scales(const struct gpu_scale *scale, int64_t outer, int64_t token,
                                    uint32_t kv_head)
{
    return scale->base == 0
               ? 0
               : scale->base + (uint64_t)(outer * scale->outer_stride + token * scale->token_stride +
                                          (int64_t)kv_head * scale->head_stride);
}

GPU_INLINE struct mma_thin_base mma_thin_base_of(const struct gpu_run *run, const struct gpu_sequence *s,
                                                 const struct mma_reach *reach, uint32_t kv_head, bool whole)
{
    const bool dense = run->batch.addressing == ATTN_DENSE;
    struct mma_thin_base base;

    base.k = gpu_vector(&run->k, dense ? s->page : 0, dense ? s->start : 0, kv_head);
    base.v = gpu_vector(&run->v, dense ? s->page : 0, dense ? s->start : 0, kv_head);
    if (MMA_EIGHT) {
        const int64_t outer = run->problem.kv_source == ATTN_KV_NEW ? s->index : s->page;
        base.k_scale = mma_thin_scales(&run->k.scale, dense ? outer : 0, dense ? s->start : 0, kv_head);
        base.v_scale = mma_thin_scales(&run->v.scale, dense ? outer : 0, dense ? s->start : 0, kv_head);
    }
    base.entries = reach->entries;
    base.mask = dense ? 0xffffffffu : run->batch.block - 1;
    base.shift = run->batch.block_shift;
    base.simple = s->fresh < reach->keys ? s->fresh : reach->keys;
    base.wide = run->batch.addressing == ATTN_CSR && run->batch.index_dtype == ATTN_INT64;
    if (!whole || (!dense && run->batch.block_shift >= 32) || run->k.dim != MMA_DK || run->v.dim != MMA_DV)
        base.simple = 0;
    return base;
}

/* Asks where a lane's key of a turn lies. */
GPU_INLINE struct gpu_entry mma_thin_find(const struct gpu_run *run, const struct mma_reach *reach,
                                          const struct mma_thin_base *base, uint32_t tile, uint32_t key0)
{
    const uint32_t from = tile * GPU_TILE + key0;
    struct gpu_entry entry;

    if (from + MMA_KEYS > base->simple)
        return mma_find(run, reach, tile, key0);
    entry.low = entry.high = 0;
    if (base->entries == 0)
        return entry;
    const uint32_t page = (from + gpu_thread() % MMA_KEYS) >> base->shift;
    if (base->wide) {
        const uint32_t *at = (const uint32_t *)base->entries + (uint64_t)page * 2;
        entry.low = at[0];
        entry.high = at[1];
    } else {
        entry.low = ((const uint32_t *)base->entries)[page];
    }
    return entry;
}

/* A key's scale, which arrives with the next copies. */
GPU_INLINE void mma_thin_scale(const struct gpu_scale *scale, uint64_t base, uint64_t page, uint32_t token,
                               bool there, float *to)
{
    if (there && base != 0)
        gpu_copy_async4(to,
                        base + page * (uint64_t)scale->outer_stride + token * (uint64_t)scale->token_stride);
    else
        *to = there ? scale->value : 1;
}

/* Notes addresses, and scales, of what was found. True if all keys are there and `simple`. */
GPU_INLINE bool mma_thin_note(const struct gpu_run *run, struct mma_shared *shared,
                              const struct mma_reach *reach, const struct mma_thin_base *base, uint32_t tile,
                              uint32_t ring, uint32_t kv_head, uint32_t key0, struct gpu_entry entry)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, from = tile * GPU_TILE + key0;

    if (from + MMA_KEYS > base->simple) {
        mma_note(run, shared, reach, tile, ring, kv_head, key0, entry);
        return false;
    }
    const bool there = (int32_t)(base->wide ? entry.high : entry.low) >= 0;
    const uint64_t page = (uint64_t)entry.high << 32 | entry.low;
    const uint32_t token = (from + lane % MMA_KEYS) & base->mask;
    const uint64_t k = base->k + page * (uint64_t)run->k.page_stride + token * (uint64_t)run->k.token_stride;
    const uint64_t v = base->v + page * (uint64_t)run->v.page_stride + token * (uint64_t)run->v.token_stride;
    if (lane < MMA_KEYS) {
        shared->k_at[ring][key0 + lane] = there ? k : MMA_NOWHERE;
        shared->v_at[ring][key0 + lane] = there ? v : MMA_NOWHERE;
        if (mma_by_key(run->problem.k_scale))
            mma_thin_scale(&run->k.scale, base->k_scale, page, token, there,
                           &shared->k_scale[ring][key0 + lane]);
        if (mma_by_key(run->problem.v_scale))
            mma_thin_scale(&run->v.scale, base->v_scale, page, token, there,
                           &shared->v_scale[ring][key0 + lane]);
    }
    return gpu_ballot(!there) == 0;
}

/* A place in a row whose chunks take turns, `turn` bytes on. */
GPU_INLINE unsigned char *mma_thin_turned(unsigned char *at, uint32_t turn)
{
    return turn == 0 ? at : (unsigned char *)((uintptr_t)at ^ turn);
}

/*
 * A lane's part of a fetch: one chunk of two neighbouring rows, and of those behind them that other lanes do
 * not have. Only for rows of which a warp's copies hold some whole.
 */
struct mma_lane {
    uint32_t row;    /* the first one */
    uint32_t column; /* byte */
    uint32_t to[2];  /* of the half: where the two go */
};

GPU_INLINE struct mma_lane mma_thin_lane(uint32_t bytes)
{
    const uint32_t chunks = bytes / 16, lane = gpu_thread() % GPU_WARP, chunk = lane % chunks;
    struct mma_lane own;

    own.row = gpu_keep(lane / chunks * 2);
    own.column = gpu_keep(chunk * 16);
    GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++)
        own.to[i] = gpu_keep(MMA_AT(own.row + i, chunk, bytes));
    return own;
}

GPU_INLINE void mma_thin_fetch(const struct mma_lane *own, const uint64_t *at, uint32_t bytes,
                               unsigned char *half)
{
    const uint32_t rows = GPU_WARP / (bytes / 16) * 2; /* of two copies of a warp */
    unsigned char *to[2] = {half + own->to[0], half + own->to[1]};
    struct gpu_u128 two[MMA_KEYS * (MMA_DK > MMA_DV ? MMA_DK : MMA_DV) * MMA_SIZE / 1024];

    at += own->row;
    GPU_UNROLL
    for (uint32_t j = 0; j < MMA_KEYS / rows; j++)
        two[j] = gpu_load_u128(at + j * rows);
    GPU_UNROLL
    for (uint32_t j = 0; j < MMA_KEYS / rows; j++)
        GPU_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t vector = (uint64_t)two[j].x[2 * i + 1] << 32 | two[j].x[2 * i];
        /* Rows of a lane have bits of their own in what turns chunks. */
        const uint32_t turn = MMA_TURN(j * rows, bytes) * 16u;
        gpu_copy_async16_if(mma_thin_turned(to[i], turn) + j * rows * bytes, vector + own->column, true);
    }
}

/* A team's keys, or values, of a turn; `simple`: what its note said. */
GPU_INLINE void mma_thin_load(const struct gpu_run *run, const struct mma_shared *shared,
                              const struct mma_lane *own, unsigned char *half, uint32_t ring, uint32_t tile,
                              uint32_t key0, bool values, bool whole, bool simple)
{
    const uint32_t bytes = values ? MMA_VB : MMA_KB;

    if (GPU_WARP % (bytes / 16) == 0 && simple)
        mma_thin_fetch(own, (values ? shared->v_at[ring] : shared->k_at[ring]) + key0, bytes, half);
    else
        mma_load(run, shared, half, ring, tile, key0, values, whole);
}
