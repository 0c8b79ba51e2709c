/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Advances the arrays of a batch by one decode step, in place. */
#include "advance.h"

#include "graph.h"

static int32_t *ints(const struct attn_buffer *buffer)
{
    return (int32_t *)(void *)attn__address(buffer);
}

static int64_t *longs(const struct attn_buffer *buffer)
{
    return (int64_t *)(void *)attn__address(buffer);
}

int32_t cpu_kv_advance_step(struct attn_backend_impl *backend, const struct attn_kv_advance_step_args *args,
                            void *stream, struct attn_error *err)
{
    const uint32_t index_size = args->index_dtype == ATTN_INT64 ? 8 : 4;
    const struct attn_advance advance = {.seqs = args->seqs,
                                         .queries = args->queries,
                                         .num_tokens = args->num_tokens,
                                         .block = args->block,
                                         .keep_padding = args->keep_padding,
                                         .table_width = args->table_width,
                                         .index_size = index_size,
                                         .table_stride = args->table_stride,
                                         .table = attn__address(&args->table),
                                         .query_starts = ints(&args->query_starts),
                                         .accepted = ints(&args->accepted),
                                         .sampled = longs(&args->sampled),
                                         .tokens = longs(&args->tokens),
                                         .positions = longs(&args->positions),
                                         .slots = longs(&args->slots),
                                         .seq_lens = ints(&args->seq_lens),
                                         .context_lens = ints(&args->context_lens),
                                         .seq_starts = ints(&args->seq_starts),
                                         .csr_capacity = args->csr_capacity,
                                         .csr_indptr = ints(&args->csr_indptr),
                                         .csr_indices = attn__address(&args->csr_indices),
                                         .csr_last_page_lens = ints(&args->last_page_lens),
                                         .csr_pages = ints(&args->csr_pages)};
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK)
        status = attn__advance_step_align(args, err);
    const struct cpu_call call = {CPU_CALL_ADVANCE_STEP, .args = args, .args_size = sizeof *args};
    if (status == ATTN_OK && executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    if (status == ATTN_OK)
        status = attn__advance_check(&advance, err);
    if (status != ATTN_OK)
        return status;
    /* No member of a team writes before all have checked, and none returns before all is written. */
    cpu_join(&executor);
    if (cpu_is_first(&executor))
        attn__advance_write(&advance);
    cpu_join(&executor);
    return ATTN_OK;
}
