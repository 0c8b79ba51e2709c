/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Puts keys and values of a step in the order in which products of e4m3 take them (convert.h): every CTA
 * takes as many pages of a KV head. The numbers stay as they are.
 */
#ifndef ATTN_GPU_CONVERT_E4M3_KERNEL_H
#define ATTN_GPU_CONVERT_E4M3_KERNEL_H

#include "convert-kernel.h"

/* What the kernel is compiled for: the columns of a vector. */
template <uint32_t Columns> struct gpu_e4m3_shape {
    static constexpr uint32_t COLUMNS = Columns, BLOCK = gpu_e4m3_block(Columns), CHUNKS = Columns / 16;
    /* Bytes from a token to the next of what a CTA transposes: bytes of a column lie in different banks. */
    static constexpr uint32_t PITCH = Columns + 4;
    static constexpr uint32_t ROWS = Columns * BLOCK / GPU_E4M3_ROW; /* of the values of a page */
};

/* Shared memory of a CTA. */
template <class S> struct gpu_e4m3_shared {
    uint64_t k[S::BLOCK], v[S::BLOCK]; /* addresses of the page's vectors, 0: it does not exist */
    uint32_t nonfinite;
    uint32_t codes[S::BLOCK * S::PITCH / 4];
};

/* What a CTA works on. */
struct gpu_e4m3_page {
    uint32_t page, head;
    uint64_t unit;  /* of page and head */
    uint32_t first; /* key */
};

/* The column of values, of 16 tokens, that follow each other as bytes: those of P that a lane has. */
GPU_INLINE uint32_t gpu_e4m3_token(uint32_t place)
{
    return place / 4 * 2 + place % 2 + place / 2 % 2 * 8;
}

/* 16 codes of a vector from column d on, with zeros behind its last one. */
GPU_INLINE struct gpu_u128 gpu_e4m3_load(const struct gpu_cache *cache, uint64_t vector, uint32_t d)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};

    if (vector == 0)
        return out;
    if (cache->x_stride == 0 && (vector & 15) == 0 && d + 16 <= cache->dim)
        return gpu_load_u128(GPU_GLOBAL(const unsigned char, vector) + d);
    for (uint32_t i = 0; i < 16 && d + i < cache->dim; i++)
        out.x[i / 4] |= (uint32_t)GPU_U8(vector)[gpu_column(cache, d + i)] << i % 4 * 8;
    return out;
}

/* Finds where the page's vectors are, and writes which exist: of those that a query may see by its place. */
template <class S>
GPU_INLINE void gpu_e4m3_find(const struct gpu_convert *a, const struct gpu_sequence *s,
                              const struct gpu_e4m3_page *at, gpu_e4m3_shared<S> *shared)
{
    const struct gpu_run *run = &a->run;
    const struct gpu_split_rules rules = gpu_split_rules_of(&run->problem, ATTN__PREFILL, 0);
    const uint32_t thread = gpu_thread(), key = at->first + thread;
    uint32_t tile;
    struct gpu_place place;

    gpu_key_tiles(&rules, &s->visible, 0, s->q_len - 1, s->kv_len, &tile);
    if (thread >= S::BLOCK)
        return;
    const bool exists = key < s->kv_len && key >= tile * GPU_TILE && gpu_locate(run, s, key, &place);
    shared->k[thread] = exists ? gpu_vector(&run->k, place.page, place.token, at->head) : 0;
    shared->v[thread] = exists ? gpu_vector(&run->v, place.page, place.token, at->head) : 0;
    const uint32_t bits = gpu_ballot(exists);
    struct gpu_marks *marks = GPU_GLOBAL(struct gpu_marks, a->marks) + at->unit;
    if (thread % GPU_WARP == 0)
        ((uint32_t *)marks->present)[thread / GPU_WARP] = bits;
}

/* Keys times `factor`: 1, -1, 0 or NaN. */
template <class S>
GPU_INLINE void gpu_e4m3_copy_keys(const struct gpu_convert *a, const struct gpu_e4m3_page *at,
                                   const gpu_e4m3_shared<S> *shared, float factor)
{
    const bool nan = factor != factor;
    const uint32_t keep = nan || factor == 0 ? 0 : 0xffffffffu;
    const uint32_t flip = nan ? 0x7f7f7f7fu : factor < 0 ? 0x80808080u : 0;
    for (uint32_t i = gpu_thread(); i < S::BLOCK * S::CHUNKS; i += GPU_E4M3_THREADS) {
        const uint32_t token = i / S::CHUNKS, d = i % S::CHUNKS * 16;
        struct gpu_u128 codes = gpu_e4m3_load(&a->run.k, shared->k[token], d);
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            codes.x[j] = (codes.x[j] & keep) ^ flip;
        gpu_store_global_u128(
            a->k +
                (((uint64_t)at->page * S::BLOCK + token) * a->run.problem.kv_heads + at->head) * S::COLUMNS +
                d,
            codes);
    }
}

