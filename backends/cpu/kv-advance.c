/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One step of decoding in place: the arrays of a batch grow by the accepted tokens. */
#include "advance.h"

#include "graph.h"

/* An array of the call, and what its elements are. */
struct array {
    const char *name;
    const struct attn_buffer *buffer;
    uint32_t size;
};

static int32_t check_alignment(const struct attn_kv_advance_step_args *args, uint32_t index_size,
                               struct attn_error *err)
{
    const struct array arrays[] = {
        {"table", &args->table, index_size},
        {"query_starts", &args->query_starts, 4},
        {"accepted", &args->accepted, 4},
        {"sampled", &args->sampled, 8},
        {"tokens", &args->tokens, 8},
        {"positions", &args->positions, 8},
        {"slots", &args->slots, 8},
        {"seq_lens", &args->seq_lens, 4},
        {"context_lens", &args->context_lens, 4},
        {"seq_starts", &args->seq_starts, 4},
        {"csr_indptr", &args->csr_indptr, 4},
        {"csr_indices", &args->csr_indices, index_size},
        {"last_page_lens", &args->last_page_lens, 4},
        {"csr_pages", &args->csr_pages, 4},
    };

    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        if ((uintptr_t)attn__address(arrays[i].buffer) % arrays[i].size != 0)
            return cpu_fail(err, ATTN_E_INVALID, 0, arrays[i].name, "the address of %s is no multiple of %u",
                            arrays[i].name, arrays[i].size);
    if (args->table_stride % (int64_t)index_size != 0)
        return cpu_fail(err, ATTN_E_INVALID, 0, "table_stride", "table_stride is %lld, no multiple of %u",
                        (long long)args->table_stride, index_size);
    return ATTN_OK;
}

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
                                         .rows = args->rows,
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
        status = check_alignment(args, index_size, err);
    if (status == ATTN_OK && executor.recording != NULL)
        return cpu_record_advance_step(executor.recording, args, err);
    if (status == ATTN_OK)
        status = attn__advance_check(&advance, err);
    if (status != ATTN_OK)
        return status;
    /* Nobody writes before everybody has checked, and nobody leaves before all is written. */
    cpu_join(&executor);
    if (cpu_is_first(&executor))
        attn__advance_write(&advance);
    cpu_join(&executor);
    return ATTN_OK;
}
