/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Part of tile-body.h: what waves have together, parts of a row, and the output. 32 threads have 64 columns
 * of a row, two each.
 */
#define TILE_GROUPS (TILE_THREADS / GPU_WARP)
/* Parts of a row that are asked for together. */
#define TILE_AT_ONCE 4u

/* A row's last word: what becomes of it by the sink and the division. Bases are in base 2. */
struct tile_last {
    float factor;
    float base;
    float whole;
};

GPU_INLINE struct tile_last tile_last_of(const struct gpu_run *run, uint32_t head, uint32_t kv_head,
                                         float peak, float total)
{
    const float sink = gpu_sink(run, head) * GPU_LOG2E, top = __builtin_fmaxf(peak, sink);
    struct tile_last last;

    last.base = top == -GPU_INFINITY ? 0 : top;
    const float share = gpu_exp2_fast(peak - last.base);
    last.whole = total * share + gpu_exp2_fast(sink - last.base);
    last.factor = total == 0 ? 0 : share / last.whole;
    if (TILE_EIGHT && !tile_by_key(run->problem.v_scale))
        last.factor *= gpu_scale_at(&run->v.scale, 0, 0, kv_head);
    return last;
}

/* A thread's two columns of a row into the output, and by the first thread of a row its logarithm. */
GPU_INLINE void tile_emit(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                          uint32_t head, uint32_t kv_head, uint32_t column, float peak, float total,
                          const float values[2])
{
    const uint32_t dtype = run->problem.out_dtype;
    const struct tile_last last = tile_last_of(run, head, kv_head, peak, total);
    const int64_t row = (int64_t)s->row + token;
    const uint64_t to =
        run->out.base + (uint64_t)(row * run->out.token_stride + (int64_t)head * run->out.head_stride);

    GPU_UNROLL
    for (uint32_t j = 0; j < 2; j++)
        if (column + j < run->problem.head_dim_vo)
            gpu_store(dtype, GPU_GLOBAL(unsigned char, to + (uint64_t)(column + j) * GPU_SIZE(dtype)),
                      values[j] * last.factor);
    if (column != 0 || run->lse.base == 0)
        return;
    float lse = -GPU_INFINITY;
    if (total == 0)
        lse = gpu_sink(run, head);
    if (!(last.whole == 0) && !(total == 0))
        lse = (float)(((double)last.base + gpu_log_f64((double)last.whole) * 1.4426950408889634) *
                      0.6931471805599453);
    *GPU_GLOBAL(float, run->lse.base + (uint64_t)(row * run->lse.token_stride +
                                                  (int64_t)head * run->lse.head_stride)) = lse;
}

/* Address of a part's row; of its peak and total. */
GPU_INLINE uint64_t tile_part_out(const struct gpu_run *run, uint32_t slot, uint32_t rows, uint32_t row)
{
    return run->part_out + ((uint64_t)slot * rows + row) * (TILE_DV * 4);
}
GPU_INLINE uint64_t tile_part_lse(const struct gpu_run *run, uint32_t slot, uint32_t rows, uint32_t row)
{
    return run->part_lse + ((uint64_t)slot * rows + row) * 8;
}

/* 64 columns of a wave's rows, the first of its results, into its place in shared memory. */
GPU_INLINE void tile_put(float *to, float o[TILE_OUT][TILE_ACC])
{
    const uint32_t lane = tile_thread() % TILE_WAVE;
    float *at = to + lane % 16 * HIP_TILE_RESULT + lane / 16 * TILE_ACC;

    GPU_UNROLL
    for (uint32_t n = 0; n < 4; n++)
        GPU_UNROLL
    for (uint32_t i = 0; i < TILE_ACC; i++)
        at[n * 16 + i] = o[n][i];
}

/* A row of all teams as one. */
GPU_INLINE void tile_join(const struct tile_shared *shared, const float *from, uint32_t row, uint32_t teams,
                          float *peak, float *total, float values[2])
{
    const uint32_t lane = tile_thread() % GPU_WARP;

    *peak = -GPU_INFINITY;
    *total = values[0] = values[1] = 0;
    GPU_UNROLL
    for (uint32_t g = 0; g < teams; g++)
        *peak = __builtin_fmaxf(*peak, shared->max[g * 16 + row]);
    const float base = *peak == -GPU_INFINITY ? 0 : *peak;
    GPU_UNROLL
    for (uint32_t g = 0; g < teams; g++) {
        const float weight = gpu_exp2_fast(shared->max[g * 16 + row] - base);
        const float *at = from + (g * 16 + row) * HIP_TILE_RESULT + lane * 2;
        *total += shared->sum[g * 16 + row] * weight;
        values[0] += at[0] * weight;
        values[1] += at[1] * weight;
    }
}

/* Rows of shared memory into the output, or as parts of rows; of each half of the columns 64, from `column`
 * on. */
