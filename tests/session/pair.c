/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory of both ways, their calls, and the comparison. */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>

#include "../graph/tap.h"
#include "pair-memory.h"

/* ---------------------------------------------------------------- memory */

static uint32_t draw(struct pair *pair)
{
    pair->seed = pair->seed * UINT32_C(1664525) + UINT32_C(1013904223);
    return pair->seed >> 8;
}

static uint64_t size_of(uint32_t dtype)
{
    return (dtype >> 8 & 0xff) / 8;
}

/* Numbers of a moderate size in any type. */
static void make_numbers(struct pair *pair, uint32_t dtype, void *to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t bits = draw(pair), sign = bits & 0x8000;
        const float number = (float)(bits % 4001) / 2000 - 1;
        const uint16_t half =
            (uint16_t)(sign | (dtype == ATTN_F16 ? 0x3000 + bits % 0xc00 : 0x3e00 + bits % 0x180));
        if (dtype == ATTN_F32)
            ((float *)to)[i] = number;
        else
            ((uint16_t *)to)[i] = half;
    }
}

void pair_copy_in(struct pair *pair, const struct attn_buffer *to, const void *from, uint64_t size)
{
    const struct attn_buffer host = {(void *)(uintptr_t)from, 0};
    must(attn_memory_copy(pair->backend, to, &host, size, ATTN_COPY_TO_DEVICE, pair->stream, &err));
    must(attn_stream_synchronize(pair->backend, pair->stream, &err));
}

static void copy_out(struct pair *pair, void *to, const struct attn_buffer *from, uint64_t size)
{
    const struct attn_buffer host = {to, 0};
    must(attn_memory_copy(pair->backend, &host, from, size, ATTN_COPY_TO_HOST, pair->stream, &err));
    must(attn_stream_synchronize(pair->backend, pair->stream, &err));
}

struct attn_buffer pair_zeros(struct pair *pair, uint64_t size)
{
    struct attn_buffer buffer = {NULL, 0};
    void *zeros = calloc(1, size + 1);
    must(attn_memory_alloc(pair->backend, size + 1, &buffer, &err));
    pair_copy_in(pair, &buffer, zeros, size);
    free(zeros);
    return buffer;
}

static void fill(struct pair *pair, const struct attn_buffer *to, uint32_t dtype, uint64_t count)
{
    void *numbers = malloc(count * 4);
    make_numbers(pair, dtype, numbers, count);
    pair_copy_in(pair, to, numbers, count * size_of(dtype));
    free(numbers);
}

/* ---------------------------------------------------------------- sizes */

static int is_cached(const struct pair *pair)
{
    return pair->problem.kv_source != ATTN_KV_NEW;
}

uint32_t pair_key_dtype(const struct pair *pair)
{
    return pair->problem.kv_source == ATTN_KV_CACHE ? pair->problem.q_dtype : pair->problem.k_dtype;
}

static uint64_t cache_bytes(const struct pair *pair, int values)
{
    const struct attn_problem *p = &pair->problem;
    const uint64_t head = values ? p->head_dim_vo * size_of(p->v_dtype) : p->head_dim * size_of(p->k_dtype);
    return (uint64_t)PAIR_SEQS * PAIR_KEYS * p->kv_heads * head;
}

uint32_t pair_cache_block(const struct pair *pair)
{
    return pair->problem.addressing == ATTN_DENSE ? PAIR_KEYS : PAIR_BLOCK;
}

uint32_t pair_cache_pages(const struct pair *pair)
{
    return pair->problem.addressing == ATTN_DENSE ? PAIR_SEQS : PAIR_SEQS * PAIR_WIDTH;
}

static uint64_t out_bytes(const struct pair *pair)
{
    return (uint64_t)PAIR_ROWS * pair->problem.heads * pair->problem.head_dim_vo *
           size_of(pair->problem.out_dtype);
}

