/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks that bytes are a serialised step that this builder can restore. Any number in them may be hostile.
 */
#include "fail.h"
#include "serialise.h"

static const char *name_of(uint32_t field)
{
    return field == ATTN__SERIALISED_ROWS ? "rows" : attn__field_name(field);
}

bool attn__serialised_find(const struct attn__serialised *in, uint32_t field, uint32_t index,
                           struct attn_serialised_record *out)
{
    const uint64_t blocks = in->header.groups + (in->header.groups & 1u);
    const char *at = in->data + sizeof in->header + blocks * sizeof(uint32_t);

    for (uint32_t i = 0; i < in->header.records; i++, at += sizeof *out) {
        memcpy(out, at, sizeof *out);
        if (out->field == field && out->index == index)
            return true;
    }
    return false;
}

/* Refuses a number that has to be the builder's own and is not. */
static int32_t same(const char *name, uint64_t got, uint64_t wanted, struct attn_error *err)
{
    return got == wanted ? ATTN_OK
                         : attn__fail(err, ATTN_E_INVALID, 0, name, "%s is %llu; this builder takes %llu",
                                      name, (unsigned long long)got, (unsigned long long)wanted);
}

static int32_t check_header(struct attn__serialised *in, struct attn_error *err)
{
    const struct attn_step *step = &in->b->whole.step;
    struct attn_serialised_header *h = &in->header;
    const uint64_t sets = step->groups > step->modalities ? step->groups : step->modalities;

    if (in->size < sizeof *h)
        return attn__fail(err, ATTN_E_SIZE, 0, "data", "data has %llu bytes; a header alone has %zu",
                          (unsigned long long)in->size, sizeof *h);
    memcpy(h, in->data, sizeof *h);
    if (h->magic != ATTN_SERIALISED_MAGIC)
        return attn__fail(err, ATTN_E_INVALID, 0, "magic", "the bytes are no step");
    if (h->untabled > h->queries)
        return attn__fail(err, ATTN_E_INVALID, 0, "untabled", "untabled is %u; accepted: up to %u",
                          h->untabled, h->queries);
    const struct {
        const char *name;
        uint64_t got, wanted;
    } numbers[] = {{"version", h->version, ATTN_SERIALISED_VERSION},
                   {"bytes", h->bytes, in->size},
                   {"flavour", h->flavour, in->b->flavour->number},
                   {"groups", h->groups, step->groups},
                   {"modalities", h->modalities, step->modalities},
                   {"index_dtype", h->index_dtype, in->b->params.index_dtype}};
    int32_t status = ATTN_OK;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == ATTN_OK; i++)
        status = same(numbers[i].name, numbers[i].got, numbers[i].wanted, err);
    if (status != ATTN_OK)
        return status;
    const uint64_t front = sizeof *h + (step->groups + (step->groups & 1u)) * sizeof(uint32_t);
    if (h->records > sets * ATTN_FIELDS + step->groups + 1 ||
        front + h->records * sizeof(struct attn_serialised_record) > in->size)
        return attn__fail(err, ATTN_E_INVALID, 0, "records", "records is %u, more than there can be",
                          h->records);
    for (uint32_t g = 0; g < step->groups && status == ATTN_OK; g++) {
        uint32_t block;
        memcpy(&block, in->data + sizeof *h + g * sizeof block, sizeof block);
        status = same("block", block, in->b->group[g].params.block, err);
    }
    if (status == ATTN_OK && (h->seqs > in->b->params.max_seqs || h->queries > h->seqs ||
                              h->first_row > in->b->params.max_seqs - h->seqs))
        status = attn__fail(err, ATTN_E_SIZE, 0, "seqs",
                            "%u sequences, %u of them real, from row %u on; this builder has %u rows",
                            h->seqs, h->queries, h->first_row, in->b->params.max_seqs);
    return status;
}

/* The kind, type and largest shape that a field may have. */
struct form {
    uint32_t kind;
    uint32_t dtype;
    uint32_t rank;
    uint64_t max[2];
};

/* Where the builder has the array of a field, or NULL. */
static const struct attn__array_place *find_place(const struct attn_builder_impl *b, uint32_t field,
                                                  uint32_t index)
{
    const struct attn_step_array *array =
        attn__step_array((struct attn_step *)(uintptr_t)&b->whole.step, field, index);

    for (uint32_t i = 0; i < b->place_count; i++)
        if (b->places[i].array == array)
            return &b->places[i];
    return NULL;
}

static bool find_form(const struct attn__serialised *in, uint32_t field, uint32_t index, struct form *form)
{
    const struct attn__table *table = attn__serialise_table(in->b, field, index);
    const uint32_t rows = in->b->params.max_seqs - in->header.first_row;

    if (field >= ATTN_FIELD_ENCODER_SEQ_LENS && field <= ATTN_FIELD_CROSS_BLOCK_TABLES &&
        in->b->cross == NULL)
        return false;
    if (field == ATTN__SERIALISED_ROWS || attn__field_kind(field) == ATTN__FIELD_TABLE) {
        if (table == NULL || table->cells == NULL)
            return false;
        *form = field == ATTN__SERIALISED_ROWS
                    ? (struct form){ATTN_VIEW_LIST, ATTN_INT32, 2, {rows, 2}}
                    : (struct form){ATTN_VIEW_ARRAY, table->dtype, 2, {rows, table->width}};
        return true;
    }
    *form = (struct form){.kind = ATTN_VIEW_NUMBER};
    if (attn__field_kind(field) == ATTN__FIELD_NUMBER)
        return true;
    const struct attn__array_place *place = find_place(in->b, field, index);
    if (place != NULL)
        *form = (struct form){attn__field_kind(field) == ATTN__FIELD_LIST ? ATTN_VIEW_LIST : ATTN_VIEW_ARRAY,
                              place->dtype,
                              1,
                              {place->capacity, 0}};
    return place != NULL;
}