GPU_INLINE void tile_finish(const struct gpu_run *run, const struct tile_shared *shared, const float *from,
                            const struct gpu_piece *p, uint32_t rows, uint32_t column)
{
    const uint32_t lane = tile_thread() % GPU_WARP;

    GPU_LOOP
    for (uint32_t i = tile_thread() / GPU_WARP; i < rows * TILE_HALVES; i += TILE_GROUPS) {
        const uint32_t row = i % rows, half = i / rows,
                       d = half * (TILE_DV / TILE_HALVES) + column + lane * 2;
        uint32_t token, head;
        float peak, total, values[2];
        if (!tile_row_of(run, &shared->sequence, p->row0 + row, p->kv_head, &token, &head))
            continue;
        tile_join(shared, from + half * (64 * HIP_TILE_RESULT), row, 64 / rows, &peak, &total, values);
        if (p->parts == 1) {
            tile_emit(run, &shared->sequence, token, head, p->kv_head, d, peak, total, values);
            continue;
        }
        const uint32_t slot = gpu_slot(p, p->part);
        float *out = GPU_GLOBAL(float, tile_part_out(run, slot, rows, row)) + d;
        out[0] = values[0];
        out[1] = values[1];
        if (d == 0) {
            float *lse = GPU_GLOBAL(float, tile_part_lse(run, slot, rows, row));
            lse[0] = peak;
            lse[1] = total;
        }
    }
}

/* True for the CTA that comes last of those that have parts of a sequence and head. */
GPU_INLINE bool tile_comes_last(const struct gpu_run *run, struct tile_shared *shared,
                                const struct gpu_piece *p)
{
    gpu_fence();
    gpu_barrier();
    if (tile_thread() == 0) {
        uint32_t *counter =
            GPU_GLOBAL(uint32_t, run->counters) + (uint64_t)p->seq * run->problem.kv_heads + p->kv_head;
        gpu_fence(); /* of all that the barrier orders before it */
        shared->last = gpu_atomic_add(counter, 1) + 1 == p->parts;
        if (shared->last) {
            *counter = 0;
            gpu_fence();
        }
    }
    gpu_barrier();
    return tile_same(shared->last) != 0;
}

/* Parts of rows into the output: of 32 parts at a time each thread knows the weight of one. */
GPU_INLINE void tile_merge(const struct gpu_run *run, const struct tile_shared *shared,
                           const struct gpu_piece *p, uint32_t rows)
{
    const uint32_t lane = tile_thread() % GPU_WARP;

    GPU_LOOP
    for (uint32_t i = tile_thread() / GPU_WARP; i < rows * (TILE_DV / 64); i += TILE_GROUPS) {
        const uint32_t row = i / (TILE_DV / 64), d = i % (TILE_DV / 64) * 64 + lane * 2;
        float top = -GPU_INFINITY, sum = 0, values[2] = {0, 0};
        uint32_t token, head;
        if (!tile_row_of(run, &shared->sequence, row, p->kv_head, &token, &head))
            break;
        GPU_LOOP
        for (uint32_t first = 0; first < p->parts; first += GPU_WARP) {
            const uint32_t count = p->parts - first < GPU_WARP ? p->parts - first : GPU_WARP;
            const uint32_t own = gpu_slot(p, first + (lane < count ? lane : 0));
            const struct gpu_u64 lse = gpu_load_fresh_u64(tile_part_lse(run, own, rows, row));
            const float peak = lane < count ? gpu_f32_of_bits(lse.x[0]) : -GPU_INFINITY;
            float most = __builtin_fmaxf(top, peak);
            GPU_UNROLL
            for (uint32_t step = 1; step < GPU_WARP; step *= 2)
                most = __builtin_fmaxf(most, gpu_shuffle_xor_f32(most, step));
            const float base = most == -GPU_INFINITY ? 0 : most, down = gpu_exp2_fast(top - base);
            const float weight = gpu_exp2_fast(peak - base);
            top = most;
            sum = sum * down + (lane < count ? gpu_f32_of_bits(lse.x[1]) * weight : 0);
            values[0] *= down;
            values[1] *= down;
            GPU_LOOP
            for (uint32_t j = 0; j < count; j += TILE_AT_ONCE) {
                struct gpu_u64 part[TILE_AT_ONCE];
                GPU_UNROLL
                for (uint32_t u = 0; u < TILE_AT_ONCE; u++) { /* all under way before the first is used */
                    const uint32_t slot = gpu_slot(p, first + (j + u < count ? j + u : j));
                    part[u] = gpu_load_fresh_u64(tile_part_out(run, slot, rows, row) + d * 4);
                }
                GPU_UNROLL
                for (uint32_t u = 0; u < TILE_AT_ONCE; u++) {
                    const float share = gpu_shuffle_f32(weight, (j + u) % GPU_WARP);
                    if (j + u < count) {
                        values[0] += gpu_f32_of_bits(part[u].x[0]) * share;
                        values[1] += gpu_f32_of_bits(part[u].x[1]) * share;
                    }
                }
            }
        }
        GPU_UNROLL
        for (uint32_t step = 1; step < GPU_WARP; step *= 2)
            sum += gpu_shuffle_xor_f32(sum, step);
        tile_emit(run, &shared->sequence, token, head, p->kv_head, d, top, sum, values);
    }
}
