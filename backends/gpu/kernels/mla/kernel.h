/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The MLA kernel: keys of up to 576 columns of 16 bits, or of 8 bits that are converted (codes.h), of which
 * the first ones, up to 512, are the values too.
 *
 * Eight warps. A tile of 64 keys lies in shared memory once, for scores and for values. For the scores, each
 * block of 16 rows has warps of its own, which hold its queries in registers and divide the keys among
 * themselves. Two warps form a pair that divides the columns: each computes half of every sum, sends the
 * other the sums of half of the keys and keeps the rest. For the values, each warp has 64 columns of all
 * rows. P overwrites the last 64 columns of the tile, which are no values.
 *
 * Scores, sums and maxima are f32 in base 2; P is rounded to the queries' type for its product with the
 * values, the row sum is of P before.
 */
#ifndef ATTN_GPU_MLA_KERNEL_H
#define ATTN_GPU_MLA_KERNEL_H

#include "codes.h"
#include "epilogue.h"
#include "scores.h"

/* Waits until the copies of at most `tiles` tiles are in flight. */
GPU_INLINE void mla_wait(uint32_t tiles)
{
    if (tiles >= 2)
        GPU_COPY_WAIT(2);
    else if (tiles == 1)
        GPU_COPY_WAIT(1);
    else
        GPU_COPY_WAIT(0);
}

/* Loads queries and the first tiles; the queries lie in the last stage until they are in registers. */
template <class Config>
GPU_INLINE void mla_begin(const struct gpu_run *run, struct mla_shared<Config> *shared, unsigned char *buffer,
                          uint32_t stages, uint32_t first, const struct mla_warp *w, uint32_t q[18][4])
{
    const struct mla_work_tile *work = &shared->work;
    unsigned char *const last = buffer + (stages - 1) * MLA_KV_TILE_BYTES;

    mla_load_queries<Config>(run, &shared->sequence, last, work->row0);
    gpu_copy_commit();
    for (uint32_t i = 0; i < stages - 1; i++) {
        mla_locate<Config>(run, shared, first + i);
        if (first + i < work->end)
            mla_load_keys<Config>(run, shared, buffer, i);
        gpu_copy_commit();
    }
    mla_locate<Config>(run, shared, first + stages - 1);
    mla_load_rows<Config>(run, shared, work->row0);
    mla_wait(stages - 1);
    gpu_barrier();
    mla_take_queries(last, w, q);
}

/* What rows have in common, and their state before the first key. */
template <class Config>
GPU_INLINE void mla_begin_rows(const struct gpu_run *run, struct mla_shared<Config> *shared)
{
    mla_find_unmasked<Config>(run, shared);
    shared->thread_sum[0][gpu_thread()] = shared->thread_sum[1][gpu_thread()] = 0;
    if (gpu_thread() < Config::rows)
        shared->row_max[gpu_thread()] = -GPU_INFINITY;
}

/* Copies tile `tile`, if the work tile has it, into the stage before `stage`, and locates the next one. */
template <class Config>
GPU_INLINE void mla_fetch_keys(const struct gpu_run *run, struct mla_shared<Config> *shared,
                               unsigned char *buffer, uint32_t stages, uint32_t stage, uint32_t tile)
{
    if (tile < shared->work.end)
        mla_load_keys<Config>(run, shared, buffer, stage == 0 ? stages - 1 : stage - 1);
    gpu_copy_commit();
    mla_locate<Config>(run, shared, tile + 1);
}

