/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Part of mma-body.h: results of kernels whose warps have rows of their own, straight into an output of 16
 * bits. No warp waits for another: each takes the place of its own queries, where rows of results become rows
 * of memory.
 */

/* Whether rows go out this way, or by mma_put and mma_finish. */
GPU_INLINE bool mma_is_direct(const struct gpu_run *run, const struct gpu_piece *p)
{
    const uint32_t dtype = run->problem.out_dtype;

    return MMA_RB == 4 && p->parts == 1 && (dtype == ATTN_BF16 || dtype == ATTN_F16) &&
           run->problem.out_scale <= ATTN_SCALES_UNIT && run->problem.head_dim_vo % 8 == 0 &&
           ((run->out.base | (uint64_t)run->out.token_stride | (uint64_t)run->out.head_stride) & 15) == 0;
}

/* Where a row goes and by what it is multiplied. */
struct mma_way {
    uint64_t to; /* 0: nowhere */
    float factor;
};

/* The way of each row of a warp, to the lane of its number. `max` and `sum` are a lane's of its blocks. */
GPU_INLINE struct mma_way mma_way_of(const struct gpu_run *run, const struct gpu_sequence *s,
                                     const struct gpu_piece *p, float max[MMA_MI][2], float sum[MMA_MI][2],
                                     float factor)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;
    struct mma_way way = {0, 0};
    float peak = -GPU_INFINITY, total = 0;
    uint32_t token, head;

    GPU_UNROLL
    for (uint32_t i = 0; i < MMA_MI * 2; i++) {
        float all = sum[i / 2][i % 2];
        all += gpu_shuffle_xor_f32(all, 1);
        all += gpu_shuffle_xor_f32(all, 2);
        const float own = gpu_shuffle_f32(all, lane % 8 * 4);
        const float top = gpu_shuffle_f32(max[i / 2][i % 2] * factor, lane % 8 * 4);
        total = lane / 8 == i ? own : total;
        peak = lane / 8 == i ? top : peak;
    }
    if (lane >= MMA_MI * 16 ||
        !mma_row_of(run, s, p->row0 + warp * MMA_MI * 16 + lane, p->kv_head, &token, &head))
        return way;
    const struct mma_last last = mma_last_of(run, s, token, head, p->kv_head, peak, total);
    way.to = last.to;
    way.factor = last.factor;
    mma_emit_lse(run, s, token, head, total, &last);
    return way;
}

/* Results of a lane's rows, as numbers of the output, into the place of the warp's queries. */
GPU_INLINE void mma_stage(unsigned char *place, bool wide, const struct mma_way *way,
                          float o[MMA_MI][MMA_DV / 8][4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = m * 16 + h * 8 + lane / 4;
        const float factor = gpu_shuffle_f32(way->factor, row);
        unsigned char *at = place + row * MMA_STRIDE(MMA_DK * 2) + lane % 4 * (MMA_EIGHT ? 8 : 4);
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 8; n += 2) {
            const float even[2] = {o[m][n][2 * h] * factor, o[m][n][2 * h + 1] * factor};
            const float odd[2] = {o[m][n + 1][2 * h] * factor, o[m][n + 1][2 * h + 1] * factor};
            *(uint32_t *)(void *)(at + n * 16) = mma_pack(even[0], MMA_EIGHT ? odd[0] : even[1], wide);
            *(uint32_t *)(void *)(at + n * 16 + (MMA_EIGHT ? 4 : 16)) =
                mma_pack(MMA_EIGHT ? even[1] : odd[0], odd[1], wide);
        }
    }
}

/* All of a warp's rows. */
GPU_INLINE void mma_write(const struct gpu_run *run, const struct mma_shared *shared, unsigned char *queries,
                          const struct gpu_piece *p, float max[MMA_MI][2], float sum[MMA_MI][2],
                          float o[MMA_MI][MMA_DV / 8][4], float factor)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, chunks = MMA_DV / 8, rows = GPU_WARP / chunks;
    const uint32_t column = lane % chunks * 16, warp = gpu_thread() / GPU_WARP;
    const bool inside = column < run->problem.head_dim_vo * 2;
    unsigned char *place = queries + warp * MMA_MI * 16 * MMA_STRIDE(MMA_DK * 2);
    const struct mma_way way = mma_way_of(run, &shared->sequence, p, max, sum, factor);

    gpu_warp_barrier(); /* the queries have been read */
    if (run->problem.out_dtype == ATTN_BF16)
        mma_stage(place, true, &way, o);
    else
        mma_stage(place, false, &way, o);
    gpu_warp_barrier();
    GPU_UNROLL
    for (uint32_t i = 0; i < MMA_MI * 16; i += rows) {
        const uint32_t row = i + lane / chunks;
        const uint64_t to = gpu_shuffle_u64(way.to, row);
        if (to != 0 && inside)
            gpu_store_global_u128(to + column, gpu_load_u128(place + row * MMA_STRIDE(MMA_DK * 2) + column));
    }
}
