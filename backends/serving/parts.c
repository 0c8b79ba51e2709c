/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The prefill part and the decode part of a step. */
#include "parts.h"
#include "fail.h"

#define ALL   (ATTN__IN(ATTN_FLASH_ATTN) | ATTN__IN(ATTN_ROCM_FLASH) | ATTN__IN(ATTN_XFORMERS))
#define FLASH ATTN__IN(ATTN_FLASH_ATTN)

/* What a part shows of a field. */
enum take {
    NONE,     /* null */
    WHOLE,    /* all of it */
    ZERO,     /* the number 0 */
    SEQS,     /* the part's sequences */
    STARTS,   /* start locations of the part's sequences, and the end of the last one */
    REBASED,  /* the same, counted from the first token of the part */
    TOKENS,   /* the part's tokens */
    PREFILLS, /* and the next two: counts of the part */
    PREFILL_TOKENS,
    DECODE_TOKENS
};

/* What both parts show of a field; flavours without a bit here show null. */
struct rule {
    uint8_t prefill;
    uint8_t decode;
    uint8_t prefill_flavours;
    uint8_t decode_flavours;
};

static const struct rule rules[ATTN_FIELDS] = {
    [ATTN_FIELD_NUM_PREFILLS] = {PREFILLS, PREFILLS, ALL, ALL},
    [ATTN_FIELD_NUM_PREFILL_TOKENS] = {PREFILL_TOKENS, PREFILL_TOKENS, ALL, ALL},
    [ATTN_FIELD_NUM_DECODE_TOKENS] = {DECODE_TOKENS, DECODE_TOKENS, ALL, ALL},
    [ATTN_FIELD_SLOT_MAPPING] = {TOKENS, TOKENS, ALL, ALL},
    [ATTN_FIELD_MULTI_MODAL_SOURCES] = {WHOLE, NONE, ALL, ALL},
    [ATTN_FIELD_MULTI_MODAL_DESTINATIONS] = {WHOLE, NONE, ALL, ALL},
    [ATTN_FIELD_SEQ_LENS] = {SEQS, NONE, ALL, ALL},
    [ATTN_FIELD_SEQ_LENS_TENSOR] = {SEQS, SEQS, ALL, ALL},
    [ATTN_FIELD_MAX_PREFILL_SEQ_LEN] = {WHOLE, ZERO, ALL, ALL},
    [ATTN_FIELD_MAX_DECODE_SEQ_LEN] = {ZERO, WHOLE, ALL, ALL},
    [ATTN_FIELD_CONTEXT_LENS_TENSOR] = {SEQS, NONE, ALL, ALL},
    [ATTN_FIELD_BLOCK_TABLES] = {SEQS, SEQS, ALL, ALL},
    [ATTN_FIELD_USE_CUDA_GRAPH] = {ZERO, WHOLE, ALL, ALL},
    [ATTN_FIELD_MAX_QUERY_LEN] = {WHOLE, WHOLE, ALL, FLASH},
    [ATTN_FIELD_MAX_DECODE_QUERY_LEN] = {ZERO, WHOLE, FLASH, FLASH},
    [ATTN_FIELD_QUERY_START_LOC] = {STARTS, REBASED, ALL, FLASH},
    [ATTN_FIELD_SEQ_START_LOC] = {STARTS, STARTS, ALL & ~ATTN__IN(ATTN_XFORMERS), FLASH},
    [ATTN_FIELD_ENCODER_SEQ_LENS] = {WHOLE, WHOLE, ALL, ALL},
    [ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR] = {WHOLE, WHOLE, ALL, ALL},
    [ATTN_FIELD_ENCODER_SEQ_START_LOC] = {WHOLE, WHOLE, FLASH, FLASH},
    [ATTN_FIELD_MAX_ENCODER_SEQ_LEN] = {WHOLE, WHOLE, ALL, ALL},
    [ATTN_FIELD_CROSS_SLOT_MAPPING] = {WHOLE, WHOLE, ALL, ALL},
    [ATTN_FIELD_CROSS_BLOCK_TABLES] = {WHOLE, WHOLE, ALL, ALL},
};

