/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Moves tokens and pages between caches of one type and layout: on the device by one kernel that keeps the
 * order of pairs, between device and host by copies in the order of the stream.
 */
#include "opencl.h"

/* A dimension of a plane. */
struct span {
    opencl_i64 count, from, to; /* strides */
};

/* A launch that is being put together. */
struct move {
    struct opencl_launch launch;
    uint32_t planes;
    bool tokens; /* places are tokens, not pages */
};

static void move_init(struct move *move, uint32_t count, bool tokens)
{
    *move = (struct move){.tokens = tokens};
    move->launch.buffer_count = OPENCL_MOVE_PAIRS + 1;
    move->launch.size = sizeof move->launch.move;
    move->launch.move.count = (opencl_i32)count;
}

/* ---------------------------------------------------------------- planes */

/* The largest power of two, up to 16, that divides all numbers that were combined into `bits` by or. */
static opencl_i32 unit_of(uint64_t bits)
{
    return (bits & 15) == 0 ? 16 : (opencl_i32)(bits & (0 - bits));
}

static uint64_t bits_of(const struct opencl_places *places)
{
    return (uint64_t)(places->at | places->page | places->token | places->inner | places->outer);
}

/* Joins a dimension to the run if it has no gaps on both sides. */
static void join(struct span *run, struct span *other)
{
    if (other->count != 1 && (other->from != run->count || other->to != run->count))
        return;
    run->count *= other->count;
    *other = (struct span){1, 0, 0};
}

/* Adds a plane of runs of bytes in two outer dimensions, in any order of those. */
static void add_plane(struct move *move, struct opencl_places from, struct opencl_places to, opencl_i64 bytes,
                      struct span inner, struct span outer)
{
    struct opencl_plane *plane = &move->launch.move.planes[move->planes++];
    struct span run = {bytes, 0, 0};

    join(&run, &inner);
    join(&run, &outer);
    join(&run, &inner);
    from.inner = inner.from;
    from.outer = outer.from;
    to.inner = inner.to;
    to.outer = outer.to;
    plane->from = from;
    plane->to = to;
    plane->unit = unit_of(bits_of(&from) | bits_of(&to) | (uint64_t)run.count);
    plane->run = run.count / plane->unit;
    plane->inner = inner.count;
    plane->units = plane->run * inner.count * outer.count;
}

static struct opencl_places places_of(const struct move *move, const struct attn_kv_desc *desc, opencl_i64 at,
                                      opencl_i64 page, opencl_i64 token)
{
    struct opencl_places places = {.at = at, .page = page, .count = desc->pages, .block = 1};

    if (move->tokens) {
        places.token = token;
        places.block = (opencl_i32)desc->block;
        places.count = (opencl_i64)desc->pages * desc->block;
    }
    return places;
}

static void add_elements(struct move *move, const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                         bool values)
{
    const struct opencl_side a = opencl_side_of(from, values), b = opencl_side_of(to, values);
    const struct span heads = {from->kv_heads, a.strides.head, b.strides.head};
    const opencl_i64 vector = (opencl_i64)a.dim * (opencl_i64)opencl_size((uint32_t)a.dtype);
    const struct opencl_places source = places_of(move, from, a.at, a.strides.page, a.strides.token);
    const struct opencl_places target = places_of(move, to, b.at, b.strides.page, b.strides.token);

    move->launch.buffers[OPENCL_MOVE_FROM + move->planes] = (cl_mem)(values ? &from->v : &from->k)->data;
    move->launch.buffers[OPENCL_MOVE_TO + move->planes] = (cl_mem)(values ? &to->v : &to->k)->data;
    if (move->tokens && a.x != 0)
        add_plane(move, source, target, a.x, (struct span){vector / a.x, a.x_stride, b.x_stride}, heads);
    else if (move->tokens)
        add_plane(move, source, target, vector, heads, (struct span){1, 0, 0});
    else if (a.x != 0) /* the tokens of a head are contiguous, whatever x is */
        add_plane(move, source, target, vector * from->block, heads, (struct span){1, 0, 0});
    else
        add_plane(move, source, target, vector, heads,
                  (struct span){from->block, a.strides.token, b.strides.token});
}

