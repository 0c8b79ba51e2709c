/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The parts of a record: their names and sizes, and what problem and batch say that they have to be. */
#include "record/record.h"

#include "check.h"

static const struct {
    const char *name;
    bool tensor;
} kinds[] = {
#define ATTN_RECORD_PART(name, tensor) {#name, tensor},
#include "record/part.def"
};

const char *attn__part_name(uint32_t kind)
{
    return kinds[kind].name;
}

bool attn__part_is_tensor(uint32_t kind)
{
    return kinds[kind].tensor;
}

/* ---------------------------------------------------------------- sizes */

bool attn__part_bytes(const struct attn__part *part, uint64_t *out)
{
    uint64_t bytes = part->row;
    bool fits = true;

    for (int i = 0; i < 3; i++)
        fits = fits && !__builtin_mul_overflow(bytes, part->count[i], &bytes);
    *out = bytes;
    return fits && bytes <= INT64_MAX;
}

void attn__part_pack(struct attn__part *part)
{
    int64_t size = (int64_t)part->row;

    for (int i = 2; i >= 0; i--) {
        part->stride[i] = part->count[i] > 1 ? size : 0;
        size *= (int64_t)part->count[i];
    }
}

bool attn__part_extent(const struct attn__part *part, uint64_t *out_bytes, uint64_t *out_first)
{
    uint64_t packed, bytes = part->row, first = 0, limit;

    if (!attn__part_bytes(part, &packed) || __builtin_mul_overflow(packed, ATTN__RECORD_SPARSE, &limit))
        return false;
    for (int i = 0; i < 3 && packed > 0; i++) {
        const int64_t stride = part->stride[i];
        const uint64_t size = stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
        uint64_t reach;
        if (__builtin_mul_overflow(size, part->count[i] - 1, &reach) ||
            __builtin_add_overflow(bytes, reach, &bytes) || bytes > limit)
            return false;
        first += stride < 0 ? reach : 0;
    }
    *out_bytes = packed > 0 ? bytes : 0;
    *out_first = first;
    return true;
}

/* ---------------------------------------------------------------- batches */

uint32_t attn__reach_keys(const struct attn_batch_host *host, uint32_t sequence)
{
    if (host->kv_lens != NULL)
        return (uint32_t)host->kv_lens[sequence];
    const int32_t *starts = host->kv_offsets != NULL ? host->kv_offsets : host->q_offsets;
    return (uint32_t)(starts[sequence + 1] - starts[sequence]);
}

int32_t attn__reach_find(const struct attn_problem *problem, const struct attn_batch *batch,
                         const struct attn_batch_host *host, struct attn__reach *out, struct attn_error *err)
{
    struct attn_extent extent;
    const bool dense = problem->addressing == ATTN_DENSE && problem->kv_source != ATTN_KV_NEW;

    memset(out, 0, sizeof *out);
    const int32_t status = attn__batch_check_arrays(problem, batch, host, &extent, err);
    if (status != ATTN_OK || batch->seqs == 0)
        return status;
    out->rows = (uint32_t)host->q_offsets[batch->seqs];
    out->new_rows = batch->num_tokens;
    for (uint32_t i = 0; i < batch->seqs; i++) {
        const uint32_t keys = attn__reach_keys(host, i);
        const uint32_t pages = keys / problem->block + (keys % problem->block != 0);
        out->pages = pages > out->pages ? pages : out->pages;
        out->entries += pages;
    }
    if (problem->kv_source == ATTN_KV_NEW && host->kv_offsets != NULL)
        out->new_rows = (uint64_t)host->kv_offsets[batch->seqs];
    if (dense)
        out->last_token = host->kv_offsets != NULL ? (uint32_t)host->kv_offsets[batch->seqs] : extent.max_kv;
    return ATTN_OK;
}

