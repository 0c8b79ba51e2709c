/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Restores a serialised step into a builder. */
#include "builder-part.h"
#include "serialise.h"

/* Cells that are copied at a time. */
#define CELLS 64u

static int64_t number(const struct attn__serialised *in, uint32_t field)
{
    struct attn_serialised_record r;

    return attn__serialised_find(in, field, 0, &r) && r.kind == ATTN_VIEW_NUMBER ? r.value : 0;
}

/* Number of elements of a field, 0 if it is missing. */
static uint64_t length(const struct attn__serialised *in, uint32_t field, uint32_t index)
{
    struct attn_serialised_record r;

    return attn__serialised_find(in, field, index, &r) && r.kind != ATTN_VIEW_NULL ? r.shape[0] : 0;
}

/* Sets the counts of the step, which the builder would have after adding its sequences. */
static void count(const struct attn__serialised *in)
{
    struct attn_builder_impl *b = in->b;
    struct attn_step *step = &b->whole.step;
    const uint32_t pad = in->header.seqs - in->header.queries;
    struct attn_serialised_record r;

    step->queries = in->header.queries;
    step->first_row = in->header.first_row;
    step->prefills = (uint32_t)number(in, ATTN_FIELD_NUM_PREFILLS);
    step->prefill_tokens = (uint32_t)number(in, ATTN_FIELD_NUM_PREFILL_TOKENS);
    b->decode_tokens = (uint32_t)length(in, ATTN_FIELD_SLOT_MAPPING, 0) - pad;
    b->decode_tokens -= step->prefill_tokens < b->decode_tokens ? step->prefill_tokens : b->decode_tokens;
    b->max_encoder = (uint32_t)number(in, ATTN_FIELD_MAX_ENCODER_SEQ_LEN);
    for (uint32_t g = 0; g < b->params.groups; g++) {
        struct attn__group *group = &b->group[g];
        const uint64_t indptr = length(in, ATTN_FIELD_PAGED_KV_INDPTR, g);
        group->slots = (uint32_t)length(in, ATTN_FIELD_SLOT_MAPPING, g) - pad;
        group->paged = indptr > pad ? (uint32_t)indptr - 1 - pad : 0;
        group->total_blocks = length(in, ATTN_FIELD_PAGED_KV_INDICES, g);
        group->longest = attn__serialised_find(in, ATTN_FIELD_BLOCK_TABLES, g, &r) ? (uint32_t)r.shape[1] : 0;
        memset(group->members, 0, b->params.max_seqs * sizeof *group->members);
    }
    if (b->cross != NULL) {
        b->cross->slots = (uint32_t)length(in, ATTN_FIELD_CROSS_SLOT_MAPPING, 0);
        b->cross->longest =
            attn__serialised_find(in, ATTN_FIELD_CROSS_BLOCK_TABLES, 0, &r) ? (uint32_t)r.shape[1] : 0;
    }
}

static void restore_table(const struct attn__serialised *in, const struct attn_serialised_record *r,
                          uint32_t group)
{
    struct attn__table *table =
        (struct attn__table *)(uintptr_t)attn__serialise_table(in->b, r->field, r->index);
    struct attn_serialised_record rows;

    (void)attn__serialised_find(in, ATTN__SERIALISED_ROWS, group, &rows);
    for (uint64_t i = 0; i < r->shape[0]; i++) {
        const uint32_t row = in->header.first_row + (uint32_t)i;
        const uint32_t filled = (uint32_t)attn__serialised_at(in, &rows, 2 * i);
        attn__table_truncate(table, row, 0);
        for (uint32_t first = 0; first < filled; first += CELLS) {
            int64_t cells[CELLS];
            const uint32_t n = filled - first < CELLS ? filled - first : CELLS;
            /* A graph may show fewer columns than a row has. */
            for (uint32_t k = 0; k < n; k++)
                cells[k] =
                    first + k < r->shape[1] ? attn__serialised_at(in, r, i * r->shape[1] + first + k) : 0;
            attn__table_write(table, row, first, cells, n);
        }
        table->row[row].start = (uint32_t)attn__serialised_at(in, &rows, 2 * i + 1);
    }
}

