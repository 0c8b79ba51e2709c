/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A sequence of the step in device code: its lengths, and the places of its keys with every addressing. */
#ifndef ATTN_GPU_SEQUENCE_H
#define ATTN_GPU_SEQUENCE_H

#include "device.h"

#include "lengths.h"
#include "number.h"

struct gpu_sequence {
    uint32_t index;
    uint32_t row; /* of query token 0 */
    uint32_t q_len;
    uint32_t kv_len;    /* keys of this rank */
    uint32_t all_keys;  /* Lk: keys of all ranks */
    uint32_t new_begin; /* first key that is in k_new; kv_len if none is */
    int64_t start;      /* dense: page and first token */
    int64_t page;
    struct attn_visible visible;
};

/* The sequence of a row below q_offsets[seqs]; never one without queries. */
GPU_INLINE uint32_t gpu_find_sequence(const struct gpu_run *run, uint32_t row)
{
    uint32_t lo = 0, hi = run->batch.seqs;

    while (hi - lo > 1) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if ((uint32_t)GPU_I32(run->batch.q_offsets)[middle] <= row)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

GPU_INLINE struct gpu_sequence gpu_sequence(const struct gpu_run *run, uint32_t index)
{
    const struct gpu_lengths lengths = gpu_lengths_of(&run->problem, &run->batch);
    const struct gpu_length own = gpu_length_at(&lengths, index);
    struct gpu_sequence s;

    s.index = index;
    s.row = own.row;
    s.q_len = own.q_len;
    s.kv_len = own.kv_len;
    s.all_keys = own.all_keys;
    s.visible = own.visible;
    s.page = index;
    s.start = 0;
    if (run->batch.kv_starts != 0) {
        s.page = 0;
        s.start = GPU_I32(run->batch.kv_starts)[index];
    }
    s.new_begin = run->problem.kv_source == ATTN_KV_CACHE_NEW ? s.kv_len - s.q_len : s.kv_len;
    return s;
}

/* A row's position if positions are given. */
GPU_INLINE int64_t gpu_given_position(const struct gpu_run *run, int64_t row)
{
    return run->batch.position_dtype == ATTN_INT64 ? GPU_I64(run->batch.positions)[row]
                                                   : (int64_t)GPU_I32(run->batch.positions)[row];
}

/* Position of query token i in the numbering of the keys. */
GPU_INLINE int64_t gpu_position(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t i)
{
    return run->batch.positions != 0 ? gpu_given_position(run, (int64_t)s->row + i) : s->visible.shift + i;
}

/* Whether the launch is for masks that the step does not have. */
GPU_INLINE bool gpu_has_other_masks(const struct gpu_run *run)
{
    return run->masks.result != 0 && *GPU_GLOBAL(const uint32_t, run->masks.result) != run->masks.wanted;
}

/* Leaves of the keys in reach of query token i those that its mask shows, where masks are ranges. */
GPU_INLINE void gpu_clip_reach(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t i,
                               uint32_t *lo, uint32_t *hi)
{
    if (run->masks.ranges == 0)
        return;
    const struct gpu_key_range shown = GPU_GLOBAL(const struct gpu_key_range, run->masks.ranges)[s->row + i];
    *lo = shown.lo > *lo ? shown.lo : *lo;
    *hi = shown.hi < *hi ? shown.hi : *hi;
    if (*lo >= *hi)
        *lo = *hi = 0;
}

/* The keys in reach of query token i, by all rules but masks that are no ranges. */
GPU_INLINE void gpu_find_reach(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t i,
                               uint32_t *lo, uint32_t *hi)
{
    gpu_visible_find(&s->visible, gpu_position(run, s, i), lo, hi);
    gpu_clip_reach(run, s, i, lo, hi);
}

/* The place of a key, and the indices of its scales. */
struct gpu_place {
    int64_t page;
    int64_t token;
    int64_t outer; /* of scales: the page, or the sequence for new rows */
    bool is_new;   /* in k_new and v_new */
};

/* Address of a sequence's page table entries, i32 or i64; 0 with dense addressing, which has none. */
GPU_INLINE uint64_t gpu_entries(const struct gpu_run *run, const struct gpu_sequence *s)
{
    const struct gpu_batch *batch = &run->batch;

    if (batch->addressing == ATTN_DENSE)
        return 0;
    if (batch->addressing == ATTN_TABLE)
        return batch->table + (uint64_t)(s->index * batch->table_stride);
    return batch->indices +
           (uint64_t)GPU_I32(batch->indptr)[s->index] * (batch->index_dtype == ATTN_INT64 ? 8u : 4u);
}

/* A page number as it lies in memory. Nothing is computed from it until it is needed, so that its load
 * overlaps other work. */
struct gpu_entry {
    uint32_t low, high; /* high: i64 only */
};

GPU_INLINE uint32_t gpu_page_of(const struct gpu_run *run, uint32_t key)
{
    return run->batch.block_shift < 32 ? key >> run->batch.block_shift : key / run->batch.block;
}

/* The entry of a key; `entries` is not 0, the key not in new rows. */
GPU_INLINE struct gpu_entry gpu_entry(const struct gpu_run *run, uint64_t entries, uint32_t key)
{
    const bool wide = run->batch.addressing == ATTN_CSR && run->batch.index_dtype == ATTN_INT64;
    const uint32_t *at =
        GPU_GLOBAL(const uint32_t, entries) + (uint64_t)gpu_page_of(run, key) * (wide ? 2 : 1);
    struct gpu_entry entry;

    entry.low = at[0];
    entry.high = 0;
    if (wide)
        entry.high = at[1];
    return entry;
}

/* The page of an entry; negative for an invalid block. */
GPU_INLINE int64_t gpu_entry_page(const struct gpu_run *run, struct gpu_entry entry)
{
    if (run->batch.addressing == ATTN_CSR && run->batch.index_dtype == ATTN_INT64)
        return (int64_t)((uint64_t)entry.high << 32 | entry.low);
    return (int32_t)entry.low;
}

/* The place of the key of an entry; false in an invalid block. */
GPU_INLINE bool gpu_place_of(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t key,
                             struct gpu_entry entry, struct gpu_place *out)
{
    const struct gpu_batch *batch = &run->batch;

    out->is_new = key >= s->new_begin;
    out->page = s->page;
    out->outer = s->index;
    out->token = s->start + key;
    if (out->is_new) {
        out->page = 0;
        out->token = (int64_t)s->row + (key - s->new_begin);
        return true;
    }
    if (batch->addressing != ATTN_DENSE) {
        out->token = key - gpu_page_of(run, key) * batch->block;
        out->page = gpu_entry_page(run, entry);
    }
    if (run->problem.kv_source != ATTN_KV_NEW)
        out->outer = out->page;
    return out->page >= 0;
}

/* The place of a key below kv_len; false in an invalid block. */
GPU_INLINE bool gpu_locate(const struct gpu_run *run, const struct gpu_sequence *s, uint32_t key,
                           struct gpu_place *out)
{
    const uint64_t entries = key < s->new_begin ? gpu_entries(run, s) : 0;
    struct gpu_entry entry;

    entry.low = entry.high = 0;
    if (entries != 0)
        entry = gpu_entry(run, entries, key);
    return gpu_place_of(run, s, key, entry, out);
}

GPU_INLINE float gpu_scale_at(const struct gpu_scale *scale, int64_t outer, int64_t token, int64_t head)
{
    const int64_t at = outer * scale->outer_stride + token * scale->token_stride + head * scale->head_stride;

    return scale->base != 0 ? *GPU_F32(scale->base + (uint64_t)at) : scale->value;
}

/*
 * A scale that finished products are multiplied by, for which it has to be finite and positive: `*rest`. What
 * else there is of it, 1, -1, 0 or NaN, numbers are multiplied by before.
 */
GPU_INLINE float gpu_regular_scale(float scale, float *rest)
{
    const float size = scale < 0 ? -scale : scale;
    const bool regular = size > 0 && size < GPU_INFINITY;

    *rest = regular ? size : 1;
    return regular ? (scale > 0 ? 1.0f : -1.0f) : scale == 0 ? 0.0f : GPU_NAN;
}

/* Of products in e4m3: the scale of the keys of a sequence and KV head, times that of all queries if they
 * have one. */
GPU_INLINE float gpu_e4m3_key_scale(const struct gpu_run *run, uint32_t sequence, uint32_t kv_head)
{
    const float of_queries =
        run->problem.q_scale <= ATTN_SCALES_TENSOR ? gpu_scale_at(&run->q_scale, 0, 0, 0) : 1;

    return gpu_scale_at(&run->k.scale, sequence, 0, kv_head) * of_queries;
}

/* Element 0 of a vector. */
GPU_INLINE uint64_t gpu_vector(const struct gpu_cache *cache, int64_t page, int64_t token, uint32_t head)
{
    return cache->base +
           (uint64_t)(page * cache->page_stride + token * cache->token_stride + head * cache->head_stride);
}

/* Byte offset of element d of a vector. */
GPU_INLINE int64_t gpu_column(const struct gpu_cache *cache, uint32_t d)
{
    const uint32_t byte = d * cache->size;

    if (cache->x_stride == 0)
        return byte;
    return (int64_t)(byte / cache->x_bytes) * cache->x_stride + byte % cache->x_bytes;
}

/* Where keys, or values, of a sequence and head begin: of key 0, or of token 0 of page 0. */
struct gpu_origin {
    uint64_t base;
    int64_t page_stride;
    int64_t token_stride;
};

GPU_INLINE struct gpu_origin gpu_origin_of(const struct gpu_run *run, const struct gpu_sequence *s,
                                           uint32_t kv_head, bool value, bool is_new)
{
    const struct gpu_cache *cache =
        value ? (is_new ? &run->v_new : &run->v) : (is_new ? &run->k_new : &run->k);
    struct gpu_origin origin;

    origin.base = gpu_vector(cache, 0, 0, kv_head);
    origin.page_stride = cache->page_stride;
    origin.token_stride = cache->token_stride;
    if (is_new)
        origin.base += (uint64_t)(((int64_t)s->row - s->new_begin) * cache->token_stride);
    else if (run->batch.addressing == ATTN_DENSE)
        origin.base += (uint64_t)(s->page * cache->page_stride + s->start * cache->token_stride);
    return origin;
}

/* The same for their scales. */
struct gpu_scale_origin {
    uint64_t base; /* 0: all scales are `value` */
    int64_t page_stride;
    int64_t token_stride;
    float value;
};

GPU_INLINE struct gpu_scale_origin gpu_scale_origin_of(const struct gpu_run *run,
                                                       const struct gpu_sequence *s, uint32_t kv_head,
                                                       bool value, bool is_new)
{
    const struct gpu_scale *scale =
        value ? (is_new ? &run->v_new.scale : &run->v.scale) : (is_new ? &run->k_new.scale : &run->k.scale);
    const bool dense = run->batch.addressing == ATTN_DENSE;
    struct gpu_scale_origin origin;
    int64_t outer = 0, token = 0;

    if (is_new || run->problem.kv_source == ATTN_KV_NEW)
        outer = s->index;
    else if (dense)
        outer = s->page;
    if (is_new)
        token = (int64_t)s->row - s->new_begin;
    else if (dense)
        token = s->start;
    origin.base = scale->base == 0
                      ? 0
                      : scale->base + (uint64_t)(outer * scale->outer_stride + token * scale->token_stride +
                                                 (int64_t)kv_head * scale->head_stride);
    origin.page_stride = run->problem.kv_source == ATTN_KV_NEW ? 0 : scale->outer_stride;
    origin.token_stride = scale->token_stride;
    origin.value = scale->value;
    return origin;
}

#endif
