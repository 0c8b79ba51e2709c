/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: what warps have together, parts of a row, and the output. */

/* A lane has this many columns of a row of results, one behind the other; some lanes have none of a short
 * row. */
#define MMA_SHARE   (MMA_DV < 128 ? 4 : MMA_DV / 32)
#define MMA_HOLDERS (MMA_DV / MMA_SHARE)
/* Floats of a team's results in shared memory. */
#define MMA_AREA (MMA_ROWS * MMA_PITCH)
/* Parts of a row that are asked for together. */
#define MMA_AT_ONCE 8

/* What a team has, into its place in shared memory: maxima in base 2, sums, and results of rows that exist.
 */
GPU_INLINE void mma_put(struct mma_shared *shared, float *to, uint32_t rows, uint32_t row_group,
                        uint32_t team, float max[MMA_MI][2], float sum[MMA_MI][2],
                        float o[MMA_MI][MMA_DV / 8][4], float factor)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float total = sum[m][h];
        total += gpu_shuffle_xor_f32(total, 1);
        total += gpu_shuffle_xor_f32(total, 2);
        if (lane % 4 == 0) {
            shared->max[warp][m * 16 + h * 8 + lane / 4] = max[m][h] * factor;
            shared->sum[warp][m * 16 + h * 8 + lane / 4] = total;
        }
    }
    gpu_barrier(); /* the last tile has been read */
    GPU_UNROLL
    for (uint32_t m = 0; m < MMA_MI; m++)
        GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = (row_group * MMA_MI + m) * 16 + h * 8 + lane / 4;
        float *at = to + team * MMA_AREA + row * MMA_PITCH + lane % 4 * (MMA_EIGHT ? 4 : 2);
        if (row >= rows)
            continue;
        GPU_UNROLL
        for (uint32_t n = 0; n < MMA_DV / 8; n += 2) {
            const float *even = &o[m][n][2 * h], *odd = &o[m][n + 1][2 * h];
            at[n * 8] = even[0];
            at[n * 8 + 1] = MMA_EIGHT ? odd[0] : even[1];
            at[n * 8 + (MMA_EIGHT ? 2 : 8)] = MMA_EIGHT ? even[1] : odd[0];
            at[n * 8 + (MMA_EIGHT ? 3 : 9)] = odd[1];
        }
    }
    gpu_barrier();
}

/* A row of all teams as one. */
GPU_INLINE void mma_join(const struct mma_shared *shared, const float *from, uint32_t row, float *peak,
                         float *total, float values[MMA_SHARE])
{
    const uint32_t group = row / (MMA_MI * 16) * MMA_KG, in = row % (MMA_MI * 16);
    const uint32_t lane = gpu_thread() % GPU_WARP;

    *peak = -GPU_INFINITY;
    *total = 0;
    GPU_UNROLL
    for (uint32_t g = 0; g < MMA_KG; g++)
        *peak = fmaxf(*peak, shared->max[group + g][in]);
    const float base = *peak == -GPU_INFINITY ? 0 : *peak;
    GPU_UNROLL
    for (uint32_t j = 0; j < MMA_SHARE; j++)
        values[j] = 0;
    GPU_UNROLL
    for (uint32_t g = 0; g < MMA_KG; g++) {
        const float weight = gpu_exp2_fast(shared->max[group + g][in] - base);
        const float *at = from + g * MMA_AREA + row * MMA_PITCH + lane % MMA_HOLDERS * MMA_SHARE;
        *total += shared->sum[group + g][in] * weight;
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_SHARE; j++)
            values[j] += at[j] * weight;
    }
}

/* Numbers of a row into the output, whatever its type and strides; one after the other, for it is seldom. */
GPU_INLINE void mma_emit_odd(const struct gpu_run *run, const struct gpu_sequence *s, int64_t row,
                             uint32_t head, uint64_t to, float values[MMA_SHARE])
{
    const uint32_t dtype = run->problem.out_dtype, from = gpu_thread() % GPU_WARP * MMA_SHARE;

    GPU_LOOP
    for (uint32_t d = from; d < from + MMA_SHARE && d < run->problem.head_dim_vo; d++) {
        float x = values[0];
        GPU_UNROLL
        for (uint32_t j = 0; j + 1 < MMA_SHARE; j++)
            values[j] = values[j + 1];
        if (run->problem.out_scale > ATTN_SCALES_UNIT)
            x = gpu_divide(x, gpu_scale_at(&run->out_scale, s->index, row, head));
        gpu_store(dtype, (unsigned char *)(to + d * GPU_SIZE(dtype)), x);
    }
}