void attn__call_batch(const struct attn__call *call, struct attn_batch *batch, struct attn_batch_host *host)
{
    const struct attn__part *parts = call->parts;

    ATTN_INIT(batch);
    ATTN_INIT(host);
    batch->seqs = (uint32_t)call->seqs;
    batch->num_tokens = (uint32_t)call->num_tokens;
    batch->max_q = (uint32_t)call->max_q;
    batch->max_kv = (uint32_t)call->max_kv;
    batch->cascade = (uint32_t)call->cascade;
    batch->table_width = (uint32_t)call->table_width;
    batch->table_stride = (int64_t)call->table_width * 4;
    batch->pages = (uint32_t)call->kv_pages;
    batch->position_dtype = (uint32_t)call->position_dtype;
    batch->cp_rank = (uint32_t)call->cp_rank;
    batch->cp_world = (uint32_t)call->cp_world;
    batch->cp_interleave = (uint32_t)call->cp_interleave;
    host->q_offsets = (const void *)parts[ATTN__PART_q_offsets].bytes;
    host->kv_lens = (const void *)parts[ATTN__PART_kv_lens].bytes;
    host->kv_offsets = (const void *)parts[ATTN__PART_kv_offsets].bytes;
    host->table = (const void *)parts[ATTN__PART_table].bytes;
    host->csr_indptr = (const void *)parts[ATTN__PART_csr_indptr].bytes;
    host->csr_indices = parts[ATTN__PART_csr_indices].bytes;
    host->last_page_lens = (const void *)parts[ATTN__PART_last_page_lens].bytes;
    host->q_positions = parts[ATTN__PART_q_positions].bytes;
    host->seq_causal = parts[ATTN__PART_seq_causal].bytes;
    host->kv_global_lens = (const void *)parts[ATTN__PART_kv_global_lens].bytes;
}

/* ---------------------------------------------------------------- masks */

bool attn__mask_rows(const struct attn_problem *problem, const struct attn__call *call,
                     const struct attn_batch_host *host, uint32_t sequence, struct attn__mask_rows *out)
{
    const uint64_t queries = (uint64_t)(host->q_offsets[sequence + 1] - host->q_offsets[sequence]);
    const uint64_t keys =
        problem->cp != 0 ? (uint64_t)host->kv_global_lens[sequence] : attn__reach_keys(host, sequence);
    const uint64_t columns = problem->span == ATTN_SPAN_FULL ? keys : queries;
    const uint32_t dtype = attn__mask_dtype(problem->mask);
    const bool packed = call->mask_packed != 0;
    uint64_t heads, rows;

    out->heads = call->mask_head_stride != 0 ? problem->heads : 1;
    out->rows = packed || call->mask_row_stride == 0 ? 1 : queries;
    out->row =
        dtype != 0 ? columns * attn__dtype_size(dtype) : ((packed ? columns * queries : columns) + 7) / 8;
    out->extent = 0;
    if (queries == 0 || out->row == 0)
        return true;
    const uint64_t bytes =
        out->heads * out->rows * out->row; /* of 32-bit numbers, but the products may wrap */
    if (__builtin_mul_overflow(call->mask_head_stride, out->heads - 1, &heads) ||
        __builtin_mul_overflow(call->mask_row_stride, out->rows - 1, &rows) ||
        __builtin_add_overflow(heads, rows, &out->extent) ||
        __builtin_add_overflow(out->extent, out->row, &out->extent))
        return false;
    return bytes / out->heads / out->rows == out->row && out->extent / ATTN__RECORD_SPARSE <= bytes;
}

/* ---------------------------------------------------------------- what is expected */

static void expect(struct attn__part *out, uint32_t kind, uint64_t row, uint64_t count0, uint64_t count1,
                   uint64_t count2)
{
    out[kind] = (struct attn__part){.form = ATTN__PART_BYTES, .count = {count0, count1, count2}, .row = row};
}

static void expect_array(struct attn__part *out, uint32_t kind, uint64_t size, uint64_t count)
{
    expect(out, kind, size, count, 1, 1);
}

static void expect_scale(struct attn__part *out, uint32_t kind, uint32_t granularity, uint64_t outer,
                         uint64_t tokens, uint64_t heads)
{
    if (granularity >= ATTN_SCALES_TENSOR)
        expect(out, kind, sizeof(float), outer, tokens, heads);
}

static void expect_batch(const struct attn_problem *problem, const struct attn__call *call,
                         const struct attn__reach *reach, struct attn__part *out)
{
    const uint64_t n = call->seqs;
    const bool cached = problem->kv_source != ATTN_KV_NEW;

    expect_array(out, ATTN__PART_q_offsets, 4, n + 1);
    expect_array(out, ATTN__PART_kv_lens, 4, n);
    expect_array(out, ATTN__PART_kv_offsets, 4, n + 1);
    if (cached && problem->addressing == ATTN_TABLE)
        expect(out, ATTN__PART_table, 4, n, call->table_width, 1);
    if (cached && problem->addressing == ATTN_CSR) {
        expect_array(out, ATTN__PART_csr_indptr, 4, n + 1);
        expect_array(out, ATTN__PART_csr_indices, problem->index_dtype == ATTN_INT64 ? 8 : 4, reach->entries);
    }
    expect_array(out, ATTN__PART_last_page_lens, 4, n);
    if (problem->positions != 0)
        expect_array(out, ATTN__PART_q_positions, call->position_dtype == ATTN_INT64 ? 8 : 4,
                     call->num_tokens);
    if (problem->seq_causal != 0)
        expect_array(out, ATTN__PART_seq_causal, 1, n);
    if (problem->cp != 0)
        expect_array(out, ATTN__PART_kv_global_lens, 4, n);
}

