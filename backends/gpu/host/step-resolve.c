/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Argument blocks of a step of decoding, and of merges. */
#include <string.h>

#include "kv-resolve.h"

/* ---------------------------------------------------------------- step */

void gpu_step_resolve(struct gpu_step *out, const struct attn_kv_advance_step_args *args)
{
    *out = (struct gpu_step){.block = args->block,
                             .seqs = args->seqs,
                             .queries = args->queries,
                             .num_tokens = args->num_tokens,
                             .keep_padding = args->keep_padding,
                             .index_size = args->index_dtype == ATTN_INT64 ? 8 : 4,
                             .table_width = args->table_width,
                             .windowed = args->windowed,
                             .table_stride = args->table_stride,
                             .csr_capacity = args->csr_capacity,
                             .table = gpu_address(&args->table),
                             .query_starts = gpu_address(&args->query_starts),
                             .accepted = gpu_address(&args->accepted),
                             .sampled = gpu_address(&args->sampled),
                             .tokens = gpu_address(&args->tokens),
                             .positions = gpu_address(&args->positions),
                             .slots = gpu_address(&args->slots),
                             .seq_lens = gpu_address(&args->seq_lens),
                             .context_lens = gpu_address(&args->context_lens),
                             .seq_starts = gpu_address(&args->seq_starts),
                             .csr_indptr = gpu_address(&args->csr_indptr),
                             .csr_indices = gpu_address(&args->csr_indices),
                             .last_page_lens = gpu_address(&args->last_page_lens),
                             .csr_pages = gpu_address(&args->csr_pages),
                             .window = args->window};
}

uint64_t gpu_step_work(const struct gpu_step *step)
{
    const uint64_t cells = (uint64_t)step->queries * step->table_width;
    const uint64_t entries = cells < step->csr_capacity ? cells : step->csr_capacity;

    return step->csr_indptr != 0 && entries > step->num_tokens ? entries : step->num_tokens;
}

/* ---------------------------------------------------------------- merge */

static struct gpu_tensor tensor_of(const struct attn_tensor *tensor)
{
    return gpu_kv_tensor_of(tensor, 0);
}

/* Whether b is `step` bytes after a, with the same strides. */
static bool follows(const struct attn_tensor *a, const struct attn_tensor *b, int64_t step)
{
    return a->token_stride == b->token_stride && a->head_stride == b->head_stride &&
           gpu_address(&b->buffer) - gpu_address(&a->buffer) == (uint64_t)step;
}

static int64_t step_of(const struct attn_tensor *a, const struct attn_tensor *b)
{
    return (int64_t)(gpu_address(&b->buffer) - gpu_address(&a->buffer));
}

static int32_t refuse_count(uint32_t count, const char *what, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "count",
                      "count is %u and %s do not lie at equal distances; up to %u are served so, and "
                      "any number at equal distances",
                      count, what, GPU_MERGE_PARTS);
}

static int32_t set_parts(struct gpu_merge *out, const struct attn_merge_args *args, struct attn_error *err)
{
    const struct attn_merge_part *parts = args->parts;

    out->stepped = args->count > GPU_MERGE_PARTS;
    for (uint32_t k = 0; k < args->count && k < GPU_MERGE_PARTS; k++) {
        out->parts[k] = (struct gpu_merge_part){tensor_of(&parts[k].out), tensor_of(&parts[k].lse)};
        if (gpu_kv_wide_tensor(&out->parts[k].out, args->head_dim, args->dtype) == 1)
            out->wide = 1;
    }
    if (out->stepped == 0)
        return ATTN_OK;
    out->out_step = step_of(&parts[0].out, &parts[1].out);
    out->lse_step = step_of(&parts[0].lse, &parts[1].lse);
    for (uint32_t k = 1; k < args->count; k++)
        if (!follows(&parts[k - 1].out, &parts[k].out, out->out_step) ||
            !follows(&parts[k - 1].lse, &parts[k].lse, out->lse_step))
            return refuse_count(args->count, "the parts", err);
    return ATTN_OK;
}

int32_t gpu_merge_resolve(struct gpu_merge *out, const struct attn_merge_args *args, struct attn_error *err)
{
    const int32_t status = attn__merge_align(args, err);

    memset(out, 0, sizeof *out);
    if (status != ATTN_OK)
        return status;
    out->out = tensor_of(&args->out);
    out->lse = tensor_of(&args->lse);
    out->count = args->count;
    out->dtype = out->part_dtype = args->dtype;
    out->base2 = args->lse_base == ATTN_LSE_BASE2;
    out->rows = args->num_tokens;
    out->heads = args->heads;
    out->head_dim = args->head_dim;
    out->wide = gpu_kv_wide_tensor(&out->out, args->head_dim, args->dtype);
    return set_parts(out, args, err);
}

int32_t gpu_rescale_resolve(struct gpu_merge *out, const struct attn_rescale_args *args,
                            struct attn_error *err)
{
    const int32_t status = attn__rescale_align(args, err);

    memset(out, 0, sizeof *out);
    if (status != ATTN_OK)
        return status;
    out->out = tensor_of(&args->out);
    out->lse = tensor_of(&args->own);
    out->count = args->count;
    out->dtype = out->part_dtype = args->dtype;
    out->base2 = args->lse_base == ATTN_LSE_BASE2;
    out->rows = args->num_tokens;
    out->heads = args->heads;
    out->head_dim = args->head_dim;
    out->wide = gpu_kv_wide_tensor(&out->out, args->head_dim, args->dtype);
    out->stepped = args->count > GPU_MERGE_PARTS;
    for (uint32_t k = 0; k < args->count && k < GPU_MERGE_PARTS; k++)
        out->parts[k].lse = tensor_of(&args->all[k]);
    if (out->stepped != 0)
        out->lse_step = step_of(&args->all[0], &args->all[1]);
    for (uint32_t k = 1; k < args->count && out->stepped != 0; k++)
        if (!follows(&args->all[k - 1], &args->all[k], out->lse_step))
            return refuse_count(args->count, "the results", err);
    return ATTN_OK;
}
