/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Puts keys and values of a step in the order in which products of e4m3 take them (convert.h): every CTA
 * takes as many pages of a KV head. The numbers stay as they are.
 */
#ifndef ATTN_GPU_CONVERT_E4M3_KERNEL_H
#define ATTN_GPU_CONVERT_E4M3_KERNEL_H

#include "convert-kernel.h"

/* Bytes from a token to the next of what a CTA transposes: bytes of a column lie in different banks. */
constexpr uint32_t GPU_E4M3_PITCH = GPU_E4M3_DIM + 4;

/* Shared memory of a CTA. */
struct gpu_e4m3_shared {
    uint64_t k[GPU_E4M3_BLOCK], v[GPU_E4M3_BLOCK]; /* addresses of the page's vectors, 0: it does not exist */
    uint32_t nonfinite;
    uint32_t codes[GPU_E4M3_BLOCK * GPU_E4M3_PITCH / 4];
};
static_assert(sizeof(struct gpu_e4m3_shared) <= GPU_E4M3_SHARED, "the host reserves less");

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

/* 16 codes at an address. */
GPU_INLINE struct gpu_u128 gpu_e4m3_load(const struct gpu_cache *cache, uint64_t vector, uint32_t d)
{
    struct gpu_u128 out = {{0, 0, 0, 0}};

    if (vector == 0)
        return out;
    if (cache->x_stride == 0 && (vector & 15) == 0)
        return gpu_load_u128(GPU_GLOBAL(const unsigned char, vector) + d);
    for (uint32_t i = 0; i < 16; i++)
        out.x[i / 4] |= (uint32_t)GPU_U8(vector)[gpu_column(cache, d + i)] << i % 4 * 8;
    return out;
}

/* Finds where the page's vectors are, and writes which exist: of those that a query may see by its place. */
GPU_INLINE void gpu_e4m3_find(const struct gpu_convert *a, const struct gpu_sequence *s,
                              const struct gpu_e4m3_page *at, struct gpu_e4m3_shared *shared)
{
    const struct gpu_run *run = &a->run;
    const struct gpu_split_rules rules = gpu_split_rules_of(&run->problem, ATTN__PREFILL, 0);
    const uint32_t thread = gpu_thread(), key = at->first + thread;
    uint32_t tile;
    struct gpu_place place;

    gpu_key_tiles(&rules, &s->visible, 0, s->q_len - 1, s->kv_len, &tile);
    if (thread >= GPU_E4M3_BLOCK)
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
GPU_INLINE void gpu_e4m3_copy_keys(const struct gpu_convert *a, const struct gpu_e4m3_page *at,
                                   const struct gpu_e4m3_shared *shared, float factor)
{
    const bool nan = factor != factor;
    const uint32_t keep = nan || factor == 0 ? 0 : 0xffffffffu;
    const uint32_t flip = nan ? 0x7f7f7f7fu : factor < 0 ? 0x80808080u : 0;
    constexpr uint32_t chunks = GPU_E4M3_DIM / 16;

    for (uint32_t i = gpu_thread(); i < GPU_E4M3_BLOCK * chunks; i += GPU_E4M3_THREADS) {
        const uint32_t token = i / chunks, d = i % chunks * 16;
        struct gpu_u128 codes = gpu_e4m3_load(&a->run.k, shared->k[token], d);
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            codes.x[j] = (codes.x[j] & keep) ^ flip;
        gpu_store_global_u128(
            a->k +
                (((uint64_t)at->page * GPU_E4M3_BLOCK + token) * a->run.problem.kv_heads + at->head) *
                    GPU_E4M3_DIM +
                d,
            codes);
    }
}

/* Values into shared memory, with zeros where they are NaN, which is marked. */
GPU_INLINE void gpu_e4m3_load_values(const struct gpu_convert *a, const struct gpu_e4m3_page *at,
                                     struct gpu_e4m3_shared *shared)
{
    constexpr uint32_t chunks = GPU_E4M3_DIM / 16;

    for (uint32_t i = gpu_thread(); i < GPU_E4M3_BLOCK * chunks; i += GPU_E4M3_THREADS) {
        const uint32_t token = i / chunks, chunk = i % chunks;
        struct gpu_u128 codes = gpu_e4m3_load(&a->run.v, shared->v[token], chunk * 16);
        uint32_t found = 0;
        GPU_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t nan = gpu_nonfinite8(ATTN_E4M3, codes.x[j]) >> 7;
            codes.x[j] &= ~(nan * 0xffu);
            found |= ((nan | nan >> 7 | nan >> 14 | nan >> 21) & 15) << 4 * j;
            shared->codes[(token * GPU_E4M3_PITCH + chunk * 16) / 4 + j] = codes.x[j];
        }
        gpu_at<uint16_t>(a->bits + (at->unit * GPU_E4M3_BLOCK + token) * (GPU_E4M3_DIM / 8), chunk) =
            (uint16_t)found;
        if (found != 0)
            shared->nonfinite = 1;
    }
}

