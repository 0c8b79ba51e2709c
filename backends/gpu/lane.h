/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The plain attention kernel: every type, size, addressing and feature of a problem, no schedule.
 *
 * A CTA computes one query row and head. Its warps take the tiles of 64 keys in turns, which lie at multiples
 * of 64 from key 0; the lanes of a warp share the columns of a vector, and between that each lane judges one
 * key. Sums are staged as docs/definition.md, section 6, asks: a tile from zero, a span of 8 tiles, the
 * total of a warp; then the warps' totals in order. So a row's bits depend on its sequence alone.
 */
#ifndef ATTN_GPU_LANE_H
#define ATTN_GPU_LANE_H

#include "lane-list.h"
#include "rules.h"

#define GPU_LANE_TILE  64u /* keys */
#define GPU_LANE_SPAN  8u  /* tiles */
#define GPU_LANE_GROUP 4u  /* keys whose vectors are under way at once */
#define GPU_LANE_MOST  (GPU_LANE_DIM / GPU_WARP)
/* The running maximum follows only jumps: exp(8) costs no precision, and each rescaling a rounding. */
#define GPU_LANE_SLACK 8.0f

/* How one vector is spread over the lanes: byte offset of this lane's first column, and to its next one. */
struct gpu_lane_columns {
    int64_t first;
    int64_t step;
};

/* What the warps of a CTA leave to each other. */
struct gpu_lane_parts {
    float total[GPU_LANE_WARPS][GPU_LANE_DIM];
    double l[GPU_LANE_WARPS];
    float most[GPU_LANE_WARPS];
};

/* One warp's part of a row. */
struct gpu_lane {
    struct gpu_sequence s;
    struct gpu_row row;
    uint32_t lane, kv_head;
    double q_scale;
    struct gpu_lane_columns k, v; /* of caches; new rows lie in one piece */
    float q[GPU_LANE_MOST], tile[GPU_LANE_MOST], span[GPU_LANE_MOST];
    float *total; /* in shared memory: of this lane's columns, GPU_WARP apart */
    float most;   /* the same in all lanes */
    double l;     /* of the keys that this lane judged */
};

/* 32 keys, one per lane. Lanes without a key that is seen hold another's addresses and no weight. */
struct gpu_lane_keys {
    uint32_t seen, fresh; /* bit per lane */
    uint64_t k, v;
    float k_scale, v_scale;
    double bias;
};

/* `type`: a dtype, or GPU_EIGHT or GPU_ANY, which leave it to `dtype`. */
GPU_INLINE float gpu_lane_load(uint32_t type, uint32_t dtype, uint64_t at)
{
    if (type == GPU_EIGHT)
        return gpu_decode8(dtype, *GPU_U8(at));
    return gpu_load(type == GPU_ANY ? dtype : type, GPU_U8(at));
}

GPU_INLINE struct gpu_lane_columns gpu_lane_columns(const struct gpu_cache *cache, uint32_t lane)
{
    struct gpu_lane_columns columns;

    columns.first = gpu_column(cache, lane);
    columns.step = gpu_column(cache, GPU_WARP); /* a multiple of every piece that is no whole vector */
    return columns;
}

GPU_INLINE void gpu_lane_begin(const struct gpu_run *run, struct gpu_lane *w, uint32_t head, uint32_t row,
                               uint32_t n)
{
    const struct attn_problem *p = &run->problem;
    const uint32_t split = run->q_rope.base != 0 ? p->head_dim_vo : p->head_dim, size = GPU_SIZE(p->q_dtype);
    const uint64_t q = run->q.base + (uint64_t)(row * run->q.token_stride + head * run->q.head_stride);
    const uint64_t rope =
        run->q_rope.base + (uint64_t)(row * run->q_rope.token_stride + head * run->q_rope.head_stride);

    w->kv_head = head / run->group;
    w->q_scale = (double)gpu_scale_at(&run->q_scale, w->s.index, row, head / run->q_scale_group);
    w->k = gpu_lane_columns(&run->k, w->lane);
    w->v = gpu_lane_columns(&run->v, w->lane);
    w->most = -GPU_INFINITY;
    w->l = 0;
    GPU_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t d = i * GPU_WARP + w->lane;
        w->q[i] = w->tile[i] = w->span[i] = w->total[i * GPU_WARP] = 0;
        if (d < p->head_dim)
            w->q[i] = gpu_load(
                p->q_dtype, GPU_U8(d < split ? q + (uint64_t)d * size : rope + (uint64_t)(d - split) * size));
    }
}

