/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Cases of writes into caches of every layout: MLA caches from one tensor or two, and those in chunks. */
#include "cache.h"

#include <math.h>

#include "need.h"

enum { MOST_ROWS = 40 };

/* A number that rounds up or down, ties, or is not finite. */
static void fill_row(struct rng *rng, uint32_t dtype, unsigned char *to, uint32_t count)
{
    const double edge_values[] = {0, (double)INFINITY, (double)NAN, 1e-40, 448.5, 464, 61440, 127.5};
    bool finite = rng_chance(rng, 80);

    for (uint32_t d = 0; d < count; d++) {
        double value = ldexp((double)rng_below(rng, 1u << 12) - 2048, (int)rng_below(rng, 16) - 14);
        if (!finite && rng_chance(rng, 10))
            value = rng_pick(rng, edge_values);
        oracle_store(dtype, value, to + (size_t)d * oracle_size(dtype));
    }
}

/* Codes of the cache's own are written as they are where their scale is given. */
static uint32_t pick_type(struct cache_case *c, const struct box *box, uint32_t half)
{
    static const uint32_t wide[] = {ATTN_F32, ATTN_F16, ATTN_BF16};

    if (rng_chance(&c->rng, 30) && !box_is_token_head(box, half))
        return box_dtype(box, half);
    return rng_pick(&c->rng, wide);
}

static void place_source(struct cache_case *c, struct attn_tensor *tensor, const char *name, uint32_t dtype,
                         uint32_t dim)
{
    uint32_t heads = c->boxes[0].desc.kv_heads;
    const uint32_t shape[3] = {c->args.write.num_tokens, heads, dim};
    struct guarded *memory =
        tensor_init(tensor, &c->arena, name, shape, oracle_size(dtype), &c->layout, &c->rng, 0xff);

    for (uint32_t row = 0; row < c->args.write.num_tokens; row++)
        for (uint32_t head = 0; head < heads; head++)
            fill_row(&c->rng, dtype, tensor_at(tensor, row, head), dim);
    guarded_protect(memory);
}

/* The slot of row i is pairs[i]: all are different. */
static void place_slots(struct cache_case *c)
{
    uint32_t slots = c->boxes[0].desc.pages * c->boxes[0].desc.block;
    uint32_t *order = need(calloc((size_t)slots + 1, sizeof *order));

    rng_shuffle(&c->rng, order, slots);
    c->args.write.num_tokens = rng_below(&c->rng, (slots < MOST_ROWS ? slots : MOST_ROWS) + 1);
    for (uint32_t i = 0; i < c->args.write.num_tokens; i++)
        c->pairs[i] = rng_chance(&c->rng, 10) ? -1 - (int64_t)rng_below(&c->rng, 3) : (int64_t)order[i];
    c->args.write.slot_mapping =
        cache_array(c, "slot_mapping", c->pairs, c->args.write.num_tokens * sizeof *c->pairs, 8);
    free(order);
}

static void init_write(struct cache_case *c)
{
    const struct box *box = box_add(c, NULL);
    struct attn_kv_write_args *args = &c->args.write;
    uint32_t dim = box_dim(box, 0), vo = box->desc.head_dim_vo;

    place_slots(c);
    args->k_dtype = pick_type(c, box, 0);
    if (box_halves(box) == 2) {
        args->v_dtype = pick_type(c, box, 1);
        place_source(c, &args->v_new, "v_new", args->v_dtype, vo);
    }
    if (box_halves(box) == 1 && vo < dim && rng_chance(&c->rng, 60)) {
        place_source(c, &args->k_rope, "k_rope", args->k_dtype, dim - vo);
        dim = vo;
    }
    place_source(c, &args->k_new, "k_new", args->k_dtype, dim);
}

static int32_t call_write(void *the_case, void *stream, struct attn_error *err)
{
    struct cache_case *c = the_case;
    struct attn_kv_write_args args = c->args.write;

    args.kv = c->boxes[0].kv;
    args.kv_desc = args.kv != NULL ? NULL : &c->boxes[0].desc;
    return attn_kv_write(c->backend, &args, stream, err);
}

static void write_vector(struct cache_case *c, uint32_t half, uint32_t row, uint32_t head)
{
    const struct attn_kv_write_args *args = &c->args.write;
    const struct box *box = &c->boxes[0];
    const int64_t place[] = {c->pairs[row] / box->desc.block, c->pairs[row] % box->desc.block};
    uint32_t dtype = half == 0 ? args->k_dtype : args->v_dtype, size = oracle_size(dtype);
    uint32_t dim = box_dim(box, half), split = dim;
    const unsigned char *from[2] = {tensor_at(half == 0 ? &args->k_new : &args->v_new, row, head), NULL};
    double values[1024];

    if (half == 0 && args->k_rope.buffer.data != NULL) {
        split = box->desc.head_dim_vo;
        from[1] = tensor_at(&args->k_rope, row, head);
    }
    for (uint32_t d = 0; d < dim; d++) {
        const unsigned char *at =
            d < split ? from[0] + (size_t)d * size : from[1] + (size_t)(d - split) * size;
        oracle_load(dtype, at, 1, &values[d]);
        if (dtype == box_dtype(box, half))
            memcpy(cache_mirror(c, box_element(box, half, place[0], place[1], head, d)), at, size);
    }
    if (dtype != box_dtype(box, half))
        reference_store(c, box, half, place, head, values);
}

static void reference_write(struct cache_case *c)
{
    for (uint32_t row = 0; row < c->args.write.num_tokens; row++) {
        for (uint32_t half = 0; half < box_halves(&c->boxes[0]) && c->pairs[row] >= 0; half++)
            for (uint32_t head = 0; head < c->boxes[0].desc.kv_heads; head++)
                write_vector(c, half, row, head);
    }
}

const struct cache_operation cache_write = {"write", init_write, call_write, reference_write};
