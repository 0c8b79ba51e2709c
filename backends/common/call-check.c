/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What calls on caches and partial results are given: arrays, their types and places. */
#include "check.h"

/* New rows of 8 bits come without a scale: they are codes of the cache's own. */
static int32_t check_types(uint32_t from, uint32_t to, const struct attn_scale *scale, const char *name,
                           struct attn_error *err)
{
    if (attn__dtype_size(from) > 1 ||
        (attn__dtype_size(from) == 1 && from == to &&
         (scale->kind == ATTN_SCALE_UNIT || scale->granularity != ATTN_SCALES_TOKEN_HEAD)))
        return ATTN_OK;
    return attn__fail(
        err, ATTN_E_UNSUPPORTED, name[0] == 'k' ? ATTN_REASON_DTYPE_K : ATTN_REASON_DTYPE_V, name,
        "%s of the new rows is %s, the cache's is %s; f32, f16 and bf16 are served, and codes of "
        "the cache's own 8-bit type if its scale is not token-head",
        name, attn__dtype_name(from), attn__dtype_name(to));
}

int32_t attn__write_check(const struct attn_kv_write_args *args, uint64_t rows,
                          const struct attn_kv_desc *desc, struct attn_error *err)
{
    bool latent = desc->v.data == NULL, pieces = latent && args->k_rope.buffer.data != NULL;
    uint32_t dim_vo = desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim;
    int32_t status = check_types(args->k_dtype, desc->k_dtype, &desc->k_scale, "k_dtype", err);

    if (status == ATTN_OK && !latent)
        status = check_types(args->v_dtype, desc->v_dtype, &desc->v_scale, "v_dtype", err);
    if (status == ATTN_OK)
        status = attn__tensor_check(&args->k_new, rows, desc->kv_heads, pieces ? dim_vo : desc->head_dim,
                                    attn__dtype_size(args->k_dtype), 0, "k_new", err);
    if (status == ATTN_OK && pieces)
        status = attn__tensor_check(&args->k_rope, rows, desc->kv_heads, desc->head_dim - dim_vo,
                                    attn__dtype_size(args->k_dtype), 0, "k_rope", err);
    if (status == ATTN_OK && !latent)
        status = attn__tensor_check(&args->v_new, rows, desc->kv_heads, dim_vo,
                                    attn__dtype_size(args->v_dtype), 0, "v_new", err);
    return status;
}

int32_t attn__advance_step_check(const struct attn_kv_advance_step_args *args, struct attn_error *err)
{
    const uint32_t index_size = args->index_dtype == ATTN_INT64 ? 8 : 4;
    const struct {
        const char *name;
        const struct attn_buffer *buffer;
        uint32_t size;
    } arrays[] = {
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
            return attn__fail(err, ATTN_E_INVALID, 0, arrays[i].name,
                              "the address of %s is no multiple of %u", arrays[i].name, arrays[i].size);
    if (args->table_stride % (int64_t)index_size != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "table_stride", "table_stride is %lld, no multiple of %u",
                          (long long)args->table_stride, index_size);
    return ATTN_OK;
}

int32_t attn__merge_check(const struct attn_merge_args *args, struct attn_error *err)
{
    const uint32_t size = attn__dtype_size(args->dtype);
    int32_t status = ATTN_OK;

    if (args->parts == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "parts",
                          "parts is NULL; an array of count parts is needed");
    for (uint32_t k = 0; status == ATTN_OK && k < args->count; k++) {
        status = attn__tensor_check(&args->parts[k].out, args->rows, args->heads, args->head_dim, size, 0,
                                    "parts.out", err);
        if (status == ATTN_OK)
            status = attn__tensor_check(&args->parts[k].lse, args->rows, args->heads, 1, sizeof(float), 0,
                                        "parts.lse", err);
    }
    if (status == ATTN_OK)
        status = attn__tensor_check(&args->out, args->rows, args->heads, args->head_dim, size, 1, "out", err);
    if (status == ATTN_OK && args->lse.buffer.data != NULL)
        status = attn__tensor_check(&args->lse, args->rows, args->heads, 1, sizeof(float), 1, "lse", err);
    return status;
}