static uint64_t lse_bytes(const struct pair *pair)
{
    return (uint64_t)PAIR_ROWS * pair->problem.heads * sizeof(float);
}

/* ---------------------------------------------------------------- open and close */

void pair_describe(const struct pair *pair, const struct pair_side *side, struct attn_kv_desc *desc)
{
    const struct attn_problem *p = &pair->problem;
    ATTN_INIT(desc);
    desc->k_dtype = p->k_dtype;
    desc->v_dtype = p->v_dtype;
    desc->pages = pair_cache_pages(pair);
    desc->block = pair_cache_block(pair);
    desc->kv_heads = p->kv_heads;
    desc->head_dim = p->head_dim;
    desc->head_dim_vo = p->head_dim_vo;
    desc->k = side->k_cache;
    desc->k_head_stride = (int64_t)(p->head_dim * size_of(p->k_dtype));
    desc->k_token_stride = desc->k_head_stride * p->kv_heads;
    desc->k_page_stride = desc->k_token_stride * desc->block;
    const struct attn_scale unit = {.kind = ATTN_SCALE_UNIT};
    const struct attn_scale token_head = {.kind = ATTN_SCALE_DEVICE,
                                          .granularity = ATTN_SCALES_TOKEN_HEAD,
                                          .outer_stride = (int64_t)desc->block * p->kv_heads * 4,
                                          .token_stride = (int64_t)p->kv_heads * 4,
                                          .head_stride = 4};
    if (p->k_scale > ATTN_SCALES_NONE)
        desc->k_scale = p->k_scale == ATTN_SCALES_UNIT ? unit : token_head;
    if (p->k_scale > ATTN_SCALES_UNIT)
        desc->k_scale.buffer = side->k_scales;
    if (p->mla != 0)
        return;
    desc->v = side->v_cache;
    desc->v_head_stride = (int64_t)(p->head_dim_vo * size_of(p->v_dtype));
    desc->v_token_stride = desc->v_head_stride * p->kv_heads;
    desc->v_page_stride = desc->v_token_stride * desc->block;
    if (p->v_scale > ATTN_SCALES_NONE)
        desc->v_scale = p->v_scale == ATTN_SCALES_UNIT ? unit : token_head;
    if (p->v_scale > ATTN_SCALES_UNIT)
        desc->v_scale.buffer = side->v_scales;
}

static void open_side(struct pair *pair, struct pair_side *side)
{
    struct attn_kv_desc desc;
    side->out = pair_zeros(pair, out_bytes(pair));
    side->lse = pair_zeros(pair, lse_bytes(pair));
    if (!is_cached(pair))
        return;
    side->k_cache = pair_zeros(pair, cache_bytes(pair, 0));
    if (pair->problem.mla == 0)
        side->v_cache = pair_zeros(pair, cache_bytes(pair, 1));
    if (!pair->sample.handle)
        return;
    side->k_scales = pair_zeros(pair, cache_bytes(pair, 0));
    side->v_scales = pair_zeros(pair, cache_bytes(pair, 1));
    pair_describe(pair, side, &desc);
    must(attn_kv_create(pair->backend, &desc, &side->kv, &err));
}

