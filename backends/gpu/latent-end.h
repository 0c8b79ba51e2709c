/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Part of latent-body.h: what warps have together, parts of a row, and the output. */

/* Results, row sums and maxima into shared memory. */
GPU_INLINE void latent_join(struct latent_shared *shared, float *to, const struct latent_warp *w,
                            float o[LATENT_BLOCKS][8][4])
{
    const uint32_t warp = gpu_thread() / GPU_WARP, lane = gpu_thread() % GPU_WARP;

    gpu_barrier(); /* the last tile and its maxima have been read */
    GPU_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t row = w->block * 16 + h * 8 + lane / 4;
        float total = shared->sum[h][gpu_thread()];
        total += gpu_shuffle_xor_f32(total, 1);
        total += gpu_shuffle_xor_f32(total, 2);
        if (lane % 4 == 0)
            shared->most[w->group][row] = total;
    }
    GPU_UNROLL
    for (uint32_t m = 0; m < LATENT_BLOCKS; m++)
        GPU_UNROLL
    for (uint32_t n = 0; n < 8; n++)
        GPU_UNROLL
    for (uint32_t e = 0; e < 4; e++)
        to[(m * 16 + e / 2 * 8 + lane / 4) * LATENT_FLOATS + warp * 64 + n * 8 + lane % 4 * 2 + e % 2] =
            o[m][n][e];
    gpu_barrier();
    if (gpu_thread() < LATENT_ROWS) {
        float total = 0;
        for (uint32_t i = 0; i < LATENT_WARPS / LATENT_BLOCKS; i++)
            total += shared->most[i][gpu_thread()];
        shared->total[gpu_thread()] = total;
    }
    gpu_barrier();
}

/* Rows of shared memory into the output, or as a part of one. */
GPU_INLINE void latent_finish(const struct gpu_run *run, struct latent_shared *shared, const float *from,
                              const struct latent_piece *p)
{
    const struct gpu_sequence *s = &shared->sequence;
    const uint32_t lane = gpu_thread() % GPU_WARP, warp = gpu_thread() / GPU_WARP;

    GPU_LOOP
    for (uint32_t row = warp; row < LATENT_ROWS; row += LATENT_WARPS) {
        uint32_t token, head;
        if (!latent_row_of(run, s, p->row0 + row, &token, &head))
            break;
        float values[16];
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            values[j] = from[row * LATENT_FLOATS + j * GPU_WARP + lane];
        if (p->parts == 1) {
            latent_emit(run, s, token, head, shared->peak[row], shared->total[row], values, lane);
            continue;
        }
        const uint64_t at = (uint64_t)latent_slot(p, p->part) * LATENT_ROWS + row;
        float *out = (float *)run->part_out + at * GPU_LATENT_VO;
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            out[j * GPU_WARP + lane] = values[j];
        if (lane == 0) {
            ((float *)run->part_lse)[2 * at] = shared->peak[row];
            ((float *)run->part_lse)[2 * at + 1] = shared->total[row];
        }
    }
}
