/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lays a case out in memory: tensors and caches with strides of every legal kind. */
#include "conform.h"

#include <stdlib.h>

#include "need.h"

void layout_init(struct layout *layout, const struct conform_case *the_case, uint64_t seed)
{
    struct rng rng = {mix(seed, 3)};

    memset(layout, 0, sizeof *layout);
    layout->seed = seed;
    layout->count = the_case->count;
    for (uint32_t n = 0; n < the_case->count; n++)
        layout->order[n] = n;
    layout->padding = rng_chance(&rng, 30) ? 1 + rng_below(&rng, 2) : 0;
    layout->before = rng_chance(&rng, 50);
    layout->host = rng_chance(&rng, 50);
    /* Kernels have a short way for what lies as most engines lay it out. */
    layout->alignment = layout->stride_multiple = rng_chance(&rng, 50) ? 16 : 1;
}

/* Strides of keys or values; returns the bytes of a page. */
static uint64_t cache_strides(const struct step *step, struct rng *rng, bool values, bool heads_first,
                              int64_t *out_token, int64_t *out_head)
{
    const struct layout *layout = &step->layout;
    uint32_t dtype = values && step->problem.mla == 0 ? step->kv.v_dtype : step->kv.k_dtype;
    uint32_t element = oracle_has_blocks(dtype) ? 2 : oracle_size(dtype);
    uint64_t row = oracle_row_bytes(dtype, values ? step->kv.head_dim_vo : step->kv.head_dim);

    if (step->kv.layout == ATTN_PAGED_X)
        return paged_x_strides(step, rng, values, out_token, out_head);
    if (heads_first) {
        *out_token = stride_padded(row, element, layout, rng);
        *out_head = stride_padded((uint64_t)*out_token * step->kv.block, element, layout, rng);
        return (uint64_t)stride_padded((uint64_t)*out_head * step->kv.kv_heads, 4, layout, rng);
    }
    *out_head = stride_padded(row, element, layout, rng);
    *out_token = stride_padded((uint64_t)*out_head * step->kv.kv_heads, element, layout, rng);
    return (uint64_t)stride_padded((uint64_t)*out_token * step->kv.block, 4, layout, rng);
}

/* Bytes up to the last element. In chunks all tokens of a head lie side by side. */
static uint64_t extent(const struct attn_kv_desc *kv, int64_t page, int64_t token, int64_t head,
                       uint64_t inner)
{
    if (kv->pages == 0 || kv->block == 0)
        return 0;
    if (kv->layout == ATTN_PAGED_X)
        token = (int64_t)inner;
    return (uint64_t)(page * (kv->pages - 1) + token * (kv->block - 1) + head * (kv->kv_heads - 1)) + inner;
}

/* Cache memory: keys and values apart, or page by page in one allocation. */
static void place_cache(struct step *step, struct rng *rng)
{
    struct attn_kv_desc *kv = &step->kv;
    uint32_t alignment = step->layout.alignment > 4 ? step->layout.alignment : 4;
    uint8_t k_poison = case_poison(step->the_case, kv->k_dtype);
    uint8_t v_poison = case_poison(step->the_case, kv->v_dtype);
    bool heads_first = rng_chance(rng, 40), together = rng_chance(rng, 40);
    bool mla = step->problem.mla != 0; /* no values */
    uint64_t k_inner = oracle_row_bytes(kv->k_dtype, kv->head_dim);
    uint64_t v_inner = oracle_row_bytes(kv->v_dtype, kv->head_dim_vo);

    uint64_t k_page = cache_strides(step, rng, false, heads_first, &kv->k_token_stride, &kv->k_head_stride);
    uint64_t v_page = cache_strides(step, rng, true, heads_first, &kv->v_token_stride, &kv->v_head_stride);
    k_page = (k_page + alignment - 1) / alignment * alignment;
    v_page = (v_page + alignment - 1) / alignment * alignment;
    kv->k_page_stride = (int64_t)(together ? k_page + v_page : k_page);
    kv->v_page_stride = (int64_t)(together ? k_page + v_page : v_page);
    uint64_t k_bytes = extent(kv, kv->k_page_stride, kv->k_token_stride, kv->k_head_stride, k_inner);
    uint64_t v_bytes = extent(kv, kv->v_page_stride, kv->v_token_stride, kv->v_head_stride, v_inner);
    if (together && !mla) {
        step->k_memory =
            arena_add(&step->arena, "cache", v_bytes == 0 ? 0 : k_page + v_bytes, alignment, v_poison);
        for (uint32_t page = 0; page < kv->pages && v_bytes > 0; page++)
            memset(step->k_memory->data + page * (k_page + v_page), k_poison, k_page);
        step->v_memory = step->k_memory;
        kv->k = buffer_at(step->k_memory->data, rng);
        kv->v = buffer_at(step->k_memory->data + (v_bytes == 0 ? 0 : k_page), rng);
        return;
    }
    step->k_memory = arena_add(&step->arena, "key cache", k_bytes, alignment, k_poison);
    if (!mla)
        step->v_memory = arena_add(&step->arena, "value cache", v_bytes, alignment, v_poison);
    kv->k = buffer_at(step->k_memory->data, rng);
    if (!mla)
        kv->v = buffer_at(step->v_memory->data, rng);
}