/* Judges one key per lane, from `first` on and below `end`. */
GPU_INLINE void gpu_lane_judge(const struct gpu_run *run, const struct gpu_lane *w, uint32_t first,
                               uint32_t end, struct gpu_lane_keys *out)
{
    const uint32_t key = first + w->lane;
    struct gpu_place place;
    bool seen = key >= w->row.lo && key < end;

    out->bias = 0;
    out->k = out->v = 0;
    out->k_scale = out->v_scale = 1;
    place.fresh = false;
    seen = seen && gpu_sees(run, &w->s, &w->row, key, &out->bias);
    seen = seen && gpu_locate(run, &w->s, key, &place);
    if (seen) {
        const struct gpu_cache *k = place.fresh ? &run->k_new : &run->k;
        const struct gpu_cache *v = place.fresh ? &run->v_new : &run->v;
        out->k = gpu_vector(k, place.page, place.token, w->kv_head);
        out->v = gpu_vector(v, place.page, place.token, w->kv_head);
        out->k_scale = gpu_scale_at(&k->scale, place.outer, place.token, w->kv_head);
        out->v_scale = gpu_scale_at(&v->scale, place.outer, place.token, w->kv_head);
    }
    out->seen = gpu_ballot(seen);
    out->fresh = gpu_ballot(seen && place.fresh);
    if (out->seen == 0)
        return;
    const uint32_t leader = gpu_first_bit(out->seen);
    const uint64_t k = gpu_shuffle_u64(out->k, leader), v = gpu_shuffle_u64(out->v, leader);
    if (!seen) {
        out->k = k;
        out->v = v;
    }
    if (out->fresh >> leader & 1)
        out->fresh |= ~out->seen;
}

/*
 * Sums over the lanes of 4 values at once: lanes 8 * i to 8 * i + 7 have that of value i. In double: sums of
 * large products of either sign lose more than a score may.
 */
GPU_INLINE double gpu_lane_reduce(const float value[GPU_LANE_GROUP], uint32_t lane)
{
    const bool high = lane & 16, odd = lane & 8;
    const double a =
        (double)(high ? value[2] : value[0]) + (double)gpu_shuffle_xor_f32(high ? value[0] : value[2], 16);
    const double b =
        (double)(high ? value[3] : value[1]) + (double)gpu_shuffle_xor_f32(high ? value[1] : value[3], 16);
    double sum = (odd ? b : a) + gpu_shuffle_xor_f64(odd ? a : b, 8);

    sum += gpu_shuffle_xor_f64(sum, 4);
    sum += gpu_shuffle_xor_f64(sum, 2);
    return sum + gpu_shuffle_xor_f64(sum, 1);
}

/* Products of the query with the stored keys: each lane gets that of its own key. */
GPU_INLINE float gpu_lane_products(const struct gpu_run *run, const struct gpu_lane *w,
                                   const struct gpu_lane_keys *keys, uint32_t n, uint32_t type)
{
    const uint32_t dim = run->problem.head_dim, dtype = run->problem.k_dtype;
    const uint32_t size = GPU_SIZE(type > GPU_EIGHT ? type : dtype);
    float product = 0;

    GPU_LOOP
    for (uint32_t first = 0; first < GPU_WARP; first += GPU_LANE_GROUP) {
        float sum[GPU_LANE_GROUP];
        if ((keys->seen >> first & ((1u << GPU_LANE_GROUP) - 1)) == 0)
            continue;
        GPU_UNROLL
        for (uint32_t key = 0; key < GPU_LANE_GROUP; key++) {
            const bool fresh = keys->fresh >> (first + key) & 1;
            uint64_t at = gpu_shuffle_u64(keys->k, first + key) +
                          (fresh ? (uint64_t)w->lane * size : (uint64_t)w->k.first);
            const uint64_t step = fresh ? GPU_WARP * size : (uint64_t)w->k.step;
            sum[key] = 0;
            GPU_UNROLL
            for (uint32_t i = 0; i < n; i++, at += step) {
                if (i * GPU_WARP + gpu_own_u32(w->lane) < dim)
                    sum[key] = gpu_fma(w->q[i], gpu_lane_load(type, dtype, at), sum[key]);
            }
        }
        const float all = (float)gpu_lane_reduce(sum, w->lane);
        const float own = gpu_shuffle_f32(all, w->lane % GPU_LANE_GROUP * 8);
        if (w->lane / GPU_LANE_GROUP == first / GPU_LANE_GROUP)
            product = own;
    }
    return product;
}

