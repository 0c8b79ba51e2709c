/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Argument blocks of the kernel that copies tokens and pages between caches without conversion. */
#include "kv-resolve.h"

/* A dimension of a plane. */
struct span {
    uint64_t count;
    int64_t from, to; /* strides */
};

struct place {
    uint64_t base;
    int64_t page_stride, token_stride;
};

static void swap_spans(struct span *a, struct span *b)
{
    struct span other = *a;

    *a = *b;
    *b = other;
}

/* The largest power of two, up to 16, that divides all numbers that were combined into `bits` by or. */
static uint32_t unit_of(uint64_t bits)
{
    return (bits & 15) == 0 ? 16 : (uint32_t)(bits & (0 - bits));
}

/* Adds a plane of `run` bytes times two outer dimensions; dimensions without gaps on both sides are merged.
 */
static void add_plane(struct gpu_kv_move *out, const struct place *from, const struct place *to, uint64_t run,
                      struct span inner, struct span outer)
{
    if (inner.count == 1 || (outer.count > 1 && (outer.from < inner.from && outer.to < inner.to)))
        swap_spans(&inner, &outer);
    if (inner.from == (int64_t)run && inner.to == (int64_t)run) {
        run *= inner.count;
        inner = outer;
        outer = (struct span){1, 0, 0};
        if (inner.from == (int64_t)run && inner.to == (int64_t)run) {
            run *= inner.count;
            inner = outer;
        }
    }
    uint64_t bits = from->base | to->base | (uint64_t)from->page_stride | (uint64_t)to->page_stride |
                    (uint64_t)from->token_stride | (uint64_t)to->token_stride | run;
    if (inner.count > 1)
        bits |= (uint64_t)inner.from | (uint64_t)inner.to;
    if (outer.count > 1)
        bits |= (uint64_t)outer.from | (uint64_t)outer.to;
    struct gpu_kv_plane *plane = &out->planes[out->plane_count++];
    plane->unit = unit_of(bits);
    plane->n0 = run / plane->unit;
    plane->n1 = inner.count;
    plane->units = plane->n0 * inner.count * outer.count;
    plane->from.base = from->base;
    plane->from.page_stride = from->page_stride;
    plane->from.token_stride = from->token_stride;
    plane->from.stride1 = inner.from;
    plane->from.stride2 = outer.from;
    plane->to.base = to->base;
    plane->to.page_stride = to->page_stride;
    plane->to.token_stride = to->token_stride;
    plane->to.stride1 = inner.to;
    plane->to.stride2 = outer.to;
}

/* Places of the planes from `first` on. */
static void set_places(struct gpu_kv_move *out, uint32_t first, const uint64_t places[2],
                       const uint32_t blocks[2])
{
    for (uint32_t i = first; i < out->plane_count; i++) {
        out->planes[i].from.places = places[0];
        out->planes[i].to.places = places[1];
        out->planes[i].from.block = blocks[0];
        out->planes[i].to.block = blocks[1];
        const struct gpu_kv_places *from = &out->planes[i].from, *to = &out->planes[i].to;
        out->planes[i].same_address = from->base == to->base && from->page_stride == to->page_stride &&
                                      from->token_stride == to->token_stride && from->block == to->block;
    }
}

static bool has_scales(const struct attn_scale *scale)
{
    return (scale->kind == ATTN_SCALE_HOST || scale->kind == ATTN_SCALE_DEVICE) &&
           scale->granularity == ATTN_SCALES_TOKEN_HEAD;
}

/* ---------------------------------------------------------------- slots */

