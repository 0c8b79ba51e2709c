/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory behind the attention of models with an encoder: paged caches and the tensors of a layer. */
#include "encoding-impl.h"

#include "rng.h"

#include <inttypes.h>
#include <stdlib.h>

/* Pages beyond what the seats need, so that the ones in use are never simply all of them. */
enum { SPARE_PAGES = 3 };

/* One scale per page, token and head beside an 8-bit cache. */
static int make_scales(struct encoding *e, struct encoding_cache *cache, const struct attn_kv_shape *shape,
                       struct attn_kv_desc *desc, struct failure *err)
{
    struct attn_scale *const scales[] = {&desc->k_scale, &desc->v_scale};
    int64_t head = (int64_t)sizeof(float);
    for (int i = 0; shape->scale_bytes && i < 2; i++) {
        if (device_alloc(&e->device, "cache scales", shape->scale_bytes, &cache->scales[i], err) < 0)
            return -1;
        *scales[i] = (struct attn_scale){
            .kind = ATTN_SCALE_DEVICE,
            .granularity = ATTN_SCALES_TOKEN_HEAD,
            .buffer = cache->scales[i],
            .outer_stride = head * desc->kv_heads * desc->block,
            .token_stride = head * desc->kv_heads,
            .head_stride = head,
        };
    }
    return 0;
}

static int make_cache(struct encoding *e, const struct attn_problem *problem, uint32_t pages,
                      struct encoding_cache *cache, struct failure *err)
{
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    struct attn_error error;
    ATTN_INIT(&shape);
    ATTN_INIT(&error);
    if (attn_kv_get_shape(e->backend, problem, pages, &shape, &error) < 0)
        return device_fail(err, "cache shape", &error);
    if (device_alloc(&e->device, "cache", shape.bytes, &cache->memory, err) < 0)
        return -1;
    attn_kv_desc_init(&desc, &shape, &cache->memory);
    if (make_scales(e, cache, &shape, &desc, err) < 0)
        return -1;
    if (attn_kv_create(e->backend, &desc, &cache->kv, &error) < 0)
        return device_fail(err, "cache", &error);
    return 0;
}

/* Blocks of a seat are never neighbours but by chance, as after a long run. */
static int make_seats(struct encoding *e, enum encoding_class class, uint32_t tokens,
                      struct encoding_seats *seats, struct failure *err)
{
    const struct encoding_options *o = &e->options;
    uint64_t width = ((uint64_t)tokens + o->block - 1) / o->block;
    uint64_t count = width * o->max_seqs + SPARE_PAGES;
    uint64_t seed = o->seed;
    if (count > INT32_MAX / o->block)
        return failure_set(err, "%" PRIu64 " blocks of %" PRIu32 " tokens; accepted are up to %d tokens",
                           count, o->block, INT32_MAX);
    seats->width = (uint32_t)width;
    seats->page = calloc(count, sizeof *seats->page);
    seats->caches = calloc(e->shape.layers[class], sizeof *seats->caches);
    if (!seats->page || !seats->caches)
        return failure_set(err, "no memory for the order of %" PRIu64 " blocks", count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)(rng_next(&seed) % (i + 1));
        seats->page[i] = seats->page[j];
        seats->page[j] = i;
    }
    for (uint32_t i = 0; i < e->shape.layers[class]; i++)
        if (make_cache(e, &e->problems[e->index_of[class]], (uint32_t)count, &seats->caches[i], err) < 0)
            return -1;
    return 0;
}

int encoding_allocate(struct encoding *e, struct failure *err)
{
    const struct encoding_options *o = &e->options;
    uint64_t encoder_rows = (uint64_t)o->max_encoder * o->max_seqs;
    uint64_t rows = encoder_rows > o->max_rows ? encoder_rows : o->max_rows;
    uint64_t count = rows * e->shape.heads * e->shape.head_dim;
    if (device_tensors_make(&e->device, ATTN_F32, count, count, &e->tensors, err) < 0)
        return -1;
    if (encoding_has(e, ENCODING_SELF) && make_seats(e, ENCODING_SELF, o->max_tokens, &e->self, err) < 0)
        return -1;
    if (encoding_has(e, ENCODING_CROSS) && make_seats(e, ENCODING_CROSS, o->max_encoder, &e->cross, err) < 0)
        return -1;
    return 0;
}

static void free_seats(struct encoding *e, struct encoding_seats *seats, uint32_t layers)
{
    for (uint32_t i = 0; seats->caches && i < layers; i++) {
        attn_kv_destroy(seats->caches[i].kv);
        device_free(&e->device, &seats->caches[i].memory);
        device_free(&e->device, &seats->caches[i].scales[0]);
        device_free(&e->device, &seats->caches[i].scales[1]);
    }
    free(seats->caches);
    free(seats->page);
}

void encoding_free(struct encoding *e)
{
    free_seats(e, &e->self, e->shape.layers[ENCODING_SELF]);
    free_seats(e, &e->cross, e->shape.layers[ENCODING_CROSS]);
    device_tensors_free(&e->device, &e->tensors);
}
