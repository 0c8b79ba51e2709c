/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The warp group that copies, on Hopper: it looks up pages, copies queries, keys and values, converts 8-bit
 * ones, and tells the warp groups that multiply (consumer.h) what has arrived. These neither copy nor compute
 * addresses.
 */
#ifndef ATTN_GPU_MMA_PRODUCER_H
#define ATTN_GPU_MMA_PRODUCER_H

#include "boxes.h"
#include "convert.h"
#include "epilogue.h"
#include "nonfinite.h"
#include "partial.h"
#include "query.h"
#include "schedule.h"

/* ---------------------------------------------------------------- work tiles */

/* Takes the CTA's next work tile off the list; its position, or `all` if none is left. The count goes back to
 * 0 with the last one: each work tile is followed by one, so there are as many. */
template <class C> GPU_INLINE uint32_t mma_count_tile(const struct gpu_run *run, mma_producer<C> *own)
{
    uint32_t count = 0;

    if (gpu_thread() % GPU_WARP == 0)
        count = gpu_atomic_count((uint32_t *)run->counters, own->all - 1);
    count = gpu_shuffle_u32(count, 0);
    own->left = count < own->all - gpu_ctas();
    return own->left ? gpu_ctas() + count : own->all;
}

/* Whether the n-th work tile, which is done, is to be computed once more, checking values: a row may have got
 * NaN from a key that it does not see. */
template <class C> GPU_INLINE bool mma_is_again(mma_shared<C> *shared, uint32_t n)
{
    const bool again = shared->handover.again[n % 2] != 0;

    gpu_warp_barrier();
    if (gpu_thread() % GPU_WARP == 0)
        shared->handover.again[n % 2] = 0;
    return again;
}

/* Finds the keys that each row of the work tile that is looked up sees, its output, and the rules of each
 * group's rows: those of all rows at once, or they wait for each other. Of the CTA's first work tile, whose
 * rows see most keys, no KV tile is left out. */
template <class C> GPU_INLINE void mma_find_ranges(const struct gpu_run *run, mma_shared<C> *shared)
{
    constexpr uint32_t rows = C::ROWS / GPU_WARP; /* of a lane */
    mma_looked_up<C> *next = &shared->handover.next;
    /* Copies: what is stored below might be a part of them. */
    const struct gpu_sequence s = next->sequence;
    const uint32_t row0 = next->work.row0, kv_head = next->work.kv_head;
    uint32_t lo = UINT32_MAX, hi = 0;
    struct mma_range own[rows], common[C::CONSUMERS];

    GPU_UNROLL
    for (uint32_t group = 0; group < C::CONSUMERS; group++)
        common[group] = {0, 0xffffffffu};
    GPU_UNROLL
    for (uint32_t i = 0; i < rows; i++) {
        const uint32_t row = i * GPU_WARP + gpu_thread() % GPU_WARP, group = i / (rows / C::CONSUMERS);
        uint32_t token, head;
        const bool exists = mma_row_of(run, &s, row0 + row, kv_head, &token, &head);
        gpu_find_reach(run, &s, exists ? token : 0, &own[i].lo, &own[i].hi);
        if (exists) {
            common[group].lo = own[i].lo > common[group].lo ? own[i].lo : common[group].lo;
            common[group].hi = own[i].hi < common[group].hi ? own[i].hi : common[group].hi;
        }
        shared->handover.next_ranges[row] = {exists ? own[i].lo : 0, exists ? own[i].hi : 0};
        shared->handover.next_out[row] = exists ? mma_output_of(run, &s, token, head) : 0;
        lo = own[i].lo < own[i].hi && own[i].lo < lo ? own[i].lo : lo;
        hi = own[i].hi > hi ? own[i].hi : hi;
    }
    if (mma_plans_all_keys(run))
        mma_trim_tile<C>(next, lo, hi);
    struct mma_rules rules = mma_rules_of_range<C>(run, &s, &next->work, common[0], false, false);
    GPU_UNROLL
    for (uint32_t group = 0; group < C::CONSUMERS; group++) {
        common[group] = mma_common_range(common[group]);
        rules.lo = common[group].lo;
        rules.hi = common[group].hi;
        if (gpu_thread() % GPU_WARP == 0)
            shared->handover.next_rules[group] = rules;
    }
}

