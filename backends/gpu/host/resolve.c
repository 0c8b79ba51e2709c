/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Resolves a run into the argument of the kernels: addresses, strides, and which arrays exist. */
#include "resolve.h"

#include "kv-view.h"

struct gpu_scale gpu_scale_of(const struct attn_scale *scale)
{
    struct gpu_scale out = {.value = 1};

    if (scale->kind != ATTN_SCALE_HOST && scale->kind != ATTN_SCALE_DEVICE)
        return out;
    out.base = gpu_address(&scale->buffer);
    out.outer_stride = scale->outer_stride;
    out.token_stride = scale->token_stride;
    out.head_stride = scale->head_stride;
    if (scale->kind == ATTN_SCALE_DEVICE || out.base == 0)
        return out;
    out.host = out.outer_stride != 0 || out.token_stride != 0 || out.head_stride != 0;
    if (out.host == 0) {
        memcpy(&out.value, (const char *)scale->buffer.data + scale->buffer.byte_offset, sizeof out.value);
        out.base = 0;
    }
    return out;
}

struct gpu_cache gpu_cache_of(const struct attn_kv_desc *desc, uint32_t values)
{
    const struct attn__kv_view view = attn__kv_view(desc, values != 0, NULL);

    return (struct gpu_cache){.base = gpu_address(values != 0 ? &desc->v : &desc->k),
                              .page_stride = view.page_stride,
                              .token_stride = view.token_stride,
                              .head_stride = view.head_stride,
                              .x_stride = view.x_stride,
                              .x_bytes = view.x_bytes,
                              .size = view.size,
                              .dim = view.dim,
                              .dtype = view.dtype,
                              .scale = gpu_scale_of(values != 0 ? &desc->v_scale : &desc->k_scale)};
}

static struct gpu_cache new_rows(const struct attn_tensor *rows, uint32_t dtype, uint32_t dim,
                                 const struct attn_scale *scale)
{
    const uint32_t size = (dtype >> 8 & 0xff) / 8;

    return (struct gpu_cache){.base = gpu_address(&rows->buffer),
                              .token_stride = rows->token_stride,
                              .head_stride = rows->head_stride,
                              .x_bytes = dim * size,
                              .size = size,
                              .dim = dim,
                              .dtype = dtype,
                              .scale = gpu_scale_of(scale)};
}

static struct gpu_tensor tensor_of(const struct attn_tensor *tensor)
{
    return (struct gpu_tensor){gpu_address(&tensor->buffer), tensor->token_stride, tensor->head_stride};
}

/* The values of an MLA cache are the first columns of its keys. */
static struct gpu_cache mla_values(const struct gpu_cache *keys, uint32_t dim)
{
    struct gpu_cache values = *keys;

    values.dim = dim;
    return values;
}

void gpu_resolve_batch(struct gpu_batch *out, const struct attn_problem *problem,
                       const struct attn_batch *batch)
{
    memset(out, 0, sizeof *out);
    out->seqs = batch->seqs;
    out->num_tokens = batch->num_tokens;
    out->max_q = batch->max_q;
    out->max_kv = batch->max_kv;
    out->q_offsets = gpu_address(&batch->q_offsets);
    out->kv_lens = gpu_address(&batch->kv_lens);
    out->kv_starts = gpu_address(&batch->kv_offsets);
    out->addressing = problem->addressing;
    out->index_dtype = problem->index_dtype;
    out->block = problem->block;
    out->block_shift = 32;
    if ((problem->block & (problem->block - 1)) == 0)
        out->block_shift = (uint32_t)__builtin_ctz(problem->block);
    if (problem->kv_source == ATTN_KV_NEW) {
        out->addressing = ATTN_DENSE;
        out->kv_starts = out->kv_starts != 0 ? out->kv_starts : out->q_offsets;
    } else if (problem->addressing == ATTN_TABLE) {
        out->table = gpu_address(&batch->table);
        out->table_stride = batch->table_stride;
        out->table_width = batch->table_width;
    } else if (problem->addressing == ATTN_CSR) {
        out->indptr = gpu_address(&batch->csr_indptr);
        out->indices = gpu_address(&batch->csr_indices);
    }
    if (out->addressing != ATTN_DENSE)
        out->kv_starts = 0;
    out->position_dtype = batch->position_dtype == ATTN_INT64 ? (uint32_t)ATTN_INT64 : (uint32_t)ATTN_INT32;
    if (problem->positions != 0)
        out->positions = gpu_address(&batch->q_positions);
    if (problem->seq_causal != 0)
        out->seq_causal = gpu_address(&batch->seq_causal);
    if (problem->cp != 0) {
        out->global_lens = gpu_address(&batch->kv_global_lens);
        out->cp_rank = batch->cp_rank;
        out->cp_world = batch->cp_world;
        out->cp_interleave = batch->cp_interleave;
    }
}

