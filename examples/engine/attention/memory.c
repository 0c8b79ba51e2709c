/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory behind the attention layers: caches, tensors of a step, and blocks that move to the host and back.
 */
#include "attention-impl.h"
#include "ranks.h"
#include "rng.h"

#include <inttypes.h>
#include <stdlib.h>

/* Pages beyond what the sequences need, so that a mistake that takes all pages for used ones shows. */
enum { SPARE_PAGES = 3 };

/* One scale per page, token and kv head beside an 8-bit cache. */
static int make_scales(struct attention *a, struct attention_cache *cache, const struct attn_kv_shape *shape,
                       struct attn_kv_desc *desc, struct failure *err)
{
    struct attn_scale *const scales[] = {&desc->k_scale, &desc->v_scale};
    int64_t head = (int64_t)sizeof(float);
    for (int i = 0; shape->scale_bytes && i < 2; i++) {
        if (device_alloc(&a->device, "cache scales", shape->scale_bytes, &cache->scales[i], err) < 0)
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

static int make_cache(struct attention *a, const struct attention_group *group, struct attention_cache *cache,
                      struct failure *err)
{
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    struct attn_error error;
    ATTN_INIT(&shape);
    ATTN_INIT(&error);
    if (attn_kv_get_shape(a->backend, &group->problem, group->pages, &shape, &error) < 0)
        return device_fail(err, "cache shape", &error);
    if (device_alloc(&a->device, "cache", shape.bytes, &cache->memory, err) < 0)
        return -1;
    attn_kv_desc_init(&desc, &shape, &cache->memory);
    if (make_scales(a, cache, &shape, &desc, err) < 0)
        return -1;
    if (attn_kv_create(a->backend, &desc, &cache->kv, &error) < 0)
        return device_fail(err, "cache", &error);
    return 0;
}

/* Adds to a message of a failed allocation how much the caches take together. */
static int explain_caches(struct attention *a, struct failure *err)
{
    struct failure first = *err;
    double bytes = 0;
    for (uint32_t i = 0; i < a->shape.layers; i++) {
        const struct attention_group *group = &a->groups[attention_group_of(a, i)];
        struct attn_kv_shape shape;
        ATTN_INIT(&shape);
        if (attn_kv_get_shape(a->backend, &group->problem, group->pages, &shape, NULL) < 0)
            return -1;
        bytes += (double)shape.bytes + 2 * (double)shape.scale_bytes;
    }
    return failure_set(err,
                       "%.300s; %" PRIu32 " layers with %s caches for %" PRIu32 " sequences of up to %" PRIu32
                       " tokens take %.0f MiB: fewer of them take less",
                       first.text, a->shape.layers, a->options.kv, a->options.max_seqs, a->options.max_tokens,
                       bytes / (1 << 20));
}

static int make_caches(struct attention *a, struct failure *err)
{
    a->caches = calloc(a->shape.layers, sizeof *a->caches);
    if (!a->caches)
        return failure_set(err, "no memory for %" PRIu32 " caches", a->shape.layers);
    for (uint32_t i = 0; i < a->shape.layers; i++)
        if (make_cache(a, &a->groups[attention_group_of(a, i)], &a->caches[i], err) < 0)
            return explain_caches(a, err);
    return 0;
}

static int make_group(struct attention *a, uint32_t g, uint64_t *seed, struct failure *err)
{
    const struct attention_options *o = &a->options;
    struct attention_group *group = &a->groups[g];
    uint64_t count = (o->blocks[g] ? o->blocks[g] : (uint64_t)a->width * o->max_seqs) + SPARE_PAGES;
    if (count > INT32_MAX / o->block)
        return failure_set(err,
                           "%" PRIu64 " blocks of %" PRIu32 " tokens; accepted are caches of up to %d tokens",
                           count, o->block, INT32_MAX);
    group->pages = (uint32_t)count;
    group->page = calloc(count, sizeof *group->page);
    group->blocks = calloc((size_t)o->max_seqs * a->width, sizeof *group->blocks);
    if (!group->page || !group->blocks)
        return failure_set(err, "no memory for the order of %" PRIu64 " blocks", count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)(rng_next(seed) % (i + 1));
        group->page[i] = group->page[j];
        group->page[j] = (int32_t)i;
    }
    return 0;
}

static int make_groups(struct attention *a, struct failure *err)
{
    uint64_t seed = a->options.seed;
    a->width = (a->options.max_tokens - 1) / attention_block_tokens(&a->options) + 1;
    for (uint32_t g = 0; g < a->shape.groups; g++)
        if (make_group(a, g, &seed, err) < 0)
            return -1;
    a->row = calloc(a->options.max_seqs, sizeof *a->row);
    a->slot_step = calloc(a->options.max_seqs, sizeof *a->slot_step);
    if (!a->row || !a->slot_step)
        return failure_set(err, "no memory for the tokens of %" PRIu32 " sequences", a->options.max_seqs);
    return 0;
}

/* ---------------------------------------------------------------- blocks on the host */

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

static int make_moves(struct attention *a, struct failure *err)
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

static void free_moves(struct attention *a)
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

/* ---------------------------------------------------------------- all of it */

/* Allocates the tensors and tokens of a step, initialised, because a graph also reads what pads a step. */
static int alloc_step(struct attention *a, struct failure *err)
{
    const uint32_t num_tokens = a->options.max_batch_tokens;
    const uint64_t tokens = a->options.max_seqs * sizeof(int64_t);
    if (device_tensors_make(&a->device, a->groups[0].problem.q_dtype, attention_q_count(a, num_tokens),
                            attention_kv_count(a, num_tokens), &a->tensors, err) < 0 ||
        device_host_alloc(&a->device, "tokens on the host", tokens, &a->tokens, err) < 0 ||
        device_alloc(&a->device, "tokens", tokens, &a->d_tokens, err) < 0 ||
        device_put(&a->device, &a->d_tokens, a->tokens.memory, tokens, err) < 0)
        return -1;
    return device_wait(&a->device, err);
}

int attention_allocate(struct attention *a, struct failure *err)
{
    if (make_groups(a, err) < 0 || make_caches(a, err) < 0 || make_moves(a, err) < 0)
        return -1;
    return alloc_step(a, err);
}

void attention_free(struct attention *a)
{
    free_moves(a);
    for (uint32_t i = 0; a->caches && i < a->shape.layers; i++) {
        attn_kv_destroy(a->caches[i].kv);
        device_free(&a->device, &a->caches[i].memory);
        device_free(&a->device, &a->caches[i].scales[0]);
        device_free(&a->device, &a->caches[i].scales[1]);
    }
    device_tensors_free(&a->device, &a->tensors);
    device_host_free(&a->device, &a->tokens);
    device_free(&a->device, &a->d_tokens);
    for (uint32_t g = 0; g < SCHEDULER_GROUPS; g++) {
        free(a->groups[g].page);
        free(a->groups[g].blocks);
    }
    free(a->caches);
    free(a->row);
    free(a->slot_step);
}

/* ---------------------------------------------------------------- moves */

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

static int swap_here(struct attention *a, const struct block_moves *moves, bool out, struct failure *err)
{
    for (uint32_t g = 0; moves->count && g < a->shape.groups; g++) {
        uint32_t count = fill_pairs(a, moves, g, out, !out);
        for (uint32_t i = 0; count && i < a->shape.layers; i++)
            if (attention_group_of(a, i) == g && swap_layer(a, i, count, out, err) < 0)
                return -1;
    }
    return 0;
}

static int swap_out_here(struct attention *a, const void *moves, struct failure *err)
{
    return swap_here(a, moves, true, err);
}

static int swap_in_here(struct attention *a, const void *moves, struct failure *err)
{
    return swap_here(a, moves, false, err);
}

int attention_swap_out(struct attention *a, const struct block_moves *moves, struct failure *err)
{
    return ranks_call(a, swap_out_here, moves, err);
}

int attention_swap_in(struct attention *a, const struct block_moves *moves, struct failure *err)
{
    return ranks_call(a, swap_in_here, moves, err);
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

static int copy_here(struct attention *a, const void *args, struct failure *err)
{
    const struct block_moves *moves = args;
    for (uint32_t g = 0; moves->count && g < a->shape.groups; g++) {
        uint32_t count = fill_pairs(a, moves, g, true, true);
        if (count && copy_group(a, g, count, err) < 0)
            return -1;
    }
    return 0;
}

int attention_copy(struct attention *a, const struct block_moves *moves, struct failure *err)
{
    return ranks_call(a, copy_here, moves, err);
}
