/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks that metadata can advance by a step in place: vLLM's assertions, and the bounds of arrays. */
#include "fail.h"
#include "step.h"

static const char *name_of(uint32_t field)
{
    return attn__field_infos[field].name;
}

static int32_t want_number(const struct attn__step *step, uint32_t field, uint32_t group, int64_t value,
                           struct attn_error *err)
{
    const struct attn_view *view = attn__field(&step->b->whole, field, group);

    if (view->kind == ATTN_VIEW_NUMBER && view->value == value)
        return ATTN_OK;
    if (view->kind != ATTN_VIEW_NUMBER)
        return attn__fail(err, ATTN_E_INVALID, 0, name_of(field),
                          "%s is not set; to advance it is to be %lld", name_of(field), (long long)value);
    return attn__fail(err, ATTN_E_INVALID, 0, name_of(field), "%s is %lld; to advance it is to be %lld",
                      name_of(field), (long long)view->value, (long long)value);
}

/* The outer dimension of a field. */
static int32_t want_shape(const struct attn__step *step, uint32_t field, uint32_t group, uint64_t count,
                          struct attn_error *err)
{
    const struct attn_view *view = attn__field(&step->b->whole, field, group);

    if (view->kind != ATTN_VIEW_ARRAY && view->kind != ATTN_VIEW_LIST)
        return attn__fail(err, ATTN_E_INVALID, 0, name_of(field), "%s is not set; to advance it is needed",
                          name_of(field));
    if (view->shape[0] == count)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_INVALID, 0, name_of(field),
                      "%s has %llu entries; to advance it is to have %llu", name_of(field),
                      (unsigned long long)view->shape[0], (unsigned long long)count);
}

static int32_t check_counts(const struct attn__step *step, struct attn_error *err)
{
    const struct attn_metadata_impl *m = &step->b->whole;

    if (step->b->host_only)
        return attn__fail(err, ATTN_E_STATE, 0, "host_only",
                          "the step was built with host_only, so that there is none on the device to "
                          "advance");
    if (step->b->on_device)
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, 0, "metadata",
            "the arrays of this step are the engine's, which advances them: attn_kv_advance_step");
    if (step->b->params.flavour == ATTN_XFORMERS)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "flavour", "xformers metadata does not advance");
    if (step->seqs != step->queries &&
        (step->seqs < step->queries || attn__field(m, ATTN_FIELD_USE_CUDA_GRAPH, 0)->value == 0))
        return attn__fail(err, ATTN_E_INVALID, 0, "seqs",
                          "seqs is %u and queries %u; seqs is larger only where a graph is padded",
                          step->seqs, step->queries);
    if (step->seqs == 0 || step->queries == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "queries",
                          "seqs is %u and queries %u; accepted: 1 and more", step->seqs, step->queries);
    if (step->args->prefill_to_decode != 0 && !step->b->flash)
        return attn__fail(err, ATTN_E_INVALID, 0, "prefill_to_decode",
                          "Chunked prefill is not supported with %s yet.turn_prefills_into_decodes is a "
                          "Multi-Step + Chunked-Prefill specific parameter.",
                          step->b->infer ? "flashinfer" : "rocm_flash_attn");
    if (step->args->sampled.data == NULL && step->b->infer)
        return attn__fail(err, ATTN_E_INVALID, 0, "sampled", "sampled is not given");
    if (step->args->sampled.data != NULL && step->args->tokens.data == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "tokens", "sampled is given, but tokens is not");
    return ATTN_OK;
}

/* The query tokens of the next step: as many as now, or one each where prefills become decodes. */
static int32_t check_query_tokens(struct attn__step *step, struct attn_error *err)
{
    const struct attn_view *starts = attn__field(&step->b->whole, ATTN_FIELD_QUERY_START_LOC, 0);
    int32_t status = want_shape(step, ATTN_FIELD_QUERY_START_LOC, 0, (uint64_t)step->queries + 1, err);

    if (status != ATTN_OK)
        return status;
    step->max_q = 1;
    step->num_tokens = step->seqs;
    if (step->args->prefill_to_decode != 0 || starts->host == NULL)
        return ATTN_OK;
    step->starts = starts->host;
    for (uint32_t i = 0; i < step->queries; i++) {
        const int64_t q = (int64_t)step->starts[i + 1] - step->starts[i];
        if (q < 0 || step->starts[0] != 0)
            return attn__fail(err, ATTN_E_INVALID, 0, "query_start_loc",
                              "query_start_loc goes from %d to %d at %u; it begins with 0 and never falls",
                              step->starts[i], step->starts[i + 1], i);
        step->max_q = q > step->max_q ? (uint32_t)q : step->max_q;
    }
    step->num_tokens = (uint32_t)step->starts[step->queries] + (step->seqs - step->queries);
    return ATTN_OK;
}