/* Lets the warp that copies keys go on, which waits for the next work tile: keys of it may be copied, or not
 * yet. */
template <class C> GPU_INLINE void mma_tell_next(mma_shared<C> *shared, bool known)
{
    if (gpu_thread() % GPU_WARP == 0)
        shared->handover.known = known;
    gpu_warp_barrier();
    gpu_barrier_arrive(MMA_BARRIER_NEXT, 2 * GPU_WARP);
}

/* Looks up the n-th work tile of the CTA, n > 0, when the one before has been taken and that before it is
 * done, and copies its queries if these have a buffer; work.splits is 0 if there is none. `done`: the one
 * before may be waited for; otherwise it is false where that has to be done first, and the warp that copies
 * keys is told of the work tile. By one warp. */
template <class C>
GPU_INLINE bool mma_look_up_tile(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                                 mma_producer<C> *own, uint32_t n, bool done)
{
    mma_looked_up<C> *next = &shared->handover.next;

    gpu_mbarrier_wait(&shared->handover.taken, (n - 1) % 2);
    bool again = n > 1 && mma_is_again<C>(shared, n - 2);
    uint32_t at = again ? own->before : own->left ? mma_count_tile<C>(run, own) : own->all;
    if (at == own->all) {
        if (!done) {
            mma_tell_next<C>(shared, false);
            return false;
        }
        gpu_mbarrier_wait(&shared->handover.done, (n - 1) % 2);
        again = mma_is_again<C>(shared, n - 1);
        at = again ? own->at : own->all;
    }
    own->before = own->at;
    own->at = at;
    if (gpu_thread() % GPU_WARP == 0)
        next->work.next = at;
    gpu_warp_barrier();
    mma_next_tile<C>(run, next, false);
    gpu_warp_barrier(); /* all lanes have stored what a tile is first */
    if (again && gpu_thread() % GPU_WARP == 0)
        next->trust = MMA_CHECKED;
    gpu_warp_barrier();
    const bool trims = mma_rows_are_ranges<C>(run) && mma_plans_all_keys(run);
    if (!done && !trims)
        mma_tell_next<C>(shared, true);
    if (next->work.splits != 0 && mma_has_query_boxes<C>(run) && mma_has_two_query_buffers<C>(run) &&
        gpu_thread() % GPU_WARP == 0)
        mma_copy_query_boxes<C>(run, shared, mma_query_stage<C>(run, queries, n), next, n);
    if (next->work.splits != 0 && mma_rows_are_ranges<C>(run))
        mma_find_ranges<C>(run, shared);
    gpu_warp_barrier();
    if (!done && trims)
        mma_tell_next<C>(shared, true);
    if (gpu_thread() % GPU_WARP == 0)
        gpu_mbarrier_arrive(&shared->handover.looked_up);
    return true;
}

/* Makes the work tile that has been looked up the one that is copied. */
template <class C> GPU_INLINE void mma_take_next(mma_shared<C> *shared)
{
    const uint32_t *from = (const uint32_t *)(const void *)&shared->handover.next;
    uint32_t *to = (uint32_t *)(void *)static_cast<mma_looked_up<C> *>(shared);

    mma_group_barrier<C>(); /* all are done with the last one */
    for (uint32_t i = gpu_thread(); i < sizeof(mma_looked_up<C>) / 4; i += C::THREADS)
        to[i] = from[i];
    mma_group_barrier<C>();
}

/* ---------------------------------------------------------------- keys and values */

/* Reads the page table entries of an iteration that begins at a tile. */
template <class C>
GPU_INLINE void mma_find_pages(const struct gpu_run *run, mma_producer<C> *own, uint32_t tile)
{
    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++)
        own->entries[t] = mma_find_page<C>(run, &own->range, tile, t * GPU_TILE);
}