static void add_scales(struct move *move, const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                       bool values)
{
    const struct attn_scale *a = values ? &from->v_scale : &from->k_scale;
    const struct attn_scale *b = values ? &to->v_scale : &to->k_scale;
    const uint32_t dtype = values ? from->v_dtype : from->k_dtype;
    const struct opencl_places source =
        places_of(move, from, (opencl_i64)a->buffer.byte_offset, a->outer_stride, a->token_stride);
    const struct opencl_places target =
        places_of(move, to, (opencl_i64)b->buffer.byte_offset, b->outer_stride, b->token_stride);
    const struct span tokens = {move->tokens ? 1 : from->block, a->token_stride, b->token_stride};

    if (!opencl_has_own_scales(a, dtype) || !opencl_has_own_scales(b, dtype))
        return;
    move->launch.buffers[OPENCL_MOVE_FROM + move->planes] = (cl_mem)a->buffer.data;
    move->launch.buffers[OPENCL_MOVE_TO + move->planes] = (cl_mem)b->buffer.data;
    add_plane(move, source, target, sizeof(float),
              (struct span){from->kv_heads, a->head_stride, b->head_stride}, tokens);
}

static void add_caches(struct move *move, const struct attn_kv_desc *from, const struct attn_kv_desc *to)
{
    for (uint32_t i = 0; i < opencl_sides(from); i++) {
        add_elements(move, from, to, i == 1);
        add_scales(move, from, to, i == 1);
    }
}

/* ---------------------------------------------------------------- on the device */

/* The fewer pairs there are, the more units of a place are moved together. */
static void set_slice(struct opencl_move *move)
{
    move->slice = OPENCL_HELD;
    while (move->slice < OPENCL_ITEMS && OPENCL_ITEMS * OPENCL_HELD / move->slice > move->count)
        move->slice *= 2;
}

static int32_t enqueue(struct attn_backend_impl *backend, struct move *move, void *stream,
                       struct attn_error *err)
{
    struct opencl_grid grid = {{0, move->planes, 1}, OPENCL_ITEMS};

    set_slice(&move->launch.move);
    for (uint32_t i = 0; i < move->planes; i++) {
        const size_t units = (size_t)move->launch.move.planes[i].units;
        const size_t slices = (units - 1) / (size_t)move->launch.move.slice + 1;
        grid.groups[0] = slices > grid.groups[0] ? slices : grid.groups[0];
    }
    return opencl_launch_enqueue(backend, backend->kernels[OPENCL_KERNEL_move], &move->launch, &grid, stream,
                                 err);
}

static int32_t add_pairs(struct move *move, const struct attn_buffer *pairs, struct attn_error *err)
{
    return opencl_launch_place(&move->launch, OPENCL_MOVE_PAIRS, pairs, sizeof(opencl_i64), "pairs",
                               &move->launch.move.pairs, err);
}

int32_t opencl_kv_copy_slots(struct attn_backend_impl *backend, const struct attn_kv_copy_slots_args *args,
                             const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                             struct attn_error *err)
{
    const struct attn_kv_desc *source = attn_util_kv(from->kv, from->desc);
    const struct attn_kv_desc *target = attn_util_kv(to->kv, to->desc);
    struct move move;
    int32_t status = opencl_own_scales_check(source, err);

    move_init(&move, args->count, true);
    if (status == ATTN_OK)
        status = opencl_own_scales_check(target, err);
    if (status == ATTN_OK)
        status = add_pairs(&move, &args->pairs, err);
    if (status != ATTN_OK)
        return status;
    add_caches(&move, source, target);
    return enqueue(backend, &move, stream, err);
}

