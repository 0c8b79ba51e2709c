/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page-table walk: finds the keys of a sequence, for every addressing. */
#include "cpu.h"
#include "kv-view.h"

struct cpu_scale cpu_scale_of(const struct attn_scale *scale)
{
    if (scale->kind != ATTN_SCALE_HOST && scale->kind != ATTN_SCALE_DEVICE)
        return (struct cpu_scale){0};
    return (struct cpu_scale){attn__address(&scale->buffer), scale->outer_stride, scale->token_stride,
                              scale->head_stride};
}

struct cpu_cache cpu_cache_of(const struct attn_kv_desc *desc, bool values)
{
    char *base = attn__address(values ? &desc->v : &desc->k);
    const struct attn__kv_view view = attn__kv_view(desc, values, base);
    const bool paged_x = desc->layout == ATTN_PAGED_X;

    return (struct cpu_cache){.base = base,
                              .page_stride = view.page_stride,
                              .token_stride = view.token_stride,
                              .head_stride = view.head_stride,
                              .dtype = view.dtype,
                              .x = paged_x ? view.x_bytes / view.size : 0,
                              .x_stride = view.x_stride,
                              .scale = cpu_scale_of(values ? &desc->v_scale : &desc->k_scale)};
}

static struct cpu_cache new_rows(const struct attn_tensor *rows, uint32_t dtype,
                                 const struct attn_scale *scale)
{
    return (struct cpu_cache){.base = attn__address(&rows->buffer),
                              .token_stride = rows->token_stride,
                              .head_stride = rows->head_stride,
                              .dtype = dtype,
                              .scale = cpu_scale_of(scale)};
}

void cpu_walk_init(struct cpu_run *run, const struct attn_problem *problem, const struct attn_batch *batch,
                   const struct attn_kv_desc *desc)
{
    run->k = cpu_cache_of(desc, false);
    run->v = problem->mla != 0 ? run->k : cpu_cache_of(desc, true);
    run->addressing = problem->addressing;
    run->block = problem->block;
    run->block_shift = (run->block & (run->block - 1)) == 0 ? (uint32_t)__builtin_ctz(run->block) : 32;
    run->table = attn__address(&batch->table);
    run->table_stride = batch->table_stride;
    run->table_width = batch->table_width;
    run->indptr = (const int32_t *)(const void *)attn__address(&batch->csr_indptr);
    run->indices = attn__address(&batch->csr_indices);
    run->index_dtype = problem->index_dtype;
    run->kv_offsets = (const int32_t *)(const void *)attn__address(&batch->kv_offsets);
    run->shard = attn__cp_shard_of(problem, batch);
    if (problem->cp != 0)
        run->global_lens = (const int32_t *)(const void *)attn__address(&batch->kv_global_lens);
    run->positions = problem->positions != 0 ? attn__address(&batch->q_positions) : NULL;
    run->position_dtype = batch->position_dtype;
}

void cpu_walk_new(struct cpu_run *run, const struct attn_problem *problem, const struct attn_batch *batch,
                  const struct attn_tensors *tensors)
{
    run->k_new = new_rows(&tensors->k_new, problem->k_dtype, &tensors->k_new_scale);
    run->v_new =
        problem->mla != 0 ? run->k_new : new_rows(&tensors->v_new, problem->v_dtype, &tensors->v_new_scale);
    if (problem->kv_source == ATTN_KV_CACHE_NEW)
        return;
    /* New keys and values are a dense cache of contiguous tokens. */
    const struct attn_buffer *starts =
        batch->kv_offsets.data != NULL ? &batch->kv_offsets : &batch->q_offsets;
    run->k = run->k_new;
    run->v = run->v_new;
    run->k_new.base = run->v_new.base = NULL;
    run->addressing = ATTN_DENSE;
    run->kv_offsets = (const int32_t *)(const void *)attn__address(starts);
    run->positions = problem->positions != 0 ? attn__address(&batch->q_positions) : NULL;
    run->position_dtype = batch->position_dtype;
}