/* Adds values with their weights to the tile. */
GPU_INLINE void gpu_lane_values(const struct gpu_run *run, struct gpu_lane *w,
                                const struct gpu_lane_keys *keys, float weight, uint32_t n, uint32_t type)
{
    const uint32_t dim = run->problem.head_dim_vo, dtype = run->problem.v_dtype;
    const uint32_t size = GPU_SIZE(type > GPU_EIGHT ? type : dtype);

    GPU_LOOP
    for (uint32_t first = 0; first < GPU_WARP; first += GPU_LANE_GROUP) {
        if ((keys->seen >> first & ((1u << GPU_LANE_GROUP) - 1)) == 0)
            continue;
        GPU_UNROLL
        for (uint32_t key = 0; key < GPU_LANE_GROUP; key++) {
            const bool fresh = keys->fresh >> (first + key) & 1;
            uint64_t at = gpu_shuffle_u64(keys->v, first + key) +
                          (fresh ? (uint64_t)w->lane * size : (uint64_t)w->v.first);
            const uint64_t step = fresh ? GPU_WARP * size : (uint64_t)w->v.step;
            const float share = gpu_shuffle_f32(weight, first + key);
            GPU_UNROLL
            for (uint32_t i = 0; i < n; i++, at += step) {
                if (i * GPU_WARP + gpu_own_u32(w->lane) < dim)
                    w->tile[i] = gpu_fma(share, gpu_lane_load(type, dtype, at), w->tile[i]);
            }
        }
    }
}

/* A new maximum: what was summed so far shrinks. */
GPU_INLINE void gpu_lane_raise(struct gpu_lane *w, float most, uint32_t n)
{
    const float factor = gpu_exp(w->most - most);

    w->most = most;
    w->l *= (double)factor;
    GPU_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        w->tile[i] *= factor;
        w->span[i] *= factor;
        w->total[i * GPU_WARP] *= factor;
    }
}

/* Up to 32 keys of a tile. */
GPU_INLINE void gpu_lane_batch(const struct gpu_run *run, struct gpu_lane *w, uint32_t first, uint32_t end,
                               uint32_t n, uint32_t type)
{
    struct gpu_lane_keys keys;

    run = (const struct gpu_run *)gpu_again(run);
    gpu_lane_judge(run, w, first, end, &keys);
    if (keys.seen == 0)
        return;
    const bool seen = keys.seen >> w->lane & 1;
    const float product = gpu_lane_products(run, w, &keys, n, type);
    const double s = gpu_score(run, (double)product * w->q_scale * (double)keys.k_scale) + keys.bias;
    float most = seen && s > -(double)GPU_INFINITY ? (float)s : -GPU_INFINITY; /* no NaN */
    GPU_UNROLL
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2) {
        const float other = gpu_shuffle_xor_f32(most, mask);
        most = other > most ? other : most;
    }
    if (most > w->most + GPU_LANE_SLACK)
        gpu_lane_raise(w, most, n);
    const float p = seen ? gpu_exp((float)(s - (double)w->most)) : 0;
    w->l += (double)p;
    gpu_lane_values(run, w, &keys, seen ? p * keys.v_scale : 0, n, type);
}

GPU_INLINE void gpu_lane_end_span(struct gpu_lane *w, uint32_t n)
{
    GPU_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        w->total[i * GPU_WARP] += w->span[i];
        w->span[i] = 0;
    }
}

/* This warp's tiles. */
GPU_INLINE void gpu_lane_sweep(const struct gpu_run *run, struct gpu_lane *w, uint32_t warp, uint32_t n,
                               uint32_t type)
{
    const uint32_t least = w->row.lo / GPU_LANE_TILE;
    uint32_t tile = least + (warp + GPU_LANE_WARPS - least % GPU_LANE_WARPS) % GPU_LANE_WARPS;

    for (; w->row.lo < w->row.hi && tile * GPU_LANE_TILE < w->row.hi; tile += GPU_LANE_WARPS) {
        GPU_LOOP
        for (uint32_t half = 0; half < GPU_LANE_TILE; half += GPU_WARP)
            gpu_lane_batch(run, w, tile * GPU_LANE_TILE + half, w->row.hi, n, type);
        const bool ends = tile / GPU_LANE_WARPS % GPU_LANE_SPAN == GPU_LANE_SPAN - 1;
        GPU_UNROLL
        for (uint32_t i = 0; i < n; i++) {
            w->span[i] += w->tile[i];
            w->tile[i] = 0;
        }
        if (ends)
            gpu_lane_end_span(w, n);
    }
}

