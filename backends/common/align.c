/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks the alignment of arguments; libattn cannot, because only a plugin knows whether its buffers are
 * addresses. */
#include "check.h"

int32_t attn__align_check(const struct attn__place *places, size_t count, struct attn_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (((uintptr_t)attn__address(places[i].buffer) & (places[i].size - 1)) != 0)
            return attn__fail(err, ATTN_E_INVALID, 0, places[i].name,
                              "the address of %s is no multiple of %u", places[i].name, places[i].size);
    return ATTN_OK;
}

int32_t attn__span_align(const struct attn_span *span, uint32_t alignment, const char *name,
                         struct attn_error *err)
{
    const struct attn__place place = {&span->buffer, alignment, name};

    return attn__align_check(&place, 1, err);
}

int32_t attn__batch_align(const struct attn_problem *problem, const struct attn_batch *batch,
                          struct attn_error *err)
{
    const struct attn__place places[] = {
        {&batch->q_offsets, 4, "q_offsets"},
        {&batch->kv_lens, 4, "kv_lens"},
        {&batch->kv_offsets, 4, "kv_offsets"},
        {&batch->csr_indptr, 4, "csr_indptr"},
        {&batch->csr_indices, problem->index_dtype == ATTN_INT64 ? 8 : 4, "csr_indices"},
        {&batch->table, 4, "table"},
        {&batch->last_page_lens, 4, "last_page_lens"},
        {&batch->q_positions, batch->position_dtype == ATTN_INT64 ? 8 : 4, "q_positions"},
        {&batch->kv_global_lens, 4, "kv_global_lens"},
    };

    return attn__align_check(places, sizeof places / sizeof places[0], err);
}

int32_t attn__kv_align(const struct attn_kv_desc *desc, struct attn_error *err)
{
    const struct attn__place places[] = {
        {&desc->k, attn__dtype_alignment(desc->k_dtype), "kv.k"},
        {&desc->v, attn__dtype_alignment(desc->v_dtype), "kv.v"},
        {&desc->k_scale.buffer, sizeof(float), "kv.k_scale"},
        {&desc->v_scale.buffer, sizeof(float), "kv.v_scale"},
    };

    return attn__align_check(places, sizeof places / sizeof places[0], err);
}

int32_t attn__run_align(const struct attn_problem *p, const struct attn_tensors *tensors,
                        struct attn_error *err)
{
    const uint32_t q_size = attn__dtype_size(p->q_dtype), mask_dtype = attn__mask_dtype(p->mask);
    const struct attn__place places[] = {
        {&tensors->q.buffer, q_size, "tensors.q"},
        {&tensors->q_rope.buffer, q_size, "tensors.q_rope"},
        {&tensors->out.buffer, attn__dtype_size(p->out_dtype), "tensors.out"},
        {&tensors->lse.buffer, sizeof(float), "tensors.lse"},
        {&tensors->k_new.buffer, attn__dtype_alignment(p->k_dtype), "tensors.k_new"},
        {&tensors->v_new.buffer, attn__dtype_alignment(p->v_dtype), "tensors.v_new"},
        {&tensors->q_scale.buffer, sizeof(float), "tensors.q_scale"},
        {&tensors->out_scale.buffer, sizeof(float), "tensors.out_scale"},
        {&tensors->k_new_scale.buffer, sizeof(float), "tensors.k_new_scale"},
        {&tensors->v_new_scale.buffer, sizeof(float), "tensors.v_new_scale"},
        {&tensors->mask, mask_dtype != 0 ? attn__dtype_size(mask_dtype) : 1, "tensors.mask"},
        {&tensors->mask_starts, sizeof(int64_t), "tensors.mask_starts"},
        {&tensors->alibi_slopes, sizeof(float), "tensors.alibi_slopes"},
        {&tensors->sinks, tensors->sinks_dtype == ATTN_BF16 ? 2 : sizeof(float), "tensors.sinks"},
    };

    return attn__align_check(places, sizeof places / sizeof places[0], err);
}

int32_t attn__write_align(const struct attn_kv_write_args *args, struct attn_error *err)
{
    const uint32_t k_size = attn__dtype_size(args->k_dtype);
    const struct attn__place places[] = {
        {&args->slot_mapping, sizeof(int64_t), "slot_mapping"},
        {&args->k_new.buffer, k_size, "k_new"},
        {&args->k_rope.buffer, k_size, "k_rope"},
        {&args->v_new.buffer, attn__dtype_size(args->v_dtype), "v_new"},
    };

    return attn__align_check(places, sizeof places / sizeof places[0], err);
}

int32_t attn__gather_align(const struct attn_kv_gather_args *args, struct attn_error *err)
{
    const struct attn__place places[] = {
        {&args->offsets, sizeof(int32_t), "offsets"},
        {&args->starts, sizeof(int32_t), "starts"},
        {&args->k.buffer, attn__dtype_size(args->k_dtype), "k"},
        {&args->v.buffer, attn__dtype_size(args->v_dtype), "v"},
        {&args->k_scales.buffer, sizeof(float), "k_scales"},
        {&args->v_scales.buffer, sizeof(float), "v_scales"},
    };

    return attn__align_check(places, sizeof places / sizeof places[0], err);
}

int32_t attn__advance_step_align(const struct attn_kv_advance_step_args *args, struct attn_error *err)
{
    const uint32_t index_size = args->index_dtype == ATTN_INT64 ? 8 : 4;
    const struct attn__place places[] = {
        {&args->table, index_size, "table"},
        {&args->query_starts, 4, "query_starts"},
        {&args->accepted, 4, "accepted"},
        {&args->sampled, 8, "sampled"},
        {&args->tokens, 8, "tokens"},
        {&args->positions, 8, "positions"},
        {&args->slots, 8, "slots"},
        {&args->seq_lens, 4, "seq_lens"},
        {&args->context_lens, 4, "context_lens"},
        {&args->seq_starts, 4, "seq_starts"},
        {&args->csr_indptr, 4, "csr_indptr"},
        {&args->csr_indices, index_size, "csr_indices"},
        {&args->last_page_lens, 4, "last_page_lens"},
        {&args->csr_pages, 4, "csr_pages"},
    };

    return attn__align_check(places, sizeof places / sizeof places[0], err);
}

int32_t attn__merge_align(const struct attn_merge_args *args, struct attn_error *err)
{
    const uint32_t size = attn__dtype_size(args->dtype);
    const struct attn__place results[] = {{&args->out.buffer, size, "out"},
                                          {&args->lse.buffer, sizeof(float), "lse"}};
    int32_t status = attn__align_check(results, 2, err);

    for (uint32_t k = 0; status == ATTN_OK && k < args->count; k++) {
        const struct attn__place part[] = {{&args->parts[k].out.buffer, size, "parts.out"},
                                           {&args->parts[k].lse.buffer, sizeof(float), "parts.lse"}};
        status = attn__align_check(part, 2, err);
    }
    return status;
}

int32_t attn__rescale_align(const struct attn_rescale_args *args, struct attn_error *err)
{
    const struct attn__place places[] = {{&args->out.buffer, attn__dtype_size(args->dtype), "out"},
                                         {&args->own.buffer, sizeof(float), "own"}};
    int32_t status = attn__align_check(places, 2, err);

    for (uint32_t k = 0; status == ATTN_OK && k < args->count; k++) {
        const struct attn__place all = {&args->all[k].buffer, sizeof(float), "all"};
        status = attn__align_check(&all, 1, err);
    }
    return status;
}
