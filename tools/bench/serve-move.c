/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks of all layers that are copied within the caches, moved to the host, or back. */
#include <inttypes.h>
#include <stdlib.h>

#include "serve-model.h"

static int make_host(struct serve_model *model, struct serve_layer *layer, struct failure *err)
{
    struct attn_buffer memory = {NULL, 0};
    struct attn_kv_shape shape;
    struct attn_error error;

    ATTN_INIT(&shape);
    ATTN_INIT(&error);
    if (attn_kv_get_shape(model->backend, &model->problem, model->host_blocks, &shape, &error) != ATTN_OK)
        return serve_fail(err, "host cache", &error);
    memory.data = layer->host = malloc(shape.bytes);
    if (layer->host == NULL)
        return failure_set(err, "no memory for %" PRIu32 " host_blocks", model->host_blocks);
    attn_kv_desc_init(&layer->host_desc, &shape, &memory);
    struct attn_scale *const scales[] = {&layer->host_desc.k_scale, &layer->host_desc.v_scale};
    const int64_t head = (int64_t)sizeof(float);
    for (unsigned i = 0; shape.scale_bytes != 0 && i < 2; i++) {
        layer->host_scales[i] = malloc(shape.scale_bytes);
        if (layer->host_scales[i] == NULL)
            return failure_set(err, "no memory for the scales of %" PRIu32 " host_blocks",
                               model->host_blocks);
        *scales[i] =
            (struct attn_scale){.kind = ATTN_SCALE_HOST,
                                .granularity = ATTN_SCALES_TOKEN_HEAD,
                                .buffer = {layer->host_scales[i], 0},
                                .outer_stride = head * layer->host_desc.kv_heads * layer->host_desc.block,
                                .token_stride = head * layer->host_desc.kv_heads,
                                .head_stride = head};
    }
    return 0;
}

int serve_moves_init(struct serve_model *model, struct failure *err)
{
    const uint64_t most = model->blocks > model->host_blocks ? model->blocks : model->host_blocks;
    const uint64_t bytes = 2 * sizeof *model->pairs * most;
    struct attn_error error;

    ATTN_INIT(&error);
    model->pairs = malloc(bytes);
    if (model->pairs == NULL)
        return failure_set(err, "no memory for moves of %" PRIu64 " blocks", most);
    if (attn_memory_alloc(model->backend, bytes, &model->device_pairs, &error) != ATTN_OK)
        return serve_fail(err, "moves of blocks", &error);
    for (uint32_t i = 0; model->host_blocks > 0 && i < model->layer_count; i++)
        if (make_host(model, &model->layers[i], err) < 0)
            return -1;
    return 0;
}

void serve_moves_finish(struct serve_model *model)
{
    for (uint32_t i = 0; model->layers != NULL && i < model->layer_count; i++) {
        free(model->layers[i].host);
        free(model->layers[i].host_scales[0]);
        free(model->layers[i].host_scales[1]);
    }
    free(model->pairs);
    if (model->device_pairs.data != NULL)
        attn_memory_free(model->backend, &model->device_pairs);
}

static void fill_pairs(struct serve_model *model, const struct block_moves *moves)
{
    for (uint32_t i = 0; i < moves->count; i++) {
        model->pairs[2 * (size_t)i] = moves->moves[i].from;
        model->pairs[2 * (size_t)i + 1] = moves->moves[i].to;
    }
}

static int swap(struct serve_model *model, const struct block_moves *moves, bool out, struct failure *err)
{
    struct attn_error error;

    ATTN_INIT(&error);
    fill_pairs(model, moves);
    for (uint32_t i = 0; moves->count > 0 && i < model->layer_count; i++) {
        struct serve_layer *layer = &model->layers[i];
        struct attn_kv_swap_blocks_args args;
        ATTN_INIT(&args);
        args.count = moves->count;
        args.pairs = model->pairs;
        args.kind = out ? ATTN_COPY_TO_HOST : ATTN_COPY_TO_DEVICE;
        args.from = out ? layer->kv : NULL;
        args.from_desc = out ? NULL : &layer->host_desc;
        args.to = out ? NULL : layer->kv;
        args.to_desc = out ? &layer->host_desc : NULL;
        if (attn_kv_swap_blocks(model->backend, &args, model->stream, &error) != ATTN_OK)
            return serve_fail(err, out ? "moving blocks to the host" : "moving blocks back", &error);
    }
    return 0;
}

static int copy(struct serve_model *model, const struct block_moves *moves, struct failure *err)
{
    struct attn_buffer host = {model->pairs, 0};
    struct attn_kv_copy_blocks_args args;
    struct attn_error error;

    if (moves->count == 0)
        return 0;
    ATTN_INIT(&args);
    ATTN_INIT(&error);
    fill_pairs(model, moves);
    args.count = moves->count;
    args.layers = model->layer_count;
    args.kvs = model->kvs;
    args.pairs = model->device_pairs;
    if (attn_memory_copy(model->backend, &model->device_pairs, &host,
                         2 * sizeof *model->pairs * (uint64_t)moves->count, ATTN_COPY_TO_DEVICE,
                         model->stream, &error) != ATTN_OK ||
        attn_kv_copy_blocks(model->backend, &args, model->stream, &error) != ATTN_OK ||
        attn_stream_synchronize(model->backend, model->stream, &error) != ATTN_OK)
        return serve_fail(err, "copying blocks", &error);
    return 0;
}

int serve_model_move(struct serve_model *model, const struct scheduler_step *step, struct failure *err)
{
    if (swap(model, &step->out, true, err) < 0 || swap(model, &step->in, false, err) < 0)
        return -1;
    return copy(model, &step->copies, err);
}