static int32_t check_elements(const struct attn__serialised *in, const struct attn_serialised_record *r,
                              const struct form *form, struct attn_error *err)
{
    const uint64_t cell = form->dtype == ATTN_INT64 ? 8 : 4;

    if (r->dtype != form->dtype || r->rank != form->rank)
        return attn__fail(err, ATTN_E_INVALID, 0, name_of(r->field),
                          "%s has dtype 0x%x and rank %u, not 0x%x and %u", name_of(r->field), r->dtype,
                          r->rank, form->dtype, form->rank);
    if (r->shape[0] > form->max[0] || r->shape[1] > form->max[1])
        return attn__fail(err, ATTN_E_SIZE, 0, name_of(r->field),
                          "%s is [%llu, %llu]; this builder has room for [%llu, %llu]", name_of(r->field),
                          (unsigned long long)r->shape[0], (unsigned long long)r->shape[1],
                          (unsigned long long)form->max[0], (unsigned long long)form->max[1]);
    /* The shape is not larger than the builder's array, so that the product fits 64 bits. */
    const uint64_t bytes = r->shape[0] * (r->rank == 2 ? r->shape[1] : 1) * cell;
    if (r->offset > in->size || bytes > in->size - r->offset)
        return attn__fail(err, ATTN_E_INVALID, 0, name_of(r->field),
                          "%s has %llu bytes at %llu, beyond the %llu of the step", name_of(r->field),
                          (unsigned long long)bytes, (unsigned long long)r->offset,
                          (unsigned long long)in->size);
    return ATTN_OK;
}

/* Numbers that depend on the builder's parameters have to be the same here. */
static int32_t check_number(const struct attn__serialised *in, const struct attn_serialised_record *r,
                            struct attn_error *err)
{
    const struct attn_builder_params *p = &in->b->params;
    const int64_t max =
        r->field == ATTN_FIELD_USE_CUDA_GRAPH || r->field == ATTN_FIELD_IS_PROFILE_RUN ? 1 : INT32_MAX;
    const struct {
        uint32_t field, value;
    } own[] = {{ATTN_FIELD_NUM_QO_HEADS, p->heads},
               {ATTN_FIELD_NUM_KV_HEADS, p->kv_heads},
               {ATTN_FIELD_HEAD_DIM, p->head_dim},
               {ATTN_FIELD_DATA_TYPE, p->kv_dtype},
               {ATTN_FIELD_Q_DATA_TYPE, p->q_dtype}};

    if (r->value < 0 || r->value > max)
        return attn__fail(err, ATTN_E_INVALID, 0, name_of(r->field), "%s is %lld; accepted: 0 to %lld",
                          name_of(r->field), (long long)r->value, (long long)max);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (r->field == own[i].field)
            return same(name_of(r->field), (uint64_t)r->value, own[i].value, err);
    return r->field == ATTN_FIELD_PAGE_SIZE
               ? same("page_size", (uint64_t)r->value, in->b->group[r->index].params.block, err)
               : ATTN_OK;
}

static int32_t check_record(const struct attn__serialised *in, const struct attn_serialised_record *r,
                            struct attn_error *err)
{
    struct form form;

    if (r->field >= ATTN_FIELDS || r->index >= attn__serialise_count(&in->b->whole.step, r->field))
        return attn__fail(err, ATTN_E_INVALID, 0, "records",
                          "a record is of field %u, index %u; there is none", r->field, r->index);
    const bool known = r->field == ATTN__SERIALISED_ROWS || attn__flavour_has(in->b->flavour, r->field);
    if (!known || !find_form(in, r->field, r->index, &form))
        return attn__fail(err, ATTN_E_INVALID, 0, name_of(r->field), "this builder has no %s",
                          name_of(r->field));
    if (r->kind == ATTN_VIEW_NULL && r->field != ATTN__SERIALISED_ROWS)
        return ATTN_OK;
    if (r->kind != form.kind)
        return attn__fail(err, ATTN_E_INVALID, 0, name_of(r->field), "%s is of kind %u, not %u",
                          name_of(r->field), r->kind, form.kind);
    return form.kind == ATTN_VIEW_NUMBER ? check_number(in, r, err) : check_elements(in, r, &form, err);
}

static int32_t check_records(const struct attn__serialised *in, struct attn_error *err)
{
    const uint64_t blocks = in->header.groups + (in->header.groups & 1u);
    const char *first = in->data + sizeof in->header + blocks * sizeof(uint32_t);
    struct attn_serialised_record record, other;
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < in->header.records && status == ATTN_OK; i++) {
        memcpy(&record, first + i * sizeof record, sizeof record);
        status = check_record(in, &record, err);
        for (uint32_t k = 0; k < i && status == ATTN_OK; k++) {
            memcpy(&other, first + k * sizeof other, sizeof other);
            if (other.field == record.field && other.index == record.index)
                status = attn__fail(err, ATTN_E_INVALID, 0, name_of(record.field), "%s is there twice",
                                    name_of(record.field));
        }
    }
    return status;
}

int32_t attn__serialised_check(struct attn__serialised *in, struct attn_builder_impl *b, const void *data,
                               uint64_t size, struct attn_error *err)
{
    int32_t status;

    *in = (struct attn__serialised){.b = b, .data = data, .size = size};
    status = check_header(in, err);
    if (status == ATTN_OK)
        status = check_records(in, err);
    return status == ATTN_OK ? attn__serialised_check_values(in, err) : status;
}
