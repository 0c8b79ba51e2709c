/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: queries into shared memory, what their rows see, and what their scores have in common.
 */

/* Token and head of a row of the sequence; false behind its last one. */
GPU_INLINE bool mma_row_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t row,
                           uint32_t kv_head, uint32_t *token, uint32_t *head)
{
    *token = row / run->group;
    *head = kv_head * run->group + row % run->group;
    return *token < s->q_len;
}

/* A query. */
GPU_INLINE uint64_t mma_query_at(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t token,
                                 uint32_t head)
{
    return run->q.base +
           (uint64_t)((int64_t)(s->row + token) * run->q.token_stride + (int64_t)head * run->q.head_stride);
}

/* 16 elements of a query from d on; what lies behind the last one is zero. */
GPU_INLINE void mma_load_group(const uint16_t *q, uint32_t d, uint32_t dim, bool aligned, uint32_t to[8])
{
    if (aligned && d + 16 <= dim) {
        GPU_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const struct gpu_u128 part = gpu_load_u128(q + d + 8 * i);
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                to[4 * i + j] = part.x[j];
        }
        return;
    }
    GPU_UNROLL
    for (uint32_t i = 0; i < 8; i++, d += 2)
        to[i] = (d < dim ? q[d] : 0u) | (d + 1 < dim ? (uint32_t)q[d + 1] << 16 : 0u);
}

/* Queries into shared memory. */
GPU_INLINE void mma_load_plain(const struct gpu_run *run, const struct gpu_sequence *s, unsigned char *to,
                               uint32_t row0, uint32_t kv_head)
{
    const bool aligned =
        ((run->q.base | (uint64_t)run->q.token_stride | (uint64_t)run->q.head_stride) & 15) == 0;

    for (uint32_t i = gpu_thread(); i < MMA_ROWS * (MMA_DK / 16); i += 128) {
        const uint32_t row = i / (MMA_DK / 16), group = i % (MMA_DK / 16);
        uint32_t token, head, in[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (mma_row_of(run, s, row0 + row, kv_head, &token, &head))
            mma_load_group((const uint16_t *)mma_query_at(run, s, token, head), group * 16,
                           run->problem.head_dim, aligned, in);
        GPU_UNROLL
        for (uint32_t c = 0; c < 2; c++) {
            struct gpu_u128 out;
            GPU_UNROLL
            for (uint32_t j = 0; j < 4; j++)
                out.x[j] = in[MMA_EIGHT ? j * 2 + c : c * 4 + j];
            gpu_store_u128(to + MMA_AT(row, group * 2 + c, MMA_DK * 2), out);
        }
    }
}

/*
 * Queries of bf16 as f16, beside 8-bit keys: a warp a row, whose largest number becomes one below 2^15; the
 * row's scores are multiplied by the opposite power. What is 2^38 times smaller goes under, far below what a
 * sum in f32 keeps.
 */
GPU_INLINE void mma_load_scaled(const struct gpu_run *run, struct mma_shared *shared, unsigned char *to,
                                uint32_t row0, uint32_t kv_head)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t lane = gpu_thread() % GPU_WARP, dim = run->problem.head_dim;

    for (uint32_t row = gpu_thread() / GPU_WARP; row < MMA_ROWS; row += 4) {
        uint32_t token, head, top = 20; /* the least exponent whose opposite is a number */
        uint16_t q[MMA_DK / 32];
        const bool there = mma_row_of(run, s, row0 + row, kv_head, &token, &head);
        const uint16_t *from = there ? (const uint16_t *)mma_query_at(run, s, token, head) : 0;
        GPU_UNROLL
        for (uint32_t i = 0; i < MMA_DK / 32; i++) {
            const uint32_t d = i / 2 * 64 + lane * 2 + i % 2;
            q[i] = there && d < dim ? from[d] : (uint16_t)0;
            const uint32_t exponent = q[i] >> 7 & 0xff;
            top = exponent > top && exponent < 255 ? exponent : top;
        }
        for (uint32_t step = 1; step < GPU_WARP; step *= 2) {
            const uint32_t other = gpu_shuffle_xor_u32(top, step);
            top = other > top ? other : top;
        }
        const float up = gpu_f32_of_bits((127 + 14 + 127 - top) << 23);
        if (lane == 0)
            shared->q_factor[row] = gpu_f32_of_bits((top - 14) << 23);
        GPU_UNROLL
        for (uint32_t i = 0; i < MMA_DK / 64; i++) {
            const uint32_t pair = i * 32 + lane, in = pair % 8;
            *(uint32_t *)(void *)(to + MMA_AT(row, pair / 8 * 2 + in % 2, MMA_DK * 2) + in / 2 * 4) =
                gpu_pack_f16(gpu_bf16_to_f32(q[2 * i]) * up, gpu_bf16_to_f32(q[2 * i + 1]) * up);
        }
    }
}