/* Writes the addresses of these keys and values, and which keys exist. */
template <class C>
GPU_INLINE void mma_write_pages(const struct gpu_run *run, mma_shared<C> *shared, const mma_producer<C> *own,
                                uint32_t tile, uint32_t slot)
{
    const uint32_t thread = gpu_thread();

    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++) {
        mma_write_addresses<C>(run, shared, &own->range, tile, slot, t * GPU_TILE, own->entries[t]);
        if (thread >= GPU_TILE)
            continue;
        const uint32_t bits = gpu_ballot(shared->k_at[slot][t * GPU_TILE + thread] != MMA_NO_ADDRESS);
        if (thread % GPU_WARP == 0)
            ((uint32_t *)&shared->present[slot][t])[thread / GPU_WARP] = bits;
    }
}

/* Zeros in place of values that do not exist, which P of 0 is multiplied with. */
template <class C> GPU_INLINE void mma_zero_missing(const uint64_t *at, uint32_t bytes, unsigned char *to)
{
    const uint32_t chunks = GPU_TILE * bytes / 16;

    GPU_LOOP
    for (uint32_t i = gpu_thread(); i < chunks; i += C::THREADS) {
        const struct mma_chunk chunk = mma_chunk_of<C>(i, bytes);
        if (at[chunk.row] == MMA_NO_ADDRESS)
            gpu_store_u128(to + chunk.offset, mma_zero_u128());
    }
}

/* Copies the keys, or values, of an iteration into a stage, or 8-bit ones into the raw stage. True if some
 * are stored instead. */
template <class C>
GPU_INLINE bool mma_copy_iteration(const struct gpu_run *run, const mma_shared<C> *shared, unsigned char *to,
                                   uint32_t slot, uint32_t tile, bool values, bool aligned)
{
    const uint32_t bytes = values ? C::V_BYTES : C::K_BYTES;
    bool stored = !aligned;

    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++) {
        const uint32_t at = C::CONVERTS ? t * GPU_TILE * bytes : mma_swizzled<C>(t * GPU_TILE, 0, bytes);
        mma_load_stage<C>(run, shared, to + at, slot, tile, t * GPU_TILE, values, aligned);
        if (!values || shared->present[slot][t] == C::ALL_PRESENT)
            continue;
        mma_zero_missing<C>(shared->v_at[slot] + t * GPU_TILE, bytes, to + at);
        stored = true;
    }
    return stored;
}

/* Tells that a stage is full of what the thread has copied and stored. */
GPU_INLINE void mma_tell_full(uint64_t *full)
{
    gpu_copy_commit();
    GPU_COPY_WAIT(0);
    gpu_mbarrier_arrive(full);
}

/* Marks values that are not finite, where they are not trusted, when what was marked before has been read. */
template <class C>
GPU_INLINE void mma_check_stage(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *values,
                                uint32_t slot, uint32_t tile, uint32_t i, uint32_t n)
{
    gpu_copy_commit();
    GPU_COPY_WAIT(0);
    if (n > 0)
        mma_wait_released(&shared->pipeline[1], n - 1);
    if (i == 0 && gpu_thread() < C::TILES)
        shared->nonfinite_tile[gpu_thread()] = 0;
    mma_group_barrier<C>();
    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++)
        mma_clear_nonfinite<C>(run, shared, values + mma_swizzled<C>(t * GPU_TILE, 0, C::V_ROW), slot,
                               tile + t, t * GPU_TILE);
}

/* Waits until the stage of the n-th use is empty, and begins to fill it: addresses of its vectors have been
 * written. */
template <class C> GPU_INLINE void mma_begin_fill(struct mma_pipeline *pipeline, uint32_t n)
{
    if (n >= 2)
        mma_wait_released(pipeline, n - 2);
    if (gpu_thread() == 0)
        gpu_mbarrier_arrive(&pipeline->full[n % 2]); /* for what is written behind a barrier */
}

