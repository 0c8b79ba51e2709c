/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The original's limits: its flavours, and the order in which questions are asked. */
#include "flavour.h"

#include <stdarg.h>
#include <stdio.h>

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

static const uint32_t flash_dims[] = {32, 64, 96, 128, 160, 192, 224, 256};
static const uint32_t flashinfer_dims[] = {64, 128, 256};
static const uint32_t paged_dims[] = {32, 64, 80, 96, 112, 120, 128, 192, 256};

static const struct flavour flavours[] = {
    {.id = FLASH_ATTN,
     .name = "flash-attn",
     .original = "FLASH_ATTN",
     .head_dims = flash_dims,
     .head_dim_count = COUNT(flash_dims),
     .no_blocksparse = "FlashAttention does not support block-sparse attention.",
     .head_dim_family = "FlashAttention"},
    {.id = FLASHINFER,
     .name = "flashinfer",
     .original = "FLASHINFER",
     .head_dims = flashinfer_dims,
     .head_dim_count = COUNT(flashinfer_dims)},
    {.id = ROCM_FLASH,
     .name = "rocm-flash",
     .original = "ROCM_FLASH",
     .head_dims = paged_dims,
     .head_dim_count = COUNT(paged_dims),
     .paged = true,
     .no_blocksparse = "ROCmFlashAttention does not support blocksparse attention.",
     .no_softcap = "ROCmFlashAttention does not support attention logits soft capping.",
     .head_dim_family = "PagedAttention"},
    {.id = XFORMERS,
     .name = "xformers",
     .original = "XFORMERS",
     .head_dims = paged_dims,
     .head_dim_count = COUNT(paged_dims),
     .paged = true,
     .no_blocksparse = "XFormers does not support block-sparse attention.",
     .no_softcap = "XFormers does not support attention logits soft capping.",
     .head_dim_family = "PagedAttention"},
    {.id = TORCH_SDPA,
     .name = "torch-sdpa",
     .original = "TORCH_SDPA",
     .head_dims = paged_dims,
     .head_dim_count = COUNT(paged_dims),
     .paged = true,
     /* The original spells it so. */
     .no_blocksparse = "Torch SPDA does not support block-sparse attention.",
     .no_softcap = "Torch SPDA does not support logits soft cap.",
     .head_dim_family = "PagedAttention"},
    {.id = BLOCKSPARSE,
     .name = "blocksparse",
     .original = "BLOCKSPARSE",
     .head_dims = paged_dims,
     .head_dim_count = COUNT(paged_dims),
     .paged = true},
};

int32_t compat_fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                    const char *format, ...)
{
    va_list args;

    if (err == NULL)
        return status;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    err->status = status;
    err->reason = reason;
    snprintf(err->field, sizeof err->field, "%s", field);
    return status;
}

static const struct flavour *find(const char *name)
{
    if (name == NULL)
        return NULL;
    const char *slash = strrchr(name, '/');
    if (slash != NULL)
        name = slash + 1;
    for (size_t i = 0; i < COUNT(flavours); i++)
        if (strcmp(name, flavours[i].name) == 0 || strcmp(name, flavours[i].original) == 0)
            return &flavours[i];
    return NULL;
}

const struct flavour *compat_flavour(const char *name, struct attn_error *err)
{
    const struct flavour *flavour = find(name);

    if (flavour == NULL)
        compat_fail(err, ATTN_E_INVALID, 0, "flavour",
                    "flavour %.64s is not known; flash-attn, flashinfer, rocm-flash, xformers, torch-sdpa "
                    "and blocksparse are accepted",
                    name != NULL ? name : "NULL");
    return flavour;
}

