/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random caches of every type and layout in guarded memory, and the mirrors of what may be written. */
#include "cache.h"

#include <math.h>

#include "need.h"

static const uint32_t types[] = {ATTN_F32,  ATTN_F16,      ATTN_BF16,     ATTN_E4M3,
                                 ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_INT8};

/* ---------------------------------------------------------------- tracking */

void cache_track(struct cache_case *c, struct guarded *memory)
{
    struct tracked *tracked = &c->tracked[c->tracked_count++];

    tracked->memory = memory;
    tracked->before = need(malloc(memory->size + 1));
    tracked->mirror = need(malloc(memory->size + 1));
    memcpy(tracked->before, memory->data, memory->size);
    memcpy(tracked->mirror, memory->data, memory->size);
}

struct attn_buffer cache_array(struct cache_case *c, const char *name, const void *from, size_t size,
                               size_t alignment)
{
    struct guarded *memory = arena_add(&c->arena, name, size, alignment, 0xff);

    if (size > 0)
        memcpy(memory->data, from, size);
    guarded_protect(memory);
    return buffer_at(memory->data, &c->rng);
}

unsigned char *cache_mirror(struct cache_case *c, const void *address)
{
    const unsigned char *at = address;

    for (uint32_t i = 0; i < c->tracked_count; i++) {
        const struct guarded *memory = c->tracked[i].memory;
        if (at >= memory->data && at < memory->data + memory->size)
            return c->tracked[i].mirror + (at - memory->data);
    }
    fprintf(stderr, "attn-check: the reference of %s left its buffers\n", c->operation->name);
    abort();
}

void cache_restore(struct cache_case *c)
{
    for (uint32_t i = 0; i < c->tracked_count; i++)
        memcpy(c->tracked[i].memory->data, c->tracked[i].before, c->tracked[i].memory->size);
}

