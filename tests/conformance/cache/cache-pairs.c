/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Cases of operations that take pairs of places: chains, duplicate targets, holes, a place onto itself. */
#include "cache.h"

#include "need.h"

/*
 * Few places beside many pairs, so that pairs depend on each other. Rarely one lies beyond its cache, which
 * is refused where pairs can be seen.
 */
static void pick_pairs(struct cache_case *c, uint32_t from, uint32_t to)
{
    uint32_t from_few = rng_chance(&c->rng, 50) && from > 4 ? 4 : from;
    uint32_t to_few = rng_chance(&c->rng, 50) && to > 4 ? 4 : to;
    const uint32_t most = rng_chance(&c->rng, 15) ? CACHE_PAIRS : 24;

    c->pair_count = rng_chance(&c->rng, 5) ? 0 : 1 + rng_below(&c->rng, most);
    for (uint32_t i = 0; i < c->pair_count; i++) {
        int64_t *pair = c->pairs + 2 * i;
        pair[0] = rng_below(&c->rng, from_few);
        pair[1] = rng_below(&c->rng, to_few);
        if (i > 0 && rng_chance(&c->rng, 30) && c->pairs[2 * i - 1] >= 0 && c->pairs[2 * i - 1] < from)
            pair[0] = c->pairs[2 * i - 1]; /* a chain */
        if (rng_chance(&c->rng, 10))
            pair[rng_below(&c->rng, 2)] = -1 - (int64_t)rng_below(&c->rng, 3);
    }
    if (c->pair_count > 0 && c->exact && rng_chance(&c->rng, 6)) {
        uint32_t which = rng_below(&c->rng, 2 * c->pair_count);
        c->pairs[which] = (which % 2 == 0 ? from : to) + (int64_t)rng_below(&c->rng, 2);
        c->refused = c->pairs[which ^ 1] >= 0;
    }
}

static struct attn_buffer place_pairs(struct cache_case *c)
{
    return cache_array(c, "pairs", c->pairs, (size_t)c->pair_count * 2 * sizeof *c->pairs, 8);
}

/* Both caches of the arguments. */
#define SET_CACHES(args, source, target)                                                                     \
    do {                                                                                                     \
        (args)->from = (source)->kv;                                                                         \
        (args)->from_desc = (source)->kv != NULL ? NULL : &(source)->desc;                                   \
        (args)->to = (target)->kv;                                                                           \
        (args)->to_desc = (target)->kv != NULL ? NULL : &(target)->desc;                                     \
    } while (0)

static const struct box *target_of(const struct cache_case *c)
{
    return &c->boxes[c->box_count - 1];
}

static void move_vectors(struct cache_case *c, const struct box *from, const int64_t from_place[2],
                         const struct box *to, const int64_t to_place[2])
{
    for (uint32_t half = 0; half < box_halves(from); half++)
        for (uint32_t head = 0; head < from->desc.kv_heads; head++)
            reference_move(c, from, from_place, to, to_place, half, head);
}

/* ---------------------------------------------------------------- slots */

static void init_slots(struct cache_case *c)
{
    struct box *from = box_add(c, NULL), *to = from;

    if (rng_chance(&c->rng, 50)) {
        struct box other = *from; /* its pages may be of another size */
        other.desc.block += rng_below(&c->rng, 3);
        to = box_add(c, &other);
    }
    pick_pairs(c, from->desc.pages * from->desc.block, to->desc.pages * to->desc.block);
    c->args.copy_slots.count = c->pair_count;
    c->args.copy_slots.pairs = place_pairs(c);
}

static int32_t call_slots(void *the_case, void *stream, struct attn_error *err)
{
    struct cache_case *c = the_case;
    struct attn_kv_copy_slots_args args = c->args.copy_slots;

    SET_CACHES(&args, &c->boxes[0], target_of(c));
    return attn_kv_copy_slots(c->backend, &args, stream, err);
}

static void reference_slots(struct cache_case *c)
{
    const struct box *from = &c->boxes[0], *to = target_of(c);

    for (uint32_t i = 0; i < c->pair_count; i++) {
        const int64_t *pair = c->pairs + 2 * i;
        const int64_t from_place[] = {pair[0] / from->desc.block, pair[0] % from->desc.block};
        const int64_t to_place[] = {pair[1] / to->desc.block, pair[1] % to->desc.block};
        if (pair[0] >= 0 && pair[1] >= 0)
            move_vectors(c, from, from_place, to, to_place);
    }
}

const struct cache_operation cache_copy_slots = {"copy_slots", init_slots, call_slots, reference_slots};

/* ---------------------------------------------------------------- blocks */

static void init_blocks(struct cache_case *c)
{
    uint32_t layers = 1 + rng_below(&c->rng, 3), pages = 0;

    for (uint32_t i = 0; i < layers; i++) {
        struct box *box = box_add(c, i > 0 && rng_chance(&c->rng, 70) ? &c->boxes[0] : NULL);
        pages = i == 0 || box->desc.pages < pages ? box->desc.pages : pages;
    }
    for (uint32_t i = 0; i < layers; i++)
        c->boxes[i].desc.pages = pages; /* the rest is memory that nobody may touch */
    pick_pairs(c, pages, pages);
    c->args.copy_blocks.count = c->pair_count;
    c->args.copy_blocks.layers = layers;
    c->args.copy_blocks.pairs = place_pairs(c);
}

