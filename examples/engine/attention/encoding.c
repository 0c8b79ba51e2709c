/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Attention of models with an encoder: backend, builder, state, and the memory behind them. */
#include "attention.h"
#include "encoding-impl.h"
#include "rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- memory */

/* Pages beyond what the batch slots need, so that a mistake that takes all pages for used ones shows. */
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

/* Gives the batch slots their blocks in random order, as after a long run. */
static int make_slots(struct encoding *e, enum encoding_class class, uint32_t tokens,
                      struct encoding_slots *slots, struct failure *err)
{
    const struct encoding_options *o = &e->options;
    uint64_t width = ((uint64_t)tokens + o->block - 1) / o->block;
    uint64_t count = width * o->max_seqs + SPARE_PAGES;
    uint64_t seed = o->seed;
    if (count > INT32_MAX / o->block)
        return failure_set(err, "%" PRIu64 " blocks of %" PRIu32 " tokens; accepted are up to %d tokens",
                           count, o->block, INT32_MAX);
    slots->width = (uint32_t)width;
    slots->page = calloc(count, sizeof *slots->page);
    slots->caches = calloc(e->shape.layers[class], sizeof *slots->caches);
    if (!slots->page || !slots->caches)
        return failure_set(err, "no memory for the order of %" PRIu64 " blocks", count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)(rng_next(&seed) % (i + 1));
        slots->page[i] = slots->page[j];
        slots->page[j] = i;
    }
    for (uint32_t i = 0; i < e->shape.layers[class]; i++)
        if (make_cache(e, &e->problems[class], (uint32_t)count, &slots->caches[i], err) < 0)
            return -1;
    return 0;
}

static int allocate(struct encoding *e, struct failure *err)
{
    const struct encoding_options *o = &e->options;
    uint64_t encoder_rows = (uint64_t)o->max_encoder * o->max_seqs;
    uint64_t rows = encoder_rows > o->max_batch_tokens ? encoder_rows : o->max_batch_tokens;
    uint64_t count = rows * e->shape.heads * e->shape.head_dim;
    if (device_tensors_make(&e->device, ATTN_F32, count, count, &e->tensors, err) < 0)
        return -1;
    if (make_slots(e, ENCODING_SELF, o->max_tokens, &e->self, err) < 0)
        return -1;
    return make_slots(e, ENCODING_CROSS, o->max_encoder, &e->cross, err);
}

static void free_slots(struct encoding *e, struct encoding_slots *slots, uint32_t layers)
{
    for (uint32_t i = 0; slots->caches && i < layers; i++) {
        attn_kv_destroy(slots->caches[i].kv);
        device_free(&e->device, &slots->caches[i].memory);
        device_free(&e->device, &slots->caches[i].scales[0]);
        device_free(&e->device, &slots->caches[i].scales[1]);
    }
    free(slots->caches);
    free(slots->page);
}

static void free_memory(struct encoding *e)
{
    free_slots(e, &e->self, e->shape.layers[ENCODING_SELF]);
    free_slots(e, &e->cross, e->shape.layers[ENCODING_CROSS]);
    device_tensors_free(&e->device, &e->tensors);
}

/* ---------------------------------------------------------------- backend, builder and state */

static uint32_t blocks_of(const struct encoding *e, uint32_t tokens)
{
    return (tokens + e->options.block - 1) / e->options.block;
}

/* The problem of a class. The encoder has no cache and reads new keys and values. With det=1 the results of a
 * sequence do not depend on the rest of the batch. */
static int describe(struct encoding *e, enum encoding_class class, struct failure *err)
{
    static const uint32_t types[] = {ATTN_ENCODER, ATTN_DECODER, ATTN_ENCODER_DECODER};
    const struct encoding_options *o = &e->options;
    bool encoder = class == ENCODING_ENCODER;
    struct attn_problem *p = &e->problems[class];
    struct attn_error error;
    ATTN_INIT(p);
    ATTN_INIT(&error);
    p->type = types[class];
    p->q_dtype = ATTN_F32;
    p->k_dtype = encoder ? ATTN_F32 : e->kv_dtype;
    p->v_dtype = p->k_dtype;
    if (attn_dtype_size(p->k_dtype) == 1) {
        p->k_scale = ATTN_SCALES_TOKEN_HEAD;
        p->v_scale = ATTN_SCALES_TOKEN_HEAD;
    }
    p->heads = e->shape.heads;
    p->head_dim = e->shape.head_dim;
    p->block = o->block;
    p->det = 1;
    p->max_seqs = o->max_seqs;
    p->max_q = encoder ? o->max_encoder : o->max_tokens;
    p->max_rows = encoder ? o->max_encoder * o->max_seqs : o->max_batch_tokens;
    p->max_kv = encoder || class == ENCODING_CROSS ? o->max_encoder : o->max_tokens;
    return attn_problem_resolve(p, p, &error) < 0 ? device_fail(err, "problem", &error) : 0;
}

static int choose(struct encoding *e, struct failure *err)
{
    struct attn_context_options context;
    struct attn_open_config config;
    struct attn_error error;
    ATTN_INIT(&context);
    ATTN_INIT(&config);
    ATTN_INIT(&error);
    context.variables = e->options.variables;
    context.variable_count = e->options.variable_count;
    config.threads = e->options.threads;
    if (attn_context_create(&context, &e->context, &error) < 0)
        return device_fail(err, "context", &error);
    if (device_select(e->context, e->problems, ENCODING_CLASSES, e->options.backend, &e->decision, err) < 0)
        return -1;
    if (attn_backend_open(e->context, e->decision, &config, &e->backend, &error) < 0)
        return device_fail(err, "backend", &error);
    if (device_open(&e->device, e->context, e->backend, err) < 0)
        return -1;
    for (int i = 0; i < ENCODING_CLASSES; i++)
        if (device_name_kernels(&e->device, &e->problems[i], e->kernels, sizeof e->kernels, err) < 0)
            return -1;
    return 0;
}

