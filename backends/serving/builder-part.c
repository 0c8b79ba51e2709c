/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The prefill part and the decode part of a step. */
#include "builder-part.h"
#include "fail.h"

void attn__parts_prepare(struct attn_builder_impl *b, const int32_t *starts)
{
    struct attn_step *step = &b->whole.step;
    int32_t *from_zero = attn__ints(&step->decode_starts);

    step->decode_starts.count = step->queries - step->prefills + UINT64_C(1);
    for (uint32_t i = step->prefills; i <= step->seqs && step->prefills > 0; i++)
        from_zero[i - step->prefills] =
            starts != NULL ? starts[i] - starts[step->prefills] : (int32_t)(i - step->prefills);
}

/* Reduces an array or table to elements or rows [first, first + count), as far as there are any. */
static void slice(struct attn_step_array *array, bool table, uint64_t first, uint64_t count)
{
    const uint64_t size = table ? (uint64_t)array->stride : attn__index_size(array->dtype);
    const uint64_t from = first < array->count ? first : array->count;

    if (array->dtype == 0)
        return;
    array->count = count < array->count - from ? count : array->count - from;
    if (array->host != NULL)
        array->host = (char *)array->host + from * size;
    if (array->device.data != NULL)
        array->device.byte_offset += from * size;
}

static void slice_group(struct attn_step_group *group, const struct attn_step *whole,
                        const struct attn_step *part, bool prefill)
{
    const uint64_t first = prefill ? 0 : whole->prefills;

    slice(&group->slots, false, prefill ? 0 : whole->prefill_tokens,
          prefill ? whole->prefill_tokens : UINT64_MAX);
    slice(&group->seq_lens, false, first, part->seqs);
    slice(&group->seq_lens_list, false, first, part->seqs);
    slice(&group->rank_lens, false, first, part->seqs);
    slice(&group->seq_starts, false, first, part->seqs + UINT64_C(1));
    slice(&group->table, true, first, part->seqs);
    if (prefill)
        group->max_decode_len = 0;
}

static void take_prefills(const struct attn_step *whole, struct attn_step *part)
{
    part->seqs = part->queries = whole->prefills;
    part->num_tokens = whole->prefill_tokens;
    part->decode_tokens = part->graph = part->max_decode_q = 0;
    slice(&part->query_starts, false, 0, part->seqs + UINT64_C(1));
    slice(&part->context_lens, false, 0, part->seqs);
}

static void take_decodes(const struct attn_step *whole, struct attn_step *part)
{
    part->seqs = whole->seqs - whole->prefills;
    part->queries = whole->queries - whole->prefills;
    part->num_tokens = whole->num_tokens - whole->prefill_tokens;
    part->first_row = whole->first_row + whole->prefills;
    part->prefills = part->prefill_tokens = part->prefills_without_table = part->max_prefill_len = 0;
    if (whole->prefills > 0)
        part->query_starts = whole->decode_starts;
    slice(&part->context_lens, false, whole->prefills, part->queries);
}

/* vLLM's assertions on the step that a part is taken from. */
static int32_t check(const struct attn_builder_impl *b, bool prefill, struct attn_error *err)
{
    static const uint32_t all[] = {
        ATTN_FIELD_SEQ_LENS,      ATTN_FIELD_SEQ_LENS_TENSOR,     ATTN_FIELD_QUERY_START_LOC,
        ATTN_FIELD_SEQ_START_LOC, ATTN_FIELD_CONTEXT_LENS_TENSOR, ATTN_FIELD_BLOCK_TABLES};
    static const uint32_t some[] = {ATTN_FIELD_SEQ_LENS_TENSOR, ATTN_FIELD_BLOCK_TABLES};
    const uint32_t *fields = prefill ? all : some;
    const size_t count = !b->flavour->parts_need_all ? 0 : prefill ? sizeof all / sizeof all[0] : 2;
    struct attn_step *step = (struct attn_step *)(uintptr_t)&b->whole.step; /* only read */

    for (size_t i = 0; i < count; i++)
        if (attn__step_array(step, fields[i], 0)->dtype == 0)
            return attn__fail(err, ATTN_E_INVALID, 0, attn__field_name(fields[i]),
                              "%s is not set, and a part needs it", attn__field_name(fields[i]));
    if (prefill && step->group->seq_lens_list.dtype == 0 && step->encoder.seq_lens_list.dtype == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "seq_lens",
                          "neither seq_lens nor encoder_seq_lens is set, and a part needs one");
    if (step->group->seq_lens.dtype == 0 && step->encoder.seq_lens.dtype == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "seq_lens_tensor",
                          "neither seq_lens_tensor nor encoder_seq_lens_tensor is set, and a part needs one");
    return ATTN_OK;
}

int32_t attn__builder_part(struct attn_builder_impl *b, uint32_t which, struct attn_metadata_impl **out,
                           struct attn_error *err)
{
    const bool prefill = which == ATTN_PART_PREFILL;
    const struct attn_step *whole = &b->whole.step;
    struct attn_metadata_impl *part = prefill ? &b->prefill : &b->decode;

    *out = NULL;
    if ((prefill ? whole->prefills : whole->decode_tokens) == 0)
        return ATTN_OK;
    if (b->flavour->pages) {
        *out = &b->whole;
        return ATTN_OK;
    }
    const int32_t status = check(b, prefill, err);
    if (status != ATTN_OK)
        return status;
    struct attn_step_group *groups = part->step.group;
    struct attn_step_map *maps = part->step.map;
    part->step = *whole;
    part->step.group = groups;
    part->step.map = maps;
    if (prefill)
        take_prefills(whole, &part->step);
    else
        take_decodes(whole, &part->step);
    for (uint32_t g = 0; g < whole->groups; g++) {
        groups[g] = whole->group[g];
        slice_group(&groups[g], whole, &part->step, prefill);
    }
    for (uint32_t m = 0; m < whole->modalities; m++)
        maps[m] = whole->map[m];
    *out = part;
    return ATTN_OK;
}
