/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The MLA kernel: keys of up to 576 columns of 16 bits, or of 8 bits that become the queries' type between
 * shared memory and matrix units, of which the first ones, up to 512, are the values too.
 *
 * Eight warps. A tile of 64 keys lies in shared memory once, for scores and for values. For the scores, two
 * or four warps form a warp group that has rows and keys of its own and divides the columns: each warp holds
 * its part of the queries in registers, computes a part of every sum, sends the others the sums that they
 * keep, and adds up its own. For the values, each warp has 64 columns of all rows.
 *
 * On Hopper warp groups of four warps multiply tiles of 64 rows (wgmma.h).
 *
 * Scores, sums and maxima are f32 in base 2; P is rounded to the queries' type for its product with the
 * values, the row sum is of P before.
 */
#ifndef ATTN_GPU_MLA_KERNEL_H
#define ATTN_GPU_MLA_KERNEL_H

#include "epilogue.h"
#include "scores.h"
#include "wgmma.h"

/* Waits until the copies of at most `tiles` tiles are in flight. */
GPU_INLINE void mla_wait(uint32_t tiles)
{
    if (tiles >= 4)
        GPU_COPY_WAIT(4);
    else if (tiles == 3)
        GPU_COPY_WAIT(3);
    else if (tiles == 2)
        GPU_COPY_WAIT(2);
    else if (tiles == 1)
        GPU_COPY_WAIT(1);
    else
        GPU_COPY_WAIT(0);
}

/* Copies tile `tile`, which has been located, if the work tile has it. */
template <class Config>
GPU_INLINE void mla_fetch_keys(const struct gpu_run *run, struct mla_shared<Config> *shared,
                               unsigned char *buffer, uint32_t stage, uint32_t tile)
{
    if (tile < shared->work.end)
        mla_load_keys<Config>(run, shared, buffer, stage);
    gpu_copy_commit();
}

/* Position of this CTA's first work tile in the work list, or of the one behind the last. */
template <class Config>
GPU_INLINE uint64_t mla_position(const struct gpu_run *run, const struct mla_shared<Config> *shared,
                                 uint32_t cta, uint64_t stretch, bool begins)
{
    if (!begins)
        return shared->work.next;
    return run->problem.det != 0 ? cta : cta * stretch;
}

/*
 * The next work tile of this CTA: in its stretch of the work list, or with det=1 every gpu_ctas()-th split.
 * By one warp: each lane looks at one sequence, and that whose sequence holds the position writes the tile.
 */
template <class Config>
GPU_INLINE void mla_next(const struct gpu_run *run, struct mla_shared<Config> *shared, bool begins)
{
    const uint32_t sharers = mla_run_splits(run, Config::rows).sharers, seqs = run->batch.seqs;
    const uint64_t all = mla_schedule_at(run, seqs);
    const uint64_t stretch = run->problem.det != 0 ? 1 : mla_stretch(run, all, gpu_ctas() / sharers);
    const uint32_t cta = gpu_cta() / sharers;
    struct mla_cursor cursor = shared->next.cursor;
    struct gpu_sequence s = shared->sequence;
    uint32_t index = gpu_thread();

    const bool keeps = !begins && shared->work.next < cursor.end;
    /* Up to 32 sequences are read without knowing where the position is. */
    if (seqs > GPU_WARP && !keeps) {
        const uint64_t at = mla_position<Config>(run, shared, cta, stretch, begins);
        index += at < all ? mla_find_block(run, at) : 0;
    }
    const bool exists = keeps ? index == 0 : index < seqs;
    if (!keeps && exists) {
        cursor.begin = mla_schedule_at(run, index);
        cursor.end = mla_schedule_at(run, index + 1);
        cursor.number = 0;
        s = gpu_sequence(run, index);
    }
    const uint64_t at = mla_position<Config>(run, shared, cta, stretch, begins);
    const uint64_t end = run->problem.det == 0 && (cta + 1) * stretch < all ? (cta + 1) * stretch : all;
    gpu_warp_barrier(); /* all lanes have read what is written now */
    if (gpu_thread() == 0)
        shared->next.has_work = at < end;
    if (at < end && exists && at >= cursor.begin && at < cursor.end) {
        shared->next.work = mla_work_tile_at(run, Config::rows, at, end, stretch, &cursor, &s);
        shared->next.cursor = cursor;
        shared->next.sequence = s;
        shared->next.entries = gpu_entries(run, &s);
    }
    gpu_warp_barrier();
}

