/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes the model that a trace is served with, and runs its steps. */
#include "serve-model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fill.h"
#include "noop-context.h"

enum { AHEAD = 4 };

int serve_fail(struct failure *err, const char *what, const struct attn_error *error)
{
    return failure_set(err, "%s: %s: %.400s", what, attn_status_name(error->status), error->message);
}

/* ---------------------------------------------------------------- making */

static int open_backend(struct serve_model *model, const struct serve_shape *shape, struct failure *err)
{
    struct attn_open_config config;
    struct attn_error error;

    ATTN_INIT(&config);
    ATTN_INIT(&error);
    config.threads = shape->threads;
    int32_t status = shape->noop != NULL ? noop_context_create(shape->noop, &model->context, &error)
                                         : attn_context_create(NULL, &model->context, &error);
    if (status == ATTN_OK)
        status = attn_select(model->context, &model->problem, 1, NULL, &model->decision, &error);
    if (status == ATTN_OK)
        status = attn_backend_open(model->context, model->decision, &config, &model->backend, &error);
    if (status != ATTN_OK)
        return serve_fail(err, "backend", &error);
    /* That flavour's state reads index lists, and its kernels both. */
    if (strstr(attn_backend_get_name(model->backend), "/flashinfer") != NULL)
        model->problem.addressing = ATTN_CSR;
    if (attn_stream_create(model->backend, &model->stream, NULL) != ATTN_OK)
        model->stream = NULL; /* there is one of its own */
    return 0;
}

static int make_step(struct serve_model *model, struct failure *err)
{
    const struct attn_problem *problem = &model->problem;
    struct attn_layer_class class = {.problem = problem};
    struct attn_builder_group group = {.block = problem->block, .max_blocks = model->width};
    struct attn_builder_params builder;
    struct attn_state_params state;
    struct attn_error error;

    ATTN_INIT(&error);
    ATTN_INIT(&builder);
    builder.groups = 1;
    builder.group = &group;
    builder.chunked = 1;
    builder.max_seqs = 2 * problem->max_seqs; /* rows of the table: see serve-rows.h */
    builder.max_tokens = problem->max_rows;
    builder.heads = problem->heads;
    builder.kv_heads = problem->kv_heads;
    builder.head_dim = problem->head_dim;
    builder.q_dtype = problem->q_dtype;
    builder.kv_dtype = problem->k_dtype;
    ATTN_INIT(&state);
    state.groups = 1;
    state.group = &group;
    if (attn_builder_create(model->backend, &builder, &model->builder, &error) != ATTN_OK)
        return serve_fail(err, "builder", &error);
    if (attn_state_create(model->backend, &class, 1, &state, &model->state, &error) != ATTN_OK)
        return serve_fail(err, "state", &error);
    return 0;
}

/* One scale per token and kv head beside a cache of 8 bits, or none: 1. */
static int make_scales(struct serve_model *model, struct serve_layer *layer,
                       const struct attn_kv_shape *shape, struct attn_kv_desc *desc, struct failure *err)
{
    const uint32_t granularity[] = {model->problem.k_scale, model->problem.v_scale};
    struct attn_scale *const scales[] = {&desc->k_scale, &desc->v_scale};
    const int64_t head = (int64_t)sizeof(float);
    struct attn_error error;

    ATTN_INIT(&error);
    for (unsigned i = 0; i < 2; i++) {
        if (granularity[i] == ATTN_SCALES_UNIT)
            *scales[i] = (struct attn_scale){.kind = ATTN_SCALE_UNIT};
        if (granularity[i] != ATTN_SCALES_TOKEN_HEAD)
            continue;
        if (attn_memory_alloc(model->backend, shape->scale_bytes, &layer->scales[i], &error) != ATTN_OK)
            return serve_fail(err, "scales of a cache", &error);
        *scales[i] = (struct attn_scale){.kind = ATTN_SCALE_DEVICE,
                                         .granularity = ATTN_SCALES_TOKEN_HEAD,
                                         .buffer = layer->scales[i],
                                         .outer_stride = head * desc->kv_heads * desc->block,
                                         .token_stride = head * desc->kv_heads,
                                         .head_stride = head};
    }
    return 0;
}