/* Fills the stage of the keys, or values, of iteration i. */
template <class C>
GPU_INLINE void mma_fill(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                         const struct gpu_work_tile *p, mma_producer<C> *own, uint32_t i, bool values)
{
    struct mma_pipeline *pipeline = &shared->pipeline[values];
    const uint32_t n = own->used + i, slot = n % C::ADDRESS_STAGES, tile = p->first + i * C::TILES;
    unsigned char *to = mma_pipeline_stage<C>(stages, values, n);

    mma_begin_fill<C>(pipeline, n);
    const bool stored = mma_copy_iteration<C>(run, shared, to, slot, tile, values, own->aligned);
    if (values && shared->trust == MMA_CHECKED)
        mma_check_stage<C>(run, shared, to, slot, tile, i, n);
    if (stored || (values && shared->trust == MMA_CHECKED))
        mma_tell_full(&pipeline->full[n % 2]);
    else
        gpu_copy_arrive(&pipeline->full[n % 2]);
}

/*
 * The same of 8-bit ones, which have been copied into the raw stage: a thread converts the chunks that it has
 * copied itself, and copies those of the next iteration into their place.
 */
template <class C>
GPU_INLINE void mma_fill_converted(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                   const struct gpu_work_tile *p, mma_producer<C> *own, uint32_t i,
                                   bool values)
{
    struct mma_pipeline *pipeline = &shared->pipeline[values];
    const uint32_t n = own->used + i, slot = n % C::ADDRESS_STAGES, tile = p->first + i * C::TILES;
    const uint32_t bytes = values ? C::V_BYTES : C::K_BYTES;
    unsigned char *raw = mma_raw_stage<C>(stages, 0, values), *to = mma_pipeline_stage<C>(stages, values, n);

    GPU_COPY_WAIT(1);
    mma_begin_fill<C>(pipeline, n);
    GPU_UNROLL
    for (uint32_t t = 0; t < C::TILES; t++) {
        unsigned char *place = to + mma_swizzled<C>(t * GPU_TILE, 0, 2 * bytes);
        const unsigned char *from = raw + t * GPU_TILE * bytes;
        mma_codes<C> codes;
        mma_read_codes<C>(from, bytes, &codes);
        if (values)
            mma_convert_values<C>(run, &codes, from, place);
        else
            mma_convert_keys<C>(run, &codes, from, place);
    }
    if (i + 1 < mma_iterations<C>(p))
        mma_copy_iteration<C>(run, shared, raw, (n + 1) % C::ADDRESS_STAGES, tile + C::TILES, values,
                              own->aligned);
    gpu_copy_commit();
    if (values && shared->trust == MMA_CHECKED)
        mma_check_stage<C>(run, shared, to, slot, tile, i, n);
    gpu_mbarrier_arrive(&pipeline->full[n % 2]);
}

/* Copies the queries of the n-th work tile, unless they have been. */
template <class C>
GPU_INLINE void mma_produce_queries(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                                    const struct gpu_work_tile *p, const mma_producer<C> *own, uint32_t n)
{
    uint64_t *full = &shared->handover.queries_full[n % 2];

    if (mma_has_query_boxes<C>(run)) {
        if (gpu_thread() == 0 && (n == 0 || !mma_has_two_query_buffers<C>(run)))
            mma_copy_query_boxes<C>(run, shared, queries, shared, n);
        return;
    }
    const uint32_t slot = (own->used + C::ADDRESS_STAGES - 1) % C::ADDRESS_STAGES;
    const bool copied = mma_write_query_addresses<C>(run, shared, p->row0, p->kv_head, slot);

    mma_group_barrier<C>();
    if (copied) {
        mma_copy_queries<C>(shared, queries, slot);
        gpu_copy_arrive(full);
    } else {
        mma_load_queries<C>(run, shared, queries, p->row0, p->kv_head);
        gpu_mbarrier_arrive(full);
    }
}

