/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks that the fields of a serialised step agree with each other. */
#include "fail.h"
#include "serialise.h"

/* What is checked of the elements of an array. */
enum rule { FROM_ZERO, RISING, ANY };

static int32_t refuse(uint32_t field, uint64_t i, int64_t value, const char *wanted, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_INVALID, 0, attn__field_name(field), "%s[%llu] is %lld; accepted: %s",
                      attn__field_name(field), (unsigned long long)i, (long long)value, wanted);
}

/* Elements are in [0, max]; with RISING the first is 0 and none is below the one before. */
static int32_t check_array(const struct attn__serialised *in, const struct attn_serialised_record *r,
                           enum rule rule, int64_t max, struct attn_error *err)
{
    int64_t last = 0;

    for (uint64_t i = 0; i < r->shape[0]; i++) {
        const int64_t value = attn__serialised_at(in, r, i);
        if (value < 0 || value > max)
            return refuse(r->field, i, value, "not negative, and within the step", err);
        if (rule == RISING && (value < last || (i == 0 && value != 0)))
            return refuse(r->field, i, value, "0 first, then never falling", err);
        last = value;
    }
    return ATTN_OK;
}

static int32_t check_there(const struct attn__serialised *in, uint32_t field, uint32_t index,
                           struct attn_error *err)
{
    struct attn_serialised_record r;

    return attn__serialised_find(in, field, index, &r) && r.kind != ATTN_VIEW_NULL
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, attn__field_name(field), "%s is not there",
                            attn__field_name(field));
}

/* Checks a field, which may be missing; otherwise it has `count` elements. */
static int32_t check_field(const struct attn__serialised *in, uint32_t field, uint32_t index, uint64_t count,
                           enum rule rule, int64_t max, struct attn_error *err)
{
    struct attn_serialised_record r;

    if (!attn__serialised_find(in, field, index, &r) || r.kind == ATTN_VIEW_NULL)
        return ATTN_OK;
    if (r.shape[0] != count)
        return attn__fail(err, ATTN_E_INVALID, 0, attn__field_name(field), "%s has %llu elements, not %llu",
                          attn__field_name(field), (unsigned long long)r.shape[0], (unsigned long long)count);
    return rule == ANY ? ATTN_OK : check_array(in, &r, rule, max, err);
}

/* Reads a number that must not be missing. */
static int32_t get_number(const struct attn__serialised *in, uint32_t field, int64_t max, int64_t *out,
                          struct attn_error *err)
{
    struct attn_serialised_record r;
    const char *name = attn__field_name(field);

    if (!attn__serialised_find(in, field, 0, &r) || r.kind != ATTN_VIEW_NUMBER)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not there", name);
    *out = r.value;
    return r.value <= max ? ATTN_OK
                          : attn__fail(err, ATTN_E_INVALID, 0, name, "%s is %lld; accepted: up to %lld", name,
                                       (long long)r.value, (long long)max);
}

/* If start locations and lengths are both there, the former are the sums of the latter. */
static int32_t check_sums(const struct attn__serialised *in, uint32_t starts, uint32_t lens, uint32_t index,
                          struct attn_error *err)
{
    struct attn_serialised_record s, l;
    int64_t sum = 0;

    if (!attn__serialised_find(in, starts, index, &s) || s.kind == ATTN_VIEW_NULL ||
        !attn__serialised_find(in, lens, index, &l) || l.kind == ATTN_VIEW_NULL)
        return ATTN_OK;
    for (uint64_t i = 0; i < l.shape[0]; i++) {
        sum += attn__serialised_at(in, &l, i);
        if (attn__serialised_at(in, &s, i + 1) != sum)
            return refuse(starts, i + 1, attn__serialised_at(in, &s, i + 1), "the sum of the lengths before",
                          err);
    }
    return ATTN_OK;
}

/* The list for the host and the array for the device have the same elements, if both are there. */
static int32_t check_equal(const struct attn__serialised *in, uint32_t list, uint32_t array, uint32_t index,
                           struct attn_error *err)
{
    struct attn_serialised_record a, b;

    if (!attn__serialised_find(in, list, index, &a) || a.kind == ATTN_VIEW_NULL ||
        !attn__serialised_find(in, array, index, &b) || b.kind == ATTN_VIEW_NULL)
        return ATTN_OK;
    for (uint64_t i = 0; i < a.shape[0]; i++)
        if (attn__serialised_at(in, &a, i) != attn__serialised_at(in, &b, i))
            return refuse(list, i, attn__serialised_at(in, &a, i), "what the tensor has", err);
    return ATTN_OK;
}