static void place_array(struct step *step, const char *name, const void *from, size_t size,
                        struct attn_buffer *out, struct rng *rng)
{
    struct guarded *memory = arena_add(&step->arena, name, size, 4, 0xff);

    memcpy(memory->data, from, size);
    guarded_protect(memory);
    *out = buffer_at(memory->data, rng);
}

/* Slopes and sinks. */
static void place_per_head(struct step *step, struct rng *rng)
{
    const struct conform_case *c = step->the_case;
    uint32_t heads = step->problem.heads, size = oracle_size(c->sinks_dtype);
    unsigned char *sinks = need(calloc(heads, size));

    if (step->problem.sinks != 0) {
        for (uint32_t head = 0; head < heads; head++)
            oracle_store(c->sinks_dtype, c->sinks[head], sinks + (size_t)head * size);
        step->tensors.sinks_dtype = c->sinks_dtype;
        place_array(step, "sinks", sinks, (size_t)heads * size, &step->tensors.sinks, rng);
    }
    if (step->problem.alibi != ATTN_ALIBI_NONE)
        place_array(step, "alibi_slopes", c->slopes, heads * sizeof *c->slopes, &step->tensors.alibi_slopes,
                    rng);
    free(sinks);
}

/* Keys and values of a run that no cache holds. */
static void place_new(struct step *step, struct rng *rng)
{
    const struct attn_problem *problem = &step->problem;
    uint32_t rows = step->new_rows + rng_below(rng, 3);
    const uint32_t k_shape[3] = {rows, problem->kv_heads, problem->head_dim};
    const uint32_t v_shape[3] = {rows, problem->kv_heads, problem->head_dim_vo};
    const struct conform_case *c = step->the_case;

    step->k_new =
        tensor_init(&step->tensors.k_new, &step->arena, "k_new", k_shape, oracle_size(problem->k_dtype),
                    &step->layout, rng, case_poison(c, problem->k_dtype));
    if (problem->mla != 0)
        return;
    step->v_new =
        tensor_init(&step->tensors.v_new, &step->arena, "v_new", v_shape, oracle_size(problem->v_dtype),
                    &step->layout, rng, case_poison(c, problem->v_dtype));
}

static void place_tensors(struct step *step, struct rng *rng)
{
    const struct attn_problem *problem = &step->problem;
    uint32_t rows = step->batch.num_tokens + rng_below(rng, 3);
    const uint32_t out_shape[3] = {rows, problem->heads, problem->head_dim_vo};
    const uint32_t lse_shape[3] = {rows, problem->heads, 1};

    step->tensors.softmax_scale = step->the_case->softmax_scale;
    step_place_queries(step, rows, rng);
    step->out_memory = tensor_init(&step->tensors.out, &step->arena, "out", out_shape,
                                   oracle_size(problem->out_dtype), &step->layout, rng, 0);
    pattern_fill(step->out_memory);
    if (problem->lse != 0) {
        step->lse_memory =
            tensor_init(&step->tensors.lse, &step->arena, "lse", lse_shape, 4, &step->layout, rng, 0);
        pattern_fill(step->lse_memory);
    }
    place_per_head(step, rng);
    if (problem->mask != ATTN_MASK_NONE)
        step_place_mask(step, rng);
    step_fill_queries(step);
}

void step_init(struct step *step, const struct conform_case *the_case, const struct layout *layout,
               bool attention)
{
    struct rng rng = {mix(layout->seed, 4)};

    memset(step, 0, sizeof *step);
    step->the_case = the_case;
    step->layout = *layout;
    step->problem = the_case->problem;
    arena_init(&step->arena, layout->before);
    ATTN_INIT(&step->batch);
    ATTN_INIT(&step->host);
    ATTN_INIT(&step->kv);
    step->kv.k_dtype = step->problem.k_dtype;
    step->kv.v_dtype = step->problem.mla != 0 && layout->seed % 2 == 0 ? 0 : step->problem.v_dtype;
    step->kv.layout = step->problem.layout;
    step->kv.kv_heads = step->problem.kv_heads;
    step->kv.head_dim = step->problem.head_dim;
    step->kv.head_dim_vo = step->problem.head_dim_vo;
    step_place_batch(step, &rng);
    step->batch.pages = rng_chance(&rng, 50) ? step->kv.pages : 0;
    if (layout->host) {
        step->batch.given |= ATTN_GIVEN_HOST_COPIES;
        step->batch.host = &step->host;
    }
    if (step->problem.kv_source != ATTN_KV_NEW) {
        place_cache(step, &rng);
        step_place_cache_scales(step);
    }
    step->use_handle = rng_chance(&rng, 50);
    if (attention) {
        ATTN_INIT(&step->tensors);
        if (step->problem.kv_source != ATTN_KV_CACHE)
            place_new(step, &rng);
        step_place_scales(step);
        step_fill_keys(step);
        place_tensors(step, &rng);
    }
}

void step_finish(struct step *step)
{
    arena_finish(&step->arena);
    free(step->physical);
    step->physical = NULL;
}