static int32_t check_prefill_to_decode(const struct attn__step *step, struct attn_error *err)
{
    const struct attn_metadata_impl *m = &step->b->whole;
    const int64_t prefills = attn__field(m, ATTN_FIELD_NUM_PREFILLS, 0)->value;
    const int64_t tokens = attn__field(m, ATTN_FIELD_NUM_DECODE_TOKENS, 0)->value;

    if (prefills + tokens != step->seqs)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "num_decode_tokens",
            "num_prefills is %lld and num_decode_tokens %lld; to turn prompts into decodes they "
            "are to be seqs, %u, together",
            (long long)prefills, (long long)tokens, step->seqs);
    for (uint32_t g = 0; g < m->groups; g++)
        if (attn__field(m, ATTN_FIELD_SLOT_MAPPING, g)->shape[0] < step->seqs)
            return want_shape(step, ATTN_FIELD_SLOT_MAPPING, g, step->seqs, err);
    return ATTN_OK;
}

static int32_t check_numbers(const struct attn__step *step, struct attn_error *err)
{
    int32_t status = want_number(step, ATTN_FIELD_NUM_PREFILLS, 0, 0, err);

    if (status == ATTN_OK)
        status = want_number(step, ATTN_FIELD_NUM_PREFILL_TOKENS, 0, 0, err);
    if (status == ATTN_OK)
        status = want_number(step, ATTN_FIELD_NUM_DECODE_TOKENS, 0, step->num_tokens, err);
    if (status == ATTN_OK && !step->b->infer)
        status = want_number(step, ATTN_FIELD_MAX_QUERY_LEN, 0, step->max_q, err);
    if (status == ATTN_OK)
        status = want_number(step, ATTN_FIELD_MAX_PREFILL_SEQ_LEN, 0, 0, err);
    return status;
}

/* max_decode_seq_len is the maximum of seq_lens. */
static int32_t check_longest(const struct attn__step *step, uint32_t group, struct attn_error *err)
{
    const int32_t *lens = attn__field_i32(&step->b->whole, ATTN_FIELD_SEQ_LENS, group);
    int32_t max_len = 0;

    for (uint32_t i = 0; lens != NULL && i < step->seqs; i++)
        max_len = lens[i] > max_len ? lens[i] : max_len;
    return lens != NULL ? want_number(step, ATTN_FIELD_MAX_DECODE_SEQ_LEN, group, max_len, err) : ATTN_OK;
}

static int32_t check_group(const struct attn__step *step, uint32_t g, struct attn_error *err)
{
    const bool infer = step->b->infer, to_decode = step->args->prefill_to_decode != 0;
    const struct {
        uint32_t field;
        uint64_t count;
        bool wanted;
    } shapes[] = {{ATTN_FIELD_SLOT_MAPPING, step->num_tokens, !to_decode},
                  {ATTN_FIELD_SEQ_LENS, step->seqs, !infer},
                  {ATTN_FIELD_SEQ_LENS_TENSOR, step->seqs, true},
                  {ATTN_FIELD_SEQ_START_LOC, (uint64_t)step->seqs + 1, true},
                  {ATTN_FIELD_CONTEXT_LENS_TENSOR, step->queries, g == 0 && !infer},
                  {ATTN_FIELD_PAGED_KV_INDPTR, (uint64_t)step->seqs + 1, infer},
                  {ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, step->seqs, infer},
                  {ATTN_FIELD_BLOCK_TABLE_BOUND, step->seqs, infer}};
    int32_t status = ATTN_OK;

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && status == ATTN_OK; i++)
        if (shapes[i].wanted)
            status = want_shape(step, shapes[i].field, g, shapes[i].count, err);
    if (status == ATTN_OK && !infer && !to_decode)
        status = check_longest(step, g, err);
    const struct attn_view *table = attn__field(&step->b->whole, ATTN_FIELD_BLOCK_TABLES, g);
    if (status == ATTN_OK && (table->kind != ATTN_VIEW_ARRAY || table->shape[0] < step->queries || !infer))
        status = want_shape(step, ATTN_FIELD_BLOCK_TABLES, g, step->seqs, err);
    return status;
}