int32_t opencl_kv_copy_blocks(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                              const struct attn_kv_ref *caches, void *stream, struct attn_error *err)
{
    struct move move;
    int32_t status = ATTN_OK;

    /* All caches are checked before anything is written. */
    for (uint32_t i = 0; i < args->layers && status == ATTN_OK; i++)
        status = opencl_own_scales_check(attn_util_kv(caches[i].kv, caches[i].desc), err);
    for (uint32_t i = 0; i < args->layers && status == ATTN_OK; i++) {
        const struct attn_kv_desc *desc = attn_util_kv(caches[i].kv, caches[i].desc);
        move_init(&move, args->count, false);
        status = add_pairs(&move, &args->pairs, err);
        add_caches(&move, desc, desc);
        if (status == ATTN_OK)
            status = enqueue(backend, &move, stream, err);
    }
    return status;
}

/* ---------------------------------------------------------------- swaps */

/* The launch reads the pairs from a copy of them. */
static int32_t move_pairs(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                          struct move *move, void *stream, struct attn_error *err)
{
    int32_t status = opencl_copy_of(backend, args->pairs, (size_t)args->count * 2 * sizeof *args->pairs,
                                    "pairs", &move->launch.owned[0], err);

    move->launch.buffers[OPENCL_MOVE_PAIRS] = move->launch.owned[0];
    if (status == ATTN_OK)
        status = enqueue(backend, move, stream, err);
    opencl_launch_release(backend, &move->launch);
    return status;
}

static struct attn_buffer run_at(const struct move *move, uint32_t buffer, const struct opencl_places *places,
                                 int64_t page, opencl_i64 outer, opencl_i64 inner)
{
    const opencl_i64 at = places->at + page * places->page + outer * places->outer + inner * places->inner;

    return (struct attn_buffer){move->launch.buffers[buffer], (uint64_t)at};
}

/* Copies what a plane has of a page, run by run. */
static int32_t copy_page(struct attn_backend_impl *backend, const struct move *move, uint32_t n,
                         const int64_t *pair, uint32_t kind, void *stream, struct attn_error *err)
{
    const struct opencl_plane *plane = &move->launch.move.planes[n];
    struct opencl_copy copy = {.size = (uint64_t)(plane->run * plane->unit), .kind = kind};
    int32_t status = ATTN_OK;

    for (opencl_i64 i = 0; i < plane->units / plane->run && status == ATTN_OK; i++) {
        const opencl_i64 outer = i / plane->inner, inner = i % plane->inner;
        copy.from = run_at(move, OPENCL_MOVE_FROM + n, &plane->from, pair[0], outer, inner);
        copy.to = run_at(move, OPENCL_MOVE_TO + n, &plane->to, pair[1], outer, inner);
        status = opencl_copy_enqueue(backend, &copy, stream, err);
    }
    return status;
}

static int32_t copy_pages(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                          const struct move *move, void *stream, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    for (uint32_t n = 0; n < move->planes; n++) {
        for (uint32_t i = 0; i < args->count && status == ATTN_OK; i++) {
            const int64_t *pair = args->pairs + 2 * (size_t)i;
            if (pair[0] >= 0 && pair[1] >= 0)
                status = copy_page(backend, move, n, pair, args->kind, stream, err);
        }
    }
    return status;
}

int32_t opencl_kv_swap_blocks(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                              const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                              struct attn_error *err)
{
    const struct attn_kv_desc *source = attn_util_kv(from->kv, from->desc);
    const struct attn_kv_desc *target = attn_util_kv(to->kv, to->desc);
    struct move move;
    int32_t status = ATTN_OK;

    if (args->kind != ATTN_COPY_TO_DEVICE)
        status = opencl_own_scales_check(source, err);
    if (status == ATTN_OK && args->kind != ATTN_COPY_TO_HOST)
        status = opencl_own_scales_check(target, err);
    if (status != ATTN_OK)
        return status;
    move_init(&move, args->count, false);
    add_caches(&move, source, target);
    return args->kind == ATTN_COPY_ON_DEVICE ? move_pairs(backend, args, &move, stream, err)
                                             : copy_pages(backend, args, &move, stream, err);
}
