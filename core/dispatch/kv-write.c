/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes new keys and values into a cache: checks, then calls the plugin. */
#include "dispatch/call.h"
#include "dispatch/trace.h"
#include "select/problem.h"

static int32_t check_batch(const struct attn_backend *backend, struct attn_kv_write_args *args,
                           const struct attn_kv_desc *desc, struct attn_batch *copy, struct attn_error *err)
{
    const struct attn__kv_find find = {args->addressing, args->index_dtype, desc->block, desc->pages, true};
    const int32_t status = attn__kv_batch(backend, args->batch, &find, copy, &args->batch, err);
    if (status == ATTN_OK && args->batch->num_tokens != args->num_tokens) {
        return attn__fail(err, ATTN_E_INVALID, 0, "num_tokens",
                          "num_tokens is %u, but the batch has %u; accepted: as many", args->num_tokens,
                          args->batch->num_tokens);
    }
    return status;
}

/* New rows of an MLA cache: one tensor, or one with the MLA columns and one with the rope columns. */
static int32_t check_mla(const struct attn_kv_write_args *args, const struct attn_kv_desc *desc,
                         struct attn_error *err)
{
    if (args->v_new.buffer.data != NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, "v_new",
                          "v_new is given, but the cache has no v; leave it out");
    }
    if (args->k_rope.buffer.data == NULL) {
        return attn__tensor_check(&args->k_new, args->k_dtype, args->num_tokens, desc->kv_heads,
                                  desc->head_dim, "k_new", err);
    }
    if (desc->head_dim_vo == 0 || desc->head_dim_vo >= desc->head_dim) {
        return attn__fail(err, ATTN_E_INVALID, 0, "k_rope",
                          "k_rope is given, but head_dim_vo is %u of head_dim %u; accepted: 1 to %u",
                          desc->head_dim_vo, desc->head_dim, desc->head_dim - 1);
    }
    const int32_t status = attn__tensor_check(&args->k_new, args->k_dtype, args->num_tokens, desc->kv_heads,
                                              desc->head_dim_vo, "k_new", err);
    return status == ATTN_OK
               ? attn__tensor_check(&args->k_rope, args->k_dtype, args->num_tokens, desc->kv_heads,
                                    desc->head_dim - desc->head_dim_vo, "k_rope", err)
               : status;
}

/* 8-bit rows have no scale of their own: they have to be of the type and scale of the cache. */
static int32_t check_codes(uint32_t from, uint32_t to, const struct attn_scale *scale, bool values,
                           struct attn_error *err)
{
    const char *name = values ? "v_dtype" : "k_dtype";
    if (attn__element_size(from) > 1 ||
        (from == to && (scale->kind == ATTN_SCALE_UNIT || scale->granularity != ATTN_SCALES_TOKEN_HEAD)))
        return ATTN_OK;
    return attn__fail(
        err, ATTN_E_UNSUPPORTED, values ? ATTN_REASON_DTYPE_V : ATTN_REASON_DTYPE_K, name,
        "%s of the new rows is %s, the cache's is %s; f32, f16 and bf16 are served, and codes of "
        "the cache's own 8-bit type if its scale is not token-head",
        name, attn_dtype_name(from), attn_dtype_name(to));
}

static int32_t check_rows(const struct attn_kv_write_args *args, const struct attn_kv_desc *desc,
                          struct attn_error *err)
{
    if (args->num_tokens > ATTN__COUNT_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "num_tokens", "num_tokens is %u; accepted: up to %u",
                          args->num_tokens, ATTN__COUNT_MAX);
    }
    const bool mla = desc->v.data == NULL;
    const uint32_t types[] = {args->k_dtype, args->v_dtype};
    for (int i = 0; i < (mla ? 1 : 2); i++) {
        const char *name = i == 0 ? "k_dtype" : "v_dtype";
        if (!attn__kv_is_element(types[i])) {
            return attn__fail(err, ATTN_E_INVALID, 0, name,
                              "%s is 0x%x; accepted: f32, f16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz or int8",
                              name, types[i]);
        }
    }
    int32_t status = check_codes(args->k_dtype, desc->k_dtype, &desc->k_scale, false, err);
    if (status == ATTN_OK && !mla)
        status = check_codes(args->v_dtype, desc->v_dtype, &desc->v_scale, true, err);
    if (status != ATTN_OK)
        return status;
    if (mla)
        return check_mla(args, desc, err);
    if (args->k_rope.buffer.data != NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, "k_rope",
                          "k_rope is given, but the cache has v: only an MLA cache takes latent "
                          "and rope columns apart; leave k_rope out");
    }
    status = attn__tensor_check(&args->k_new, args->k_dtype, args->num_tokens, desc->kv_heads, desc->head_dim,
                                "k_new", err);
    const uint32_t vo = desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim;
    return status == ATTN_OK ? attn__tensor_check(&args->v_new, args->v_dtype, args->num_tokens,
                                                  desc->kv_heads, vo, "v_new", err)
                             : status;
}

static int32_t check_write(const struct attn_backend *backend, struct attn_kv_write_args *args,
                           const struct attn_kv_desc *desc, struct attn_batch *copy, struct attn_error *err)
{
    const int32_t status = check_rows(args, desc, err);
    if (status != ATTN_OK)
        return status;
    const bool mapped = args->slot_mapping.data != NULL;
    if (mapped && args->batch != NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, "slot_mapping",
                          "slot_mapping and batch are both given; one of them says where the rows go");
    }
    if (!mapped && args->batch == NULL && args->num_tokens > 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, "slot_mapping",
                          "neither slot_mapping nor batch is given; one of them says where the rows go");
    }
    return args->batch != NULL ? check_batch(backend, args, desc, copy, err) : ATTN_OK;
}

int32_t attn_kv_write(struct attn_backend *backend, const struct attn_kv_write_args *args, void *stream,
                      struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_kv_write", err);
    if (status != ATTN_OK)
        return status;
    struct attn_kv_write_args own;
    struct attn_batch batch_copy;
    struct attn_kv_desc desc_copy;
    const struct attn_kv_desc *desc = NULL;
    const void *known = NULL;
    status = attn__argument(backend, args, &own, sizeof own, backend->entry->plugin->table.kv_write_size,
                            "args", &known, err);
    if (status != ATTN_OK)
        return status;
    own = *(const struct attn_kv_write_args *)known;
    status = attn__kv_choose(backend, own.kv, own.kv_desc, &desc_copy, &desc, err);
    if (status == ATTN_OK)
        status = attn__kv_refuse_blocks(desc, "attn_kv_write", err);
    if (status == ATTN_OK)
        status = check_write(backend, &own, desc, &batch_copy, err);
    if (status != ATTN_OK || own.num_tokens == 0)
        return status;
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const uint64_t began = attn__trace_begin(backend);
    status = backend->entry->kv.write(backend->impl, &own, own.kv != NULL ? own.kv->impl : NULL,
                                      own.kv != NULL ? NULL : desc, stream, &plugin_err);
    attn__trace(backend, began, status, "kv_write", desc, "tokens=%u", own.num_tokens);
    return attn__call_end(backend, status, &plugin_err, "kv write", err);
}