static void resolve_extras(struct gpu_run *run, const struct attn_tensors *tensors)
{
    const struct attn_problem *problem = &run->problem;

    if (problem->alibi > ATTN_ALIBI_NONE)
        run->slopes = gpu_address(&tensors->alibi_slopes);
    if (problem->sinks != 0 && run->batch.cp_rank == 0)
        run->sinks = gpu_address(&tensors->sinks);
    run->sinks_dtype = tensors->sinks_dtype == ATTN_BF16 ? (uint32_t)ATTN_BF16 : (uint32_t)ATTN_F32;
    if (problem->mask <= ATTN_MASK_NONE)
        return;
    run->mask.base = gpu_address(&tensors->mask);
    run->mask.starts = gpu_address(&tensors->mask_starts);
    run->mask.seq_stride = tensors->mask_seq_stride;
    run->mask.head_stride = tensors->mask_head_stride;
    run->mask.row_stride = tensors->mask_row_stride;
    run->mask.packed = problem->mask == ATTN_MASK_BITS && tensors->mask_packed != 0;
    run->mask.dtype = problem->mask == ATTN_MASK_F16    ? (uint32_t)ATTN_F16
                      : problem->mask == ATTN_MASK_BF16 ? (uint32_t)ATTN_BF16
                      : problem->mask == ATTN_MASK_F32  ? (uint32_t)ATTN_F32
                                                        : 0;
}

static void resolve_keys(struct gpu_run *run, const struct attn_tensors *tensors,
                         const struct attn_kv_desc *desc)
{
    const struct attn_problem *p = &run->problem;

    if (p->kv_source != ATTN_KV_NEW) {
        run->k = gpu_cache_of(desc, 0);
        run->v = p->mla != 0 ? mla_values(&run->k, p->head_dim_vo) : gpu_cache_of(desc, 1);
    }
    if (p->kv_source == ATTN_KV_CACHE)
        return;
    run->k_new = new_rows(&tensors->k_new, p->k_dtype, p->head_dim, &tensors->k_new_scale);
    run->v_new = p->mla != 0 ? mla_values(&run->k_new, p->head_dim_vo)
                             : new_rows(&tensors->v_new, p->v_dtype, p->head_dim_vo, &tensors->v_new_scale);
    if (p->kv_source == ATTN_KV_CACHE_NEW)
        return;
    /* Without a cache the new keys and values are a dense cache of consecutive tokens. */
    run->k = run->k_new;
    run->v = run->v_new;
    run->k_new = run->v_new = (struct gpu_cache){0};
}

/* Whether vectors are contiguous, 16-byte aligned, and a multiple of 16 bytes long. */
static bool is_aligned(const struct gpu_cache *cache)
{
    return ((cache->base | (uint64_t)cache->page_stride | (uint64_t)cache->token_stride |
             (uint64_t)cache->head_stride | (uint64_t)cache->dim * cache->size) &
            15) == 0 &&
           cache->x_stride == 0;
}

void gpu_resolve(struct gpu_run *run, const struct attn_problem *problem, const struct attn_batch *batch,
                 const struct attn_tensors *tensors, const struct attn_kv_desc *desc)
{
    memset(run, 0, sizeof *run);
    run->problem = *problem;
    gpu_resolve_batch(&run->batch, problem, batch);
    run->softmax_scale = tensors->softmax_scale;
    run->group = problem->heads / problem->kv_heads;
    run->by_group = gpu_divisor_of(run->group);
    run->q = tensor_of(&tensors->q);
    if (problem->mla != 0)
        run->q_rope = tensor_of(&tensors->q_rope);
    run->out = tensor_of(&tensors->out);
    if (problem->lse != 0)
        run->lse = tensor_of(&tensors->lse);
    run->q_scale = gpu_scale_of(&tensors->q_scale);
    run->q_scale_group = problem->q_scale == ATTN_SCALES_KV_HEAD ? run->group : 1;
    run->out_scale = gpu_scale_of(&tensors->out_scale);
    resolve_keys(run, tensors, desc);
    run->kv_aligned =
        is_aligned(&run->k) && is_aligned(&run->v) && is_aligned(&run->k_new) && is_aligned(&run->v_new);
    resolve_extras(run, tensors);
}