/* Copies the keys and values of the iterations from `first` on, by all threads. */
template <class C>
GPU_INLINE void mma_produce_keys(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                 const struct gpu_work_tile *p, mma_producer<C> *own, uint32_t first)
{
    const uint32_t iterations = mma_iterations<C>(p), tile = p->first + first * C::TILES;
    const uint32_t slot = (own->used + first) % C::ADDRESS_STAGES;

    mma_find_pages<C>(run, own, tile);
    mma_write_pages<C>(run, shared, own, tile, slot);
    mma_find_pages<C>(run, own, tile + C::TILES);
    mma_group_barrier<C>();
    GPU_UNROLL
    for (uint32_t values = 0; C::CONVERTS && values < 2; values++) {
        mma_copy_iteration<C>(run, shared, mma_raw_stage<C>(stages, 0, values != 0), slot, tile, values != 0,
                              own->aligned);
        gpu_copy_commit();
    }
    if constexpr (!C::CONVERTS)
        mma_fill<C>(run, shared, stages, p, own, first, false);
    GPU_LOOP
    for (uint32_t i = first; i < iterations; i++) {
        const uint32_t next = p->first + (i + 1) * C::TILES;
        if (i + 1 < iterations) {
            mma_write_pages<C>(run, shared, own, next, (own->used + i + 1) % C::ADDRESS_STAGES);
            mma_find_pages<C>(run, own, next + C::TILES);
        }
        mma_group_barrier<C>();
        if constexpr (C::CONVERTS) {
            mma_fill_converted<C>(run, shared, stages, p, own, i, false);
            mma_fill_converted<C>(run, shared, stages, p, own, i, true);
        } else {
            /* In the order in which stages become empty. */
            if (i + 1 < iterations)
                mma_fill<C>(run, shared, stages, p, own, i + 1, false);
            mma_fill<C>(run, shared, stages, p, own, i, true);
        }
    }
}

/* Whether results of a work tile are gathered in the place of queries and stages. */
template <class C>
GPU_INLINE bool mma_gathers_results(const struct gpu_run *run, const struct gpu_work_tile *p)
{
    return !mma_stores_directly<C>(run, p) && !mma_stores_partials<C>(p);
}

/* The keys of a work tile that may be read: those of the last iteration that another split has do not exist.
 */
template <class C>
GPU_INLINE struct mma_key_range mma_range_of_tile(const struct gpu_run *run, const struct mma_computed *tile)
{
    const uint32_t keys = tile->sequence.kv_len, end = tile->work.end * GPU_TILE;

    return mma_key_range_of(run, &tile->sequence, end < keys ? end : keys);
}

/* Begins the keys of the next work tile, if there is one, when those of the last are all under way. */
template <class C>
GPU_INLINE bool mma_copy_keys_ahead(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                    const mma_producer<C> *own, uint32_t iterations)
{
    const struct mma_computed *next = &shared->handover.next;
    mma_producer<C> ahead = *own;

    if (shared->handover.known == 0 || next->work.splits == 0)
        return false;
    ahead.range = mma_range_of_tile<C>(run, next);
    ahead.used += iterations;
    mma_begin_boxes<C>(run, next, &ahead, 0);
    return ahead.boxed > 0 &&
           mma_copy_box_iterations<C, false>(run, shared, stages, next, &ahead, 0, 0, 1) == 1;
}

/* Copies iterations [i, end) of the n-th work tile as boxes, as long as that can be; returns where it ends.
 * One warp looks up the next work tile meanwhile, if this one has its queries. */