/* Queries into shared memory. With 8-bit keys the columns of 16 are in the order in which codes come. */
GPU_INLINE void mma_load_queries(const struct gpu_run *run, struct mma_shared *shared, unsigned char *to,
                                 uint32_t row0, uint32_t kv_head)
{
    if (MMA_SCALED)
        mma_load_scaled(run, shared, to, row0, kv_head);
    else
        mma_load_plain(run, &shared->sequence, to, row0, kv_head);
}

/*
 * Queries that can be copied as they are: a thread notes where its row lies, in places that the ring does not
 * need before the first tile's end. False if they have to be loaded.
 */
GPU_INLINE bool mma_note_queries(const struct gpu_run *run, struct mma_shared *shared, uint32_t row0,
                                 uint32_t kv_head)
{
    const uint32_t row = gpu_thread();
    uint32_t token, head;

    if (MMA_RB != 4 || MMA_EIGHT || run->problem.head_dim != MMA_DK ||
        ((run->q.base | (uint64_t)run->q.token_stride | (uint64_t)run->q.head_stride) & 15) != 0)
        return false;
    if (row < MMA_ROWS)
        (row < 64 ? shared->k_at : shared->v_at)[MMA_RING - 1][row % 64] =
            mma_row_of(run, &shared->sequence, row0 + row, kv_head, &token, &head)
                ? mma_query_at(run, &shared->sequence, token, head)
                : MMA_NOWHERE;
    return true;
}

/* Copies them. What rows have that are not there is nobody's. */
GPU_INLINE void mma_copy_queries(const struct mma_shared *shared, unsigned char *to)
{
    const uint32_t bytes = MMA_DK * 2;

    GPU_UNROLL
    for (uint32_t row = 0; row < MMA_ROWS; row += 64) {
        struct mma_fetching fetch = mma_begin((row == 0 ? shared->k_at : shared->v_at)[MMA_RING - 1], bytes,
                                              bytes, to + row * MMA_STRIDE(bytes));
        GPU_UNROLL
        for (uint32_t step = 0; step < MMA_STEPS(bytes); step++) {
            mma_ask(&fetch, step);
            mma_send(&fetch, bytes, step);
        }
    }
}

/* What the rows see: the last threads first, for the first ones load queries. */
GPU_INLINE void mma_load_rows(const struct gpu_run *run, struct mma_shared *shared, uint32_t row0,
                              uint32_t kv_head)
{
    const struct gpu_sequence *s = &shared->sequence;

    for (uint32_t row = 127 - gpu_thread(); row < MMA_ROWS; row += 128) {
        uint32_t token, head;
        if (mma_row_of(run, s, row0 + row, kv_head, &token, &head))
            shared->row[row] = gpu_row(run, s, token, head);
        else
            shared->row[row].lo = shared->row[row].hi = 0;
    }
}

/*
 * What the scores of a piece have in common. `scale` makes scores of products, `factor` scores in base 2 of
 * what the rules leave: where one positive factor does all, maxima are found before it.
 */
struct mma_rules {
    float scale;
    float factor;
    float slack; /* 8 in base 2: see mma_rescale */
    bool special;
    uint32_t lo, hi; /* keys that every row sees without being asked */
};

GPU_INLINE struct mma_rules mma_find_rules(const struct gpu_run *run, const struct mma_shared *shared,
                                           const struct gpu_piece *p)
{
    const uint32_t rows = shared->sequence.q_len * run->group - p->row0;
    struct mma_rules rules;

    rules.lo = 0;
    rules.hi = 0xffffffffu;
    for (uint32_t row = gpu_thread() % GPU_WARP; row < MMA_ROWS && row < rows; row += GPU_WARP) {
        rules.lo = shared->row[row].lo > rules.lo ? shared->row[row].lo : rules.lo;
        rules.hi = shared->row[row].hi < rules.hi ? shared->row[row].hi : rules.hi;
    }
    for (uint32_t step = 1; step < GPU_WARP; step *= 2) {
        const uint32_t lo = gpu_shuffle_xor_u32(rules.lo, step), hi = gpu_shuffle_xor_u32(rules.hi, step);
        rules.lo = lo > rules.lo ? lo : rules.lo;
        rules.hi = hi < rules.hi ? hi : rules.hi;
    }
    if (run->mask.base != 0)
        rules.hi = 0;
    rules.scale = run->softmax_scale;
    if (MMA_EIGHT && !mma_by_key(run->problem.k_scale))
        rules.scale *= gpu_scale_at(&run->k.scale, 0, 0, p->kv_head);
    rules.special = run->problem.softcap > 0 || run->slopes != 0 || run->mask.base != 0 ||
                    !(rules.scale > 0 && rules.scale < GPU_INFINITY);
    rules.factor = rules.special ? 1 : rules.scale * GPU_LOG2E;
    rules.slack = fminf(8 / rules.factor, 1e38f);
    return rules;
}