static int32_t call_blocks(void *the_case, void *stream, struct attn_error *err)
{
    struct cache_case *c = the_case;
    struct attn_kv_copy_blocks_args args = c->args.copy_blocks;
    const struct attn_kv_desc *descs[CACHE_BOXES];
    struct attn_kv *kvs[CACHE_BOXES];

    for (uint32_t i = 0; i < c->box_count; i++) {
        kvs[i] = c->boxes[i].kv;
        descs[i] = &c->boxes[i].desc;
    }
    if (c->boxes[0].kv != NULL)
        args.kvs = kvs;
    else
        args.kv_descs = descs;
    return attn_kv_copy_blocks(c->backend, &args, stream, err);
}

static void copy_page(struct cache_case *c, const struct box *from, const struct box *to, const int64_t *pair)
{
    for (uint32_t token = 0; token < from->desc.block && pair[0] >= 0 && pair[1] >= 0; token++) {
        const int64_t from_place[] = {pair[0], token}, to_place[] = {pair[1], token};
        move_vectors(c, from, from_place, to, to_place);
    }
}

static void reference_blocks(struct cache_case *c)
{
    for (uint32_t layer = 0; layer < c->box_count; layer++)
        for (uint32_t i = 0; i < c->pair_count; i++)
            copy_page(c, &c->boxes[layer], &c->boxes[layer], c->pairs + 2 * i);
}

const struct cache_operation cache_copy_blocks = {"copy_blocks", init_blocks, call_blocks, reference_blocks};

static void init_swap(struct cache_case *c)
{
    struct box *from = box_add(c, NULL), *to = box_add(c, from);

    pick_pairs(c, from->desc.pages, to->desc.pages);
    c->args.swap_blocks.count = c->pair_count;
    c->args.swap_blocks.kind = 1 + rng_below(&c->rng, 3);
    c->args.swap_blocks.pairs = c->pairs;
    /* Caches in host memory are given bare. */
    from->use_handle = from->use_handle && c->args.swap_blocks.kind != ATTN_COPY_TO_DEVICE;
    to->use_handle = to->use_handle && c->args.swap_blocks.kind != ATTN_COPY_TO_HOST;
}

static int32_t call_swap(void *the_case, void *stream, struct attn_error *err)
{
    struct cache_case *c = the_case;
    struct attn_kv_swap_blocks_args args = c->args.swap_blocks;

    SET_CACHES(&args, &c->boxes[0], target_of(c));
    return attn_kv_swap_blocks(c->backend, &args, stream, err);
}

static void reference_swap(struct cache_case *c)
{
    for (uint32_t i = 0; i < c->pair_count; i++)
        copy_page(c, &c->boxes[0], target_of(c), c->pairs + 2 * i);
}

const struct cache_operation cache_swap_blocks = {"swap_blocks", init_swap, call_swap, reference_swap};

/* ---------------------------------------------------------------- conversion */

static void init_convert(struct cache_case *c)
{
    struct box *from = box_add(c, NULL), *to = box_add_converted(c, from);

    if (from->desc.pages <= to->desc.pages && rng_chance(&c->rng, 40)) {
        c->pair_count = 0; /* every page to its number */
        return;
    }
    pick_pairs(c, from->desc.pages, to->desc.pages);
    c->args.convert.count = c->pair_count;
    c->args.convert.pairs = place_pairs(c);
}

static int32_t call_convert(void *the_case, void *stream, struct attn_error *err)
{
    struct cache_case *c = the_case;
    struct attn_kv_convert_args args = c->args.convert;

    SET_CACHES(&args, &c->boxes[0], target_of(c));
    return attn_kv_convert(c->backend, &args, stream, err);
}

static void convert_vector(struct cache_case *c, uint32_t half, const int64_t from_place[2],
                           const int64_t to_place[2], uint32_t head)
{
    const struct box *from = &c->boxes[0], *to = target_of(c);
    double values[1024];

    if (box_dtype(from, half) == box_dtype(to, half) &&
        box_scale(from, half)->granularity == box_scale(to, half)->granularity) {
        reference_move(c, from, from_place, to, to_place, half, head);
        return;
    }
    reference_load(c, from, half, from_place, head, values);
    reference_store(c, to, half, to_place, head, values);
}

static void convert_page(struct cache_case *c, int64_t from_page, int64_t to_page)
{
    const struct attn_kv_desc *desc = &c->boxes[0].desc;

    for (uint32_t token = 0; token < desc->block; token++) {
        const int64_t from_place[] = {from_page, token}, to_place[] = {to_page, token};
        for (uint32_t half = 0; half < box_halves(&c->boxes[0]); half++)
            for (uint32_t head = 0; head < desc->kv_heads; head++)
                convert_vector(c, half, from_place, to_place, head);
    }
}

static void reference_convert(struct cache_case *c)
{
    bool all = c->args.convert.pairs.data == NULL;
    uint32_t count = all ? c->boxes[0].desc.pages : c->pair_count;

    for (uint32_t i = 0; i < count; i++) {
        int64_t from = all ? (int64_t)i : c->pairs[2 * i], to = all ? (int64_t)i : c->pairs[2 * i + 1];
        if (from >= 0 && to >= 0)
            convert_page(c, from, to);
    }
}

const struct cache_operation cache_convert = {"convert", init_convert, call_convert, reference_convert};