static int make_layer(struct serve_model *model, struct serve_layer *layer, struct failure *err)
{
    const struct attn_layer_class class = {.problem = &model->problem};
    struct attn_layer_desc desc;
    struct attn_error error;

    ATTN_INIT(&desc);
    ATTN_INIT(&error);
    desc.layer_class = &class;
    desc.softmax_scale = 1.0f / sqrtf((float)model->problem.head_dim);
    if (attn_layer_create(model->backend, &desc, &layer->layer, &error) != ATTN_OK)
        return serve_fail(err, "layer", &error);
    return 0;
}

static int make_layers(struct serve_model *model, struct failure *err)
{
    struct attn_kv_shape shape;
    struct attn_error error;

    ATTN_INIT(&shape);
    ATTN_INIT(&error);
    model->layers = calloc(model->layer_count, sizeof *model->layers);
    model->kvs = calloc(model->layer_count, sizeof(struct attn_kv *));
    if (model->layers == NULL || model->kvs == NULL)
        return failure_set(err, "no memory for %" PRIu32 " layers", model->layer_count);
    if (attn_kv_get_shape(model->backend, &model->problem, model->blocks, &shape, &error) != ATTN_OK)
        return serve_fail(err, "cache", &error);
    for (uint32_t i = 0; i < model->layer_count; i++) {
        struct serve_layer *layer = &model->layers[i];
        struct attn_kv_desc desc;
        if (attn_memory_alloc(model->backend, shape.bytes, &layer->cache, &error) != ATTN_OK)
            return failure_set(err,
                               "%.300s; %" PRIu32 " caches of %" PRIu32 " blocks take %.0f MiB: fewer "
                               "layers or blocks take less",
                               error.message, model->layer_count, model->blocks,
                               (double)shape.bytes * model->layer_count / (1 << 20));
        attn_kv_desc_init(&desc, &shape, &layer->cache);
        if (make_scales(model, layer, &shape, &desc, err) < 0)
            return -1;
        if (attn_kv_create(model->backend, &desc, &layer->kv, &error) != ATTN_OK)
            return serve_fail(err, "cache", &error);
        model->kvs[i] = layer->kv;
        if (make_layer(model, layer, err) < 0)
            return -1;
    }
    return 0;
}

/* Tensors of the largest step; all layers and steps have the same ones. */
static int make_tensor(struct serve_model *model, uint32_t dtype, uint32_t heads, uint32_t dim, uint64_t seed,
                       struct attn_buffer *out, struct failure *err)
{
    const uint64_t count = (uint64_t)model->problem.max_rows * heads * dim;
    const uint64_t size = count * attn_dtype_size(dtype);
    struct attn_buffer host = {malloc(size), 0};
    struct attn_error error;

    ATTN_INIT(&error);
    if (host.data == NULL || !fill_random(dtype, host.data, count, seed)) {
        free(host.data);
        return failure_set(err, "no memory for tensors of %" PRIu64 " bytes", size);
    }
    int32_t status = attn_memory_alloc(model->backend, size, out, &error);
    if (status == ATTN_OK)
        status =
            attn_memory_copy(model->backend, out, &host, size, ATTN_COPY_TO_DEVICE, model->stream, &error);
    if (status == ATTN_OK)
        status = attn_stream_synchronize(model->backend, model->stream, &error);
    free(host.data);
    return status == ATTN_OK ? 0 : serve_fail(err, "tensors of a step", &error);
}

static struct attn_tensor view(const struct attn_buffer *buffer, uint32_t dtype, uint32_t heads, uint32_t dim)
{
    const int64_t head = (int64_t)dim * attn_dtype_size(dtype);

    return (struct attn_tensor){.buffer = *buffer, .token_stride = head * heads, .head_stride = head};
}