void pair_open(struct pair *pair, const struct pair_case *sample, int stream)
{
    memset(pair, 0, sizeof *pair);
    ATTN_INIT(&err);
    pair->sample = *sample;
    must(attn_open(sample->problem, NULL, &pair->session, &err));
    must(attn_problem_parse(sample->problem, &pair->problem, &err));
    pair->maxima = pair->problem;
    pair->backend = attn_session_get_backend(pair->session);
    if (stream)
        must(attn_stream_create(pair->backend, &pair->stream, &err));
    const struct attn_problem *p = &pair->problem;
    pair->q = pair_zeros(pair, (uint64_t)PAIR_ROWS * p->heads * p->head_dim * 4);
    pair->k = pair_zeros(pair, (uint64_t)PAIR_ROWS * p->kv_heads * p->head_dim * 4);
    pair->v = pair_zeros(pair, (uint64_t)PAIR_ROWS * p->kv_heads * p->head_dim_vo * 4);
    pair->sinks = pair_zeros(pair, p->heads * sizeof(float));
    pair->slopes = pair_zeros(pair, p->heads * sizeof(float));
    pair->mask = pair_zeros(pair, (uint64_t)PAIR_KEYS * PAIR_KEYS * sizeof(float));
    fill(pair, &pair->sinks, ATTN_F32, p->heads);
    fill(pair, &pair->slopes, ATTN_F32, p->heads);
    fill(pair, &pair->mask, ATTN_F32, (uint64_t)PAIR_KEYS * PAIR_KEYS);
    open_side(pair, &pair->simple);
    open_side(pair, &pair->full);
    pair_fill(pair);
}

void pair_drop_plan(struct pair *pair)
{
    if (pair->plan == NULL)
        return;
    attn_plan_destroy(pair->plan);
    pair->plan = NULL;
    free(pair->staging.buffer.data);
    attn_memory_free(pair->backend, &pair->schedule.buffer);
    attn_memory_free(pair->backend, &pair->scratch.scratch.buffer);
    attn_memory_free(pair->backend, &pair->scratch.counters.buffer);
}

void pair_close(struct pair *pair)
{
    must(attn_stream_synchronize(pair->backend, pair->stream, &err));
    pair_drop_plan(pair);
    struct pair_side *const sides[] = {&pair->simple, &pair->full};
    for (int i = 0; i < 2; i++) {
        const struct attn_buffer *const own[] = {&sides[i]->k_cache,  &sides[i]->v_cache,
                                                 &sides[i]->out,      &sides[i]->lse,
                                                 &sides[i]->k_scales, &sides[i]->v_scales};
        attn_kv_destroy(sides[i]->kv);
        for (size_t j = 0; j < sizeof own / sizeof *own; j++)
            attn_memory_free(pair->backend, own[j]);
    }
    const struct attn_buffer *const own[] = {&pair->q,     &pair->k,      &pair->v,
                                             &pair->sinks, &pair->slopes, &pair->mask};
    for (size_t j = 0; j < sizeof own / sizeof *own; j++)
        attn_memory_free(pair->backend, own[j]);
    if (pair->stream != NULL)
        attn_stream_destroy(pair->backend, pair->stream);
    attn_close(pair->session);
}

void pair_fill(struct pair *pair)
{
    const struct attn_problem *p = &pair->problem;
    fill(pair, &pair->q, p->q_dtype, (uint64_t)PAIR_ROWS * p->heads * p->head_dim);
    fill(pair, &pair->k, pair_key_dtype(pair), (uint64_t)PAIR_ROWS * p->kv_heads * p->head_dim);
    fill(pair, &pair->v, pair_key_dtype(pair), (uint64_t)PAIR_ROWS * p->kv_heads * p->head_dim_vo);
}

static int has_same_bytes(struct pair *pair, const struct attn_buffer *a, const struct attn_buffer *b,
                          uint64_t size)
{
    char *first = malloc(size), *second = malloc(size);
    copy_out(pair, first, a, size);
    copy_out(pair, second, b, size);
    const int same = memcmp(first, second, size) == 0;
    free(first);
    free(second);
    return same;
}

int pair_is_same(struct pair *pair)
{
    const struct pair_side *a = &pair->simple, *b = &pair->full;
    return has_same_bytes(pair, &a->out, &b->out, out_bytes(pair)) &&
           has_same_bytes(pair, &a->lse, &b->lse, lse_bytes(pair)) &&
           (a->k_cache.data == NULL ||
            has_same_bytes(pair, &a->k_cache, &b->k_cache, cache_bytes(pair, 0))) &&
           (a->v_cache.data == NULL || has_same_bytes(pair, &a->v_cache, &b->v_cache, cache_bytes(pair, 1)));
}