/* Numbers of a row into an output of 16 bits, four at once. */
GPU_INLINE void mma_emit_four(const struct gpu_run *run, uint64_t to, const float values[MMA_SHARE])
{
    const bool wide = run->problem.out_dtype == ATTN_BF16;

    GPU_UNROLL
    for (uint32_t j = 0; j < MMA_SHARE; j += 4) {
        const uint32_t d = gpu_thread() % GPU_WARP * MMA_SHARE + j;
        const uint64_t low = mma_pack(values[j], values[j + 1], wide);
        const uint64_t high = mma_pack(values[j + 2], values[j + 3], wide);
        if (d < run->problem.head_dim_vo)
            *(uint64_t *)(to + d * 2u) = high << 32 | low;
    }
}

/* A row's last word: where it goes, and what becomes of it by the sink and the division. */
struct mma_last {
    uint64_t to;
    float factor;
    float base; /* in base 2 */
    float whole;
};

/* `peak` and `total` in base 2. */
GPU_INLINE struct mma_last mma_last_of(const struct gpu_run *run, const struct gpu_sequence *s,
                                       uint32_t token, uint32_t head, uint32_t kv_head, float peak,
                                       float total)
{
    const float sink = gpu_sink(run, head) * GPU_LOG2E, top = fmaxf(peak, sink);
    const int64_t row = (int64_t)s->row + token;
    struct mma_last last;

    last.base = top == -GPU_INFINITY ? 0 : top;
    const float share = gpu_exp2_fast(peak - last.base);
    last.whole = total * share + gpu_exp2_fast(sink - last.base);
    last.to = run->out.base + (uint64_t)(row * run->out.token_stride + (int64_t)head * run->out.head_stride);
    last.factor = total == 0 ? 0 : share / last.whole;
    if (MMA_EIGHT && !mma_by_key(run->problem.v_scale))
        last.factor *= gpu_scale_at(&run->v.scale, 0, 0, kv_head);
    return last;
}

/* The logarithm of a row's sum, where it is wanted. */
GPU_INLINE void mma_emit_lse(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                             uint32_t head, float total, const struct mma_last *last)
{
    const int64_t row = (int64_t)s->row + token;

    if (run->lse.base == 0)
        return;
    *(float *)(run->lse.base +
               (uint64_t)(row * run->lse.token_stride + (int64_t)head * run->lse.head_stride)) =
        last->whole == 0 ? -GPU_INFINITY
        : total == 0     ? gpu_sink(run, head)
                     : (float)(((double)last->base + gpu_log_f64((double)last->whole) * 1.4426950408889634) *
                               0.6931471805599453);
}

/* A row into the output. */
GPU_INLINE void mma_emit(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                         uint32_t head, uint32_t kv_head, float peak, float total, float values[MMA_SHARE])
{
    const uint32_t dtype = run->problem.out_dtype;
    const struct mma_last last = mma_last_of(run, s, token, head, kv_head, peak, total);
    const uint64_t to = last.to;

    GPU_UNROLL
    for (uint32_t j = 0; j < MMA_SHARE; j++)
        values[j] *= last.factor;
    if ((dtype == ATTN_BF16 || dtype == ATTN_F16) && run->problem.out_scale <= ATTN_SCALES_UNIT &&
        (to & 7) == 0 && run->problem.head_dim_vo % 4 == 0)
        mma_emit_four(run, to, values);
    else
        mma_emit_odd(run, s, (int64_t)s->row + token, head, to, values);
    if (gpu_thread() % GPU_WARP == 0)
        mma_emit_lse(run, s, token, head, total, &last);
}

/* Address of a part's row; of its peak and total. */
GPU_INLINE float *mma_part_out(const struct gpu_run *run, uint32_t slot, uint32_t row)
{
    return (float *)run->part_out + ((uint64_t)slot * MMA_ROWS + row) * MMA_DV;
}

GPU_INLINE float *mma_part_lse(const struct gpu_run *run, uint32_t slot, uint32_t row)
{
    return (float *)run->part_lse + ((uint64_t)slot * MMA_ROWS + row) * 2;
}

/* Rows of shared memory into the output, or as parts of rows. */
GPU_INLINE void mma_finish(const struct gpu_run *run, const struct mma_shared *shared, const float *from,
                           const struct gpu_piece *p)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    GPU_LOOP
    for (uint32_t row = warp; row < MMA_ROWS; row += 4) {
        uint32_t token, head;
        float peak, total, values[MMA_SHARE];
        if (!mma_row_of(run, s, p->row0 + row, p->kv_head, &token, &head))
            break;
        mma_join(shared, from, row, &peak, &total, values);
        if (p->parts == 1) {
            mma_emit(run, s, token, head, p->kv_head, peak, total, values);
            continue;
        }
        const uint32_t slot = gpu_slot(p, p->part);
        float *out = mma_part_out(run, slot, row) + lane * MMA_SHARE;
        GPU_UNROLL
        for (uint32_t j = 0; j < MMA_SHARE; j++)
            if (lane < MMA_HOLDERS)
                out[j] = values[j];
        if (lane == 0) {
            mma_part_lse(run, slot, row)[0] = peak;
            mma_part_lse(run, slot, row)[1] = total;
        }
    }
}