void attn__parts_prepare(struct attn_builder_impl *b)
{
    const struct attn_metadata_impl *whole = &b->whole;
    const int32_t *starts = attn__i32(b->group, ATTN_FIELD_QUERY_START_LOC);
    int32_t *rebased = (int32_t *)(void *)b->decode_start.host;

    attn__parts_drop(b);
    if (whole->prefills == 0)
        return;
    for (uint32_t i = whole->prefills; i <= whole->seqs; i++)
        rebased[i - whole->prefills] = starts[i] - starts[whole->prefills];
}

void attn__parts_drop(struct attn_builder_impl *b)
{
    struct attn_metadata_impl *parts[] = {&b->prefill, &b->decode};
    const uint32_t sets = b->whole.groups > b->whole.modalities ? b->whole.groups : b->whole.modalities;

    for (int i = 0; i < 2; i++) {
        parts[i]->seqs = parts[i]->queries = parts[i]->prefills = parts[i]->tokens = 0;
        parts[i]->prompt_tokens = parts[i]->max_q = parts[i]->graph = 0;
        for (size_t v = 0; v < (size_t)sets * ATTN_FIELDS; v++)
            attn__set_null(&parts[i]->views[v]);
    }
}

/* Reduces a view to elements [first, first + count) of its outer dimension, as far as there are any. */
static void slice(struct attn_view *view, uint64_t first, uint64_t count)
{
    const int64_t size = view->dtype == ATTN_INT64 ? 8 : 4;
    const int64_t step = view->rank == 2 ? view->stride : size;
    const uint64_t have = view->shape[0], from = first < have ? first : have;

    view->shape[0] = count < have - from ? count : have - from;
    if (view->host != NULL)
        view->host = (char *)view->host + (int64_t)from * step;
    view->device.byte_offset += from * (uint64_t)step;
}

static void rebase(const struct attn_builder_impl *b, struct attn_view *view)
{
    view->shape[0] -= b->whole.prefills;
    if (b->whole.prefills == 0)
        return;
    view->host = view->host != NULL ? b->decode_start.host : NULL;
    view->device = (struct attn_buffer){NULL, 0};
    if (b->host_only)
        return;
    view->device = b->device;
    view->device.byte_offset += b->decode_start.offset;
}

static void take(const struct attn_builder_impl *b, const struct attn_metadata_impl *part, enum take how,
                 struct attn_view *view)
{
    const struct attn_metadata_impl *whole = &b->whole;
    const uint64_t first = part == &b->prefill ? 0 : whole->prefills;

    if (view->kind == ATTN_VIEW_NULL && how != ZERO)
        return;
    switch (how) {
    case NONE:
        attn__set_null(view);
        break;
    case WHOLE:
        break;
    case ZERO:
        attn__set_number(view, 0);
        break;
    case SEQS:
        slice(view, first, part->seqs);
        break;
    case STARTS:
        slice(view, first, (uint64_t)part->seqs + 1);
        break;
    case REBASED:
        rebase(b, view);
        break;
    case TOKENS:
        slice(view, part == &b->prefill ? 0 : whole->prompt_tokens,
              part == &b->prefill ? whole->prompt_tokens : UINT64_MAX);
        break;
    case PREFILLS:
        attn__set_number(view, part->prefills);
        break;
    case PREFILL_TOKENS:
        attn__set_number(view, part->prompt_tokens);
        break;
    case DECODE_TOKENS:
        view->value = part == &b->prefill ? 0 : view->value;
        break;
    }
}

static bool has(const struct attn_builder_impl *b, uint32_t field)
{
    return attn__field(&b->whole, field, 0)->kind != ATTN_VIEW_NULL;
}

