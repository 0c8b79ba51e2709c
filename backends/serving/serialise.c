/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes a step as bytes that a builder of another process can restore. */
#include "serialise.h"
#include "fail.h"

#define ALIGNMENT 8u

struct attn__array *attn__serialise_array(struct attn_builder_impl *b, uint32_t field, uint32_t index)
{
    switch (field) {
    case ATTN_FIELD_QUERY_START_LOC:
    case ATTN_FIELD_CONTEXT_LENS_TENSOR:
        return &b->group[0].arrays[field];
    case ATTN_FIELD_SLOT_MAPPING:
    case ATTN_FIELD_SEQ_LENS:
    case ATTN_FIELD_SEQ_LENS_TENSOR:
    case ATTN_FIELD_SEQ_START_LOC:
    case ATTN_FIELD_BLOCK_TABLE_BOUND:
    case ATTN_FIELD_PAGED_KV_INDPTR:
    case ATTN_FIELD_PAGED_KV_INDICES:
    case ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN:
        return &b->group[index].arrays[field];
    case ATTN_FIELD_ENCODER_SEQ_LENS:
    case ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR:
    case ATTN_FIELD_ENCODER_SEQ_START_LOC:
    case ATTN_FIELD_CROSS_SLOT_MAPPING:
        return b->cross != NULL ? &b->cross->arrays[field] : NULL;
    case ATTN_FIELD_MULTI_MODAL_SOURCES:
        return &b->maps[2 * index];
    case ATTN_FIELD_MULTI_MODAL_DESTINATIONS:
        return &b->maps[2 * index + 1];
    default:
        return NULL;
    }
}

struct attn__table *attn__serialise_table(struct attn_builder_impl *b, uint32_t field, uint32_t index)
{
    if (field == ATTN_FIELD_BLOCK_TABLES || field == ATTN__SERIALISED_ROWS)
        return index < b->params.groups ? &b->group[index].table : b->cross != NULL ? &b->cross->table : NULL;
    return field == ATTN_FIELD_CROSS_BLOCK_TABLES && b->cross != NULL ? &b->cross->table : NULL;
}

uint32_t attn__serialise_count(const struct attn_metadata_impl *whole, uint32_t field)
{
    if (field == ATTN__SERIALISED_ROWS)
        return whole->groups + 1;
    if (attn__field_infos[field].name == NULL)
        return 0;
    return attn__field_infos[field].scope == ATTN__GROUP      ? whole->groups
           : attn__field_infos[field].scope == ATTN__MODALITY ? whole->modalities
                                                              : 1;
}

/* The output. Without `data` only its size is computed. */
struct writer {
    const struct attn_builder_impl *b;
    char *data;
    uint64_t record; /* where the next one goes */
    uint64_t bytes;  /* used so far */
    uint32_t records;
};

static uint32_t size_of(uint32_t dtype)
{
    return dtype == ATTN_INT64 ? 8 : 4;
}

