/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Limits of the original's model runner: what it refuses before any layer is made. */
#include "flavour.h"

static bool in(const struct flavour *flavour, const enum flavour_id *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == flavour->id)
            return true;
    return false;
}

/* Features that an encoder/decoder model cannot have, in the original's order; windows and caps have bits in
 * `given`. */
static int32_t check_encoder_decoder(const struct flavour *flavour, const struct compat_desc *desc,
                                     struct attn_error *err)
{
    static const enum flavour_id served[] = {XFORMERS, FLASH_ATTN};
    static const struct {
        const char *field;
        uint32_t given;
        uint32_t feature;
        const char *text;
    } limits[] = {
        {"prefix_cache", 0, COMPAT_PREFIX_CACHE,
         "Prefix caching for encoder/decoder models is not currently supported."},
        {"window", COMPAT_GIVEN_WINDOW, 0,
         "Sliding window attention for encoder/decoder models is not currently supported."},
        {"chunked", 0, COMPAT_CHUNKED,
         "Chunked prefill for encoder/decoder models is not currently supported."},
        {"softcap", COMPAT_GIVEN_SOFTCAP, 0,
         "Models with logits_soft_cap require FlashInfer backend, which is currently not supported for "
         "encoder/decoder models."},
        {"lora", 0, COMPAT_LORA, "LoRA is currently not currently supported with encoder/decoder models."},
        {"pipeline", 0, COMPAT_PIPELINE,
         "Pipeline parallelism is not currently supported with encoder/decoder models."},
        {"speculative", 0, COMPAT_SPECULATIVE,
         "Speculative decoding is not currently supported with encoder/decoder models."},
        {"prompt_adapter", 0, COMPAT_PROMPT_ADAPTER,
         "Prompt adapters are not currently supported with encoder/decoder models."},
    };

    if (!in(flavour, served, sizeof served / sizeof *served))
        return compat_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_ATTN_TYPE, "flavour",
                           "XFormers and Flash-Attention are the only backends currently supported with "
                           "encoder/decoder models.");
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if ((desc->given & limits[i].given) != 0 || (desc->features & limits[i].feature) != 0)
            return compat_fail(err, ATTN_E_UNSUPPORTED, 0, limits[i].field, "%s", limits[i].text);
    return ATTN_OK;
}

static int32_t check_multi_step(const struct flavour *flavour, const struct compat_desc *desc,
                                struct attn_error *err)
{
    static const enum flavour_id plain[] = {FLASH_ATTN, ROCM_FLASH, FLASHINFER};
    static const enum flavour_id chunked[] = {FLASH_ATTN};
    bool with_chunks = (desc->features & COMPAT_CHUNKED) != 0;

    if (with_chunks ? in(flavour, chunked, 1) : in(flavour, plain, sizeof plain / sizeof *plain))
        return ATTN_OK;
    return compat_fail(err, ATTN_E_INVALID, 0, "flavour",
                       "%s not supported for attention backend: %s. Set VLLM_ATTENTION_BACKEND to a value "
                       "from %s.",
                       with_chunks ? "Multi-Step + Chunked-Prefill" : "Multi-Step", flavour->original,
                       with_chunks ? "['FLASH_ATTN']" : "['FLASH_ATTN', 'ROCM_FLASH', 'FLASHINFER']");
}

int32_t compat_model(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err)
{
    if (desc->type == ATTN_ENCODER || desc->type == ATTN_ENCODER_DECODER) {
        int32_t status = check_encoder_decoder(flavour, desc, err);
        if (status != ATTN_OK)
            return status;
    }
    if ((desc->features & COMPAT_MULTI_STEP) != 0)
        return check_multi_step(flavour, desc, err);
    return ATTN_OK;
}
