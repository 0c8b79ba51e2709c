/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes a model: classes, caches with shadows, builder, state and layers; and hands out blocks. */
#include "model.h"

#include <stdio.h>

#include "need.h"

uint32_t flavour_of(const char *backend)
{
    const char *style = strchr(backend, '/');

    for (uint32_t i = ATTN_FLASH_ATTN; i <= ATTN_ROCM_FLASH; i++)
        if (style != NULL && strcmp(style + 1, attn_flavour_name(i)) == 0)
            return i;
    return 0;
}

/* ---------------------------------------------------------------- classes */

bool model_fail(struct model *model, const char *call, const struct attn_error *err)
{
    model->refusal = *err;
    snprintf(model->why, sizeof model->why, "%s: %s %s%s(%.48s): %.400s", call, attn_status_name(err->status),
             err->reason != 0 ? attn_reason_name(err->reason) : "", err->reason != 0 ? " " : "", err->field,
             err->message);
    return false;
}

static bool describe_class(struct model *model, uint32_t c, struct attn_error *err)
{
    const struct class_def *def = &model->def->classes[c];
    const bool cross = strstr(def->problem, "type=encoder_decoder") != NULL;
    const bool lists = model->flavour == ATTN_FLASHINFER && !cross;
    const bool paged = model->flavour == ATTN_ROCM_FLASH && strstr(def->problem, "mla") == NULL;
    char text[512];

    snprintf(text, sizeof text, "%s addr=%s block=%d max_seqs=%d max_q=%d max_kv=%d max_rows=%d",
             def->problem, lists ? "csr" : "table", BLOCK, ENTRIES, MOST_LEN, MOST_LEN, MOST_ROWS);
    if (attn_problem_parse(text, &model->problems[c], err) != ATTN_OK)
        return model_fail(model, "attn_problem_parse", err);
    if (paged && model->problems[c].kv_source != ATTN_KV_NEW)
        model->problems[c].layout = ATTN_PAGED_X;
    model->classes[c] = (struct attn_layer_class){
        .problem = &model->problems[c], .group = def->group, .new_dtype = def->new_dtype};
    for (uint32_t head = 0; head < 16; head++) {
        model->slopes[c][head] = 0.5F / (float)(1 << head);
        model->sinks[c][head] = 0.25F * (float)head - 0.5F;
    }
    return true;
}

uint32_t class_group(const struct model *model, uint32_t c)
{
    return model->problems[c].type == ATTN_ENCODER_DECODER ? (uint32_t)CROSS : model->classes[c].group;
}

/* ---------------------------------------------------------------- caches */

static struct attn_scale make_scale(struct model *model, uint32_t c, uint32_t granularity, bool values)
{
    struct cache *cache = &model->caches[c];
    struct attn_scale scale = {.kind = ATTN_SCALE_HOST, .granularity = granularity};
    const uint32_t heads = model->problems[c].kv_heads;

    if (granularity == ATTN_SCALES_NONE || granularity == ATTN_SCALES_UNIT) {
        scale.kind = granularity == ATTN_SCALES_NONE ? 0 : ATTN_SCALE_UNIT;
        return scale;
    }
    if (granularity == ATTN_SCALES_TOKEN_HEAD) {
        scale.kind = ATTN_SCALE_DEVICE;
        scale.head_stride = 4;
        scale.token_stride = 4 * (int64_t)heads;
        scale.outer_stride = scale.token_stride * BLOCK;
        cache->scales[values] = arena_add(&model->arena, values ? "v scales" : "k scales",
                                          (size_t)scale.outer_stride * PAGES, 4, 0xff);
        scale.buffer.data = cache->scales[values]->data;
        return scale;
    }
    for (uint32_t head = 0; head < heads; head++)
        cache->host_scales[values][head] =
            (values ? 0.013F : 0.02F) * (granularity == ATTN_SCALES_HEAD ? 1.0F + 0.3F * (float)head : 1.0F);
    scale.buffer.data = cache->host_scales[values];
    scale.head_stride = granularity == ATTN_SCALES_HEAD ? 4 : 0;
    return scale;
}

static void make_scales(struct model *model, uint32_t c, const struct attn_problem *problem)
{
    struct attn_kv_desc *desc = &model->caches[c].desc;

    desc->k_scale = make_scale(model, c, problem->k_scale, false);
    if (problem->mla == 0)
        desc->v_scale = make_scale(model, c, problem->v_scale, true);
}

