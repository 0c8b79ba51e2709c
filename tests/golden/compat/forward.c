/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Limits of the original in one forward of a layer. */
#include "flavour.h"

static bool has(const struct compat_desc *desc, uint32_t bits)
{
    return (desc->parts & bits) == bits;
}

static bool is_unit(float scale)
{
    return scale == 0.0F || scale == 1.0F;
}

/* Lengths and tables that the type needs. */
static int32_t check_type(const struct flavour *flavour, const struct compat_desc *desc,
                          struct attn_error *err)
{
    if ((flavour->id == FLASHINFER || flavour->id == ROCM_FLASH) && desc->type != ATTN_DECODER)
        return compat_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_ATTN_TYPE, "type",
                           "Encoder self-attention and encoder/decoder cross-attention are not implemented "
                           "for %s",
                           flavour->id == FLASHINFER ? "FlashInferImpl" : "ROCmFlashAttentionImpl");
    if (desc->type == ATTN_ENCODER && !has(desc, COMPAT_ENCODER_LENS))
        return compat_fail(err, ATTN_E_INVALID, 0, "encoder_seq_lens",
                           "Encoder attention requires setting encoder metadata attributes.");
    if (desc->type == ATTN_ENCODER_DECODER && !has(desc, COMPAT_ENCODER_LENS | COMPAT_CROSS))
        return compat_fail(
            err, ATTN_E_INVALID, 0, "cross_slot_mapping",
            "Encoder/decoder cross-attention requires setting cross-attention metadata attributes.");
    if ((desc->type == ATTN_ENCODER || desc->type == ATTN_ENCODER_DECODER) &&
        !has(desc, COMPAT_ENCODER_TOKENS))
        return compat_fail(err, ATTN_E_INVALID, 0, "num_encoder_tokens",
                           "num_encoder_tokens is not given; encoder and cross-attention need it");
    return ATTN_OK;
}

static int32_t check_scales(const struct flavour *flavour, const struct compat_desc *desc,
                            struct attn_error *err)
{
    bool unit = is_unit(desc->k_scale) && is_unit(desc->v_scale);

    if (flavour->id == FLASH_ATTN && !unit)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_SCALES,
                           is_unit(desc->k_scale) ? "v_scale" : "k_scale",
                           "key/v_scale is not supported in FlashAttention.");
    if (flavour->id == TORCH_SDPA && !unit)
        return compat_fail(
            err, ATTN_E_INVALID, ATTN_REASON_SCALES, is_unit(desc->k_scale) ? "v_scale" : "k_scale",
            "k_scale is %g and v_scale %g; 1 is accepted", (double)desc->k_scale, (double)desc->v_scale);
    return ATTN_OK;
}

static int32_t check_prefill(const struct flavour *flavour, const struct compat_desc *desc,
                             struct attn_error *err)
{
    /* The CPU flavour looks at the table alone. */
    if (flavour->id == TORCH_SDPA && has(desc, COMPAT_HAS_TABLE))
        return compat_fail(err, ATTN_E_INVALID, 0, "block_tables",
                           "Torch SDPA backend doesn't support prefix decoding.");
    if (!has(desc, COMPAT_HAS_CACHE | COMPAT_HAS_TABLE)) {
        if (flavour->id == FLASH_ATTN && desc->type == ATTN_ENCODER_ONLY && has(desc, COMPAT_DECODE))
            return compat_fail(err, ATTN_E_INVALID, 0, "num_decode_tokens",
                               "Should not have decode for encoder only model.");
        return ATTN_OK;
    }
    if (flavour->id == FLASH_ATTN && desc->type != ATTN_DECODER)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_ATTN_TYPE, "type",
                           "Only decoder-only models support prefix caching");
    if (flavour->id == XFORMERS && desc->type == ATTN_ENCODER_ONLY)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_ATTN_TYPE, "type",
                           "type is encoder_only; prefix caching is for the other types");
    return ATTN_OK;
}

static int32_t check_decode_query(const struct flavour *flavour, const struct compat_desc *desc,
                                  struct attn_error *err)
{
    bool many = desc->max_decode_query > 1;

    if (flavour->id == FLASH_ATTN) {
        if ((desc->given & COMPAT_GIVEN_DECODE_QUERY) == 0)
            return compat_fail(err, ATTN_E_INVALID, 0, "max_decode_query_len",
                               "max_decode_query_len is not given; a decode part needs it");
        if (many && desc->type != ATTN_DECODER)
            return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_ATTN_TYPE, "type",
                               "Only decoder-only models support max_decode_query_len > 1");
        if (desc->type == ATTN_ENCODER_ONLY)
            return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_ATTN_TYPE, "type",
                               "Invalid attention type encoder_only for a decode part");
    } else if (flavour->id == FLASHINFER && many && has(desc, COMPAT_PREFILL)) {
        return compat_fail(err, ATTN_E_INVALID, 0, "decode_query_len",
                           "decode_query_len is %u; beside prompts 1 is accepted", desc->max_decode_query);
    }
    return ATTN_OK;
}

static int32_t check_decode(const struct flavour *flavour, const struct compat_desc *desc,
                            struct attn_error *err)
{
    int32_t status = check_decode_query(flavour, desc, err);

    if (status != ATTN_OK || !flavour->paged)
        return status;
    if (desc->type == ATTN_ENCODER_ONLY)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_ATTN_TYPE, "type",
                           "type is encoder_only; it has no decode part");
    if (desc->block != 8 && desc->block != 16 && desc->block != 32)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_BLOCK_SIZE, "block", "Unsupported block size: %u",
                           desc->block);
    return ATTN_OK;
}

int32_t compat_forward(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err)
{
    int32_t status = check_scales(flavour, desc, err);

    if (status == ATTN_OK)
        status = check_type(flavour, desc, err);
    if (status != ATTN_OK)
        return status;
    if (has(desc, COMPAT_KEY) != has(desc, COMPAT_VALUE))
        return compat_fail(err, ATTN_E_INVALID, 0, has(desc, COMPAT_KEY) ? "value" : "key",
                           "one of key and value is given; both or none are accepted");
    if ((desc->parts & (COMPAT_PREFILL | COMPAT_DECODE)) == 0)
        return compat_fail(err, ATTN_E_INVALID, 0, "metadata",
                           "metadata has neither a prefill nor a decode part; at least one is needed");
    if (flavour->id == TORCH_SDPA && has(desc, COMPAT_PREFILL | COMPAT_DECODE))
        return compat_fail(err, ATTN_E_INVALID, 0, "metadata",
                           "metadata has a prefill and a decode part; one of them is accepted");
    if (has(desc, COMPAT_PREFILL))
        status = check_prefill(flavour, desc, err);
    if (status == ATTN_OK && has(desc, COMPAT_DECODE))
        status = check_decode(flavour, desc, err);
    return status;
}
