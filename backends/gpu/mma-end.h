/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: what warps have together, parts of a row, and the output. */

/* Sums of the four lanes of a row, and what the warps of a row group have together, into shared memory. */
GPU_INLINE void mma_join(struct mma_shared *shared, float *to, uint32_t row_group, uint32_t key_group,
                         float max[MMA_MI][2], float sum[MMA_MI][2], float o[MMA_MI][MMA_DV / 8][4],
                         float factor)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float total = sum[m][h];
        max[m][h] *= factor;
        total += gpu_shuffle_xor_f32(total, 1);
        total += gpu_shuffle_xor_f32(total, 2);
        if (lane % 4 == 0) {
            shared->max[warp][m * 16 + h * 8 + lane / 4] = max[m][h];
            shared->sum[warp][m * 16 + h * 8 + lane / 4] = total;
        }
    }
    gpu_barrier(); /* and the last tile has been read */
    for (uint32_t g = 0; g < MMA_KG; g++) {
        if (g == key_group)
            GPU_UNROLL
        for (uint32_t m = 0; m < MMA_MI; m++)
            GPU_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t in = m * 16 + h * 8 + lane / 4, row = row_group * MMA_MI * 16 + in;
            float peak = -GPU_INFINITY, total = 0;
            for (uint32_t w = 0; w < MMA_KG; w++)
                peak = fmaxf(peak, shared->max[row_group * MMA_KG + w][in]);
            const float base = peak == -GPU_INFINITY ? 0 : peak;
            for (uint32_t w = 0; w < MMA_KG; w++)
                total += shared->sum[row_group * MMA_KG + w][in] *
                         gpu_exp2_fast(shared->max[row_group * MMA_KG + w][in] - base);
            const float share = gpu_exp2_fast(max[m][h] - base);
            if (lane % 4 == 0 && g == 0) {
                shared->peak[row] = peak;
                shared->total[row] = total;
            }
            GPU_UNROLL
            for (uint32_t n = 0; n < MMA_DV / 8; n++)
                GPU_UNROLL
            for (uint32_t e = 0; e < 2; e++) {
                const uint32_t c = lane % 4 * 2 + e;
                const uint32_t d = MMA_EIGHT ? n / 2 * 16 + c * 2 + n % 2 : n * 8 + c;
                float *at = to + row * MMA_PITCH + d;
                const float x = o[m][n][2 * h + e] * share;
                *at = g == 0 ? x : *at + x;
            }
        }
        gpu_barrier();
    }
}

/* A row's last word: the sink, the division, the output's type. `peak` and `total` in base 2. */
GPU_INLINE void mma_emit(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                         uint32_t head, uint32_t kv_head, float peak, float total,
                         const float values[MMA_DV / 32], uint32_t lane)
{
    const float sink = gpu_sink(run, head) * GPU_LOG2E;
    const float top = fmaxf(peak, sink), base = top == -GPU_INFINITY ? 0 : top;
    const float share = gpu_exp2_fast(peak - base), whole = total * share + gpu_exp2_fast(sink - base);
    const uint32_t dtype = run->problem.out_dtype;
    const int64_t row = (int64_t)s->row + token;
    const uint64_t to =
        run->out.base + (uint64_t)(row * run->out.token_stride + (int64_t)head * run->out.head_stride);
    const float v_scale =
        MMA_EIGHT && !mma_by_key(run->problem.v_scale) ? gpu_scale_at(&run->v.scale, 0, 0, kv_head) : 1;
    const bool scaled = run->problem.out_scale > ATTN_SCALES_UNIT;

    GPU_UNROLL
    for (uint32_t j = 0; j < MMA_DV / 32; j++) {
        const uint32_t d = j * 32 + lane;
        float x = total == 0 ? 0 : values[j] * share / whole * v_scale;
        if (scaled)
            x = gpu_divide(x, gpu_scale_at(&run->out_scale, s->index, row, head));
        if (d < run->problem.head_dim_vo)
            gpu_store(dtype, (unsigned char *)(to + d * GPU_SIZE(dtype)), x);
    }
    if (lane == 0 && run->lse.base != 0)
        *(float *)(run->lse.base +
                   (uint64_t)(row * run->lse.token_stride + (int64_t)head * run->lse.head_stride)) =
            whole == 0   ? -GPU_INFINITY
            : total == 0 ? gpu_sink(run, head)
                         : (float)(((double)base + gpu_log_f64((double)whole) * 1.4426950408889634) *
                                   0.6931471805599453);
}