/* Cells behind the blocks of a row are 0. */
static int32_t check_table(const struct attn__serialised *in, uint32_t field, uint32_t index, uint32_t group,
                           struct attn_error *err)
{
    struct attn_serialised_record t, rows;

    const bool has_rows = attn__serialised_find(in, ATTN__SERIALISED_ROWS, group, &rows);
    if (!attn__serialised_find(in, field, index, &t) || t.kind == ATTN_VIEW_NULL)
        return has_rows ? attn__fail(err, ATTN_E_INVALID, 0, "rows", "rows are given without their table")
                        : ATTN_OK;
    if (!has_rows || rows.shape[0] != t.shape[0] || rows.shape[1] != 2)
        return attn__fail(err, ATTN_E_INVALID, 0, "rows",
                          "%s has %llu rows, of which the blocks are not told", attn__field_name(field),
                          (unsigned long long)t.shape[0]);
    const uint32_t width = attn__serialise_table(in->b, field, index)->width;
    for (uint64_t i = 0; i < t.shape[0]; i++) {
        const int64_t filled = attn__serialised_at(in, &rows, 2 * i),
                      start = attn__serialised_at(in, &rows, 2 * i + 1);
        if (filled < 0 || filled > width || start < 0 || start > INT32_MAX - filled)
            return attn__fail(err, ATTN_E_INVALID, 0, "rows",
                              "row %llu has %lld blocks from %lld on; accepted: 0 to %u",
                              (unsigned long long)i, (long long)filled, (long long)start, width);
        for (uint64_t cell = (uint64_t)filled; cell < t.shape[1]; cell++)
            if (attn__serialised_at(in, &t, i * t.shape[1] + cell) != 0)
                return refuse(field, i * t.shape[1] + cell,
                              attn__serialised_at(in, &t, i * t.shape[1] + cell),
                              "0 behind the blocks of a row", err);
    }
    return ATTN_OK;
}

static int32_t check_pages(const struct attn__serialised *in, uint32_t g, struct attn_error *err)
{
    struct attn_serialised_record indptr, indices;
    const uint64_t seqs = in->header.seqs;

    if (!in->b->flavour->pages)
        return ATTN_OK;
    if (!attn__serialised_find(in, ATTN_FIELD_PAGED_KV_INDPTR, g, &indptr) || indptr.kind == ATTN_VIEW_NULL ||
        indptr.shape[0] == 0 || indptr.shape[0] > seqs + 1)
        return attn__fail(err, ATTN_E_INVALID, 0, "paged_kv_indptr",
                          "paged_kv_indptr is to have 1 to %llu elements", (unsigned long long)seqs + 1);
    if (!attn__serialised_find(in, ATTN_FIELD_PAGED_KV_INDICES, g, &indices) ||
        indices.kind == ATTN_VIEW_NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "paged_kv_indices", "paged_kv_indices is not there");
    const uint64_t paged = indptr.shape[0] - 1;
    const int64_t max = (int64_t)(indices.shape[0] < INT32_MAX ? indices.shape[0] : INT32_MAX);
    int32_t status = check_array(in, &indptr, RISING, max, err);
    if (status == ATTN_OK)
        status = check_field(in, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, g, paged, FROM_ZERO,
                             in->b->group[g].params.block, err);
    return status == ATTN_OK
               ? check_field(in, ATTN_FIELD_BLOCK_TABLE_BOUND, g, paged, FROM_ZERO, INT32_MAX, err)
               : status;
}

static int32_t check_group(const struct attn__serialised *in, uint32_t g, int64_t prompt_tokens,
                           struct attn_error *err)
{
    const uint64_t seqs = in->header.seqs;
    struct attn_serialised_record slots;
    int32_t status = ATTN_OK;