static void add_slots(struct gpu_kv_move *out, const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                      bool values)
{
    const struct gpu_cache a = gpu_cache_of(from, values), b = gpu_cache_of(to, values);
    const struct attn_scale *scales[] = {values ? &from->v_scale : &from->k_scale,
                                         values ? &to->v_scale : &to->k_scale};
    const struct place source = {a.base, a.page_stride, a.token_stride};
    const struct place target = {b.base, b.page_stride, b.token_stride};
    const struct span heads = {from->kv_heads, a.head_stride, b.head_stride};
    const struct span columns = {(uint64_t)a.dim * a.size / a.x_bytes, a.x_stride, b.x_stride};

    add_plane(out, &source, &target, a.x_bytes, columns, heads);
    if (has_scales(scales[0]) && has_scales(scales[1])) {
        const struct place one = {gpu_address(&scales[0]->buffer), scales[0]->outer_stride,
                                  scales[0]->token_stride};
        const struct place two = {gpu_address(&scales[1]->buffer), scales[1]->outer_stride,
                                  scales[1]->token_stride};
        add_plane(out, &one, &two, sizeof(float),
                  (struct span){from->kv_heads, scales[0]->head_stride, scales[1]->head_stride},
                  (struct span){1, 0, 0});
    }
}

void gpu_kv_move_slots(struct gpu_kv_move *out, const struct attn_kv_desc *from,
                       const struct attn_kv_desc *to)
{
    const uint64_t places[] = {(uint64_t)from->pages * from->block, (uint64_t)to->pages * to->block};
    const uint32_t blocks[] = {from->block, to->block}, first = out->plane_count;

    for (uint32_t i = 0; i < gpu_kv_sides(from); i++)
        add_slots(out, from, to, i == 1);
    set_places(out, first, places, blocks);
}

/* ---------------------------------------------------------------- pages */

static void add_pages(struct gpu_kv_move *out, const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                      bool values)
{
    const struct gpu_cache a = gpu_cache_of(from, values), b = gpu_cache_of(to, values);
    const struct attn_scale *scales[] = {values ? &from->v_scale : &from->k_scale,
                                         values ? &to->v_scale : &to->k_scale};
    const struct place source = {a.base, a.page_stride, 0}, target = {b.base, b.page_stride, 0};
    const struct span heads = {from->kv_heads, a.head_stride, b.head_stride};
    const uint64_t vector = (uint64_t)a.dim * a.size;

    if (from->layout == ATTN_PAGED_X) /* the tokens of a head are contiguous, whatever x is */
        add_plane(out, &source, &target, vector * from->block, heads, (struct span){1, 0, 0});
    else
        add_plane(out, &source, &target, vector, heads,
                  (struct span){from->block, a.token_stride, b.token_stride});
    if (has_scales(scales[0]) && has_scales(scales[1])) {
        const struct place one = {gpu_address(&scales[0]->buffer), scales[0]->outer_stride, 0};
        const struct place two = {gpu_address(&scales[1]->buffer), scales[1]->outer_stride, 0};
        add_plane(out, &one, &two, sizeof(float),
                  (struct span){from->kv_heads, scales[0]->head_stride, scales[1]->head_stride},
                  (struct span){from->block, scales[0]->token_stride, scales[1]->token_stride});
    }
}

void gpu_kv_move_pages(struct gpu_kv_move *out, const struct attn_kv_desc *from,
                       const struct attn_kv_desc *to)
{
    const uint64_t places[] = {from->pages, to->pages};
    const uint32_t blocks[] = {1, 1}, first = out->plane_count;

    for (uint32_t i = 0; i < gpu_kv_sides(from); i++)
        add_pages(out, from, to, i == 1);
    set_places(out, first, places, blocks);
}

/* ---------------------------------------------------------------- slices */

/* CTAs that a launch has to have before slices get more than the smallest number of units. */
#define CTAS_WANTED 1024u

void gpu_kv_move_cut(struct gpu_kv_move *out)
{
    uint64_t units = 0;
    uint32_t size = GPU_KV_SLICE;

    for (uint32_t i = 0; i < out->plane_count; i++)
        units += out->planes[i].units;
    /* With few pairs a slice can have more units, which makes longer runs of memory. */
    while (size < GPU_KV_THREADS && GPU_KV_THREADS / size > out->count)
        size *= 2;
    while (size < GPU_KV_THREADS / 4 && units / (2 * size) >= CTAS_WANTED)
        size *= 2;
    out->slice_shift = (uint32_t)__builtin_ctz(size);
    out->slices = 0;
    for (uint32_t i = 0; i < out->plane_count; i++) {
        out->planes[i].first = out->slices;
        out->slices += (out->planes[i].units + size - 1) / size;
    }
}
