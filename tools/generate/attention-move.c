/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks that are copied within the caches, and blocks that wait on the host. */
#include "attention-impl.h"

#include <inttypes.h>
#include <stdlib.h>

static int make_host_cache(struct attention *a, const struct attention_group *group, struct host_cache *host,
                           struct failure *err)
{
    uint32_t count = a->options.host_blocks;
    struct attn_buffer memory = {0};
    struct attn_kv_shape shape;
    struct attn_error error;
    ATTN_INIT(&shape);
    ATTN_INIT(&error);
    if (attn_kv_get_shape(a->backend, &group->problem, count, &shape, &error) < 0)
        return device_fail(err, "host cache shape", &error);
    if (device_host_alloc(&a->device, "blocks on the host", shape.bytes, &host->memory, err) < 0)
        return -1;
    memory.data = host->memory.memory;
    attn_kv_desc_init(&host->desc, &shape, &memory);
    struct attn_scale *const scales[] = {&host->desc.k_scale, &host->desc.v_scale};
    int64_t head = (int64_t)sizeof(float);
    for (int i = 0; shape.scale_bytes && i < 2; i++) {
        if (device_host_alloc(&a->device, "scales of blocks on the host", shape.scale_bytes, &host->scales[i],
                              err) < 0)
            return -1;
        *scales[i] = (struct attn_scale){
            .kind = ATTN_SCALE_HOST,
            .granularity = ATTN_SCALES_TOKEN_HEAD,
            .buffer = {.data = host->scales[i].memory},
            .outer_stride = head * host->desc.kv_heads * host->desc.block,
            .token_stride = head * host->desc.kv_heads,
            .head_stride = head,
        };
    }
    return 0;
}

int attention_make_moves(struct attention *a, struct failure *err)
{
    a->most_pairs = a->options.host_blocks;
    for (uint32_t g = 0; g < a->shape.groups; g++)
        if (a->groups[g].pages > a->most_pairs)
            a->most_pairs = a->groups[g].pages;
    uint64_t bytes = 2 * sizeof *a->pairs * (uint64_t)a->most_pairs;
    a->pairs = malloc(bytes);
    if (!a->pairs)
        return failure_set(err, "no memory for moves of %" PRIu32 " blocks", a->most_pairs);
    if (device_alloc(&a->device, "moves of blocks", bytes, &a->d_pairs, err) < 0)
        return -1;
    if (a->options.host_blocks == 0)
        return 0;
    a->host_caches = calloc(a->shape.layers, sizeof *a->host_caches);
    if (!a->host_caches)
        return failure_set(err, "no memory for %" PRIu32 " host caches", a->shape.layers);
    for (uint32_t i = 0; i < a->shape.layers; i++)
        if (make_host_cache(a, &a->groups[attention_group_of(a, i)], &a->host_caches[i], err) < 0)
            return -1;
    return 0;
}

void attention_free_moves(struct attention *a)
{
    for (uint32_t i = 0; a->host_caches && i < a->shape.layers; i++) {
        device_host_free(&a->device, &a->host_caches[i].memory);
        device_host_free(&a->device, &a->host_caches[i].scales[0]);
        device_host_free(&a->device, &a->host_caches[i].scales[1]);
    }
    free(a->host_caches);
    free(a->pairs);
    device_free(&a->device, &a->d_pairs);
}

/*
 * Pairs of one cache group; returns how many. The caches lie in the backend's order, the host's in that of
 * their numbers.
 */
static uint32_t fill_pairs(struct attention *a, const struct block_moves *moves, uint32_t group,
                           bool from_cache, bool to_cache)
{
    const int32_t *page = a->groups[group].page;
    uint32_t count = 0;
    for (uint32_t i = 0; i < moves->count && count < a->most_pairs; i++) {
        const struct block_move *m = &moves->moves[i];
        if (m->group != group)
            continue;
        a->pairs[2 * count] = from_cache ? page[m->from] : m->from;
        a->pairs[2 * count++ + 1] = to_cache ? page[m->to] : m->to;
    }
    return count;
}

static int swap_layer(struct attention *a, uint32_t layer, uint32_t count, bool out, struct failure *err)
{
    struct attn_kv_swap_blocks_args args;
    struct attn_error error;
    ATTN_INIT(&args);
    ATTN_INIT(&error);
    args.count = count;
    args.pairs = a->pairs;
    args.kind = out ? ATTN_COPY_TO_HOST : ATTN_COPY_TO_DEVICE;
    args.from = out ? a->caches[layer].kv : NULL;
    args.from_desc = out ? NULL : &a->host_caches[layer].desc;
    args.to = out ? NULL : a->caches[layer].kv;
    args.to_desc = out ? &a->host_caches[layer].desc : NULL;
    if (attn_kv_swap_blocks(a->backend, &args, a->device.stream, &error) < 0)
        return device_fail(err, out ? "moving blocks to the host" : "moving blocks back", &error);
    return 0;
}

static int swap(struct attention *a, const struct block_moves *moves, bool out, struct failure *err)
{
    for (uint32_t g = 0; moves->count && g < a->shape.groups; g++) {
        uint32_t count = fill_pairs(a, moves, g, out, !out);
        for (uint32_t i = 0; count && i < a->shape.layers; i++)
            if (attention_group_of(a, i) == g && swap_layer(a, i, count, out, err) < 0)
                return -1;
    }
    return 0;
}

int attention_swap_out(struct attention *a, const struct block_moves *moves, struct failure *err)
{
    return swap(a, moves, true, err);
}

int attention_swap_in(struct attention *a, const struct block_moves *moves, struct failure *err)
{
    return swap(a, moves, false, err);
}

static int copy_group(struct attention *a, uint32_t group, uint32_t count, struct failure *err)
{
    struct attn_kv_copy_blocks_args args;
    struct attn_error error;
    ATTN_INIT(&args);
    ATTN_INIT(&error);
    if (device_put(&a->device, &a->d_pairs, a->pairs, 2 * sizeof *a->pairs * (uint64_t)count, err) < 0 ||
        device_wait(&a->device, err) < 0) /* the next group's pairs are written there */
        return -1;
    struct attn_kv **kvs = calloc(a->shape.layers, sizeof *kvs);
    if (!kvs)
        return failure_set(err, "no memory for %" PRIu32 " caches", a->shape.layers);
    for (uint32_t i = 0; i < a->shape.layers; i++)
        if (attention_group_of(a, i) == group)
            kvs[args.layers++] = a->caches[i].kv;
    args.count = count;
    args.kvs = kvs;
    args.pairs = a->d_pairs;
    int status = attn_kv_copy_blocks(a->backend, &args, a->device.stream, &error) < 0
                     ? device_fail(err, "copying blocks", &error)
                     : 0;
    free(kvs);
    return status;
}

int attention_copy(struct attention *a, const struct block_moves *moves, struct failure *err)
{
    for (uint32_t g = 0; moves->count && g < a->shape.groups; g++) {
        uint32_t count = fill_pairs(a, moves, g, true, true);
        if (count && copy_group(a, g, count, err) < 0)
            return -1;
    }
    return 0;
}
