/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks that metadata can advance by a step in place: vLLM's assertions, and the bounds of arrays. */
#include "builder-advance.h"
#include "fail.h"

static int32_t want_number(const struct attn__next_step *next, uint32_t field, uint32_t group, int64_t value,
                           struct attn_error *err)
{
    const uint32_t got = *attn__step_number(&next->b->whole.step, field, group);
    const char *name = attn__field_name(field);

    if (got == value)
        return ATTN_OK;
    if (got == ATTN_STEP_NONE)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not set; to advance it is to be %lld", name,
                          (long long)value);
    return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is %u; to advance it is to be %lld", name, got,
                      (long long)value);
}

/* The outer dimension of a field. */
static int32_t want_shape(const struct attn__next_step *next, uint32_t field, uint32_t group, uint64_t count,
                          struct attn_error *err)
{
    const struct attn_step_array *array = attn__step_array(&next->b->whole.step, field, group);
    const char *name = attn__field_name(field);

    if (array->dtype == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not set; to advance it is needed", name);
    if (array->count == count)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_INVALID, 0, name, "%s has %llu entries; to advance it is to have %llu",
                      name, (unsigned long long)array->count, (unsigned long long)count);
}

static int32_t check_counts(const struct attn__next_step *next, struct attn_error *err)
{
    const struct attn_step *step = &next->b->whole.step;
    const struct attn__flavour *flavour = next->b->flavour;

    if (next->b->host_only)
        return attn__fail(err, ATTN_E_STATE, 0, "host_only",
                          "the step was built with host_only, so that there is none on the device to "
                          "advance");
    if (next->b->on_device)
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, 0, "metadata",
            "the arrays of this step are the engine's, which advances them: attn_kv_advance_step");
    if (flavour->no_advance)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "flavour", "%s metadata does not advance",
                          flavour->name);
    if (next->seqs != next->queries && (next->seqs < next->queries || step->graph == 0))
        return attn__fail(err, ATTN_E_INVALID, 0, "seqs",
                          "seqs is %u and queries %u; seqs is larger only where a graph is padded",
                          next->seqs, next->queries);
    if (next->seqs == 0 || next->queries == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "queries",
                          "seqs is %u and queries %u; accepted: 1 and more", next->seqs, next->queries);
    if (next->args->prefill_to_decode != 0 && flavour->module_name != NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "prefill_to_decode",
                          "Chunked prefill is not supported with %s yet.turn_prefills_into_decodes is a "
                          "Multi-Step + Chunked-Prefill specific parameter.",
                          flavour->module_name);
    if (next->args->sampled.data == NULL && flavour->sampled)
        return attn__fail(err, ATTN_E_INVALID, 0, "sampled", "sampled is not given");
    if (next->args->sampled.data != NULL && next->args->tokens.data == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "tokens", "sampled is given, but tokens is not");
    return ATTN_OK;
}

/* The query tokens of the next step: as many as now, or one each where prefills become decodes. */
static int32_t check_query_tokens(struct attn__next_step *next, struct attn_error *err)
{
    const struct attn_step_array *starts = &next->b->whole.step.query_starts;
    int32_t status = want_shape(next, ATTN_FIELD_QUERY_START_LOC, 0, (uint64_t)next->queries + 1, err);

    if (status != ATTN_OK)
        return status;
    next->max_q = 1;
    next->num_tokens = next->seqs;
    if (next->args->prefill_to_decode != 0 || starts->host == NULL)
        return ATTN_OK;
    next->starts = starts->host;
    for (uint32_t i = 0; i < next->queries; i++) {
        const int64_t q = (int64_t)next->starts[i + 1] - next->starts[i];
        if (q < 0 || next->starts[0] != 0)
            return attn__fail(err, ATTN_E_INVALID, 0, "query_start_loc",
                              "query_start_loc goes from %d to %d at %u; it begins with 0 and never falls",
                              next->starts[i], next->starts[i + 1], i);
        next->max_q = q > next->max_q ? (uint32_t)q : next->max_q;
    }
    next->num_tokens = (uint32_t)next->starts[next->queries] + (next->seqs - next->queries);
    return ATTN_OK;
}

static int32_t check_prefill_to_decode(const struct attn__next_step *next, struct attn_error *err)
{
    const struct attn_step *step = &next->b->whole.step;

    if ((uint64_t)step->prefills + step->decode_tokens != next->seqs)
        return attn__fail(err, ATTN_E_INVALID, 0, "num_decode_tokens",
                          "num_prefills is %u and num_decode_tokens %u; to turn prompts into decodes they "
                          "are to be seqs, %u, together",
                          step->prefills, step->decode_tokens, next->seqs);
    for (uint32_t g = 0; g < step->groups; g++)
        if (step->group[g].slots.count < next->seqs)
            return want_shape(next, ATTN_FIELD_SLOT_MAPPING, g, next->seqs, err);
    return ATTN_OK;
}

static int32_t check_numbers(const struct attn__next_step *next, struct attn_error *err)
{
    int32_t status = want_number(next, ATTN_FIELD_NUM_PREFILLS, 0, 0, err);

    if (status == ATTN_OK)
        status = want_number(next, ATTN_FIELD_NUM_PREFILL_TOKENS, 0, 0, err);
    if (status == ATTN_OK)
        status = want_number(next, ATTN_FIELD_NUM_DECODE_TOKENS, 0, next->num_tokens, err);
    if (status == ATTN_OK && attn__flavour_has(next->b->flavour, ATTN_FIELD_MAX_QUERY_LEN))
        status = want_number(next, ATTN_FIELD_MAX_QUERY_LEN, 0, next->max_q, err);
    if (status == ATTN_OK)
        status = want_number(next, ATTN_FIELD_MAX_PREFILL_SEQ_LEN, 0, 0, err);
    return status;
}