/* Restores a field as it was serialised, which after an advance differs from what a build would show. */
static void restore_field(const struct attn__serialised *in, uint32_t field, uint32_t index)
{
    struct attn_step *step = &in->b->whole.step;
    const enum attn__field_kind kind = attn__field_kind(field);
    struct attn_serialised_record r;
    const bool there = attn__serialised_find(in, field, index, &r) && r.kind != ATTN_VIEW_NULL;

    if (kind == ATTN__FIELD_NUMBER) {
        if (there)
            *attn__step_number(step, field, index) = (uint32_t)r.value;
        return;
    }
    struct attn_step_array *array = attn__step_array(step, field, index);
    if (!there) {
        array->dtype = 0;
        array->count = 0;
        return;
    }
    if (kind == ATTN__FIELD_TABLE)
        restore_table(in, &r, field == ATTN_FIELD_BLOCK_TABLES ? index : step->groups);
    else if (r.shape[0] > 0)
        memcpy(array->host, in->data + r.offset, r.shape[0] * attn__index_size(r.dtype));
    array->count = r.shape[0];
    array->width = (uint32_t)r.shape[1];
}

/* The most query tokens of a sequence, which metadata of some flavours does not tell. */
static uint32_t find_max_q(const struct attn_step *step)
{
    const int32_t *starts = attn__ints(&step->query_starts);
    int32_t max = 0;

    for (uint32_t i = 0; i < step->queries; i++)
        max = starts[i + 1] - starts[i] > max ? starts[i + 1] - starts[i] : max;
    return (uint32_t)max;
}

/* Writes the start locations of padding, which the view does not show and serialising leaves out. */
static void finish_starts(const struct attn__serialised *in)
{
    int32_t *starts = attn__ints(&in->b->whole.step.query_starts);

    for (uint32_t i = in->header.queries; i < in->header.seqs; i++)
        starts[i + 1] = starts[i] + 1;
}

int32_t attn__builder_restore(struct attn_builder_impl *b, const void *data, uint64_t size, void *stream,
                              struct attn_metadata_impl **out, struct attn_error *err)
{
    struct attn_builder_build_args args;
    struct attn__serialised in;
    int32_t status = attn__serialise_check_ranks(b, err);

    *out = NULL;
    if (status == ATTN_OK)
        status = attn__serialised_check(&in, b, data, size, err);
    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&args);
    args.graph = (uint32_t)number(&in, ATTN_FIELD_USE_CUDA_GRAPH);
    args.pad = in.header.seqs - in.header.queries;
    attn__builder_place(b);
    count(&in);
    b->adds_stale = true;
    attn__builder_show(b, &args, in.header.seqs);
    b->whole.step.prefills_without_table = in.header.untabled;
    for (uint32_t field = 1; field < ATTN_FIELDS; field++)
        for (uint32_t i = 0; i < attn__serialise_count(&b->whole.step, field); i++)
            if (attn__flavour_has(b->flavour, field))
                restore_field(&in, field, i);
    finish_starts(&in);
    b->whole.step.num_tokens = (uint32_t)length(&in, ATTN_FIELD_SLOT_MAPPING, 0);
    if (!attn__flavour_has(b->flavour, ATTN_FIELD_MAX_QUERY_LEN))
        b->whole.step.max_q = find_max_q(&b->whole.step);
    attn__parts_prepare(b, attn__ints(&b->whole.step.query_starts));
    if (!b->direct)
        status = attn__builder_flush(b, stream, err);
    b->whole.step.number++;
    *out = status == ATTN_OK ? &b->whole : NULL;
    return status;
}