bool cache_compare(const struct cache_case *c, const char **out_name, size_t *out_at)
{
    for (uint32_t i = 0; i < c->tracked_count; i++) {
        const struct tracked *tracked = &c->tracked[i];
        for (size_t at = 0; at < tracked->memory->size; at++) {
            if (tracked->memory->data[at] == tracked->mirror[at])
                continue;
            *out_name = tracked->memory->name;
            *out_at = at;
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------- places */

uint32_t box_halves(const struct box *box)
{
    return box->desc.v.data != NULL ? 2 : 1;
}

uint32_t box_dim(const struct box *box, uint32_t half)
{
    return half == 0 ? box->desc.head_dim : box->desc.head_dim_vo;
}

uint32_t box_dtype(const struct box *box, uint32_t half)
{
    return half == 0 ? box->desc.k_dtype : box->desc.v_dtype;
}

const struct attn_scale *box_scale(const struct box *box, uint32_t half)
{
    return half == 0 ? &box->desc.k_scale : &box->desc.v_scale;
}

unsigned char *box_element(const struct box *box, uint32_t half, int64_t page, int64_t token, uint32_t head,
                           uint32_t d)
{
    return half == 0 ? key_element(&box->desc, page, token, head, d)
                     : value_element(&box->desc, page, token, head, d);
}

unsigned char *box_scale_at(const struct box *box, uint32_t half, int64_t page, int64_t token, uint32_t head)
{
    const struct attn_scale *scale = box_scale(box, half);

    if (scale->buffer.data == NULL)
        return NULL;
    return (unsigned char *)scale->buffer.data + scale->buffer.byte_offset + page * scale->outer_stride +
           token * scale->token_stride + (int64_t)head * scale->head_stride;
}

bool box_is_token_head(const struct box *box, uint32_t half)
{
    return box_scale(box, half)->granularity == ATTN_SCALES_TOKEN_HEAD;
}

/* ---------------------------------------------------------------- a random cache */

/* A size with room behind it, in whole units. */
static int64_t padded(struct rng *rng, uint64_t least, uint32_t unit)
{
    uint64_t size = (least + unit - 1) / unit * unit;

    return (int64_t)(size + (rng_chance(rng, 50) ? unit * rng_below(rng, 4) : 0));
}

/* Strides of one half; returns its bytes in all pages. */
static uint64_t half_strides(struct cache_case *c, struct box *box, uint32_t half)
{
    struct attn_kv_desc *desc = &box->desc;
    int64_t *page = half == 0 ? &desc->k_page_stride : &desc->v_page_stride;
    int64_t *token = half == 0 ? &desc->k_token_stride : &desc->v_token_stride;
    int64_t *head = half == 0 ? &desc->k_head_stride : &desc->v_head_stride;
    uint32_t size = oracle_size(box_dtype(box, half));
    uint64_t vector = (uint64_t)box_dim(box, half) * size, last;

    if (desc->layout == ATTN_PAGED_X) {
        *token = (int64_t)rng_below(&c->rng, 1000); /* not used */
        *head = padded(&c->rng, vector * desc->block, size);
        last = (uint64_t)*head * (desc->kv_heads - 1) + vector * desc->block;
    } else if (rng_chance(&c->rng, 40)) {
        *token = padded(&c->rng, vector, size);
        *head = padded(&c->rng, (uint64_t)*token * desc->block, size);
        last = (uint64_t)*head * (desc->kv_heads - 1) + (uint64_t)*token * (desc->block - 1) + vector;
    } else {
        *head = padded(&c->rng, vector, size);
        *token = padded(&c->rng, (uint64_t)*head * desc->kv_heads, size);
        last = (uint64_t)*head * (desc->kv_heads - 1) + (uint64_t)*token * (desc->block - 1) + vector;
    }
    *page = padded(&c->rng, last, 4);
    return (uint64_t)*page * (desc->pages - 1) + last;
}

/* Keys and values apart, or page by page in one allocation. */
static void place_halves(struct cache_case *c, struct box *box, bool mla)
{
    struct attn_kv_desc *desc = &box->desc;
    uint64_t k_bytes = half_strides(c, box, 0), v_bytes = mla ? 0 : half_strides(c, box, 1);

    if (!mla && rng_chance(&c->rng, 40)) {
        uint64_t k_page = (uint64_t)desc->k_page_stride, v_page = (uint64_t)desc->v_page_stride;
        v_bytes = v_bytes - v_page * (desc->pages - 1) + k_page + (k_page + v_page) * (desc->pages - 1);
        desc->k_page_stride = desc->v_page_stride = (int64_t)(k_page + v_page);
        struct guarded *memory = arena_add(&c->arena, "cache", v_bytes, 4, 0);
        desc->k = buffer_at(memory->data, &c->rng);
        desc->v = buffer_at(memory->data + k_page, &c->rng);
        return;
    }
    desc->k = buffer_at(arena_add(&c->arena, "key cache", k_bytes, 4, 0)->data, &c->rng);
    if (!mla)
        desc->v = buffer_at(arena_add(&c->arena, "value cache", v_bytes, 4, 0)->data, &c->rng);
}

/* What is there before: any bytes, or numbers around 1, so that conversions meet both. */
static void fill_elements(struct cache_case *c, const struct box *box, uint32_t half)
{
    uint32_t dtype = box_dtype(box, half), size = oracle_size(dtype), dim = box_dim(box, half);
    const struct attn_kv_desc *desc = &box->desc;
    bool finite = rng_chance(&c->rng, 50);
    uint64_t key = rng_next(&c->rng);

    for (uint32_t i = 0; i < desc->pages * desc->block * desc->kv_heads * dim; i++) {
        uint32_t d = i % dim, head = i / dim % desc->kv_heads, slot = i / dim / desc->kv_heads;
        struct rng rng = {mix(key, i)};
        unsigned char *to =
            box_element(box, half, (int64_t)(slot / desc->block), (int64_t)(slot % desc->block), head, d);
        uint64_t bits = rng_next(&rng);
        double value = ldexp((double)rng_below(&rng, 1u << 24) - 0x1p23, (int)rng_below(&rng, 20) - 34);
        if (finite || size == 4 || rng_chance(&rng, 90))
            oracle_store(dtype, value, to);
        if (!finite && rng_chance(&rng, size == 4 ? 1 : 10))
            memcpy(to, &bits, size);
    }
}

/* One scale array: f32 in the order of page, token and head, or turned round. */
static void place_scale(struct cache_case *c, struct box *box, uint32_t half)
{
    struct attn_scale *scale = half == 0 ? &box->desc.k_scale : &box->desc.v_scale;
    uint32_t pages = box->desc.pages, block = box->desc.block, heads = box->desc.kv_heads;
    bool token_head = scale->granularity == ATTN_SCALES_TOKEN_HEAD;

    if (scale->granularity == ATTN_SCALES_NONE || scale->granularity == ATTN_SCALES_UNIT) {
        scale->kind = scale->granularity == ATTN_SCALES_UNIT ? (uint32_t)ATTN_SCALE_UNIT : 0;
        return;
    }
    scale->kind = ATTN_SCALE_DEVICE;
    scale->head_stride = scale->granularity >= ATTN_SCALES_HEAD ? padded(&c->rng, 4, 4) : 0;
    scale->token_stride = token_head ? padded(&c->rng, (uint64_t)scale->head_stride * heads, 4) : 0;
    if (token_head && rng_chance(&c->rng, 30)) {
        scale->token_stride = padded(&c->rng, 4, 4);
        scale->head_stride = padded(&c->rng, (uint64_t)scale->token_stride * block, 4);
    }
    uint64_t last = (uint64_t)(scale->head_stride * (heads - 1) + scale->token_stride * (block - 1)) + 4;
    scale->outer_stride = token_head ? padded(&c->rng, last, 4) : 0;
    struct guarded *memory = arena_add(&c->arena, half == 0 ? "scales of keys" : "scales of values",
                                       (uint64_t)scale->outer_stride * (pages - 1) + last, 4, 0);
    uint64_t key = rng_next(&c->rng);
    for (size_t i = 0; i < memory->size; i += 4) {
        struct rng rng = {mix(key, i)};
        float value = ldexpf(1 + (float)rng_below(&rng, 1u << 23) * 0x1p-23F, (int)rng_below(&rng, 12) - 6);
        if (token_head && rng_chance(&rng, 2))
            value = NAN; /* of a row that was not finite */
        memcpy(memory->data + i, &value, 4);
    }
    scale->buffer = buffer_at(memory->data, &c->rng);
    if (!token_head && rng_chance(&c->rng, 25))
        scale->kind = ATTN_SCALE_HOST; /* nothing writes these */
    cache_track(c, memory);
}

static uint32_t pick_granularity(struct rng *rng, uint32_t dtype)
{
    static const uint32_t known[] = {ATTN_SCALES_UNIT, ATTN_SCALES_TENSOR, ATTN_SCALES_HEAD,
                                     ATTN_SCALES_TOKEN_HEAD, ATTN_SCALES_TOKEN_HEAD};

    return oracle_is_8bit(dtype) ? rng_pick(rng, known) : (uint32_t)ATTN_SCALES_NONE;
}

static void pick_types(struct cache_case *c, struct attn_kv_desc *desc)
{
    desc->k_dtype = rng_pick(&c->rng, types);
    desc->v_dtype = rng_chance(&c->rng, 60) ? desc->k_dtype : rng_pick(&c->rng, types);
    desc->k_scale.granularity = pick_granularity(&c->rng, desc->k_dtype);
    desc->v_scale.granularity = pick_granularity(&c->rng, desc->v_dtype);
}

static void pick_shape(struct cache_case *c, struct attn_kv_desc *desc, bool *out_mla)
{
    static const uint32_t blocks[] = {1, 2, 3, 5, 16, 16, 17, 32, 40};
    static const uint32_t dims[] = {1, 3, 8, 16, 24, 40, 64, 72, 128, 130, 160};
    static const uint32_t mla_dims[][2] = {{40, 32}, {72, 64}, {192, 128}, {33, 17}, {576, 512}};

    desc->block = rng_pick(&c->rng, blocks);
    desc->kv_heads = 1 + rng_below(&c->rng, 4);
    desc->head_dim = rng_pick(&c->rng, dims);
    desc->head_dim_vo = rng_chance(&c->rng, 60) ? desc->head_dim : rng_pick(&c->rng, dims);
    *out_mla = rng_chance(&c->rng, 15);
    if (*out_mla) {
        const uint32_t *pair = mla_dims[rng_below(&c->rng, sizeof mla_dims / sizeof *mla_dims)];
        desc->kv_heads = 1;
        desc->head_dim = pair[0];
        desc->head_dim_vo = pair[1];
    }
}

/* Puts a described cache into memory. */
static struct box *place(struct cache_case *c, const struct attn_kv_desc *desc, bool mla)
{
    struct box *box = &c->boxes[c->box_count++];
    uint32_t first = c->arena.count;

    memset(box, 0, sizeof *box);
    box->desc = *desc;
    box->desc.pages = 1 + rng_below(&c->rng, 9);
    if (mla) {
        box->desc.v_dtype = rng_chance(&c->rng, 50) ? 0 : box->desc.k_dtype;
        box->desc.v_scale.granularity = 0;
    }
    place_halves(c, box, mla);
    for (uint32_t i = first; i < c->arena.count; i++) {
        struct guarded *memory = &c->arena.buffers[i];
        struct rng rng = {rng_next(&c->rng)};
        for (size_t at = 0; at < memory->size; at++)
            memory->data[at] = (unsigned char)rng_next(&rng);
    }
    for (uint32_t half = 0; half < box_halves(box); half++)
        fill_elements(c, box, half);
    for (uint32_t i = first; i < c->arena.count; i++)
        cache_track(c, &c->arena.buffers[i]);
    for (uint32_t half = 0; half < box_halves(box); half++)
        place_scale(c, box, half);
    box->use_handle = rng_chance(&c->rng, 50);
    return box;
}

static void reset(struct attn_kv_desc *desc)
{
    memset(&desc->k, 0, sizeof desc->k);
    memset(&desc->v, 0, sizeof desc->v);
    desc->k_scale = (struct attn_scale){.granularity = desc->k_scale.granularity};
    desc->v_scale = (struct attn_scale){.granularity = desc->v_scale.granularity};
}

static void fit_chunks(struct attn_kv_desc *desc)
{
    uint32_t x = paged_x_elements(desc->k_dtype);

    desc->head_dim = (desc->head_dim + x - 1) / x * x;
}

struct box *box_add(struct cache_case *c, const struct box *like)
{
    struct attn_kv_desc desc;
    bool mla = false;

    if (like != NULL) {
        desc = like->desc;
        mla = desc.v.data == NULL;
        reset(&desc);
        return place(c, &desc, mla);
    }
    ATTN_INIT(&desc);
    pick_types(c, &desc);
    pick_shape(c, &desc, &mla);
    desc.layout = rng_chance(&c->rng, 40) ? ATTN_PAGED_X : rng_below(&c->rng, 2);
    if (desc.layout == ATTN_PAGED_X)
        fit_chunks(&desc);
    return place(c, &desc, mla);
}

struct box *box_add_converted(struct cache_case *c, const struct box *from)
{
    struct attn_kv_desc desc = from->desc;
    bool mla = desc.v.data == NULL;

    reset(&desc);
    if (rng_chance(&c->rng, 80))
        pick_types(c, &desc);
    if (rng_chance(&c->rng, 50))
        desc.layout = desc.layout == ATTN_PAGED_X ? ATTN_STRIDED : ATTN_PAGED_X;
    if (desc.layout == ATTN_PAGED_X && desc.head_dim % paged_x_elements(desc.k_dtype) != 0)
        desc.layout = ATTN_STRIDED;
    return place(c, &desc, mla);
}