/* Entries [i, i + count) are tokens of one page, from `token` on; scales of the page are at `outer`. */
static void add_tokens(const struct cpu_cache *k, const struct cpu_cache *v, int64_t page, int64_t outer,
                       int64_t token, uint32_t i, uint32_t count, struct cpu_keys *out)
{
    for (uint32_t end = i + count; i < end; i++, token++) {
        out->k[i] = page * k->page_stride + token * k->token_stride;
        out->v[i] = page * v->page_stride + token * v->token_stride;
        out->k_scale[i] = outer * k->scale.outer_stride + token * k->scale.token_stride;
        out->v_scale[i] = outer * v->scale.outer_stride + token * v->scale.token_stride;
    }
}

static void walk_dense(const struct cpu_run *run, uint32_t seq, uint32_t first, uint32_t count,
                       struct cpu_keys *out)
{
    const int64_t page = run->kv_offsets != NULL ? 0 : seq;
    const int64_t token = (run->kv_offsets != NULL ? run->kv_offsets[seq] : 0) + (int64_t)first;
    const int64_t outer = run->problem->kv_source == ATTN_KV_NEW ? seq : page;

    add_tokens(&run->k, &run->v, page, outer, token, 0, count, out);
}

/* Entry of the page table: page number, or negative for an invalid block. */
static int64_t find_page(const struct cpu_run *run, uint32_t seq, uint32_t index)
{
    if (run->addressing == ATTN_TABLE) {
        const int32_t *row = (const int32_t *)(const void *)(run->table + seq * run->table_stride);
        return row[index];
    }
    int64_t at = (int64_t)run->indptr[seq] + index;
    if (run->index_dtype == ATTN_INT64)
        return ((const int64_t *)run->indices)[at];
    return ((const int32_t *)run->indices)[at];
}

bool cpu_locate(const struct cpu_run *run, uint32_t seq, uint32_t key, int64_t *page, int64_t *token)
{
    if (run->addressing == ATTN_DENSE) {
        *page = run->kv_offsets != NULL ? 0 : seq;
        *token = (run->kv_offsets != NULL ? run->kv_offsets[seq] : 0) + (int64_t)key;
        return true;
    }
    *page = find_page(run, seq, key / run->block);
    *token = key % run->block;
    return *page >= 0;
}

static void walk_pages(const struct cpu_run *run, uint32_t seq, uint32_t first, uint32_t count,
                       struct cpu_keys *out)
{
    uint32_t shift = run->block_shift;
    uint32_t index = shift < 32 ? first >> shift : first / run->block;
    uint32_t token = shift < 32 ? first & (run->block - 1) : first % run->block;
    for (uint32_t i = 0; i < count; index++) {
        uint32_t run_length = run->block - token < count - i ? run->block - token : count - i;
        int64_t page = find_page(run, seq, index);
        if (page < 0) {
            out->present &= ~(((UINT64_C(2) << (run_length - 1)) - 1) << i);
            page = 0;
        }
        add_tokens(&run->k, &run->v, page, page, token, i, run_length, out);
        i += run_length;
        token = 0;
    }
}

/* What leads from one base to another, whatever lies between them. */
static int64_t distance(const char *from, const char *to)
{
    return (int64_t)((uintptr_t)to - (uintptr_t)from);
}

void cpu_find_keys(const struct cpu_run *run, const struct attn_work_item *work, uint32_t first,
                   uint32_t count, struct cpu_keys *out)
{
    const uint32_t first_new = run->k_new.base != NULL ? work->kv_len - work->q_len : UINT32_MAX;
    const uint32_t cached = first >= first_new ? 0 : first_new - first < count ? first_new - first : count;

    out->first_new = cached < count ? cached : CPU_TILE_KEYS;
    out->present = count < CPU_TILE_KEYS ? (UINT64_C(1) << count) - 1 : ~UINT64_C(0);
    if (cached > 0 && run->addressing == ATTN_DENSE)
        walk_dense(run, work->seq, first, cached, out);
    else if (cached > 0)
        walk_pages(run, work->seq, first, cached, out);
    if (cached == count)
        return;
    const int64_t row = (int64_t)work->first_token - work->q_index + (first + cached - first_new);
    add_tokens(&run->k_new, &run->v_new, 0, work->seq, row, cached, count - cached, out);
    for (uint32_t i = cached; i < count; i++) {
        out->k[i] += distance(run->k.base, run->k_new.base);
        out->v[i] += distance(run->v.base, run->v_new.base);
    }
}