static void expect_cache(const struct attn_problem *problem, const struct attn__call *call,
                         struct attn__part *out)
{
    const uint64_t pages = call->kv_pages, heads = problem->kv_heads;
    const bool chunks = problem->layout == ATTN_PAGED_X;
    const uint64_t tokens = chunks ? 1 : call->kv_block, inner = chunks ? call->kv_block : 1;

    expect(out, ATTN__PART_k, inner * attn_row_bytes(problem->k_dtype, problem->head_dim), pages, tokens,
           heads);
    expect_scale(out, ATTN__PART_k_scale, problem->k_scale, pages, call->kv_block, heads);
    if (problem->mla != 0)
        return;
    expect(out, ATTN__PART_v, inner * attn_row_bytes(problem->v_dtype, problem->head_dim_vo), pages, tokens,
           heads);
    expect_scale(out, ATTN__PART_v_scale, problem->v_scale, pages, call->kv_block, heads);
}

static void expect_new(const struct attn_problem *problem, const struct attn__call *call,
                       const struct attn__reach *reach, struct attn__part *out)
{
    const uint64_t n = call->seqs, rows = reach->new_rows, heads = problem->kv_heads;

    expect(out, ATTN__PART_k_new, attn_row_bytes(problem->k_dtype, problem->head_dim), rows, heads, 1);
    expect_scale(out, ATTN__PART_k_new_scale, problem->k_scale, n, rows, heads);
    expect_scale(out, ATTN__PART_v_new_scale, problem->v_scale, n, rows, heads);
    if (problem->mla == 0)
        expect(out, ATTN__PART_v_new, attn_row_bytes(problem->v_dtype, problem->head_dim_vo), rows, heads, 1);
}

static void expect_queries(const struct attn_problem *problem, const struct attn__call *call,
                           struct attn__part *out)
{
    const uint64_t n = call->seqs, rows = call->num_tokens, heads = problem->heads;
    const bool rope = call->parts[ATTN__PART_q_rope].form != ATTN__PART_ABSENT;
    const uint32_t columns = rope ? problem->head_dim_vo : problem->head_dim;

    expect(out, ATTN__PART_q, attn_row_bytes(problem->q_dtype, columns), rows, heads, 1);
    if (problem->mla != 0)
        expect(out, ATTN__PART_q_rope,
               attn_row_bytes(problem->q_dtype, problem->head_dim - problem->head_dim_vo), rows, heads, 1);
    expect_scale(out, ATTN__PART_q_scale, problem->q_scale, n, rows,
                 problem->q_scale == ATTN_SCALES_KV_HEAD ? problem->kv_heads : heads);
    expect_scale(out, ATTN__PART_out_scale, problem->out_scale, n, rows, heads);
    expect(out, ATTN__PART_out, attn_row_bytes(problem->out_dtype, problem->head_dim_vo), rows, heads, 1);
    if (problem->lse != 0)
        expect(out, ATTN__PART_lse, sizeof(float), rows, heads, 1);
}

void attn__parts_expect(const struct attn_problem *problem, const struct attn__call *call,
                        const struct attn__reach *reach, struct attn__part *out)
{
    memset(out, 0, ATTN__PARTS * sizeof *out);
    expect_batch(problem, call, reach, out);
    expect_queries(problem, call, out);
    if (problem->kv_source != ATTN_KV_NEW)
        expect_cache(problem, call, out);
    if (problem->kv_source != ATTN_KV_CACHE)
        expect_new(problem, call, reach, out);
    if (problem->alibi != ATTN_ALIBI_NONE)
        expect_array(out, ATTN__PART_alibi_slopes, sizeof(float), problem->heads);
    if (problem->sinks != 0)
        expect_array(out, ATTN__PART_sinks, call->sinks_dtype == ATTN_BF16 ? 2 : 4, problem->heads);
    if (problem->mask != ATTN_MASK_NONE) {
        expect_array(out, ATTN__PART_mask_starts, sizeof(int64_t), call->seqs);
        expect_array(out, ATTN__PART_mask, 1, call->parts[ATTN__PART_mask].count[0]);
    }
}
