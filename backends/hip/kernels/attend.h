/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The matrix kernels for AMD: attention of a schedule's work tiles, for any configuration.
 *
 * Products are transposed: scores are keys times queries, results are values times P. So a lane has one row,
 * with its maximum and its sum, and P is an operand as it is. Scores, sums and maxima are f32 in base 2.
 *
 * Loops that seldom run are not unrolled, to keep the code small.
 */
#ifndef ATTN_HIP_ATTEND_H
#define ATTN_HIP_ATTEND_H

#include "combine.h"
#include "lookup.h"
#include "non-finite.h"
#include "query.h"
#include "schedule.h"
#include "score.h"

/* What a thread keeps in registers for a whole work tile. */
template <class Config> struct tile_state {
    const struct gpu_run *run;
    struct tile_shared<Config> *shared;
    unsigned char *area; /* of queries, keys, values and results */
    struct tile_keys keys;
    struct tile_rules rules;
    uint32_t kv_head, first, end; /* tiles [first, end) */
    uint32_t own;                 /* the lane's row */
    uint32_t key0, column0;       /* the wave's first key of a tile and column of the output */
    struct gpu_entry page;        /* of the thread's key, one tile ahead */
    typename Config::fragment q[Config::dk / 16];
    struct tile_prefetch<Config> prefetch;
    struct tile_accumulator<Config> acc;
};

/* Loads queries and prefetches the first keys. */
template <class Config> GPU_INLINE void tile_prologue(struct tile_state<Config> *t)
{
    const struct gpu_run *run = t->run;

    tile_clear(&t->acc);
    t->first = tile_uniform(t->shared->work.first);
    t->end = tile_uniform(t->shared->work.end);
    t->kv_head = tile_uniform(t->shared->work.kv_head);
    t->keys = tile_find_keys(run, t->shared);
    tile_store_places(run, t->shared, &t->keys, t->first, t->kv_head,
                      tile_load_page<Config>(run, &t->keys, t->first));
    t->page = tile_load_page<Config>(run, &t->keys, t->first + 1);
    tile_load_queries(run, t->shared, t->area);
    tile_load_rows(run, t->shared);
    if (Config::thread() == 0)
        t->shared->non_finite_tile = 0;
    gpu_barrier();
    t->rules = tile_find_rules(run, t->shared);
    if (Config::prefetches && t->first < t->end && run->kv_aligned != 0)
        tile_prefetch_keys(run, t->shared, t->first, &t->prefetch);
    GPU_UNROLL
    for (uint32_t k = 0; k < Config::dk / 16; k++)
        Config::load_fragment(&t->q[k], t->area + t->own * Config::key_pitch + k * 32);
    gpu_barrier(); /* the queries have been read */
}

/* Stores the keys of a tile to shared memory and computes its scores while its values are prefetched. */
template <class Config> GPU_INLINE void tile_stage_keys(struct tile_state<Config> *t, uint32_t tile)
{
    t->run = tile_reload(t->run);
    if constexpr (!Config::prefetches) {
        t->prefetch = {};
        if (t->run->kv_aligned != 0)
            tile_prefetch_keys(t->run, t->shared, tile, &t->prefetch);
    }
    tile_store_keys(t->run, t->shared, t->area, tile, &t->prefetch);
    tile_store_places(t->run, t->shared, &t->keys, tile + 1, t->kv_head, t->page);
    gpu_barrier();
    if (Config::prefetches && t->run->kv_aligned != 0)
        tile_prefetch_values(t->run, t->shared, tile, &t->prefetch);
}

/* Stores the values of a tile to shared memory and multiplies them while the next keys are prefetched. */
template <class Config>
GPU_INLINE void tile_stage_values(struct tile_state<Config> *t, uint32_t tile, bool unmasked)
{
    t->run = tile_reload(t->run);
    if constexpr (!Config::prefetches) {
        t->prefetch = {};
        if (t->run->kv_aligned != 0)
            tile_prefetch_values(t->run, t->shared, tile, &t->prefetch);
    }
    tile_store_values(t->run, t->shared, t->area, tile, unmasked, &t->prefetch);
    gpu_barrier();
    if (Config::prefetches && t->run->kv_aligned != 0 && tile + 1 < t->end)
        tile_prefetch_keys(t->run, t->shared, tile + 1, &t->prefetch);
}