/* Writes a record and its elements; `stride` is the distance in bytes of their rows in memory. */
static void add_record(struct writer *w, struct attn_serialised_record *record, const char *from,
                       int64_t stride)
{
    const uint64_t outer = record->rank == 2 ? record->shape[0] : 1;
    const uint64_t inner = (record->rank == 2 ? record->shape[1] : record->shape[0]) * size_of(record->dtype);
    const uint64_t end = w->bytes + outer * inner;

    record->offset = w->bytes;
    if (w->data != NULL) {
        memcpy(w->data + w->record, record, sizeof *record);
        for (uint64_t i = 0; i < outer && inner > 0; i++)
            memcpy(w->data + w->bytes + i * inner, from + (int64_t)i * stride, inner);
        memset(w->data + end, 0, (ALIGNMENT - end % ALIGNMENT) % ALIGNMENT);
    }
    w->record += sizeof *record;
    w->records++;
    w->bytes = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int32_t add_field(struct writer *w, uint32_t field, uint32_t index, struct attn_error *err)
{
    const struct attn_view *view = attn__field(&w->b->whole, field, index);
    struct attn_serialised_record record = {.field = field, .index = index, .kind = view->kind};
    const struct attn__table *table =
        attn__serialise_table((struct attn_builder_impl *)(uintptr_t)w->b, field, index);

    if (view->kind == ATTN_VIEW_NULL)
        return ATTN_OK;
    if (view->kind == ATTN_VIEW_NUMBER) {
        record.value = view->value;
        add_record(w, &record, NULL, 0);
        return ATTN_OK;
    }
    if (view->host == NULL && view->shape[0] > 0)
        return attn__fail(err, ATTN_E_STATE, 0, attn__field_infos[field].name,
                          "%s is on the device alone: it cannot be written", attn__field_infos[field].name);
    record.dtype = view->dtype;
    record.rank = view->rank;
    record.shape[0] = view->shape[0];
    record.shape[1] = view->rank == 2 ? view->shape[1] : 0;
    add_record(w, &record, view->host, table != NULL ? table->stride : 0);
    return ATTN_OK;
}

/* Writes which blocks of its sequence each row of a block table shows. */
static void add_table_rows(struct writer *w, uint32_t index, uint32_t field)
{
    const struct attn_metadata_impl *m = &w->b->whole;
    const struct attn__table *table =
        attn__serialise_table((struct attn_builder_impl *)(uintptr_t)w->b, ATTN__SERIALISED_ROWS, index);
    const struct attn_view *view = attn__field(m, field, field == ATTN_FIELD_BLOCK_TABLES ? index : 0);
    struct attn_serialised_record record = {.field = ATTN__SERIALISED_ROWS,
                                            .index = index,
                                            .kind = ATTN_VIEW_LIST,
                                            .dtype = ATTN_INT32,
                                            .rank = 2};

    if (table == NULL || view->kind != ATTN_VIEW_ARRAY || view->host == NULL)
        return;
    _Static_assert(offsetof(struct attn__table_row, start) == sizeof(uint32_t), "two words in a row");
    record.shape[0] = view->shape[0];
    record.shape[1] = 2;
    add_record(w, &record, (const char *)&table->row[m->first_row], sizeof *table->row);
}

static int32_t add_all(struct writer *w, struct attn_error *err)
{
    const struct attn_metadata_impl *m = &w->b->whole;
    int32_t status = ATTN_OK;

    for (uint32_t field = 1; field < ATTN_FIELDS; field++)
        for (uint32_t i = 0; i < attn__serialise_count(m, field) && status == ATTN_OK; i++)
            status = add_field(w, field, i, err);
    for (uint32_t g = 0; g < m->groups; g++)
        add_table_rows(w, g, ATTN_FIELD_BLOCK_TABLES);
    add_table_rows(w, m->groups, ATTN_FIELD_CROSS_BLOCK_TABLES);
    return status;
}

int32_t attn__builder_serialise(const struct attn_builder_impl *b, void *data, uint64_t capacity,
                                uint64_t *out_size, struct attn_error *err)
{
    const struct attn_metadata_impl *m = &b->whole;
    const uint64_t blocks = m->groups + (m->groups & 1u);
    struct attn_serialised_header header = {.magic = ATTN_SERIALISED_MAGIC,
                                            .version = ATTN_SERIALISED_VERSION,
                                            .flavour = m->flavour,
                                            .groups = m->groups,
                                            .modalities = m->modalities,
                                            .index_dtype = b->params.index_dtype,
                                            .seqs = m->seqs,
                                            .queries = m->queries,
                                            .first_row = m->first_row,
                                            .untabled = m->prefills_without_table};
    struct writer w = {.b = b};
    int32_t status = add_all(&w, err);
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
    for (uint32_t g = 0; g < m->groups; g++)
        memcpy((char *)data + sizeof header + g * sizeof(uint32_t), &b->group[g].params.block,
               sizeof(uint32_t));
    w = (struct writer){.b = b, .data = data, .record = front, .bytes = front + records};
    return add_all(&w, err);
}