/* Columns of them, 16 tokens at a time. */
GPU_INLINE void gpu_e4m3_store_values(const struct gpu_convert *a, const struct gpu_e4m3_page *at,
                                      const struct gpu_e4m3_shared *shared)
{
    const unsigned char *codes = (const unsigned char *)shared->codes;

    for (uint32_t i = gpu_thread(); i < GPU_E4M3_DIM * (GPU_E4M3_BLOCK / 16); i += GPU_E4M3_THREADS) {
        const uint32_t d = i % GPU_E4M3_DIM, tokens = i / GPU_E4M3_DIM * 16;
        struct gpu_u128 out = {{0, 0, 0, 0}};
        GPU_UNROLL
        for (uint32_t j = 0; j < 16; j++)
            out.x[j / 4] |= (uint32_t)codes[(tokens + gpu_e4m3_token(j)) * GPU_E4M3_PITCH + d] << j % 4 * 8;
        gpu_store_global_u128(a->v + (at->unit * GPU_E4M3_DIM + d) * GPU_E4M3_BLOCK + tokens, out);
    }
}

/* Pages times KV heads are numbered through all sequences. */
GPU_KERNEL(gpu_convert_e4m3, GPU_E4M3_THREADS, 4)(GPU_ARGUMENT(struct gpu_convert, argument))
{
    const struct gpu_convert *a = (const struct gpu_convert *)gpu_argument(&argument);
    const struct gpu_run *run = &a->run;
    const uint32_t *first = GPU_GLOBAL(const uint32_t, run->schedule);
    const uint32_t heads = run->problem.kv_heads;
    struct gpu_e4m3_shared *shared = (struct gpu_e4m3_shared *)(void *)gpu_shared();
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
                                             (page - first[i]) * GPU_E4M3_BLOCK};
            struct gpu_marks *marks = GPU_GLOBAL(struct gpu_marks, a->marks) + unit;
            float rest;
            const float factor = gpu_regular_scale(gpu_e4m3_key_scale(run, i, at.head), &rest);
            gpu_e4m3_find(a, &s, &at, shared);
            if (gpu_thread() == 0)
                shared->nonfinite = 0;
            gpu_barrier();
            gpu_e4m3_copy_keys(a, &at, shared, factor);
            gpu_e4m3_load_values(a, &at, shared);
            gpu_barrier();
            gpu_e4m3_store_values(a, &at, shared);
            if (gpu_thread() == 0) {
                marks->values = a->bits + unit * GPU_E4M3_BLOCK * (GPU_E4M3_DIM / 8);
                marks->nonfinite = shared->nonfinite;
                gpu_at<int32_t>(a->entries, page) = (int32_t)page;
            }
            gpu_barrier();
        }
    }
}

#endif