template <class Config> GPU_INLINE void tile_kv_iteration(struct tile_state<Config> *t, uint32_t tile)
{
    const uint64_t present = tile_present(t->shared, tile);
    const uint32_t from = tile * GPU_TILE;
    const bool unmasked = from >= t->rules.lo && from + GPU_TILE <= t->rules.hi && ~present == 0;
    float s[Config::key_blocks][Config::acc_size];

    tile_stage_keys(t, tile);
    t->run = tile_reload(t->run);
    tile_score<Config>(t->area + t->key0 * Config::key_pitch, t->q, s);
    tile_mask(t->run, t->shared, &t->rules, t->own, tile, t->key0, present, unmasked, s);
    t->page = tile_load_page<Config>(t->run, &t->keys, tile + 2);
    gpu_barrier(); /* the keys have been read */
    tile_stage_values(t, tile, unmasked);
    tile_rescale(&t->rules, s, &t->acc);
    if (!unmasked && tile_uniform(t->shared->non_finite_tile) == tile + 1)
        tile_mark_non_finite(t->run, t->shared, tile, tile_seen<Config>(t->key0, s), t->column0, t->acc.o);
    tile_exponentiate(&t->rules, s, &t->acc);
    if (tile_scales_by_key<Config>(t->run->problem.v_scale))
        tile_scale_p(t->shared, tile, t->key0, unmasked, s);
    tile_multiply_values<Config>(t->area + t->column0 * HIP_TILE_VALUE_PITCH, t->key0 / 16, s, t->acc.o);
    gpu_barrier(); /* the values have been read */
}

/* The KV loop of a work tile. */
template <class Config>
GPU_INLINE void tile_attend(const struct gpu_run *run, struct tile_shared<Config> *shared,
                            unsigned char *area)
{
    const uint32_t wave_row = Config::wave() % 4, wave_column = Config::wave() / 4;
    struct tile_state<Config> t;

    t.run = run;
    t.shared = shared;
    t.area = area;
    t.own = (Config::rows == 16 ? 0 : wave_row * 16) + Config::thread() % 16;
    t.key0 = Config::rows == 16 ? wave_row * 16 : 0;
    t.column0 = wave_column * Config::out_blocks * 16;
    t.prefetch = {};
    tile_prologue(&t);
    GPU_LOOP
    for (uint32_t tile = t.first; tile < t.end; tile++)
        tile_kv_iteration(&t, tile);
    t.run = tile_reload(t.run);
    tile_epilogue(t.run, shared, (float *)(void *)area, t.rules.factor, &t.acc);
}

/* All work tiles of a work-group: the whole kernel. */
template <class Config> GPU_INLINE void tile_run(const struct gpu_run *run)
{
    static_assert(sizeof(struct tile_shared<Config>) <= hip_tile_state_bytes(Config::rows, Config::dv),
                  "the host reserves less");
    unsigned char *memory = gpu_shared();
    struct tile_shared<Config> *shared = (struct tile_shared<Config> *)(void *)memory;
    unsigned char *area = memory + hip_tile_state_bytes(Config::rows, Config::dv);

    for (bool begins = true;; begins = false) {
        if (Config::thread() < GPU_WARP)
            tile_next_work(tile_reload(run), shared, begins);
        gpu_barrier();
        if (tile_uniform(shared->work.splits) == 0)
            return;
        tile_attend(tile_reload(run), shared, area);
        run = tile_reload(run);
        if (tile_uniform(shared->work.splits) > 1 && tile_is_last(run, shared))
            tile_combine(run, shared);
        if (tile_uniform_u64(shared->work.next) == 0)
            return;
        gpu_barrier(); /* the work tile is done */
    }
}

/* KERNEL(name, query rows of a work-group, queries are bf16, dk, dv, kv_size) for each kernel of a row. */
#define TILE_KERNELS(KERNEL, name, ...)                                                                      \
    KERNEL(name##_r16_bf16, 16, true, __VA_ARGS__)                                                           \
    KERNEL(name##_r16_f16, 16, false, __VA_ARGS__)                                                           \
    KERNEL(name##_r64_bf16, 64, true, __VA_ARGS__)                                                           \
    KERNEL(name##_r64_f16, 64, false, __VA_ARGS__)

#endif