static void make_shadow(struct cache *cache)
{
    struct attn_kv_desc *shadow = &cache->shadow;
    size_t size = cache->memory->size, scales = cache->scales[0] != NULL ? cache->scales[0]->size : 0;

    cache->copy = need(malloc(size + 2 * scales));
    memcpy(cache->copy, cache->memory->data, size);
    memset(cache->copy + size, 0xff, 2 * scales);
    *shadow = cache->desc;
    shadow->k.data = cache->copy + ((unsigned char *)shadow->k.data - cache->memory->data);
    if (shadow->v.data != NULL)
        shadow->v.data = cache->copy + ((unsigned char *)shadow->v.data - cache->memory->data);
    if (scales > 0) {
        shadow->k_scale.buffer.data = cache->copy + size;
        shadow->v_scale.buffer.data = cache->copy + size + scales;
    }
}

static bool make_cache(struct model *model, uint32_t c)
{
    const uint32_t dtype = model->def->classes[c].cache_dtype;
    struct attn_problem problem = model->problems[c];
    struct cache *cache = &model->caches[c];
    struct conform_case poisoned = {.poison = 0xff};
    struct attn_kv_shape shape;
    struct attn_error err;

    ATTN_INIT(&err);
    if (problem.type == ATTN_ENCODER || (problem.kv_source == ATTN_KV_NEW && dtype == 0)) {
        make_scales(model, c, &problem); /* of new keys */
        return true;
    }
    if (dtype != 0) { /* written, never read */
        problem.kv_source = ATTN_KV_CACHE;
        problem.k_dtype = problem.v_dtype = dtype;
        problem.k_scale = problem.v_scale = oracle_is_8bit(dtype) ? ATTN_SCALES_TENSOR : ATTN_SCALES_NONE;
        if (model->flavour == ATTN_ROCM_FLASH)
            problem.layout = ATTN_PAGED_X;
    }
    ATTN_INIT(&shape);
    if (attn_kv_get_shape(model->backend, &problem, PAGES, &shape, &err) != ATTN_OK)
        return model_fail(model, "attn_kv_get_shape", &err);
    cache->memory =
        arena_add(&model->arena, "cache", shape.bytes, 64, case_poison(&poisoned, problem.k_dtype));
    const struct attn_buffer at = {cache->memory->data, 0};
    cache->desc = shape.desc;
    attn_kv_desc_init(&cache->desc, &shape, &at);
    cache->desc.k.data = cache->memory->data + shape.k_offset;
    cache->desc.k.byte_offset = 0;
    if (problem.mla == 0) {
        cache->desc.v.data = cache->memory->data + shape.v_offset;
        cache->desc.v.byte_offset = 0;
    }
    make_scales(model, c, &problem);
    make_shadow(cache);
    cache->made = true;
    return attn_kv_create(model->backend, &cache->desc, &cache->kv, &err) == ATTN_OK ||
           model_fail(model, "attn_kv_create", &err);
}

/* ---------------------------------------------------------------- builder, state, layers */

static bool make_builder(struct model *model)
{
    struct attn_builder_params params;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&params);
    params.groups = GROUPS;
    params.group = model->groups;
    params.chunked = model->def->chunked;
    params.max_seqs = ENTRIES;
    params.max_tokens = MOST_ROWS;
    params.heads = model->problems[0].heads;
    params.kv_heads = model->problems[0].kv_heads;
    params.head_dim = model->problems[0].head_dim;
    params.q_dtype = model->problems[0].q_dtype;
    params.kv_dtype = model->problems[0].k_dtype;
    if (model->def->cross == 1) {
        params.max_encoder_tokens = MOST_ROWS;
        params.cross = &model->groups[CROSS];
    }
    return attn_builder_create(model->backend, &params, &model->builder, &err) == ATTN_OK ||
           model_fail(model, "attn_builder_create", &err);
}

/* A copy in memory that the backend can be given. */
static struct attn_buffer keep_floats(struct model *model, const char *name, const float *values)
{
    struct guarded *memory = arena_add(&model->arena, name, 16 * sizeof *values, 4, 0);

    memcpy(memory->data, values, 16 * sizeof *values);
    return (struct attn_buffer){memory->data, 0};
}