void compat_list(const uint32_t *values, uint32_t count, char *out, size_t size)
{
    size_t used = 0;

    for (uint32_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%u", i == 0 ? "[" : ", ", values[i]);
    if (used < size)
        snprintf(out + used, size - used, "]");
}

/* The questions in order. */
static const struct {
    uint32_t bit;
    compat_fn check;
} questions[] = {
    {COMPAT_MODEL, compat_model}, {COMPAT_LAYER, compat_layer},       {COMPAT_CACHE, compat_cache},
    {COMPAT_VIEWS, compat_views}, {COMPAT_METADATA, compat_metadata}, {COMPAT_FORWARD, compat_forward},
};

static int32_t check(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err)
{
    uint32_t known = 0;

    for (size_t i = 0; i < COUNT(questions); i++)
        known |= questions[i].bit;
    if (desc->questions == 0 || (desc->questions & ~known) != 0)
        return compat_fail(err, ATTN_E_INVALID, 0, "questions",
                           "questions is 0x%x; a sum of enum compat_question up to 0x%x is accepted",
                           desc->questions, known);
    if (desc->type > ATTN_ENCODER_DECODER)
        return compat_fail(err, ATTN_E_INVALID, 0, "type",
                           "Invalid attention type %u: enum attn_type, or 0 for a decoder, is accepted",
                           desc->type);
    for (size_t i = 0; i < COUNT(questions); i++) {
        if ((desc->questions & questions[i].bit) == 0)
            continue;
        int32_t status = questions[i].check(flavour, desc, err);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* Takes flavour and description; shared by the two public functions. */
static int32_t begin(const char *name, const struct compat_desc *given, const struct flavour **flavour,
                     struct compat_desc *desc, struct attn_error *err)
{
    *desc = *given;
    if (desc->type == 0)
        desc->type = ATTN_DECODER;
    *flavour = compat_flavour(name, err);
    return *flavour == NULL ? ATTN_E_INVALID : check(*flavour, desc, err);
}

int32_t compat_check(const char *flavour, const struct compat_desc *desc, struct attn_error *err)
{
    const struct flavour *found;
    struct compat_desc own;

    return begin(flavour, desc, &found, &own, err);
}

/* Windows as the kernels of a flavour get them. */
static void layer_values(const struct flavour *flavour, const struct compat_desc *desc,
                         struct compat_values *out)
{
    bool window = (desc->given & COMPAT_GIVEN_WINDOW) != 0;
    bool softcap = (desc->given & COMPAT_GIVEN_SOFTCAP) != 0;

    out->queries_per_kv = desc->heads / desc->kv_heads;
    switch (flavour->id) {
    case FLASH_ATTN:
    case FLASHINFER:
    case ROCM_FLASH:
        out->window_count = 2;
        out->window[0] = !window ? -1 : flavour->id == ROCM_FLASH ? desc->window : desc->window - 1;
        out->window[1] = !window ? -1 : flavour->id == ROCM_FLASH ? desc->window : 0;
        break;
    default:
        out->window_count = window ? 1 : 0;
        out->window[0] = window ? desc->window : 0;
    }
    out->softcap_kind = COMPAT_SOFTCAP_NONE;
    if (flavour->id == FLASH_ATTN || (flavour->id == FLASHINFER && softcap))
        out->softcap_kind = COMPAT_SOFTCAP_SET;
    else if (flavour->id == FLASHINFER)
        out->softcap_kind = COMPAT_SOFTCAP_UNSET;
    out->softcap = softcap ? desc->softcap : 0.0F;
}

int32_t compat_get_values(const char *flavour, const struct compat_desc *desc, struct compat_values *out,
                          struct attn_error *err)
{
    const struct flavour *found;
    struct compat_desc own;
    struct compat_values values;
    uint64_t partitions;

    int32_t status = begin(flavour, desc, &found, &own, err);
    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&values);
    if ((own.questions & COMPAT_LAYER) != 0)
        layer_values(found, &own, &values);
    if ((own.questions & COMPAT_CACHE) != 0)
        compat_cache_values(found, &own, &values);
    if ((own.questions & COMPAT_VIEWS) != 0)
        compat_view_values(found, &own, &values);
    if ((own.questions & COMPAT_FORWARD) != 0 && (own.parts & COMPAT_DECODE) != 0 && found->paged) {
        values.paged_version = compat_paged_version(own.seqs, own.heads, own.max_decode_len, &partitions);
        values.partitions = values.paged_version == 1 ? 1 : (uint32_t)partitions;
    }
    *out = values;
    return ATTN_OK;
}

const char *compat_name(const char *flavour)
{
    const struct flavour *found = find(flavour);

    return found != NULL ? found->original : NULL;
}

const uint32_t *compat_head_dims(const char *flavour, uint32_t *out_count)
{
    const struct flavour *found = find(flavour);

    if (out_count != NULL)
        *out_count = found != NULL ? found->head_dim_count : 0;
    return found != NULL ? found->head_dims : NULL;
}
