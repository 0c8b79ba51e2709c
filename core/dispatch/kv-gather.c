/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Operations on the keys of a batch: slots of its new tokens, and gathering its keys into contiguous rows. */
#include "dispatch/call.h"
#include "dispatch/trace.h"
#include "select/problem.h"

static int32_t unoffered(const struct attn_backend *backend, const char *entry, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_UNSUPPORTED, 0, entry, "%s offers no %s", backend->entry->table.name,
                      entry);
}

static int32_t check_slots(const struct attn_kv_slot_mapping_args *args, struct attn_error *err)
{
    if (args->block == 0 || args->block > ATTN__COUNT_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "block", "block is %u; accepted: 1 to %u", args->block,
                          ATTN__COUNT_MAX);
    }
    return args->batch->num_tokens == 0 || args->slots.data != NULL
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "slots",
                            "slots is not given, but the batch has %u rows; an array of as many is needed",
                            args->batch->num_tokens);
}

int32_t attn_kv_slot_mapping(struct attn_backend *backend, const struct attn_kv_slot_mapping_args *args,
                             void *stream, struct attn_error *err)
{
    struct attn_kv_slot_mapping_args own;
    struct attn_batch batch_copy;
    const void *known = NULL;
    int32_t status = attn__call_begin(backend, "attn_kv_slot_mapping", err);
    if (status == ATTN_OK) {
        status = attn__argument(backend, args, &own, sizeof own,
                                backend->entry->plugin->table.slot_mapping_size, "args", &known, err);
    }
    if (status != ATTN_OK)
        return status;
    own = *(const struct attn_kv_slot_mapping_args *)known;
    const struct attn__kv_find find = {own.addressing, own.index_dtype, own.block, 0, true};
    status = attn__kv_batch(backend, own.batch, &find, &batch_copy, &own.batch, err);
    if (status == ATTN_OK)
        status = check_slots(&own, err);
    if (status == ATTN_OK && backend->entry->kv.slot_mapping == NULL)
        status = unoffered(backend, "slot_mapping", err);
    if (status != ATTN_OK || own.batch->num_tokens == 0)
        return status;
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const uint64_t began = attn__trace_begin(backend);
    status = backend->entry->kv.slot_mapping(backend->impl, &own, stream, &plugin_err);
    attn__trace(backend, began, status, "kv_slot_mapping", NULL, "seqs=%u tokens=%u", own.batch->seqs,
                own.batch->num_tokens);
    return attn__call_end(backend, status, &plugin_err, "kv slot_mapping", err);
}

/* Keys or values of a gather. */
struct side {
    const char *name;
    const char *dtype_name;
    const char *scales_name;
    const struct attn_tensor *to;
    const struct attn_tensor *scales;
    uint32_t to_dtype;
    uint32_t dtype; /* of the cache */
    uint32_t dim;
};

static int32_t check_side(const struct attn_kv_gather_args *args, const struct side *side, uint32_t kv_heads,
                          struct attn_error *err)
{
    const bool wide = side->to_dtype == ATTN_F32 || side->to_dtype == ATTN_F16 || side->to_dtype == ATTN_BF16;
    if (side->to->buffer.data == NULL) {
        return side->scales->buffer.data == NULL
                   ? ATTN_OK
                   : attn__fail(err, ATTN_E_INVALID, 0, side->scales_name,
                                "%s is given without %s; give both, or none", side->scales_name, side->name);
    }
    if (!wide && side->to_dtype != side->dtype) {
        return attn__fail(err, ATTN_E_INVALID, 0, side->dtype_name,
                          "%s is 0x%x; accepted: f32, f16, bf16, or the cache's own type, %s",
                          side->dtype_name, side->to_dtype, attn_dtype_name(side->dtype));
    }
    const int32_t status =
        attn__output_check(side->to, side->to_dtype, args->tokens, kv_heads, side->dim, side->name, err);
    if (status != ATTN_OK || side->scales->buffer.data == NULL)
        return status;
    return wide ? attn__fail(err, ATTN_E_INVALID, 0, side->scales_name,
                             "%s is given, but %s has no scale: its values are multiplied with theirs; leave "
                             "its kind 0",
                             side->scales_name, attn_dtype_name(side->to_dtype))
                : attn__output_check(side->scales, ATTN_F32, args->tokens, kv_heads, 1, side->scales_name,
                                     err);
}

static int32_t check_gather(const struct attn_kv_gather_args *args, const struct attn_kv_desc *desc,
                            struct attn_error *err)
{
    const uint32_t vo = desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim;
    const struct side k = {"k",           "k_dtype",     "k_scales",    &args->k, &args->k_scales,
                           args->k_dtype, desc->k_dtype, desc->head_dim};
    const struct side v = {"v",           "v_dtype",     "v_scales", &args->v, &args->v_scales,
                           args->v_dtype, desc->v_dtype, vo};
    if (args->tokens > ATTN__COUNT_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "tokens", "tokens is %u; accepted: up to %u", args->tokens,
                          ATTN__COUNT_MAX);
    }
    if (args->k.buffer.data == NULL && args->v.buffer.data == NULL && args->tokens > 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "k", "neither k nor v is given; give one of them, or both");
    if (desc->v.data == NULL && args->v.buffer.data != NULL) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "v",
            "v is given, but the cache has none: its values are the first columns of k; leave v out");
    }
    if (args->batch->seqs > 0 && args->offsets.data == NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, "offsets",
                          "offsets is not given, but there are %u sequences; an array of one more is needed",
                          args->batch->seqs);
    }
    const int32_t status = check_side(args, &k, desc->kv_heads, err);
    return status == ATTN_OK ? check_side(args, &v, desc->kv_heads, err) : status;
}

int32_t attn_kv_gather(struct attn_backend *backend, const struct attn_kv_gather_args *args, void *stream,
                       struct attn_error *err)
{
    struct attn_kv_gather_args own;
    struct attn_kv_desc desc_copy;
    struct attn_batch batch_copy;
    const struct attn_kv_desc *desc = NULL;
    const void *known = NULL;
    int32_t status = attn__call_begin(backend, "attn_kv_gather", err);
    if (status == ATTN_OK) {
        status = attn__argument(backend, args, &own, sizeof own, backend->entry->plugin->table.gather_size,
                                "args", &known, err);
    }
    if (status != ATTN_OK)
        return status;
    own = *(const struct attn_kv_gather_args *)known;
    status = attn__kv_choose(backend, own.kv, own.kv_desc, &desc_copy, &desc, err);
    if (status == ATTN_OK)
        status = attn__kv_refuse_blocks(desc, "attn_kv_gather", err);
    if (status != ATTN_OK)
        return status;
    const struct attn__kv_find find = {own.addressing, own.index_dtype, desc->block, desc->pages, false};
    status = attn__kv_batch(backend, own.batch, &find, &batch_copy, &own.batch, err);
    if (status == ATTN_OK)
        status = check_gather(&own, desc, err);
    if (status == ATTN_OK && backend->entry->kv.gather == NULL)
        status = unoffered(backend, "gather", err);
    if (status != ATTN_OK || own.tokens == 0 || own.batch->seqs == 0)
        return status;
    const struct attn_kv_ref ref = {own.kv != NULL ? own.kv->impl : NULL, own.kv != NULL ? NULL : desc};
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const uint64_t began = attn__trace_begin(backend);
    status = backend->entry->kv.gather(backend->impl, &own, &ref, stream, &plugin_err);
    attn__trace(backend, began, status, "kv_gather", desc, "seqs=%u tokens=%u", own.batch->seqs, own.tokens);
    return attn__call_end(backend, status, &plugin_err, "kv gather", err);
}