template <class C>
GPU_INLINE uint32_t mma_produce_boxes(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *stages,
                                      unsigned char *queries, mma_producer<C> *own, uint32_t i, uint32_t end,
                                      bool looks_up, uint32_t n)
{
    const uint32_t warp = gpu_thread() / GPU_WARP, iterations = mma_iterations<C>(&shared->work);

    if (warp == MMA_WARP_KEYS) {
        i = mma_copy_box_iterations<C, false>(run, shared, stages, shared, own, 0, own->ahead ? 1 : i, end);
        if (gpu_thread() == 0)
            shared->handover.boxed = i;
        if (looks_up)
            gpu_barrier_part(MMA_BARRIER_NEXT, 2 * GPU_WARP);
        own->ahead = looks_up && i == iterations && !mma_gathers_results<C>(run, &shared->work) &&
                     mma_copy_keys_ahead<C>(run, shared, stages, own, iterations);
    } else if (warp != MMA_WARP_TILES) {
        mma_copy_box_iterations<C, true>(run, shared, stages, shared, own, warp != MMA_WARP_VALUES, i, end);
    } else if (looks_up) {
        own->looked_up = mma_look_up_tile<C>(run, shared, queries, own, n + 1, false);
    }
    mma_group_barrier<C>();
    return shared->handover.boxed;
}

/* Copies all that the n-th work tile of the CTA needs, and looks up the next one. */
template <class C>
GPU_INLINE void mma_produce(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                            unsigned char *stages, const struct gpu_work_tile *p, mma_producer<C> *own,
                            uint32_t n)
{
    const uint32_t iterations = mma_iterations<C>(p);
    uint32_t boxed = 0;

    own->looked_up = false;
    if (iterations > 0) {
        mma_begin_boxes<C>(run, shared, own, own->ahead ? 1 : 0);
        if (n > 0 && own->cleared)
            gpu_mbarrier_wait(&shared->handover.done, (n - 1) % 2);
        if (own->cleared)
            mma_zero_padding<C>(run, stages);
        own->cleared = false;
        /* Where there is one buffer of queries, those of the last work tile may still be read: it is results
         * that are waited for then, and the first stages are filled meanwhile. */
        const bool waits = n > 0 && !mma_has_two_query_buffers<C>(run);
        const uint32_t early = C::QUERY_STAGES > 1 || !waits ? 0 : own->boxed < 2 ? own->boxed : 2;
        if (early > 0)
            boxed = mma_produce_boxes<C>(run, shared, stages, queries, own, 0, early, false, n);
        if (waits)
            gpu_mbarrier_wait(&shared->handover.done, (n - 1) % 2);
        mma_produce_queries<C>(run, shared, mma_query_stage<C>(run, queries, n), p, own, n);
        if (boxed == early && early < own->boxed)
            boxed = mma_produce_boxes<C>(run, shared, stages, queries, own, early, own->boxed, true, n);
        if constexpr (!C::E4M3)
            if (boxed < iterations)
                mma_produce_keys<C>(run, shared, stages, p, own, boxed);
        own->used += iterations;
    } else if (!mma_has_query_boxes<C>(run)) {
        gpu_mbarrier_arrive(&shared->handover.queries_full[n % 2]);
    } else {
        mma_produce_queries<C>(run, shared, mma_query_stage<C>(run, queries, n), p, own, n);
    }
    own->cleared = own->cleared || mma_gathers_results<C>(run, p);
    if (gpu_thread() / GPU_WARP == MMA_WARP_TILES && !own->looked_up)
        mma_look_up_tile<C>(run, shared, queries, own, n + 1, true);
}

/* The part of the warp group in the work tiles of the CTA, of which the first has been looked up. */
template <class C>
GPU_INLINE void mma_produce_tiles(const struct gpu_run *run, mma_shared<C> *shared, unsigned char *queries,
                                  unsigned char *stages)
{
    const struct gpu_work_tile *p = &shared->work;
    mma_producer<C> own;

    own.used = own.before = 0;
    own.at = gpu_cta();
    own.all = shared->handover.all;
    own.left = own.all > gpu_ctas();
    own.aligned = run->kv_aligned != 0;
    own.cleared = true;
    own.ahead = false;
    GPU_LOOP
    for (uint32_t n = 0; p->splits != 0; n++) {
        own.range = mma_range_of_tile<C>(run, shared);
        mma_produce<C>(run, shared, queries, stages, p, &own, n);
        mma_take_next<C>(shared);
    }
}

#endif