/* Copies queries and the first tiles; the queries lie in the last stages until they are in registers. */
template <class Config>
GPU_INLINE void mla_begin_copies(const struct gpu_run *run, struct mla_shared<Config> *shared,
                                 unsigned char *buffer, uint32_t stages)
{
    const uint32_t first = shared->work.first, before = stages - Config::query_stages;
    /* Eight lanes have the entries of a tile. */
    const struct gpu_entry entries =
        mla_find_entry(run, shared, mla_own_key(first + gpu_thread() % GPU_WARP / 8));

    mla_load_queries<Config>(run, &shared->sequence, buffer + before * Config::tile_bytes, shared->work.row0);
    gpu_copy_commit();
    GPU_LOOP
    for (uint32_t i = 0; i < stages - 1; i++) {
        const uint32_t lane = i * 8 + gpu_thread() % 8;
        const struct gpu_entry entry = {gpu_shuffle_u32(entries.low, lane),
                                        gpu_shuffle_u32(entries.high, lane)};
        mla_locate<Config>(run, shared, first + i, entry);
        if (i == before)
            break;
        mla_fetch_keys<Config>(run, shared, buffer, i, first + i);
    }
}

/* Takes the queries, and copies the tiles whose place they had. */
template <class Config>
GPU_INLINE void mla_begin(const struct gpu_run *run, struct mla_shared<Config> *shared, unsigned char *buffer,
                          uint32_t stages, const struct mla_warp *w,
                          uint32_t q[Config::group_blocks][Config::steps][4])
{
    const uint32_t first = shared->work.first, before = stages - Config::query_stages;
    const unsigned char *const queries = buffer + before * Config::tile_bytes;

    mla_load_rows<Config>(run, shared, shared->work.row0);
    mla_wait(before);
    gpu_barrier();
    if constexpr (Config::scales_queries) {
        mla_scale_queries<Config>(shared, queries);
        gpu_barrier();
    }
    mla_take_queries<Config>(shared, queries, w, q);
    for (uint32_t i = before; i < stages - 1; i++) {
        gpu_barrier();
        mla_fetch_keys<Config>(run, shared, buffer, i, first + i);
    }
    mla_locate<Config>(run, shared, first + stages - 1,
                       mla_find_entry(run, shared, mla_own_key(first + stages - 1)));
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

/* The KV loop of a work tile. */
template <class Config>
GPU_INLINE void mla_attend(const struct gpu_run *run, struct mla_shared<Config> *shared,
                           unsigned char *buffer, uint32_t stages)
{
    const struct mla_warp w = mla_warp_of_thread<Config>();
    const uint32_t dtype = run->k.dtype;
    const bool scaled = Config::kv8 && mla_scale_per_key(run);
    uint32_t q[Config::group_blocks][Config::steps][4], stage = 0;
    float o[Config::row_blocks][8][4];

    mla_begin<Config>(run, shared, buffer, stages, &w, q);
    mla_begin_rows<Config>(run, shared);
    GPU_UNROLL
    for (uint32_t m = 0; m < Config::row_blocks; m++) {
        GPU_UNROLL
        for (uint32_t n = 0; n < 8; n++)
            o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0;
    }
    GPU_LOOP
    for (uint32_t tile = shared->work.first; tile < shared->work.end; tile++) {
        const uint32_t keys = stage * Config::tile_bytes;
        float s[Config::waves][4];
        mla_wait(stages - 2);
        gpu_barrier(); /* the tile is there, and the one before has been read */
        mla_fetch_keys<Config>(run, shared, buffer, stage == 0 ? stages - 1 : stage - 1, tile + stages - 1);
        mla_scores<Config>(dtype, shared, buffer, keys, &w, q, s);
        if (scaled)
            mla_scale_keys<Config>(shared, &w, stage, s);
        const bool all_seen = mla_apply_rules<Config>(run, shared, stage, &w, tile, s);
        mla_share_max<Config>(shared, &w, s);
        const struct gpu_entry entry = mla_find_entry(run, shared, mla_own_key(tile + stages));
        gpu_barrier(); /* and scores have been exchanged */
        if (!all_seen)
            mla_clear_non_finite<Config>(dtype, buffer + keys);
        mla_exponentiate<Config>(shared, scaled ? shared->key_scale[stage] : 0, &w, s);
        gpu_barrier();
        if (gpu_thread() < Config::rows)
            shared->row_max[gpu_thread()] = shared->next_max[gpu_thread()];
        mla_add_values<Config>(dtype, scaled, shared, buffer, keys, o);
        mla_locate<Config>(run, shared, tile + stages, entry);
        stage = stage + 1 == stages ? 0 : stage + 1;
    }
    GPU_COPY_WAIT(0);
    const float sum[2] = {shared->thread_sum[0][gpu_thread()], shared->thread_sum[1][gpu_thread()]};
    mla_store<Config>(run, shared, (float *)(void *)buffer, &w, sum, o);
}

/* Makes the work tile that has been looked up the CTA's, between barriers. */
template <class Config> GPU_INLINE void mla_take_next(struct mla_shared<Config> *shared)
{
    gpu_barrier();
    if (gpu_thread() == 0)
        static_cast<struct mla_taken &>(*shared) = shared->next;
    gpu_barrier();
}

/* All work tiles of the CTA. */
template <class Config>
GPU_INLINE void mla_work(const struct gpu_run *run, struct mla_shared<Config> *shared, unsigned char *buffer,
                         uint32_t stages)
{
    GPU_LOOP
    for (bool begins = true;; begins = false) {
        if (!begins)
            mla_begin_copies<Config>(run, shared, buffer, stages);
        if (gpu_thread() < GPU_WARP)
            mla_next<Config>(run, shared, begins); /* while copies are in flight */
        if (!begins)
            mla_attend<Config>(run, shared, buffer, stages);
        gpu_barrier();
        if (!shared->next.has_work)
            return;
        mla_take_next<Config>(shared);
    }
}

/* The same by warp groups: queries and first keys of a work tile are copied while results of the one before
 * are stored, or behind that if these are gathered in the place of keys. Each part is called once: a CTA
 * waits for code as for memory. */
template <class Config>
GPU_INLINE void mla_group_work(const struct gpu_run *run, struct mla_shared<Config> *shared,
                               unsigned char *buffer)
{
    struct mla_group_state state;

    GPU_LOOP
    for (bool begins = true;; begins = false) {
        if (gpu_thread() < GPU_WARP)
            mla_next<Config>(run, shared, begins);
        if (!begins)
            mla_group_attend<Config>(run, shared, buffer, &state);
        gpu_barrier();
        const bool gathers = !begins && shared->work.splits == 1 && !mla_stores_directly<Config>(run);
        GPU_LOOP
        for (uint32_t step = 0; step < 2; step++) {
            if (step != (gathers ? 1u : 0u)) {
                if (!begins)
                    mla_group_store<Config>(run, shared, buffer, &state);
                gpu_wgmma_fence(); /* boxes take the place of what has been gathered */
                gpu_barrier();
            } else if (shared->next.has_work) {
                mla_group_begin_copies<Config>(run, shared, buffer);
            }
        }
        if (!shared->next.has_work)
            return;
        mla_take_next<Config>(shared);
    }
}

template <class Config> GPU_INLINE void mla_attention(const struct gpu_run *run)
{
    static_assert(sizeof(struct mla_shared<Config>) <= Config::state_bytes, "the host reserves less");
    unsigned char *memory = gpu_shared();
    struct mla_shared<Config> *shared = (struct mla_shared<Config> *)(void *)memory;
    unsigned char *buffer = memory + Config::state_bytes;

    if (gpu_thread() == 0) {
        shared->aligned = run->kv_aligned != 0;
        mla_note_split(run, 0, 0);
        if constexpr (Config::groups)
            mla_group_init<Config>(run, shared);
    }
    if constexpr (Config::groups)
        mla_group_work<Config>(run, shared, buffer);
    else
        mla_work<Config>(run, shared, buffer, Config::max_stages == 2 ? 2 : run->stages);
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