/* Values into shared memory, with zeros where they are NaN, which is marked. */
template <class S>
GPU_INLINE void gpu_e4m3_load_values(const struct gpu_convert *a, const struct gpu_e4m3_page *at,
                                     gpu_e4m3_shared<S> *shared)
{
    for (uint32_t i = gpu_thread(); i < S::BLOCK * S::CHUNKS; i += GPU_E4M3_THREADS) {
        const uint32_t token = i / S::CHUNKS, chunk = i % S::CHUNKS;
        struct gpu_u128 codes = gpu_e4m3_load(&a->run.v, shared->v[token], chunk * 16);
        uint32_t found = 0;
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t nan = gpu_nonfinite8(ATTN_E4M3, codes.x[j]) >> 7;
            codes.x[j] &= ~(nan * 0xffu);
            found |= ((nan | nan >> 7 | nan >> 14 | nan >> 21) & 15) << 4 * j;
            shared->codes[(token * S::PITCH + chunk * 16) / 4 + j] = codes.x[j];
        }
        gpu_at<uint16_t>(a->bits + (at->unit * S::BLOCK + token) * (S::COLUMNS / 8), chunk) = (uint16_t)found;
        if (found != 0)
            shared->nonfinite = 1;
    }
}

/* Columns of them, 16 tokens at a time. */
template <class S>
GPU_INLINE void gpu_e4m3_store_values(const struct gpu_convert *a, const struct gpu_e4m3_page *at,
                                      const gpu_e4m3_shared<S> *shared)
{
    const unsigned char *codes = (const unsigned char *)shared->codes;

    for (uint32_t i = gpu_thread(); i < S::COLUMNS * (S::BLOCK / 16); i += GPU_E4M3_THREADS) {
        const uint32_t d = i % S::COLUMNS, tokens = i / S::COLUMNS * 16;
        struct gpu_u128 out = {{0, 0, 0, 0}};
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            out.x[j / 4] |= (uint32_t)codes[(tokens + gpu_e4m3_token(j)) * S::PITCH + d] << j % 4 * 8;
        gpu_store_global_u128(
            a->v + (at->unit * S::ROWS + d % S::ROWS) * GPU_E4M3_ROW + d / S::ROWS * S::BLOCK + tokens, out);
    }
}

/* Pages times KV heads are numbered through all sequences. */
template <class S> GPU_INLINE void gpu_e4m3_convert(const struct gpu_convert *a)
{
    static_assert(sizeof(gpu_e4m3_shared<S>) <= GPU_E4M3_SHARED, "the host reserves less");
    const struct gpu_run *run = &a->run;
    const uint32_t *first = GPU_GLOBAL(const uint32_t, run->schedule);
    const uint32_t heads = run->problem.kv_heads;
    gpu_e4m3_shared<S> *shared = (gpu_e4m3_shared<S> *)(void *)gpu_shared();
    const uint64_t all = (uint64_t)first[run->batch.seqs] * heads, end = all * (gpu_cta() + 1) / gpu_ctas();
    uint64_t unit = all * gpu_cta() / gpu_ctas();

    if (unit == end)
        return;
    for (uint32_t i = gpu_kv_find(run->schedule, run->batch.seqs, (uint32_t)(unit / heads)); unit < end;
         i++) {
        const struct gpu_sequence s = gpu_sequence(run, i);
        for (; unit < end && unit < (uint64_t)first[i + 1] * heads; unit++) {
            const uint32_t page = (uint32_t)(unit / heads);
            const struct gpu_e4m3_page at = {page, (uint32_t)(unit % heads), unit,
                                             (page - first[i]) * S::BLOCK};
            struct gpu_marks *marks = GPU_GLOBAL(struct gpu_marks, a->marks) + unit;
            float rest;
            const float factor = gpu_regular_scale(gpu_e4m3_key_scale(run, i, at.head), &rest);
            gpu_e4m3_find<S>(a, &s, &at, shared);
            if (gpu_thread() == 0)
                shared->nonfinite = 0;
            gpu_barrier();
            gpu_e4m3_copy_keys<S>(a, &at, shared, factor);
            gpu_e4m3_load_values<S>(a, &at, shared);
            gpu_barrier();
            gpu_e4m3_store_values<S>(a, &at, shared);
            if (gpu_thread() == 0) {
                marks->values = a->bits + unit * S::BLOCK * (S::COLUMNS / 8);
                marks->nonfinite = shared->nonfinite;
                gpu_at<int32_t>(a->entries, page) = (int32_t)page;
            }
            gpu_barrier();
        }
    }
}

GPU_KERNEL(gpu_convert_e4m3_128, GPU_E4M3_THREADS, 4)(GPU_ARGUMENT(struct gpu_convert, argument))
{
    gpu_e4m3_convert<gpu_e4m3_shape<128>>((const struct gpu_convert *)gpu_argument(&argument));
}

GPU_KERNEL(gpu_convert_e4m3_256, GPU_E4M3_THREADS, 4)(GPU_ARGUMENT(struct gpu_convert, argument))
{
    gpu_e4m3_convert<gpu_e4m3_shape<256>>((const struct gpu_convert *)gpu_argument(&argument));
}

#endif