/* Rows of shared memory into the output, or as a part of one. */
GPU_INLINE void mma_finish(const struct gpu_run *run, struct mma_shared *shared, const float *from,
                           uint32_t row0, uint32_t kv_head, bool part, uint32_t slot)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    GPU_LOOP
    for (uint32_t row = warp; row < MMA_ROWS; row += 4) {
        uint32_t token, head;
        if (!mma_row_of(run, s, row0 + row, kv_head, &token, &head))
            break;
        float values[MMA_DV / 32];
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_DV / 32; j++)
            values[j] = from[row * MMA_PITCH + j * 32 + lane];
        if (!part) {
            mma_emit(run, s, token, head, kv_head, shared->peak[row], shared->total[row], values, lane);
            continue;
        }
        const uint64_t at = (uint64_t)slot * MMA_ROWS + row;
        float *out = (float *)run->part_out + at * MMA_DV;
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_DV / 32; j++)
            out[j * 32 + lane] = values[j];
        if (lane == 0) {
            ((float *)run->part_lse)[2 * at] = shared->peak[row];
            ((float *)run->part_lse)[2 * at + 1] = shared->total[row];
        }
    }
}

/* True for the CTA that comes last of those that have parts of a sequence and head. */
GPU_INLINE bool mma_comes_last(const struct gpu_run *run, struct mma_shared *shared,
                               const struct gpu_piece *p)
{
    gpu_fence();
    gpu_barrier();
    if (gpu_thread() == 0) {
        uint32_t *counter = (uint32_t *)run->counters + (uint64_t)p->seq * run->problem.kv_heads + p->kv_head;
        shared->last = gpu_atomic_add(counter, 1) + 1 == p->parts;
        if (shared->last)
            *counter = 0;
    }
    gpu_barrier();
    gpu_fence();
    return shared->last != 0;
}

/* Parts of a row into one: each lane knows the weights of some, all take turns. */
GPU_INLINE void mma_merge_row(const struct gpu_run *run, const struct gpu_piece *p, uint32_t row, float *peak,
                              float *total, float values[MMA_DV / 32])
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    const volatile float *lse = (const volatile float *)run->part_lse;
    float top = -GPU_INFINITY, sum = 0;

    for (uint32_t i = lane; i < p->parts; i += GPU_WARP)
        top = fmaxf(top, lse[2 * ((uint64_t)gpu_slot(p, i) * MMA_ROWS + row)]);
    for (uint32_t step = 1; step < GPU_WARP; step *= 2)
        top = fmaxf(top, gpu_shuffle_xor_f32(top, step));
    const float base = top == -GPU_INFINITY ? 0 : top;
    GPU_UNROLL
    for (uint32_t j = 0; j < MMA_DV / 32; j++)
        values[j] = 0;
    for (uint32_t first = 0; first < p->parts; first += GPU_WARP) {
        float share = 0;
        if (first + lane < p->parts) {
            const uint64_t at = (uint64_t)gpu_slot(p, first + lane) * MMA_ROWS + row;
            share = gpu_exp2_fast(lse[2 * at] - base);
            sum += lse[2 * at + 1] * share;
        }
        const uint32_t count = p->parts - first < GPU_WARP ? p->parts - first : GPU_WARP;
        for (uint32_t i = 0; i < count; i += 4) {
            float part[4][MMA_DV / 32];
            GPU_UNROLL
            for (uint32_t u = 0; u < 4; u++) { /* all under way before the first is used */
                const uint64_t at =
                    (uint64_t)gpu_slot(p, first + (i + u < count ? i + u : i)) * MMA_ROWS + row;
                const volatile float *out = (const volatile float *)run->part_out + at * MMA_DV;
                GPU_UNROLL
                for (uint32_t j = 0; j < MMA_DV / 32; j++)
                    part[u][j] = out[j * 32 + lane];
            }
            GPU_UNROLL
            for (uint32_t u = 0; u < 4; u++) {
                const float weight = gpu_shuffle_f32(share, (i + u) % GPU_WARP);
                if (i + u < count)
                    GPU_UNROLL
                for (uint32_t j = 0; j < MMA_DV / 32; j++)
                    values[j] += part[u][j] * weight;
            }
        }
    }
    for (uint32_t step = 1; step < GPU_WARP; step *= 2)
        sum += gpu_shuffle_xor_f32(sum, step);
    *peak = top;
    *total = sum;
}

/* Parts into one. */
GPU_INLINE void mma_merge(const struct gpu_run *run, const struct mma_shared *shared,
                          const struct gpu_piece *p)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    GPU_LOOP
    for (uint32_t row = warp; row < MMA_ROWS; row += 4) {
        uint32_t token, head;
        float peak, total, values[MMA_DV / 32];
        if (!mma_row_of(run, s, row, p->kv_head, &token, &head))
            break;
        mma_merge_row(run, p, row, &peak, &total, values);
        mma_emit(run, s, token, head, p->kv_head, peak, total, values, lane);
    }
}
