/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes a step as bytes that a builder of another process can restore. */
#include "serialise.h"
#include "fail.h"

#define ALIGNMENT 8u

const struct attn__table *attn__serialise_table(const struct attn_builder_impl *b, uint32_t field,
                                                uint32_t index)
{
    if (field == ATTN_FIELD_BLOCK_TABLES || field == ATTN__SERIALISED_ROWS)
        return index < b->params.groups ? &b->group[index].table : b->cross != NULL ? &b->cross->table : NULL;
    return field == ATTN_FIELD_CROSS_BLOCK_TABLES && b->cross != NULL ? &b->cross->table : NULL;
}

uint32_t attn__serialise_count(const struct attn_step *step, uint32_t field)
{
    if (field == ATTN__SERIALISED_ROWS)
        return step->groups + 1;
    return attn__field_infos[field].name != NULL ? attn__field_count(step, field) : 0;
}

/* The output. Without `data` only its size is computed. */
struct writer {
    const struct attn_builder_impl *b;
    char *data;
    uint64_t record; /* where the next one goes */
    uint64_t bytes;  /* used so far */
    uint32_t records;
};

/* Writes a record and its elements; `stride` is the distance in bytes of their rows in memory. */
static void add_record(struct writer *w, struct attn_serialised_record *record, const char *from,
                       int64_t stride)
{
    const uint64_t outer = record->rank == 2 ? record->shape[0] : 1;
    const uint64_t inner =
        (record->rank == 2 ? record->shape[1] : record->shape[0]) * attn__index_size(record->dtype);
    const uint64_t end = w->bytes + outer * inner;

    record->offset = w->bytes;
    if (w->data != NULL) {
        memcpy(w->data + w->record, record, sizeof *record);
        for (uint64_t i = 0; i < outer && inner > 0 && from != NULL; i++)
            memcpy(w->data + w->bytes + i * inner, from + (int64_t)i * stride, inner);
        memset(w->data + end, 0, (ALIGNMENT - end % ALIGNMENT) % ALIGNMENT);
    }
    w->record += sizeof *record;
    w->records++;
    w->bytes = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int32_t add_field(struct writer *w, uint32_t field, uint32_t index, struct attn_error *err)
{
    struct attn_serialised_record record = {.field = field, .index = index};
    struct attn_view view;
    const int32_t status = attn__metadata_get(&w->b->whole, field, index, &view, err);

    record.kind = view.kind;
    if (status != ATTN_OK || view.kind == ATTN_VIEW_NULL)
        return status;
    if (view.kind == ATTN_VIEW_NUMBER) {
        record.value = view.value;
        add_record(w, &record, NULL, 0);
        return ATTN_OK;
    }
    if (view.host == NULL && view.shape[0] > 0)
        return attn__fail(err, ATTN_E_STATE, 0, attn__field_name(field),
                          "%s is on the device alone: it cannot be written", attn__field_name(field));
    record.dtype = view.dtype;
    record.rank = view.rank;
    record.shape[0] = view.shape[0];
    record.shape[1] = view.shape[1];
    add_record(w, &record, view.host, view.stride);
    return ATTN_OK;
}

/* Writes which blocks of its sequence each row of a block table shows. */
static void add_table_rows(struct writer *w, uint32_t index, const struct attn_step_array *shown)
{
    const struct attn__table *table = attn__serialise_table(w->b, ATTN__SERIALISED_ROWS, index);
    struct attn_serialised_record record = {.field = ATTN__SERIALISED_ROWS,
                                            .index = index,
                                            .kind = ATTN_VIEW_LIST,
                                            .dtype = ATTN_INT32,
                                            .rank = 2};

    if (table == NULL || shown->dtype == 0 || shown->host == NULL)
        return;
    _Static_assert(offsetof(struct attn__table_row, start) == sizeof(uint32_t), "two words in a row");
    record.shape[0] = shown->count;
    record.shape[1] = 2;
    add_record(w, &record, (const char *)&table->row[w->b->whole.step.first_row], sizeof *table->row);
}

static int32_t add_all(struct writer *w, struct attn_error *err)
{
    const struct attn_step *step = &w->b->whole.step;
    int32_t status = ATTN_OK;

    for (uint32_t field = 1; field < ATTN_FIELDS; field++)
        for (uint32_t i = 0; i < attn__serialise_count(step, field) && status == ATTN_OK; i++)
            status = add_field(w, field, i, err);
    for (uint32_t g = 0; g < step->groups; g++)
        add_table_rows(w, g, &step->group[g].table);
    add_table_rows(w, step->groups, &step->encoder.table);
    return status;
}

int32_t attn__serialise_check_ranks(const struct attn_builder_impl *b, struct attn_error *err)
{
    return b->shard.world == 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "cp_world",
                            "cp_world is %u; steps of ranks are neither written nor restored, as each rank "
                            "has slots and blocks of its own: its builder is given the sequences",
                            b->params.cp_world);
}

int32_t attn__builder_serialise(const struct attn_builder_impl *b, void *data, uint64_t capacity,
                                uint64_t *out_size, struct attn_error *err)
{
    const struct attn_step *step = &b->whole.step;
    const uint64_t blocks = step->groups + (step->groups & 1u);
    struct attn_serialised_header header = {.magic = ATTN_SERIALISED_MAGIC,
                                            .version = ATTN_SERIALISED_VERSION,
                                            .flavour = b->flavour->number,
                                            .groups = step->groups,
                                            .modalities = step->modalities,
                                            .index_dtype = b->params.index_dtype,
                                            .seqs = step->seqs,
                                            .queries = step->queries,
                                            .first_row = step->first_row,
                                            .untabled = step->prefills_without_table};
    struct writer w = {.b = b};
    int32_t status = attn__serialise_check_ranks(b, err);
    if (status == ATTN_OK)
        status = add_all(&w, err);
    const uint64_t front = sizeof header + blocks * sizeof(uint32_t);
    const uint64_t records = w.records * sizeof(struct attn_serialised_record);

    if (status != ATTN_OK)
        return status;
    header.records = w.records;
    header.bytes = *out_size = front + records + w.bytes;
    if (header.bytes > capacity)
        return attn__fail(err, ATTN_E_SIZE, 0, "data", "data has room for %llu bytes; the step has %llu",
                          (unsigned long long)capacity, (unsigned long long)header.bytes);
    memcpy(data, &header, sizeof header);
    memset((char *)data + sizeof header, 0, blocks * sizeof(uint32_t));
    for (uint32_t g = 0; g < step->groups; g++)
        memcpy((char *)data + sizeof header + g * sizeof(uint32_t), &b->group[g].params.block,
               sizeof(uint32_t));
    w = (struct writer){.b = b, .data = data, .record = front, .bytes = front + records};
    return add_all(&w, err);
}
