/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Decides whether rows of a cache or a tensor can be moved in units, and lays the units out. */
#include "kv-resolve.h"

/* Warps that run at once on large GPUs. With fewer rows, several warps share a row. */
#define WARPS_WANTED 4096u
#define WARPS_ENOUGH (4 * WARPS_WANTED)
/* Units that a warp has in flight in a copy. */
#define UNITS_PER_ITERATION 128u
/* Largest number of warps that share a row. */
#define MAX_SHARES 64u

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

struct gpu_kv_kind gpu_kv_kind_of_side(const struct gpu_kv_side *side)
{
    const struct gpu_cache *cache = &side->cache;
    struct gpu_kv_kind out = {
        .end = {.head_stride = cache->head_stride,
                .x_stride = cache->x_stride,
                .x_shift = side->x_shift,
                .dtype = cache->dtype,
                .size = cache->size},
        .bits = cache->base | (uint64_t)cache->page_stride | (uint64_t)cache->token_stride |
                (uint64_t)cache->head_stride,
        .x_bytes = cache->dim * cache->size,
    };

    if (cache->x_stride != 0) {
        out.x_bytes = cache->x_bytes;
        out.bits |= (uint64_t)cache->x_stride;
    }
    return out;
}

struct gpu_kv_kind gpu_kv_kind_of_tensor(const struct gpu_tensor *tensor, uint32_t dtype)
{
    return (struct gpu_kv_kind){
        .end = {.head_stride = tensor->head_stride,
                .x_shift = 31,
                .dtype = dtype,
                .size = attn__dtype_size(dtype)},
        .bits = tensor->base | (uint64_t)tensor->token_stride | (uint64_t)tensor->head_stride,
    };
}

/* Whether units of `bytes` divide the contiguous x elements, and are all aligned. */
static bool fits(const struct gpu_kv_kind *kind, uint32_t bytes)
{
    return kind->x_bytes % bytes == 0 && kind->bits % smaller(bytes, 16) == 0;
}

/* The next power of two. */
static uint32_t round_power(uint32_t value)
{
    uint32_t out = 1;

    while (out < value)
        out *= 2;
    return out;
}

void gpu_kv_rows_resolve(struct gpu_kv_rows *out, const struct gpu_kv_kind *from,
                         const struct gpu_kv_kind *to, uint32_t dim, uint32_t heads, bool moved, bool own)
{
    const uint32_t elements = moved ? 16 / to->end.size : 8;
    uint32_t lanes = dim / elements;

    *out = (struct gpu_kv_rows){.from = from->end, .to = to->end, .method = GPU_KV_BY_VECTOR};
    out->units = lanes;
    if (dim % elements != 0 || !fits(from, elements * from->end.size) || !fits(to, elements * to->end.size))
        return;
    if (own && !moved) { /* lanes find the largest value of a vector together */
        if (lanes > 32)
            return;
        lanes = round_power(lanes);
    }
    if ((uint64_t)lanes * heads * GPU_KV_ROWS_MAX >= GPU_DIVIDE_BELOW / 2)
        return;
    out->row = gpu_divisor_of(lanes * heads);
    out->vector = gpu_divisor_of(lanes);
    out->method = moved ? GPU_KV_MOVED : GPU_KV_CONVERTED;
}

void gpu_kv_rows_split(struct gpu_kv_rows *rows, const struct gpu_tensor *rest, uint32_t dtype,
                       uint32_t split)
{
    const struct gpu_kv_kind kind = gpu_kv_kind_of_tensor(rest, dtype);
    const uint32_t elements = rows->method == GPU_KV_MOVED ? 16 / kind.end.size : 8;

    /* A unit behind the split is addressed with the strides of those before it. */
    if (split % elements != 0 || !fits(&kind, elements * kind.end.size) ||
        (rest->head_stride != rows->from.head_stride && rows->row.value != rows->vector.value))
        rows->method = GPU_KV_BY_VECTOR;
    rows->split = split / elements;
}

static uint32_t power_below(uint32_t value)
{
    uint32_t out = 1;

    while (out < GPU_KV_ROWS_MAX && 2 * out <= value)
        out *= 2;
    return out;
}

uint32_t gpu_kv_each(uint32_t rows)
{
    return power_below(rows / WARPS_ENOUGH);
}

uint32_t gpu_kv_each_of_block(uint32_t block)
{
    return power_below(block / (GPU_KV_THREADS / 32));
}

uint64_t gpu_kv_rows_ctas(const struct gpu_kv_rows rows[2], uint32_t count, uint32_t heads, uint32_t each)
{
    const uint32_t warps = GPU_KV_THREADS / 32;
    const uint64_t work = gpu_kv_rows_by_vector(rows) ? (uint64_t)count * heads : count;
    const uint64_t share = gpu_kv_rows_by_vector(rows) ? warps : warps * each;

    return work / share + (work % share != 0);
}

uint32_t gpu_kv_shares(const struct gpu_kv_rows rows[2], uint32_t count)
{
    const uint32_t longest = rows[0].row.value > rows[1].row.value ? rows[0].row.value : rows[1].row.value;
    const uint32_t iterations = (longest + UNITS_PER_ITERATION - 1) / UNITS_PER_ITERATION;
    const uint32_t wanted = count < WARPS_WANTED ? WARPS_WANTED / (count > 0 ? count : 1) : 1;
    const uint32_t shares = smaller(smaller(iterations, wanted), MAX_SHARES);

    return shares > 0 ? shares : 1;
}