static int make_tensors(struct serve_model *model, struct failure *err)
{
    const struct attn_problem *p = &model->problem;

    if (make_tensor(model, p->q_dtype, p->heads, p->head_dim, 1, &model->q, err) < 0 ||
        make_tensor(model, p->out_dtype, p->heads, p->head_dim_vo, 2, &model->out, err) < 0 ||
        make_tensor(model, p->q_dtype, p->kv_heads, p->head_dim, 3, &model->k, err) < 0 ||
        make_tensor(model, p->q_dtype, p->kv_heads, p->head_dim_vo, 4, &model->v, err) < 0)
        return -1;
    ATTN_INIT(&model->tensors);
    model->tensors.q = view(&model->q, p->q_dtype, p->heads, p->head_dim);
    model->tensors.k_new = view(&model->k, p->q_dtype, p->kv_heads, p->head_dim);
    model->tensors.v_new = view(&model->v, p->q_dtype, p->kv_heads, p->head_dim_vo);
    model->tensors.out = view(&model->out, p->out_dtype, p->heads, p->head_dim_vo);
    return 0;
}

int serve_model_init(struct serve_model *model, const struct serve_shape *shape, struct failure *err)
{
    *model = (struct serve_model){.problem = shape->problem,
                                  .layer_count = shape->layers,
                                  .blocks = shape->blocks,
                                  .host_blocks = shape->host_blocks};
    model->width = (shape->problem.max_kv - 1) / shape->problem.block + 1;
    if (open_backend(model, shape, err) < 0 || make_layers(model, err) < 0 || make_step(model, err) < 0 ||
        make_tensors(model, err) < 0)
        return -1;
    return serve_moves_init(model, err);
}

void serve_model_finish(struct serve_model *model)
{
    const struct attn_buffer *rows[] = {&model->q, &model->k, &model->v, &model->out};

    serve_moves_finish(model);
    attn_state_destroy(model->state);
    attn_builder_destroy(model->builder);
    for (uint32_t i = 0; model->layers != NULL && i < model->layer_count; i++) {
        attn_layer_destroy(model->layers[i].layer);
        attn_kv_destroy(model->layers[i].kv);
        attn_memory_free(model->backend, &model->layers[i].cache);
        attn_memory_free(model->backend, &model->layers[i].scales[0]);
        attn_memory_free(model->backend, &model->layers[i].scales[1]);
    }
    for (unsigned i = 0; model->backend != NULL && i < sizeof rows / sizeof *rows; i++)
        attn_memory_free(model->backend, rows[i]);
    if (model->stream != NULL)
        attn_stream_destroy(model->backend, model->stream);
    free(model->layers);
    free(model->kvs);
    attn_backend_destroy(model->backend);
    attn_decision_destroy(model->decision);
    attn_context_destroy(model->context);
}

/* ---------------------------------------------------------------- a step */

int serve_model_build(struct serve_model *model, const struct attn_builder_add_args *adds, uint32_t count,
                      struct failure *err)
{
    struct attn_error error;

    ATTN_INIT(&error);
    int32_t status = attn_builder_reset(model->builder, &error);
    for (uint32_t i = 0; i < count && status == ATTN_OK; i++) {
        if (i + AHEAD < count) /* the end of a list is what its add reads */
            __builtin_prefetch(adds[i + AHEAD].blocks->blocks + adds[i + AHEAD].blocks->count - 1);
        status = attn_builder_add(model->builder, &adds[i], &error);
    }
    if (status == ATTN_OK)
        status = attn_builder_build(model->builder, NULL, model->stream, &model->metadata, &error);
    return status == ATTN_OK ? 0 : serve_fail(err, "builder", &error);
}

int serve_model_begin(struct serve_model *model, struct failure *err)
{
    struct attn_error error;

    ATTN_INIT(&error);
    if (attn_state_begin_forward(model->state, model->metadata, model->stream, &error) != ATTN_OK)
        return serve_fail(err, "state", &error);
    return 0;
}

int serve_model_run(struct serve_model *model, struct failure *err)
{
    struct attn_error error;
    int32_t status = ATTN_OK;

    ATTN_INIT(&error);
    for (uint32_t i = 0; i < model->layer_count && status == ATTN_OK; i++)
        status = attn_layer_forward(model->layers[i].layer, model->state, model->metadata,
                                    model->layers[i].kv, &model->tensors, model->stream, &error);
    if (status == ATTN_OK)
        status = attn_stream_synchronize(model->backend, model->stream, &error);
    return status == ATTN_OK ? 0 : serve_fail(err, "layers", &error);
}
