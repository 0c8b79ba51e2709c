/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Advances arrays by one decode step, in place: checks what the host can see, then calls the plugin. */
#include "dispatch/call.h"
#include "dispatch/trace.h"
#include "select/problem.h"

/* Requires an array if another argument needs it. */
static int32_t check_given(const struct attn_buffer *buffer, const char *name, const char *why,
                           struct attn_error *err)
{
    return buffer->data != NULL
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not given, but %s; give it", name, why);
}

static int32_t check_counts(const struct attn_kv_advance_step_args *args, struct attn_error *err)
{
    const struct {
        const char *name;
        uint32_t value, min;
    } counts[] = {{"seqs", args->seqs, args->queries},
                  {"queries", args->queries, 0},
                  {"num_tokens", args->num_tokens, 0},
                  {"block", args->block, 1}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (counts[i].value < counts[i].min || counts[i].value > ATTN__COUNT_MAX) {
            return attn__fail(err, ATTN_E_INVALID, 0, counts[i].name, "%s is %u; accepted: %u to %u",
                              counts[i].name, counts[i].value, counts[i].min, ATTN__COUNT_MAX);
        }
    }
    if (args->index_dtype != 0 && args->index_dtype != ATTN_INT32 && args->index_dtype != ATTN_INT64) {
        return attn__fail(err, ATTN_E_INVALID, 0, "index_dtype",
                          "index_dtype is 0x%x; accepted: ATTN_INT32 and ATTN_INT64", args->index_dtype);
    }
    if (args->windowed > args->queries)
        return attn__fail(err, ATTN_E_INVALID, 0, "windowed", "windowed is %u; accepted: 0 to queries, %u",
                          args->windowed, args->queries);
    const int64_t size = args->index_dtype == ATTN_INT64 ? 8 : 4;
    return args->table_stride % size == 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "table_stride",
                            "table_stride is %lld; accepted: multiples of the %lld bytes of an index",
                            (long long)args->table_stride, (long long)size);
}

static int32_t check_arrays(const struct attn_kv_advance_step_args *args, struct attn_error *err)
{
    int32_t status = check_given(&args->seq_lens, "seq_lens", "it is what advances", err);
    if (status == ATTN_OK && args->slots.data != NULL)
        status = check_given(&args->table, "table", "slots is", err);
    if (status == ATTN_OK && args->sampled.data != NULL)
        status = check_given(&args->tokens, "tokens", "sampled is", err);
    if (status != ATTN_OK || args->csr_indptr.data == NULL)
        return status;
    const struct {
        const struct attn_buffer *buffer;
        const char *name;
    } arrays[] = {{&args->table, "table"},
                  {&args->csr_indices, "csr_indices"},
                  {&args->last_page_lens, "last_page_lens"},
                  {&args->csr_pages, "csr_pages"}};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0] && status == ATTN_OK; i++)
        status = check_given(arrays[i].buffer, arrays[i].name, "csr_indptr is", err);
    return status;
}

int32_t attn_kv_advance_step(struct attn_backend *backend, const struct attn_kv_advance_step_args *args,
                             void *stream, struct attn_error *err)
{
    struct attn_kv_advance_step_args copy;
    const void *known = NULL;
    int32_t status = attn__call_begin(backend, "attn_kv_advance_step", err);
    if (status == ATTN_OK) {
        status = attn__argument(backend, args, &copy, sizeof copy,
                                backend->entry->plugin->table.advance_step_size, "args", &known, err);
    }
    if (status != ATTN_OK)
        return status;
    const struct attn_kv_advance_step_args *own = known;
    status = check_counts(own, err);
    if (status == ATTN_OK)
        status = check_arrays(own, err);
    if (status == ATTN_OK && backend->entry->kv.advance_step == NULL) {
        status = attn__fail(err, ATTN_E_UNSUPPORTED, 0, "advance_step", "%s offers no advance_step",
                            backend->entry->table.name);
    }
    if (status != ATTN_OK || own->seqs == 0)
        return status;
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const uint64_t began = attn__trace_begin(backend);
    status = backend->entry->kv.advance_step(backend->impl, own, stream, &plugin_err);
    attn__trace(backend, began, status, "kv_advance_step", NULL, "seqs=%u queries=%u", own->seqs,
                own->queries);
    return attn__call_end(backend, status, &plugin_err, "kv advance_step", err);
}
