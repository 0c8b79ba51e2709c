/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Limits of the original at the construction of a layer. */
#include "flavour.h"

static bool given(const struct compat_desc *desc, uint32_t bit)
{
    return (desc->given & bit) != 0;
}

static int32_t check_head_dim(const struct flavour *flavour, const struct compat_desc *desc,
                              struct attn_error *err)
{
    char list[96];

    for (uint32_t i = 0; i < flavour->head_dim_count; i++)
        if (flavour->head_dims[i] == desc->head_dim)
            return ATTN_OK;
    compat_list(flavour->head_dims, flavour->head_dim_count, list, sizeof list);
    return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_HEAD_DIM, "head_dim",
                       "Head size %u is not supported by %s. Supported head sizes are: %s.", desc->head_dim,
                       flavour->head_dim_family, list);
}

/* Of the block-sparse layer: assertions without a text. */
static int32_t check_blocksparse(const struct compat_desc *desc, struct attn_error *err)
{
    const struct {
        const char *field;
        bool bad;
        const char *wanted;
    } rules[] = {
        {"alibi", given(desc, COMPAT_GIVEN_ALIBI), "no slopes"},
        {"window", given(desc, COMPAT_GIVEN_WINDOW), "no window"},
        {"softcap", given(desc, COMPAT_GIVEN_SOFTCAP), "no soft cap"},
        {"blocksparse", !given(desc, COMPAT_GIVEN_BLOCKSPARSE), "its parameters"},
        {"sparse_block", desc->sparse_block <= 0, "a positive block size"},
        {"local_blocks", desc->local_blocks < 0, "local blocks from 0 on"},
        {"vert_stride", desc->vert_stride < 1, "a vertical stride from 1 on"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].bad)
            return compat_fail(err, ATTN_E_INVALID, 0, rules[i].field, "%s: block-sparse attention wants %s",
                               rules[i].field, rules[i].wanted);
    return ATTN_OK;
}

static int32_t check_kv_dtype(const struct flavour *flavour, const struct compat_desc *desc,
                              struct attn_error *err)
{
    if (desc->kv_dtype == NULL)
        return ATTN_OK;
    if (flavour->id == TORCH_SDPA && strcmp(desc->kv_dtype, "auto") != 0)
        return compat_fail(
            err, ATTN_E_UNSUPPORTED, ATTN_REASON_DTYPE_K, "kv_dtype",
            "Torch SDPA backend does not support FP8 KV cache. Please use xFormers backend instead.");
    if ((desc->features & COMPAT_FP8_CHECKPOINT) != 0 && strcmp(desc->kv_dtype, "fp8_e5m2") == 0)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_DTYPE_K, "kv_dtype",
                           "fp8_e5m2 kv-cache is not supported with fp8 checkpoints.");
    return ATTN_OK;
}

int32_t compat_layer(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err)
{
    if (flavour->id == BLOCKSPARSE) {
        int32_t status = check_blocksparse(desc, err);
        if (status != ATTN_OK)
            return status;
    } else if (given(desc, COMPAT_GIVEN_BLOCKSPARSE) && flavour->no_blocksparse != NULL) {
        return compat_fail(err, ATTN_E_INVALID, 0, "blocksparse", "%s", flavour->no_blocksparse);
    }
    if (given(desc, COMPAT_GIVEN_SOFTCAP) && flavour->no_softcap != NULL)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_SOFTCAP, "softcap", "%s", flavour->no_softcap);
    if (given(desc, COMPAT_GIVEN_WINDOW) && flavour->id == FLASHINFER)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_WINDOW, "window",
                           "Sliding window is not supported in FlashInfer.");
    if (desc->heads == 0 || desc->kv_heads == 0 || desc->heads % desc->kv_heads != 0)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_GROUP_SIZE, "kv_heads",
                           "kv_heads is %u and heads %u; a divisor of heads is accepted", desc->kv_heads,
                           desc->heads);
    if (flavour->head_dim_family != NULL) {
        int32_t status = check_head_dim(flavour, desc, err);
        if (status != ATTN_OK)
            return status;
    }
    return check_kv_dtype(flavour, desc, err);
}

/* FlashInfer looks at the head size when metadata is made, not at construction. */
int32_t compat_metadata(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err)
{
    char list[96];

    if (flavour->id != FLASHINFER || desc->head_dim == 0)
        return ATTN_OK;
    for (uint32_t i = 0; i < flavour->head_dim_count; i++)
        if (flavour->head_dims[i] == desc->head_dim)
            return ATTN_OK;
    compat_list(flavour->head_dims, flavour->head_dim_count, list, sizeof list);
    return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_HEAD_DIM, "head_dim",
                       "Only %s are supported for head_dim, received %u.", list, desc->head_dim);
}