/* The KV loop of a work tile. */
template <class Config>
GPU_INLINE void mla_attend(const struct gpu_run *run, struct mla_shared<Config> *shared,
                           unsigned char *buffer)
{
    const struct mla_warp w = mla_warp_of_thread<Config>();
    const struct mla_work_tile *work = &shared->work;
    const uint32_t stages = Config::max_stages == 2 && !Config::kv8 ? 2 : run->stages, first = work->first;
    uint32_t q[18][4], stage = 0;
    float o[Config::row_blocks][8][4];

    if constexpr (Config::kv8)
        mla_begin_codes<Config>(run, shared, buffer, &w, q);
    else
        mla_begin<Config>(run, shared, buffer, stages, first, &w, q);
    mla_begin_rows<Config>(run, shared);
    GPU_UNROLL
    for (uint32_t m = 0; m < Config::row_blocks; m++) {
        GPU_UNROLL
        for (uint32_t n = 0; n < 8; n++)
            o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0;
    }
    GPU_LOOP
    for (uint32_t tile = first; tile < work->end; tile++) {
        const uint32_t keys = stage * MLA_KV_TILE_BYTES;
        float s[Config::kept_fragments][4];
        if constexpr (!Config::kv8)
            mla_wait(stages - 2);
        gpu_barrier(); /* the tile is there, and the one before has been read */
        if constexpr (!Config::kv8)
            mla_fetch_keys<Config>(run, shared, buffer, stages, stage, tile + stages - 1);
        mla_scores<Config>(shared, buffer, keys, &w, q, s);
        if constexpr (Config::kv8) {
            if (mla_scale_per_key(run))
                mla_scale_keys<Config>(shared, &w, tile, s);
        }
        const bool all_seen =
            mla_apply_rules<Config>(run, shared, Config::kv8 ? tile % 4 : stage, &w, tile, s);
        mla_share_max<Config>(shared, &w, s);
        gpu_barrier(); /* and the last columns of the tile have been read */
        if (!all_seen)
            mla_clear_non_finite<Config>(buffer + keys);
        mla_exponentiate<Config>(shared, buffer + keys,
                                 Config::kv8 && mla_scale_per_key(run) ? shared->key_scale[tile % 4] : 0, &w,
                                 s);
        gpu_barrier();
        if (gpu_thread() < Config::rows)
            shared->row_max[gpu_thread()] = shared->next_max[gpu_thread()];
        if constexpr (Config::kv8)
            mla_add_values_and_convert<Config>(run, shared, buffer, tile, keys, o);
        else
            mla_add_values<Config>(shared, buffer, keys, o);
        stage = stage + 1 == stages ? 0 : stage + 1;
    }
    GPU_COPY_WAIT(0);
    mla_join_warps<Config>(shared, (float *)(void *)buffer, &w, o);
}

/* The next work tile of this CTA: in its stretch of the work list, or with det=1 every gpu_ctas()-th split.
 */
template <class Config>
GPU_INLINE void mla_next(const struct gpu_run *run, struct mla_shared<Config> *shared, bool begins)
{
    const uint64_t all = mla_schedule_at(run, run->batch.seqs);
    const uint32_t ctas = mla_cta_count(run, all, gpu_ctas()), cta = gpu_cta();
    const bool contiguous = run->problem.det == 0;
    const uint64_t end = contiguous ? mla_cta_begin(all, cta + 1, ctas) : all;
    uint64_t at = shared->work.next;

    if (begins) {
        at = contiguous ? mla_cta_begin(all, cta, ctas) : cta;
        shared->cursor.end = 0;
        shared->aligned = run->kv_aligned != 0;
    }
    shared->has_work = cta < ctas && at < end;
    if (shared->has_work)
        shared->work =
            mla_work_tile_at(run, Config::rows, all, at, end, ctas, &shared->cursor, &shared->sequence);
}

template <class Config> GPU_INLINE void mla_attention(const struct gpu_run *run)
{
    static_assert(sizeof(struct mla_shared<Config>) <= Config::state_bytes, "the host reserves less");
    unsigned char *memory = gpu_shared();
    struct mla_shared<Config> *shared = (struct mla_shared<Config> *)(void *)memory;
    unsigned char *buffer = memory + Config::state_bytes;

    for (bool begins = true;; begins = false) {
        gpu_barrier(); /* the work tile before is done */
        if (gpu_thread() == 0)
            mla_next<Config>(run, shared, begins);
        gpu_barrier();
        if (!shared->has_work)
            return;
        mla_attend<Config>(run, shared, buffer);
        mla_store_rows<Config>(run, shared, (const float *)(void *)buffer, &shared->work);
    }
}

/* An entry point: its name, and its configuration, which has commas. */
#define MLA_KERNEL(name, ...)                                                                                \
    GPU_KERNEL(name, MLA_THREADS, 1)(GPU_ARGUMENT(struct gpu_run, run))                                      \
    {                                                                                                        \
        mla_attention<__VA_ARGS__>(&run);                                                                    \
    }

/* The kernels of a row of instances.def by each(name, configuration). */
#define MLA_KERNELS(each, name, rows, kv_size)                                                               \
    each(name##_bf16, mla_config<rows, kv_size, true>) each(name##_f16, mla_config<rows, kv_size, false>)

#endif
