/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of mma-body.h: which piece of the schedule a CTA takes next. */

/* Place of the CTA's first piece, or of the one behind the last, in the schedule. */
GPU_INLINE uint64_t mma_place(const struct gpu_run *run, const struct mma_shared *shared, uint64_t all,
                              uint32_t ctas, bool begins)
{
    if (!begins)
        return shared->piece.next;
    return run->phase == GPU_MANY_ROWS || run->problem.det != 0 ? gpu_cta()
                                                                : gpu_line_begin(all, gpu_cta(), ctas);
}

/* What the sums of the place's sequence have between them. */
GPU_INLINE uint64_t mma_unit(const struct gpu_run *run, uint64_t all, uint64_t place)
{
    return gpu_divide_u64(run->phase == GPU_MANY_ROWS ? all - 1 - place : place, run->problem.kv_heads);
}

/*
 * The CTA's first piece, or the one behind the last. Sequences of few rows: of its stretch of the line of
 * tiles, or with det=1 of its share of fixed cuts. Sequences of many rows: of its share of tiles of rows.
 * Each lane of a warp looks at a sequence, all at once; the one whose sequence holds the place writes the
 * piece.
 */
GPU_INLINE void mma_next(const struct gpu_run *run, struct mma_shared *shared, bool begins)
{
    const uint32_t seqs = run->batch.seqs;
    const bool many = MMA_MANY || run->phase == GPU_MANY_ROWS, line = !many && run->problem.det == 0;
    const uint64_t all = (uint64_t)gpu_sum(run, seqs) * run->problem.kv_heads;
    const uint32_t ctas = all < gpu_ctas() ? (uint32_t)all : gpu_ctas(); /* none with an empty piece */
    uint32_t index = gpu_thread(), below = 0, above = 0;
    struct gpu_sequence s;

    /* Of 32 sequences and fewer nothing has to be known before all are asked for. */
    if (seqs > GPU_WARP && (!begins || gpu_cta() < ctas))
        index += gpu_find_block(run, mma_unit(run, all, mma_place(run, shared, all, ctas, begins)));
    const bool there = index < seqs;
    if (there) {
        below = gpu_sum(run, index);
        above = gpu_sum(run, index + 1);
        s = gpu_sequence(run, index);
    }
    if (begins && gpu_cta() >= ctas) {
        shared->piece.parts = 0;
        return;
    }
    const uint64_t at = mma_place(run, shared, all, ctas, begins);
    const uint64_t unit = mma_unit(run, all, at);
    gpu_warp_barrier(); /* the last piece has been read */
    if (there && unit >= below && unit < above) {
        const uint64_t end = line ? gpu_line_begin(all, gpu_cta() + 1, ctas) : all;
        shared->sequence = s;
        shared->piece = many ? gpu_tile_at(run, &s, at, all, below, MMA_ROWS)
                             : gpu_piece_at(run, &s, at, end, all, ctas, below, above);
    }
    gpu_warp_barrier();
    if (gpu_thread() < 4)
        shared->origin[gpu_thread() / 2][gpu_thread() % 2] = gpu_origin_of(
            run, &shared->sequence, shared->piece.kv_head, gpu_thread() / 2 != 0, gpu_thread() % 2 != 0);
}
