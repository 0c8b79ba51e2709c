/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Describes queries, keys and values to the copy engine for tensors (TMA): which it can copy, and the maps by
 * which kernels ask for boxes of them (mma/boxes.h). */
#include "driver-values.h"
#include "families.h"

enum { BOX_COLUMNS = 64, BOX_TOKENS_MIN = 8, ANY_COUNT = INT32_MAX };

/* Tokens of a box, at most so many, so that none crosses the end of a page: a power of two that divides it. 0
 * if it has fewer than eight, which are the unit of swizzled rows. */
static uint32_t box_tokens_of(const struct gpu_batch *batch, uint32_t most)
{
    uint32_t tokens = most;

    if (batch->addressing == ATTN_DENSE)
        return tokens;
    while (batch->block % tokens != 0)
        tokens /= 2;
    return tokens >= BOX_TOKENS_MIN ? tokens : 0;
}

/* What the driver takes for the stride of a dimension of more than one element. */
static bool is_stride(int64_t stride)
{
    return stride > 0 && stride % 16 == 0 && stride < INT64_C(1) << 40;
}

/* Whether all keys lie in page 0, so that the distance of pages may be anything. */
static bool has_one_page(const struct gpu_batch *batch)
{
    return batch->addressing == ATTN_DENSE && (batch->kv_starts != 0 || batch->seqs == 1);
}

static bool has_strides(const struct gpu_run *run, const struct gpu_cache *cache)
{
    return cache->size == 2 && is_stride(cache->token_stride) &&
           (has_one_page(&run->batch) || is_stride(cache->page_stride)) &&
           (run->problem.kv_heads == 1 || is_stride(cache->head_stride));
}

/* A map of elements of 16 bits, or of two codes, whose boxes have rows of 64 columns. `field` is what it
 * describes. */
static int32_t encode(struct gpu_context *context, struct gpu_tensor_map *map, uint64_t base,
                      const uint64_t dims[4], const uint64_t strides[3], const uint32_t box[4],
                      const char *field, struct attn_error *err)
{
    const uint32_t steps[] = {1, 1, 1, 1};

    return gpu_check(context,
                     context->driver->tensor_map_encode_tiled(
                         map, MAP_UINT16, 4, (void *)(uintptr_t)base, dims, strides, box, steps,
                         MAP_NO_INTERLEAVE, MAP_SWIZZLE_128, MAP_PROMOTE_256, MAP_FILL_ZEROS),
                     field, gpu_names.tensor_map_encode_tiled, err);
}

static int32_t encode_cache(struct gpu_context *context, const struct gpu_run *run,
                            const struct gpu_cache *cache, struct gpu_tensor_map *map, struct attn_error *err)
{
    const uint32_t heads = run->problem.kv_heads;
    const bool one_page = has_one_page(&run->batch);
    /* How many tokens and pages there are, lengths and page tables tell. */
    const uint64_t dims[] = {cache->dim * cache->size / sizeof(uint16_t), ANY_COUNT, heads,
                             one_page ? 1 : ANY_COUNT};
    const uint64_t strides[] = {(uint64_t)cache->token_stride, heads == 1 ? 16 : (uint64_t)cache->head_stride,
                                one_page ? 16 : (uint64_t)cache->page_stride};
    const uint32_t box[] = {BOX_COLUMNS, run->box_tokens, 1, 1};

    return encode(context, map, cache->base, dims, strides, box, "kv", err);
}

/* Whether the rows of a box are whole tokens, or `parts` of one, and queries lie where the driver takes them.
 */
static bool has_query_box(const struct gpu_run *run, uint32_t rows, bool parts)
{
    const struct gpu_tensor *q = &run->q;

    const uint32_t size = attn__dtype_size(run->problem.q_dtype);

    return (size == 2 || (size == 1 && run->k.size == 1)) && run->q_rope.base == 0 &&
           (rows % run->group == 0 || (parts && run->group % rows == 0)) && q->base % 16 == 0 &&
           is_stride(q->token_stride) &&
           (run->problem.heads == 1 ||
            (is_stride(q->head_stride) && is_stride(q->head_stride * (int64_t)run->group)));
}

int32_t cuda_query_map(struct gpu_context *context, struct gpu_run *run, uint32_t rows, bool parts,
                       struct attn_error *err)
{
    const uint32_t heads = run->group < rows ? run->group : rows;
    const uint64_t head = run->problem.heads == 1 ? 16 : (uint64_t)run->q.head_stride;
    const uint32_t size = attn__dtype_size(run->problem.q_dtype);
    const uint64_t dims[] = {run->problem.head_dim * size / sizeof(uint16_t), run->group,
                             run->batch.num_tokens, run->problem.kv_heads};
    const uint64_t strides[] = {head, (uint64_t)run->q.token_stride, head * run->group};
    const uint32_t box[] = {BOX_COLUMNS, heads, rows / heads, 1};

    run->query_box = has_query_box(run, rows, parts);
    return run->query_box == 0 ? ATTN_OK
                               : encode(context, &run->q_map, run->q.base, dims, strides, box, "q", err);
}

int32_t cuda_tensor_maps_e4m3(struct gpu_context *context, struct gpu_run *run, struct attn_error *err)
{
    const uint64_t heads = run->problem.kv_heads, of_head = (uint64_t)run->v.dim * gpu_e4m3_block(run->v.dim);
    const uint32_t rows = (uint32_t)(of_head / GPU_E4M3_ROW);
    const uint64_t dims[] = {BOX_COLUMNS, rows, heads, ANY_COUNT};
    const uint64_t strides[] = {GPU_E4M3_ROW, of_head, of_head * heads};
    const uint32_t box[] = {BOX_COLUMNS, rows / 2, 1, 1}; /* each of two warps has one */

    run->box_tokens = GPU_TILE;
    const int32_t status = encode_cache(context, run, &run->k, &run->k_map, err);
    return status == ATTN_OK ? encode(context, &run->v_map, run->v.base, dims, strides, box, "kv", err)
                             : status;
}

int32_t cuda_tensor_maps(struct gpu_context *context, struct gpu_run *run, uint32_t most,
                         struct attn_error *err)
{
    run->box_tokens = 0;
    if (run->kv_aligned == 0 || !has_strides(run, &run->k) || !has_strides(run, &run->v))
        return ATTN_OK;
    run->box_tokens = box_tokens_of(&run->batch, most);
    if (run->box_tokens == 0)
        return ATTN_OK;
    const int32_t status = encode_cache(context, run, &run->k, &run->k_map, err);
    return status == ATTN_OK ? encode_cache(context, run, &run->v, &run->v_map, err) : status;
}