/* max_decode_seq_len is the maximum of seq_lens. */
static int32_t check_longest(const struct attn__next_step *next, uint32_t group, struct attn_error *err)
{
    const struct attn_step_array *list = &next->b->whole.step.group[group].seq_lens_list;
    const int32_t *lens = list->dtype != 0 ? attn__ints(list) : NULL;
    int32_t max_len = 0;

    for (uint32_t i = 0; lens != NULL && i < next->seqs; i++)
        max_len = lens[i] > max_len ? lens[i] : max_len;
    return lens != NULL ? want_number(next, ATTN_FIELD_MAX_DECODE_SEQ_LEN, group, max_len, err) : ATTN_OK;
}

static int32_t check_group(const struct attn__next_step *next, uint32_t g, struct attn_error *err)
{
    const bool pages = next->b->flavour->pages, to_decode = next->args->prefill_to_decode != 0;
    const struct {
        uint32_t field;
        uint64_t count;
        bool wanted;
    } shapes[] = {{ATTN_FIELD_SLOT_MAPPING, next->num_tokens, !to_decode},
                  {ATTN_FIELD_SEQ_LENS, next->seqs, !pages},
                  {ATTN_FIELD_SEQ_LENS_TENSOR, next->seqs, true},
                  {ATTN_FIELD_SEQ_START_LOC, (uint64_t)next->seqs + 1, true},
                  {ATTN_FIELD_CONTEXT_LENS_TENSOR, next->queries, g == 0 && !pages},
                  {ATTN_FIELD_PAGED_KV_INDPTR, (uint64_t)next->seqs + 1, pages},
                  {ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, next->seqs, pages},
                  {ATTN_FIELD_BLOCK_TABLE_BOUND, next->seqs, pages}};
    int32_t status = ATTN_OK;

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && status == ATTN_OK; i++)
        if (shapes[i].wanted)
            status = want_shape(next, shapes[i].field, g, shapes[i].count, err);
    if (status == ATTN_OK && !pages && !to_decode)
        status = check_longest(next, g, err);
    const struct attn_step_array *table = &next->b->whole.step.group[g].table;
    if (status == ATTN_OK && (table->dtype == 0 || table->count < next->queries || !pages))
        status = want_shape(next, ATTN_FIELD_BLOCK_TABLES, g, next->seqs, err);
    return status;
}

/* Tokens of a sequence, whether a window has left some out or not: what it has in pages, or context and
 * query. */
static int64_t whole_length(const struct attn__next_step *next, uint32_t g, uint32_t i)
{
    const struct attn_step *step = &next->b->whole.step;
    const struct attn_step_group *group = &step->group[g];
    const int32_t *starts = attn__ints(next->b->flavour->pages ? &group->page_starts : &step->query_starts);

    if (!next->b->flavour->pages)
        return (int64_t)attn__ints(&step->context_lens)[i] + starts[i + 1] - starts[i];
    if (starts[i + 1] == starts[i])
        return -1;
    return (int64_t)(starts[i + 1] - starts[i] - 1) * group->block + attn__ints(&group->last_page_lens)[i];
}

/*
 * Every new token needs a block in the row of its sequence: the cells behind the blocks of a row are 0, which
 * is a valid block of another sequence. Rows that were trimmed to a window are refused, because their first
 * cell is not the first block.
 */
static int32_t check_row(const struct attn__next_step *next, uint32_t g, uint32_t i, struct attn_error *err)
{
    const struct attn__group *group = &next->b->group[g];
    const struct attn__table_row *row = &group->table.row[next->b->whole.step.first_row + i];
    const int64_t len = attn__ints(&group->step->seq_lens)[i], block = group->params.block;
    const int64_t grown = len + (next->args->accepted != NULL ? next->args->accepted[i] : 1);
    const int64_t width = group->step->table.width;
    const int64_t cells = row->filled < width ? row->filled : width, window = group->params.window;

    const int64_t real = whole_length(next, g, i);
    if (real >= 0 && real != len)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "seq_lens",
                          "sequence %u has %lld tokens, of which %lld are left in a window: its next step "
                          "is to be built",
                          i, (long long)real, (long long)len);
    if ((group->params.given & ATTN_GIVEN_WINDOW) != 0 && !next->b->flavour->grows_past_window &&
        grown > (window + block - 1) / block * block + grown % block)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "window",
                          "sequence %u grows beyond its window of %lld: its next step is to be built", i,
                          (long long)window);
    const int64_t keys = attn__cp_count(&next->b->shard, grown);
    if (keys > cells * block)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "block_tables",
            "sequence %u grows to %lld tokens%s, but its row of block_tables has %lld blocks of "
            "%lld",
            i, (long long)keys, next->b->shard.world != 0 ? " on this rank" : "", (long long)cells,
            (long long)block);
    return ATTN_OK;
}

int32_t attn__next_step_check(struct attn__next_step *next, struct attn_error *err)
{
    const struct attn_step *step = &next->b->whole.step;
    int32_t status = check_counts(next, err);

    if (status == ATTN_OK && next->args->prefill_to_decode != 0)
        status = check_prefill_to_decode(next, err);
    if (status == ATTN_OK)
        status = check_query_tokens(next, err);
    if (status == ATTN_OK && next->args->prefill_to_decode == 0)
        status = check_numbers(next, err);
    for (uint32_t g = 0; g < step->groups && status == ATTN_OK; g++)
        status = check_group(next, g, err);
    for (uint32_t g = 0; g < step->groups && status == ATTN_OK; g++) {
        if (step->group[g].seq_lens.host == NULL)
            continue;
        for (uint32_t i = 0; i < next->queries && status == ATTN_OK; i++)
            status = check_row(next, g, i, err);
    }
    return status;
}