/* Tokens of a sequence, whether a window has left some out or not: what it has in pages, or context and
 * query. */
static int64_t whole_length(const struct attn_metadata_impl *m, uint32_t g, uint32_t i)
{
    const int32_t *contexts = attn__field_i32(m, ATTN_FIELD_CONTEXT_LENS_TENSOR, 0);
    const int32_t *starts = attn__field_i32(m, ATTN_FIELD_QUERY_START_LOC, 0);
    const int32_t *indptr = attn__field_i32(m, ATTN_FIELD_PAGED_KV_INDPTR, g);
    const int32_t *last = attn__field_i32(m, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, g);

    if (contexts != NULL)
        return (int64_t)contexts[i] + starts[i + 1] - starts[i];
    if (indptr == NULL || last == NULL || indptr[i + 1] == indptr[i])
        return -1;
    return (int64_t)(indptr[i + 1] - indptr[i] - 1) * m->builder->group[g].params.block + last[i];
}

/*
 * Every new token needs a block in the row of its sequence: the cells behind the blocks of a row are 0, which
 * is a valid block of another sequence. Rows that were trimmed to a window are refused, because their first
 * cell is not the first block.
 */
static int32_t check_row(const struct attn__step *step, uint32_t g, uint32_t i, struct attn_error *err)
{
    const struct attn_metadata_impl *m = &step->b->whole;
    const struct attn__group *group = &step->b->group[g];
    const struct attn__table_row *row = &group->table.row[m->first_row + i];
    const int64_t len = attn__field_i32(m, ATTN_FIELD_SEQ_LENS_TENSOR, g)[i], block = group->params.block;
    const int64_t next = len + (step->args->accepted != NULL ? step->args->accepted[i] : 1);
    const int64_t width = (int64_t)attn__field(m, ATTN_FIELD_BLOCK_TABLES, g)->shape[1];
    const int64_t cells = row->filled < width ? row->filled : width, window = group->params.window;

    const int64_t real = whole_length(m, g, i);
    if (real >= 0 && real != len)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "seq_lens",
                          "sequence %u has %lld tokens, of which %lld are left in a window: its next step "
                          "is to be built",
                          i, (long long)real, (long long)len);
    if ((group->params.given & ATTN_GIVEN_WINDOW) != 0 && !step->b->flash &&
        next > (window + block - 1) / block * block + next % block)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "window",
                          "sequence %u grows beyond its window of %lld: its next step is to be built", i,
                          (long long)window);
    if (next > cells * block)
        return attn__fail(err, ATTN_E_INVALID, 0, "block_tables",
                          "sequence %u grows to %lld tokens, but its row of block_tables has %lld blocks of "
                          "%lld",
                          i, (long long)next, (long long)cells, (long long)block);
    return ATTN_OK;
}

int32_t attn__step_check(struct attn__step *step, struct attn_error *err)
{
    const struct attn_metadata_impl *m = &step->b->whole;
    int32_t status = check_counts(step, err);

    if (status == ATTN_OK && step->args->prefill_to_decode != 0)
        status = check_prefill_to_decode(step, err);
    if (status == ATTN_OK)
        status = check_query_tokens(step, err);
    if (status == ATTN_OK && step->args->prefill_to_decode == 0)
        status = check_numbers(step, err);
    for (uint32_t g = 0; g < m->groups && status == ATTN_OK; g++)
        status = check_group(step, g, err);
    for (uint32_t g = 0; g < m->groups && status == ATTN_OK; g++) {
        if (attn__field_i32(m, ATTN_FIELD_SEQ_LENS_TENSOR, g) == NULL)
            continue;
        for (uint32_t i = 0; i < step->queries && status == ATTN_OK; i++)
            status = check_row(step, g, i, err);
    }
    return status;
}