/* vLLM's assertions on the whole. */
static int32_t check(const struct attn_builder_impl *b, uint32_t part, struct attn_error *err)
{
    static const uint32_t all[] = {
        ATTN_FIELD_SEQ_LENS,      ATTN_FIELD_SEQ_LENS_TENSOR,     ATTN_FIELD_QUERY_START_LOC,
        ATTN_FIELD_SEQ_START_LOC, ATTN_FIELD_CONTEXT_LENS_TENSOR, ATTN_FIELD_BLOCK_TABLES};
    static const uint32_t some[] = {ATTN_FIELD_SEQ_LENS_TENSOR, ATTN_FIELD_BLOCK_TABLES};
    const bool rocm = b->params.flavour == ATTN_ROCM_FLASH, prefill = part == ATTN_PART_PREFILL;
    const uint32_t *fields = prefill ? all : some;
    const size_t count = !rocm ? 0 : prefill ? sizeof all / sizeof all[0] : 2;

    for (size_t i = 0; i < count; i++)
        if (!has(b, fields[i]))
            return attn__fail(err, ATTN_E_INVALID, 0, attn__field_infos[fields[i]].name,
                              "%s is not set, and a part needs it", attn__field_infos[fields[i]].name);
    if (prefill && !has(b, ATTN_FIELD_SEQ_LENS) && !has(b, ATTN_FIELD_ENCODER_SEQ_LENS))
        return attn__fail(err, ATTN_E_INVALID, 0, "seq_lens",
                          "neither seq_lens nor encoder_seq_lens is set, and a part needs one");
    if (!has(b, ATTN_FIELD_SEQ_LENS_TENSOR) && !has(b, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR))
        return attn__fail(err, ATTN_E_INVALID, 0, "seq_lens_tensor",
                          "neither seq_lens_tensor nor encoder_seq_lens_tensor is set, and a part needs one");
    return ATTN_OK;
}

/* Sequences and tokens of a part. */
static void count(const struct attn_metadata_impl *whole, struct attn_metadata_impl *part, bool prefill)
{
    part->seqs = prefill ? whole->prefills : whole->seqs - whole->prefills;
    part->queries = prefill ? whole->prefills : whole->queries - whole->prefills;
    part->prefills = prefill ? whole->prefills : 0;
    part->prompt_tokens = prefill ? whole->prompt_tokens : 0;
    part->tokens = prefill ? whole->prompt_tokens : whole->tokens - whole->prompt_tokens;
    part->first_row = prefill ? whole->first_row : whole->first_row + whole->prefills;
    part->max_q = whole->max_q;
    part->graph = prefill ? 0 : whole->graph;
}

int32_t attn__builder_part(struct attn_builder_impl *b, uint32_t which, struct attn_metadata_impl **out,
                           struct attn_error *err)
{
    const bool prefill = which == ATTN_PART_PREFILL;
    const uint32_t number = prefill ? ATTN_FIELD_NUM_PREFILLS : ATTN_FIELD_NUM_DECODE_TOKENS;
    struct attn_metadata_impl *part = prefill ? &b->prefill : &b->decode;
    const uint32_t sets = b->whole.groups > b->whole.modalities ? b->whole.groups : b->whole.modalities;

    *out = NULL;
    if (attn__field(&b->whole, number, 0)->value == 0)
        return ATTN_OK;
    if (b->infer) {
        *out = &b->whole;
        return ATTN_OK;
    }
    const int32_t status = check(b, which, err);
    if (status != ATTN_OK)
        return status;
    count(&b->whole, part, prefill);
    for (uint32_t i = 0; i < sets; i++) {
        for (uint32_t field = 0; field < ATTN_FIELDS; field++) {
            const struct rule *rule = &rules[field];
            const uint32_t flavours = prefill ? rule->prefill_flavours : rule->decode_flavours;
            struct attn_view *view = attn__field(part, field, i);
            *view = *attn__field(&b->whole, field, i);
            if ((flavours & ATTN__IN(b->params.flavour)) == 0)
                attn__set_null(view);
            else
                take(b, part, prefill ? rule->prefill : rule->decode, view);
        }
    }
    *out = part;
    return ATTN_OK;
}

int32_t attn__metadata_decodes(const struct attn_metadata_impl *metadata,
                               const struct attn_metadata_impl **out, struct attn_error *err)
{
    struct attn_builder_impl *b = metadata->builder;
    struct attn_metadata_impl *part = NULL;

    *out = b != NULL && metadata == &b->prefill ? NULL : metadata;
    if (b == NULL || metadata != &b->whole)
        return ATTN_OK;
    const int32_t status = attn__builder_part(b, ATTN_PART_DECODE, &part, err);
    *out = part;
    return status;
}