/*
 * Steps have FlashAttention's metadata, whatever cache the backend has: the other flavours do not describe
 * encoders.
 */
static int make_steps(struct encoding *e, struct failure *err)
{
    const struct encoding_options *o = &e->options;
    const struct attn_builder_group group = {.block = o->block, .max_blocks = blocks_of(e, o->max_tokens)};
    const struct attn_builder_group cross = {.block = o->block, .max_blocks = blocks_of(e, o->max_encoder)};
    struct attn_layer_class classes[ENCODING_CLASSES] = {0};
    struct attn_builder_params builder;
    struct attn_state_params state;
    struct attn_error error;
    ATTN_INIT(&builder);
    ATTN_INIT(&state);
    ATTN_INIT(&error);
    builder.flavour = state.flavour = ATTN_FLASH_ATTN;
    builder.group = state.group = &group;
    builder.cross = state.cross = &cross;
    builder.max_seqs = o->max_seqs;
    builder.max_tokens = o->max_batch_tokens;
    builder.max_encoder_tokens = o->max_encoder * o->max_seqs;
    for (int i = 0; i < ENCODING_CLASSES; i++)
        classes[i].problem = &e->problems[i];
    if (attn_builder_create(e->backend, &builder, &e->builder, &error) < 0)
        return device_fail(err, "builder", &error);
    if (attn_state_create(e->backend, classes, ENCODING_CLASSES, &state, &e->state, &error) < 0)
        return device_fail(err, "state", &error);
    return 0;
}

static int make_layers(struct encoding *e, struct failure *err)
{
    for (int class = 0; class < ENCODING_CLASSES; class ++) {
        const struct attn_layer_class own = {.problem = &e->problems[class]};
        struct attn_layer_desc desc;
        struct attn_error error;
        ATTN_INIT(&desc);
        ATTN_INIT(&error);
        desc.class_index = (uint32_t) class;
        desc.layer_class = &own;
        desc.softmax_scale = 1.0f / sqrtf((float)e->shape.head_dim);
        if (attn_layer_create(e->backend, &desc, &e->layers[class], &error) < 0)
            return device_fail(err, "layer", &error);
    }
    return 0;
}

static int check_options(const struct encoding *e, struct failure *err)
{
    const struct encoding_options *o = &e->options;
    uint64_t encoder_rows = (uint64_t)o->max_encoder * o->max_seqs;
    if (!o->block || !o->max_seqs || !o->max_batch_tokens || !o->max_tokens || !o->max_encoder ||
        o->block > INT32_MAX / 2 || o->max_tokens > INT32_MAX / 2 || encoder_rows > INT32_MAX / 2)
        return failure_set(err,
                           "block %" PRIu32 ", sequences %" PRIu32 ", tokens %" PRIu32 " of %" PRIu32
                           ", encoder tokens %" PRIu64 "; accepted are 1 to %d",
                           o->block, o->max_seqs, o->max_batch_tokens, o->max_tokens, encoder_rows,
                           INT32_MAX / 2);
    if (!e->kv_dtype)
        return failure_set(err, "cache type %s; accepted are " ATTENTION_CACHE_TYPES, o->kv);
    return 0;
}

static int make(struct encoding *e, struct failure *err)
{
    if (check_options(e, err) < 0)
        return -1;
    for (int class = 0; class < ENCODING_CLASSES; class ++)
        if (describe(e, (enum encoding_class) class, err) < 0)
            return -1;
    if (choose(e, err) < 0 || make_steps(e, err) < 0 || make_layers(e, err) < 0)
        return -1;
    return allocate(e, err);
}

int encoding_create(const struct encoding_shape *shape, const struct encoding_options *options,
                    struct encoding **out, struct failure *err)
{
    struct encoding *e = calloc(1, sizeof *e);
    if (!e)
        return failure_set(err, "no memory for the attention layers");
    e->shape = *shape;
    e->options = *options;
    e->kv_dtype = attention_cache_type(options->kv);
    if (make(e, err) < 0) {
        encoding_destroy(e);
        return -1;
    }
    *out = e;
    return 0;
}

void encoding_destroy(struct encoding *e)
{
    if (!e)
        return;
    device_synchronize(&e->device);
    free_memory(e);
    for (int class = 0; class < ENCODING_CLASSES; class ++)
        attn_layer_destroy(e->layers[class]);
    attn_state_destroy(e->state);
    attn_builder_destroy(e->builder);
    device_close(&e->device);
    attn_backend_destroy(e->backend);
    attn_decision_destroy(e->decision);
    attn_context_destroy(e->context);
    free(e);
}

uint32_t encoding_slots(const struct encoding *e)
{
    return e->options.max_seqs;
}

void encoding_get_info(const struct encoding *e, struct encoding_info *out)
{
    out->backend = attn_backend_get_name(e->backend);
    out->device = attn_backend_get_device(e->backend);
    out->device_name = e->device.name;
    out->kernels = e->kernels;
    out->generic = device_find_generic(e->decision);
}