GPU_INLINE void gpu_lane_leave(struct gpu_lane *w, struct gpu_lane_parts *parts, uint32_t warp, uint32_t n)
{
    GPU_UNROLL
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2)
        w->l += gpu_shuffle_xor_f64(w->l, mask);
    gpu_lane_end_span(w, n);
    if (w->lane == 0) {
        parts->l[warp] = w->l;
        parts->most[warp] = w->most;
    }
}

/* The sums of all warps, the sink, and the row's columns that are this thread's. */
GPU_INLINE void gpu_lane_finish(const struct gpu_run *run, const struct gpu_lane_parts *parts, uint32_t seq,
                                uint32_t row, uint32_t head)
{
    const uint32_t dtype = run->problem.out_dtype, dim = run->problem.head_dim_vo;
    const uint64_t out =
        run->out.base + (uint64_t)(row * run->out.token_stride + head * run->out.head_stride);
    const float sink = gpu_sink(run, head), scale = gpu_scale_at(&run->out_scale, seq, row, head);
    double factor[GPU_LANE_WARPS], most = -(double)GPU_INFINITY, l = 0, lse = (double)sink;
    bool any = false;

    GPU_UNROLL
    for (uint32_t i = 0; i < GPU_LANE_WARPS; i++) {
        any = any || parts->l[i] != 0; /* every key that is seen adds to it, NaN too */
        most = (double)parts->most[i] > most ? (double)parts->most[i] : most;
    }
    if (any)
        most = (double)sink > most ? (double)sink : most;
    GPU_UNROLL
    for (uint32_t i = 0; i < GPU_LANE_WARPS; i++) {
        factor[i] = parts->l[i] != 0 ? gpu_exp_f64((double)parts->most[i] - most) : 0;
        l += factor[i] * parts->l[i];
    }
    if (any) {
        l += sink > -GPU_INFINITY ? gpu_exp_f64((double)sink - most) : 0;
        lse = most + gpu_log_f64(l);
    }
    if (run->lse.base != 0 && gpu_thread() == 0)
        *GPU_GLOBAL(float, run->lse.base + (uint64_t)(row * run->lse.token_stride +
                                                      head * run->lse.head_stride)) = (float)lse;
    for (uint32_t d = gpu_thread(); d < dim; d += gpu_threads()) {
        double sum = 0;
        GPU_UNROLL
        for (uint32_t i = 0; i < GPU_LANE_WARPS; i++)
            sum += parts->l[i] != 0 ? factor[i] * (double)parts->total[i][d] : 0;
        const float value = any ? (float)(sum / l) : 0;
        gpu_store(dtype, GPU_GLOBAL(unsigned char, out + (uint64_t)d * GPU_SIZE(dtype)),
                  gpu_divide(value, scale));
    }
}

/* CTA: query head within row. `n`: columns per lane at most; `type`: of keys and values. */
GPU_INLINE void gpu_lane(const struct gpu_run *run, uint32_t n, uint32_t type)
{
    GPU_SHARED struct gpu_lane_parts parts;
    const uint32_t heads = run->problem.heads, row = gpu_cta() / heads, head = gpu_cta() % heads;
    const uint32_t warp = gpu_thread() / GPU_WARP;
    struct gpu_lane w;

    if (run->batch.seqs == 0 || row >= (uint32_t)GPU_I32(run->batch.q_offsets)[run->batch.seqs])
        return;
    w.s = gpu_sequence(run, gpu_find_sequence(run, row));
    if (!GPU_TAKES(run->phase, w.s.q_len, run->group))
        return;
    w.lane = gpu_thread() % GPU_WARP;
    w.total = &parts.total[warp][w.lane];
    w.row = gpu_row(run, &w.s, row - w.s.row, head);
    run = (const struct gpu_run *)gpu_argument(run);
    gpu_lane_begin(run, &w, head, row, n);
    gpu_lane_sweep(run, &w, warp, n, type);
    gpu_lane_leave(&w, &parts, warp, n);
    gpu_barrier();
    gpu_lane_finish(run, &parts, w.s.index, row, head);
}

#define GPU_LANE_KERNEL(name, dim, type)                                                                     \
    GPU_KERNEL(name, GPU_LANE_THREADS, (dim) > 256 ? 1 : 2)(GPU_ARGUMENT(struct gpu_run, run))               \
    {                                                                                                        \
        gpu_lane(&run, (dim) / GPU_WARP, type);                                                              \
    }

#endif
