/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of tile-body.h: which piece of the schedule a CTA takes next. */

/*
 * The CTA's first piece, or the one behind the last, by its first 32 lanes: each looks at a sequence, and the
 * one whose sequence holds the place writes the piece. Sequences of few rows: of the CTA's stretch of the
 * line of tiles, or with det=1 of its share of fixed cuts. Sequences of many rows: of its share of tiles of
 * rows.
 */
GPU_INLINE void tile_next(const struct gpu_run *run, struct tile_shared *shared, bool begins, uint32_t rows)
{
    const uint32_t seqs = run->batch.seqs;
    const bool many = run->phase == GPU_MANY_ROWS, line = !many && run->problem.det == 0;
    const uint64_t all = (uint64_t)gpu_sum(run, seqs) * run->problem.kv_heads;
    const uint32_t ctas = all < gpu_ctas() ? (uint32_t)all : gpu_ctas(); /* none with an empty piece */
    uint32_t index = tile_thread();

    if (begins && gpu_cta() >= ctas) {
        shared->piece.parts = 0;
        return;
    }
    const uint64_t at = !begins ? shared->piece.next
                        : line  ? gpu_line_begin(all, gpu_cta(), ctas)
                                : gpu_cta();
    const uint64_t unit = gpu_divide_u64(many ? all - 1 - at : at, run->problem.kv_heads);
    index += gpu_find_block(run, unit);
    const bool there = index < seqs;
    const uint32_t below = there ? gpu_sum(run, index) : 0, above = there ? gpu_sum(run, index + 1) : 0;
    gpu_warp_barrier(); /* the last piece has been read */
    if (there && unit >= below && unit < above) {
        const struct gpu_sequence s = gpu_sequence(run, index);
        const uint64_t end = line ? gpu_line_begin(all, gpu_cta() + 1, ctas) : all;
        shared->sequence = s;
        shared->piece = many ? gpu_tile_at(run, &s, at, all, below, rows)
                             : gpu_piece_at(run, &s, at, end, all, ctas, below, above);
    }
    gpu_warp_barrier();
    if (tile_thread() < 4)
        shared->origin[tile_thread() / 2][tile_thread() % 2] = gpu_origin_of(
            run, &shared->sequence, shared->piece.kv_head, tile_thread() / 2 != 0, tile_thread() % 2 != 0);
}