bool model_make_layer(struct model *model, uint32_t c)
{
    struct attn_layer_desc desc;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&desc);
    desc.class_index = c;
    desc.layer_class = &model->classes[c];
    desc.softmax_scale = 0.2F;
    if (model->problems[c].alibi != ATTN_ALIBI_NONE)
        desc.alibi_slopes = keep_floats(model, "slopes", model->slopes[c]);
    if (model->problems[c].sinks != 0) {
        desc.sinks = keep_floats(model, "sinks", model->sinks[c]);
        desc.sinks_dtype = ATTN_F32;
    }
    return attn_layer_create(model->backend, &desc, &model->layers[c], &err) == ATTN_OK ||
           model_fail(model, "attn_layer_create", &err);
}

bool model_describe(struct model *model, const struct model_def *def, struct attn_context *context,
                    struct attn_backend *backend, uint64_t seed)
{
    struct attn_error err;

    memset(model, 0, sizeof *model);
    ATTN_INIT(&err);
    model->def = def;
    model->context = context;
    model->backend = backend;
    model->seed = seed;
    model->rng.state = mix(seed, 77);
    snprintf(model->name, sizeof model->name, "%s", attn_backend_get_name(backend));
    model->flavour = flavour_of(model->name);
    arena_init(&model->arena, false);
    arena_init(&model->given, false);
    model->tokens = arena_add(&model->arena, "tokens", MOST_ROWS * sizeof(int64_t), 8, 0);
    model->positions = arena_add(&model->arena, "positions", MOST_ROWS * sizeof(int64_t), 8, 0xff);
    for (; model->count < CLASSES && def->classes[model->count].problem != NULL; model->count++)
        if (!describe_class(model, model->count, &err))
            return false;
    for (uint32_t g = 0; g <= GROUPS; g++) {
        model->groups[g] =
            (struct attn_builder_group){.given = g < GROUPS && def->windows[g] > 0 ? ATTN_GIVEN_WINDOW : 0,
                                        .block = BLOCK,
                                        .window = g < GROUPS ? def->windows[g] : 0,
                                        .max_blocks = MOST_BLOCKS};
        model->used[g][0] = 1; /* nobody's: padding reads it */
    }
    return true;
}

bool model_make_state(struct model *model)
{
    struct attn_state_params params;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&params);
    params.groups = GROUPS;
    params.group = model->groups;
    params.cross = model->def->cross == 1 ? &model->groups[CROSS] : NULL;
    params.capture_num_tokens = MIXED_ROWS;
    return attn_state_create(model->backend, model->classes, model->count, &params, &model->state, &err) ==
               ATTN_OK ||
           model_fail(model, "attn_state_create", &err);
}

bool model_init(struct model *model, const struct model_def *def, struct attn_context *context,
                struct attn_backend *backend, uint64_t seed)
{
    if (!model_describe(model, def, context, backend, seed) || !make_builder(model) ||
        !model_make_state(model))
        return false;
    for (uint32_t c = 0; c < model->count; c++)
        if (!make_cache(model, c) || !model_make_layer(model, c))
            return false;
    return true;
}

void model_finish(struct model *model)
{
    attn_state_destroy(model->state);
    attn_builder_destroy(model->builder);
    for (uint32_t c = 0; c < model->count; c++) {
        attn_layer_destroy(model->layers[c]);
        attn_kv_destroy(model->caches[c].kv);
        free(model->caches[c].copy);
    }
    arena_finish(&model->given);
    arena_finish(&model->arena);
}

/* ---------------------------------------------------------------- blocks */

/* Pages are taken at random, so that a wrong page is never the right one by chance. */
static void take_pages(struct model *model, struct sequence_state *sequence, uint32_t group, uint32_t len)
{
    while (sequence->counts[group] * BLOCK < len) {
        uint32_t page = rng_below(&model->rng, PAGES);
        while (model->used[group][page] != 0)
            page = (page + 1) % PAGES;
        model->used[group][page]++;
        sequence->blocks[group][sequence->counts[group]++] = page;
    }
}

void sequence_grow(struct model *model, struct sequence_state *sequence, uint32_t len)
{
    for (uint32_t g = 0; g < GROUPS; g++)
        take_pages(model, sequence, g, len);
    take_pages(model, sequence, CROSS, sequence->encoder_len);
}

void sequence_free(struct model *model, struct sequence_state *sequence)
{
    for (uint32_t g = 0; g <= GROUPS; g++)
        for (uint32_t i = 0; i < sequence->counts[g]; i++)
            model->used[g][sequence->blocks[g][i]]--;
    memset(sequence, 0, sizeof *sequence);
}
