/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Resolves caches, tensors and batches for the kernels on caches, and finds how many elements move at once.
 */
#include "kv-resolve.h"

#include <string.h>

/* ---------------------------------------------------------------- scales */

static bool is_host_array(const struct attn_scale *scale)
{
    return scale->kind == ATTN_SCALE_HOST && scale->head_stride != 0;
}

uint32_t gpu_kv_heads(const struct attn_kv_desc *desc)
{
    bool limited = is_host_array(&desc->k_scale) || is_host_array(&desc->v_scale);

    return limited ? GPU_KV_HEADS : UINT32_MAX;
}

static bool by_page(const struct attn_kv_desc *desc, const struct attn_scale *scale)
{
    return scale->kind == ATTN_SCALE_HOST && desc->pages > 1 && scale->outer_stride != 0;
}

static bool by_token(const struct attn_kv_desc *desc, const struct attn_scale *scale)
{
    return scale->kind == ATTN_SCALE_HOST && desc->block > 1 && scale->token_stride != 0;
}

static int32_t check_scale(const struct attn_kv_desc *desc, const struct attn_scale *scale, const char *name,
                           struct attn_error *err)
{
    if (scale->kind != ATTN_SCALE_HOST ||
        (!by_page(desc, scale) && !by_token(desc, scale) && scale->granularity != ATTN_SCALES_TOKEN_HEAD))
        return ATTN_OK;
    return attn__fail(err, ATTN_E_UNSUPPORTED, 0, name,
                      "%s is in host memory and not the same for all tokens; in device memory it is "
                      "served",
                      name);
}

int32_t gpu_kv_scales_check(const struct attn_kv_desc *desc, struct attn_error *err)
{
    int32_t status = check_scale(desc, &desc->k_scale, "k_scale", err);

    return status == ATTN_OK ? check_scale(desc, &desc->v_scale, "v_scale", err) : status;
}

/* ---------------------------------------------------------------- shares */

static uint32_t heads_left(const struct attn_kv_desc *desc, uint32_t first)
{
    const uint32_t limit = gpu_kv_heads(desc);

    return desc->kv_heads - first < limit ? desc->kv_heads - first : limit;
}

struct gpu_kv_share gpu_kv_share_first(const struct attn_kv_desc *desc)
{
    const bool pages = by_page(desc, &desc->k_scale) || by_page(desc, &desc->v_scale);
    const bool tokens = by_token(desc, &desc->k_scale) || by_token(desc, &desc->v_scale);

    return (struct gpu_kv_share){pages ? 0 : -1, tokens ? 0 : -1, 0, heads_left(desc, 0)};
}

bool gpu_kv_share_next(const struct attn_kv_desc *desc, struct gpu_kv_share *share)
{
    share->first += share->count;
    if (share->first >= desc->kv_heads) {
        share->first = 0;
        if (share->token >= 0 && ++share->token == (int64_t)desc->block)
            share->token = 0;
        if (share->token <= 0 && (share->page < 0 || ++share->page == (int64_t)desc->pages))
            return false;
    }
    share->count = heads_left(desc, share->first);
    return true;
}

/* ---------------------------------------------------------------- sides */

static void set_scale(struct gpu_kv_side *side, const struct attn_scale *scale,
                      const struct gpu_kv_share *share)
{
    struct gpu_scale *out = &side->cache.scale;
    const int64_t page = share->page > 0 ? share->page : 0, token = share->token > 0 ? share->token : 0;

    if (scale->kind != ATTN_SCALE_HOST) {
        side->token_head = out->base != 0 && scale->granularity == ATTN_SCALES_TOKEN_HEAD;
        out->base += out->base != 0 ? (uint64_t)(share->first * out->head_stride) : 0;
        return;
    }
    const char *values = (const char *)scale->buffer.data + scale->buffer.byte_offset +
                         page * scale->outer_stride + token * scale->token_stride;
    out->base = 0;
    side->by_head = scale->head_stride != 0;
    if (side->by_head == 0)
        memcpy(&out->value, values, sizeof out->value);
    for (uint32_t i = 0; side->by_head != 0 && i < share->count; i++)
        memcpy(&side->values[i], values + (int64_t)(share->first + i) * scale->head_stride,
               sizeof side->values[i]);
}

struct gpu_kv_side gpu_kv_side_of(const struct attn_kv_desc *desc, bool values,
                                  const struct gpu_kv_share *share)
{
    struct gpu_kv_side side = {.cache = gpu_cache_of(desc, values)};
    const struct gpu_cache *cache = &side.cache;

    side.cache.base += (uint64_t)(share->first * cache->head_stride);
    side.x_shift = cache->x_stride != 0 ? (uint32_t)__builtin_ctz(cache->x_bytes) : 31;
    if (cache->size == 1)
        set_scale(&side, values ? &desc->v_scale : &desc->k_scale, share);
    return side;
}

struct gpu_tensor gpu_kv_tensor_of(const struct attn_tensor *tensor, uint32_t first)
{
    uint64_t base = gpu_address(&tensor->buffer);

    return (struct gpu_tensor){base != 0 ? base + (uint64_t)(first * tensor->head_stride) : 0,
                               tensor->token_stride, tensor->head_stride};
}

struct gpu_batch gpu_kv_batch_of(const struct attn_batch *batch, uint32_t addressing, uint32_t index_dtype,
                                 uint32_t block)
{
    return (struct gpu_batch){
        .seqs = batch->seqs,
        .num_tokens = batch->num_tokens,
        .max_q = batch->max_q,
        .max_kv = batch->max_kv,
        .q_offsets = gpu_address(&batch->q_offsets),
        .kv_lens = gpu_address(&batch->kv_lens),
        .kv_starts = addressing == ATTN_DENSE ? gpu_address(&batch->kv_offsets) : 0,
        .table = gpu_address(&batch->table),
        .table_stride = batch->table_stride,
        .table_width = batch->table_width,
        .addressing = addressing,
        .indptr = gpu_address(&batch->csr_indptr),
        .indices = gpu_address(&batch->csr_indices),
        .index_dtype = index_dtype == ATTN_INT64 ? (uint32_t)ATTN_INT64 : (uint32_t)ATTN_INT32,
        .block = block,
        .block_shift = (block & (block - 1)) == 0 ? (uint32_t)__builtin_ctz(block) : 32,
    };
}

/* ---------------------------------------------------------------- width */

uint32_t gpu_kv_wide_tensor(const struct gpu_tensor *tensor, uint32_t dim, uint32_t dtype)
{
    uint64_t bits = tensor->base | (uint64_t)tensor->token_stride | (uint64_t)tensor->head_stride;

    return dim % 4 == 0 && bits % (4 * attn__dtype_size(dtype)) == 0 ? 4 : 1;
}

uint32_t gpu_kv_wide(const struct gpu_kv_side *side, const struct gpu_tensor *tensor, uint32_t dtype)
{
    const struct gpu_cache *cache = &side->cache;
    uint64_t bits = cache->base | (uint64_t)cache->page_stride | (uint64_t)cache->token_stride |
                    (uint64_t)cache->head_stride | (uint64_t)cache->x_stride | cache->x_bytes;

    if (cache->dim % 4 != 0 || bits % (4 * cache->size) != 0)
        return 1;
    return tensor == NULL || tensor->base == 0 ? 4 : gpu_kv_wide_tensor(tensor, cache->dim, dtype);
}