    status = check_there(in, ATTN_FIELD_SLOT_MAPPING, g, err);
    if (status == ATTN_OK)
        status = check_there(in, ATTN_FIELD_SEQ_LENS_TENSOR, g, err);
    if (status != ATTN_OK)
        return status;
    (void)attn__serialised_find(in, ATTN_FIELD_SLOT_MAPPING, g, &slots);
    if (slots.shape[0] < (uint64_t)prompt_tokens || slots.shape[0] < seqs - in->header.queries)
        status = attn__fail(err, ATTN_E_INVALID, 0, "slot_mapping",
                            "slot_mapping has %llu elements, fewer than the tokens of prompts or of padding",
                            (unsigned long long)slots.shape[0]);
    if (status == ATTN_OK)
        status = check_field(in, ATTN_FIELD_SEQ_LENS, g, seqs, FROM_ZERO, INT32_MAX, err);
    if (status == ATTN_OK)
        status = check_field(in, ATTN_FIELD_SEQ_LENS_TENSOR, g, seqs, FROM_ZERO, INT32_MAX, err);
    if (status == ATTN_OK)
        status = check_equal(in, ATTN_FIELD_SEQ_LENS, ATTN_FIELD_SEQ_LENS_TENSOR, g, err);
    if (status == ATTN_OK)
        status = check_field(in, ATTN_FIELD_SEQ_START_LOC, g, seqs + 1, RISING, INT32_MAX, err);
    if (status == ATTN_OK)
        status = check_sums(in, ATTN_FIELD_SEQ_START_LOC, ATTN_FIELD_SEQ_LENS_TENSOR, g, err);
    if (status == ATTN_OK)
        status = check_table(in, ATTN_FIELD_BLOCK_TABLES, g, g, err);
    return status == ATTN_OK ? check_pages(in, g, err) : status;
}

static int32_t check_encoder(const struct attn__serialised *in, struct attn_error *err)
{
    const uint64_t seqs = in->header.seqs;
    int32_t status = check_field(in, ATTN_FIELD_ENCODER_SEQ_LENS, 0, seqs, FROM_ZERO, INT32_MAX, err);

    if (status == ATTN_OK)
        status = check_field(in, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR, 0, seqs, FROM_ZERO, INT32_MAX, err);
    if (status == ATTN_OK)
        status = check_equal(in, ATTN_FIELD_ENCODER_SEQ_LENS, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR, 0, err);
    if (status == ATTN_OK)
        status = check_field(in, ATTN_FIELD_ENCODER_SEQ_START_LOC, 0, seqs + 1, RISING, INT32_MAX, err);
    if (status == ATTN_OK)
        status = check_sums(in, ATTN_FIELD_ENCODER_SEQ_START_LOC, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR, 0, err);
    return status == ATTN_OK
               ? check_table(in, ATTN_FIELD_CROSS_BLOCK_TABLES, 0, in->b->whole.step.groups, err)
               : status;
}

static int32_t check_map(const struct attn__serialised *in, uint32_t modality, int64_t prompt_tokens,
                         struct attn_error *err)
{
    struct attn_serialised_record sources;
    const bool present = attn__serialised_find(in, ATTN_FIELD_MULTI_MODAL_SOURCES, modality, &sources) &&
                         sources.kind != ATTN_VIEW_NULL;
    const uint64_t pairs = present ? sources.shape[0] : 0;
    const int32_t status =
        check_field(in, ATTN_FIELD_MULTI_MODAL_SOURCES, modality, pairs, FROM_ZERO, INT64_MAX, err);

    return status == ATTN_OK ? check_field(in, ATTN_FIELD_MULTI_MODAL_DESTINATIONS, modality, pairs,
                                           FROM_ZERO, prompt_tokens - 1, err)
                             : status;
}

int32_t attn__serialised_check_values(const struct attn__serialised *in, struct attn_error *err)
{
    const struct attn_serialised_header *h = &in->header;
    int64_t prefills = 0, prompt_tokens = 0, decode_tokens = 0;
    int32_t status = get_number(in, ATTN_FIELD_NUM_PREFILLS, h->queries, &prefills, err);

    if (status == ATTN_OK)
        status = get_number(in, ATTN_FIELD_NUM_PREFILL_TOKENS, in->b->params.max_tokens, &prompt_tokens, err);
    if (status == ATTN_OK)
        status = get_number(in, ATTN_FIELD_NUM_DECODE_TOKENS, in->b->params.max_tokens, &decode_tokens, err);
    if (status == ATTN_OK)
        status = check_there(in, ATTN_FIELD_QUERY_START_LOC, 0, err);
    if (status == ATTN_OK)
        status = check_field(in, ATTN_FIELD_QUERY_START_LOC, 0, (uint64_t)h->queries + 1, RISING,
                             in->b->params.max_tokens, err);
    if (status == ATTN_OK)
        status = check_field(in, ATTN_FIELD_CONTEXT_LENS_TENSOR, 0, h->queries, FROM_ZERO, INT32_MAX, err);
    for (uint32_t g = 0; g < h->groups && status == ATTN_OK; g++)
        status = check_group(in, g, prompt_tokens, err);
    if (status == ATTN_OK)
        status = check_encoder(in, err);
    for (uint32_t i = 0; i < h->modalities && status == ATTN_OK; i++)
        status = check_map(in, i, prompt_tokens, err);
    return status;
}