/* True for the CTA that comes last of those that have parts of a sequence and head. */
GPU_INLINE bool mma_comes_last(const struct gpu_run *run, struct mma_shared *shared,
                               const struct gpu_piece *p)
{
    gpu_barrier();
    if (gpu_thread() == 0) {
        uint32_t *counter = (uint32_t *)run->counters + (uint64_t)p->seq * run->problem.kv_heads + p->kv_head;
        gpu_fence(); /* of all that the barrier orders before it */
        shared->last = gpu_atomic_add(counter, 1) + 1 == p->parts;
        if (shared->last) {
            *counter = 0;
            gpu_fence();
        }
    }
    gpu_barrier();
    return shared->last != 0;
}

/* The parts of a row, 32 at a time, of which each lane knows the weight of one. */
struct mma_merged {
    float top;
    float sum; /* a lane's share of it */
    float values[MMA_SHARE];
};

/* Weights of up to 32 parts, of which this lane has the one with `lse`. */
GPU_INLINE float mma_merge_weight(struct mma_merged *m, const struct gpu_u64 lse, bool there)
{
    const float peak = there ? gpu_f32_of_bits(lse.x[0]) : -GPU_INFINITY;
    float top = fmaxf(m->top, peak);

    for (uint32_t step = 1; step < GPU_WARP; step *= 2)
        top = fmaxf(top, gpu_shuffle_xor_f32(top, step));
    const float base = top == -GPU_INFINITY ? 0 : top, down = gpu_exp2_fast(m->top - base);
    const float weight = gpu_exp2_fast(peak - base);
    m->top = top;
    m->sum = m->sum * down + (there ? gpu_f32_of_bits(lse.x[1]) * weight : 0);
    GPU_UNROLL
    for (uint32_t j = 0; j < MMA_SHARE; j++)
        m->values[j] *= down;
    return weight;
}

GPU_INLINE void mma_merge_row(const struct gpu_run *run, const struct gpu_piece *p, uint32_t row,
                              struct mma_merged *m)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;

    m->top = -GPU_INFINITY;
    m->sum = 0;
    GPU_UNROLL
    for (uint32_t j = 0; j < MMA_SHARE; j++)
        m->values[j] = 0;
    GPU_LOOP
    for (uint32_t first = 0; first < p->parts; first += GPU_WARP) {
        const uint32_t count = p->parts - first < GPU_WARP ? p->parts - first : GPU_WARP;
        const uint32_t own = first + (lane < count ? lane : 0);
        const struct gpu_u64 lse = gpu_load_fresh_u64((uint64_t)mma_part_lse(run, gpu_slot(p, own), row));
        float weight = 0;
        GPU_LOOP
        for (uint32_t i = 0; i < count; i += MMA_AT_ONCE) {
            struct gpu_u128 part[MMA_AT_ONCE][MMA_SHARE / 4];
            GPU_UNROLL
            for (uint32_t u = 0; u < MMA_AT_ONCE; u++) { /* all under way before the first is used */
                const uint32_t slot = gpu_slot(p, first + (i + u < count ? i + u : i));
                const float *at = mma_part_out(run, slot, row) + lane % MMA_HOLDERS * MMA_SHARE;
                GPU_UNROLL
                for (uint32_t j = 0; j < MMA_SHARE / 4; j++)
                    part[u][j] = gpu_load_fresh_u128((uint64_t)(at + 4 * j));
            }
            if (i == 0)
                weight = mma_merge_weight(m, lse, lane < count);
            GPU_UNROLL
            for (uint32_t u = 0; u < MMA_AT_ONCE; u++) {
                const float share = gpu_shuffle_f32(weight, (i + u) % GPU_WARP);
                GPU_UNROLL
                for (uint32_t j = 0; j < MMA_SHARE; j++)
                    if (i + u < count)
                        m->values[j] += gpu_f32_of_bits(part[u][j / 4].x[j % 4]) * share;
            }
        }
    }
    for (uint32_t step = 1; step < GPU_WARP; step *= 2)
        m->sum += gpu_shuffle_xor_f32(m->sum, step);
}

/* Parts into one. */
GPU_INLINE void mma_merge(const struct gpu_run *run, const struct mma_shared *shared,
                          const struct gpu_piece *p)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t warp = gpu_thread() / GPU_WARP;

    GPU_LOOP
    for (uint32_t row = warp; row < MMA_ROWS; row += 4) {
        uint32_t token, head;
        struct mma_merged m;
        if (!mma_row_of(run, s, row, p->kv_head, &token, &head))
            break;
        mma_merge_row(run, p, row, &m);
        mma_emit(run, s, token, head, p->kv_head, m.top, m.sum, m.values);
    }
}
