/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Capture buffers: lays them out, fills them for the first time, and makes the metadata of a captured size.
 */
#include "state-fields.h"

enum { ALIGNMENT = 64 };

static bool place_array(struct attn__capture_array *array, uint64_t elements, uint32_t size, uint64_t *bytes)
{
    uint64_t all, end;

    *array = (struct attn__capture_array){.offset = *bytes, .elements = elements, .size = size};
    if (__builtin_mul_overflow(elements, size, &all) || __builtin_add_overflow(*bytes, all, &end) ||
        end > INT64_MAX - ALIGNMENT)
        return false;
    *bytes = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return true;
}

/* Places the columns of one table in the rows, which all tables share. */
static bool place_columns(struct attn__capture_array *array, uint64_t batch, uint64_t width, uint64_t *row)
{
    *array = (struct attn__capture_array){.offset = *row, .elements = batch * width, .size = 4};
    return !__builtin_add_overflow(*row, (width * 4 + 15) / 16 * 16, row);
}

static bool place_rows(struct attn__capture_layout *l)
{
    uint64_t row = 0, all;
    bool fits = true;

    l->rows = l->bytes;
    for (uint32_t g = 0; g < l->groups && fits && l->flavour != ATTN_FLASHINFER; g++)
        fits = place_columns(&l->group[g].table, l->max_batch, l->group[g].width, &row);
    if (fits && l->cross_width > 0)
        fits = place_columns(&l->cross_table, l->max_batch, l->cross_width, &row);
    l->row_stride = row;
    for (uint32_t g = 0; g < l->groups && l->flavour != ATTN_FLASHINFER; g++)
        l->group[g].table.offset += l->rows;
    l->cross_table.offset += l->rows;
    if (!fits || __builtin_mul_overflow(row, l->max_batch, &all) ||
        all > (uint64_t)INT64_MAX - l->bytes - ALIGNMENT)
        return false;
    l->bytes = (l->bytes + all + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return true;
}

/* What no step changes: query offsets, and FlashInfer's block tables, which its metadata has but no kernel
 * reads. */
static bool place_constants(struct attn__capture_layout *l)
{
    bool fits = place_array(&l->starts, l->max_tokens * (l->max_batch + UINT64_C(1)), 4, &l->bytes);

    for (uint32_t g = 0; g < l->groups && fits && l->flavour == ATTN_FLASHINFER; g++)
        fits = place_array(&l->group[g].table, (uint64_t)l->max_batch * l->group[g].width, 4, &l->bytes);
    l->first = l->bytes;
    return fits;
}

bool attn__capture_layout(struct attn__capture_layout *l)
{
    const uint64_t batch = l->max_batch;
    const uint32_t index = l->index_dtype == ATTN_INT64 ? 8 : 4;
    const bool infer = l->flavour == ATTN_FLASHINFER;
    bool fits = place_constants(l);

    for (uint32_t g = 0; g < l->groups && fits; g++) {
        struct attn__capture_group *group = &l->group[g];
        fits = place_array(&group->slots, batch * l->max_tokens, 8, &l->bytes) &&
               place_array(&l->lens[g], batch, 4, &l->bytes);
        if (fits && infer)
            fits = place_array(&group->indptr, batch + 1, 4, &l->bytes) &&
                   place_array(&group->last_page_lens, batch, 4, &l->bytes);
    }
    if (fits && l->cross_width > 0)
        fits = place_array(&l->encoder_lens, batch, 4, &l->bytes);
    fits = fits && place_rows(l);
    uint64_t indices = 0;
    for (uint32_t g = 0; g < l->groups && fits; g++)
        fits = !__builtin_add_overflow(indices, l->group[g].max_indices, &indices);
    if (fits && infer) /* indptr is of i32 */
        fits = indices <= INT32_MAX && place_array(&l->indices, indices, index, &l->bytes);
    return fits;
}

static void fill_i32(char *image, const struct attn__capture_array *array, uint64_t count, int32_t first,
                     int32_t step)
{
    int32_t *at = (int32_t *)(void *)(image + array->offset);

    for (uint64_t i = 0; i < count; i++)
        at[i] = first + (int32_t)i * step;
}

void attn__capture_fill(const struct attn__capture_layout *l, char *image)
{
    const uint64_t batch = l->max_batch;

    for (uint32_t tokens = 1; tokens <= l->max_tokens; tokens++) {
        const struct attn__capture_array starts = attn__capture_starts(l, tokens);
        fill_i32(image, &starts, batch + 1, 0, (int32_t)tokens);
    }
    for (uint32_t g = 0; g < l->groups; g++) {
        const struct attn__capture_group *group = &l->group[g];
        memset(image + group->slots.offset, 0xff, batch * l->max_tokens * sizeof(int64_t));
        /* FlashInfer graphs are captured with one full page of each sequence, others with as many tokens as
         * queries. */
        const bool infer = l->flavour == ATTN_FLASHINFER;
        fill_i32(image, &l->lens[g], batch, infer ? (int32_t)group->block : (int32_t)l->max_tokens, 0);
        if (!infer)
            continue;
        fill_i32(image, &group->indptr, batch + 1, 0, 1);
        fill_i32(image, &group->last_page_lens, batch, (int32_t)group->block, 0);
        for (uint64_t i = 0; i < batch; i++) /* all groups use the same indices */
            if (l->indices.size == 8)
                ((int64_t *)(void *)(image + l->indices.offset))[i] = (int64_t)i;
            else
                ((int32_t *)(void *)(image + l->indices.offset))[i] = (int32_t)i;
    }
    if (l->cross_width == 0)
        return;
    fill_i32(image, &l->encoder_lens, batch, 1, 0);
    for (uint64_t row = 0; row < batch; row++) {
        const struct attn__capture_array cells = {.offset = l->cross_table.offset + row * l->row_stride};
        fill_i32(image, &cells, l->cross_width, 1, 0);
    }
}

/* ---------------------------------------------------------------- views */

/* The first `count` elements of an array. */
static void show_array(const struct attn__capture_array *array, const struct attn__capture_place *place,
                       uint32_t dtype, uint64_t count, struct attn_view *out)
{
    ATTN_INIT(out);
    out->kind = ATTN_VIEW_ARRAY;
    out->dtype = dtype;
    out->rank = 1;
    out->shape[0] = count;
    out->host = place->host + array->offset;
    out->device = place->device;
    out->device.byte_offset += array->offset;
}

/* Rows of a table. */
static void show_table(const struct attn__capture_array *array, const struct attn__capture_place *place,
                       uint32_t rows, uint32_t width, uint64_t stride, struct attn_view *out)
{
    show_array(array, place, ATTN_INT32, rows, out);
    out->rank = 2;
    out->shape[1] = width;
    out->stride = (int64_t)stride;
}

static struct attn_view *view_of(struct attn_metadata_impl *m, uint32_t field, uint32_t group)
{
    return attn__field(m, field, group);
}

static bool has(const struct attn__capture_layout *l, uint32_t field)
{
    return (attn__field_infos[field].flavours & ATTN__IN(l->flavour)) != 0;
}

static void show_numbers(const struct attn__capture_layout *l, const struct attn_problem *problem,
                         uint32_t batch, uint32_t tokens, struct attn_metadata_impl *m)
{
    const struct {
        uint32_t field;
        int64_t value;
    } numbers[] = {{ATTN_FIELD_NUM_PREFILLS, 0},
                   {ATTN_FIELD_NUM_PREFILL_TOKENS, 0},
                   {ATTN_FIELD_NUM_DECODE_TOKENS, (int64_t)batch * tokens},
                   {ATTN_FIELD_MAX_PREFILL_SEQ_LEN, 0},
                   {ATTN_FIELD_USE_CUDA_GRAPH, 1},
                   {ATTN_FIELD_MAX_QUERY_LEN, tokens},
                   {ATTN_FIELD_MAX_DECODE_QUERY_LEN, tokens},
                   {ATTN_FIELD_DECODE_QUERY_LEN, tokens},
                   {ATTN_FIELD_NUM_QO_HEADS, problem->heads},
                   {ATTN_FIELD_NUM_KV_HEADS, problem->kv_heads},
                   {ATTN_FIELD_HEAD_DIM, problem->head_dim},
                   {ATTN_FIELD_DATA_TYPE, problem->k_dtype},
                   {ATTN_FIELD_Q_DATA_TYPE, problem->q_dtype},
                   {ATTN_FIELD_IS_PROFILE_RUN, 0}};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (has(l, numbers[i].field))
            attn__set_number(view_of(m, numbers[i].field, 0), numbers[i].value);
}

static void show_group(const struct attn__capture_layout *l, const struct attn__capture_place *place,
                       uint32_t batch, uint32_t tokens, uint32_t g, struct attn_metadata_impl *m)
{
    const struct attn__capture_group *group = &l->group[g];
    const bool infer = l->flavour == ATTN_FLASHINFER;

    show_array(&group->slots, place, ATTN_INT64, (uint64_t)batch * tokens,
               view_of(m, ATTN_FIELD_SLOT_MAPPING, g));
    show_table(&group->table, place, infer ? l->max_batch : batch, group->width,
               infer ? group->width * UINT64_C(4) : l->row_stride, view_of(m, ATTN_FIELD_BLOCK_TABLES, g));
    if (!infer) {
        show_array(&l->lens[g], place, ATTN_INT32, batch, view_of(m, ATTN_FIELD_SEQ_LENS_TENSOR, g));
        attn__set_number(view_of(m, ATTN_FIELD_MAX_DECODE_SEQ_LEN, g), l->max_len);
        return;
    }
    show_array(&group->indptr, place, ATTN_INT32, (uint64_t)batch + 1,
               view_of(m, ATTN_FIELD_PAGED_KV_INDPTR, g));
    show_array(&l->indices, place, l->index_dtype, batch, view_of(m, ATTN_FIELD_PAGED_KV_INDICES, g));
    show_array(&group->last_page_lens, place, ATTN_INT32, batch,
               view_of(m, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, g));
    attn__set_number(view_of(m, ATTN_FIELD_PAGE_SIZE, g), group->block);
}

void attn__capture_fields(const struct attn__capture_layout *l, const struct attn__capture_place *place,
                          const struct attn_problem *problem, uint32_t batch, uint32_t tokens, bool cross,
                          struct attn_metadata_impl *m)
{
    m->flavour = l->flavour;
    m->groups = l->groups;
    m->modalities = 1; /* without index maps */
    m->seqs = m->queries = batch;
    m->tokens = batch * tokens;
    m->max_q = tokens;
    m->graph = 1;
    for (uint32_t i = 0; i < l->groups * ATTN_FIELDS; i++) {
        ATTN_INIT(&m->views[i]);
        attn__set_null(&m->views[i]);
    }
    show_numbers(l, problem, batch, tokens, m);
    for (uint32_t g = 0; g < l->groups; g++)
        show_group(l, place, batch, tokens, g, m);
    if (l->flavour == ATTN_FLASHINFER)
        show_array(&l->starts, place, ATTN_INT32, (uint64_t)batch + 1,
                   view_of(m, ATTN_FIELD_QUERY_START_LOC, 0));
    if (!cross)
        return;
    show_array(&l->encoder_lens, place, ATTN_INT32, batch, view_of(m, ATTN_FIELD_ENCODER_SEQ_LENS, 0));
    *view_of(m, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR, 0) = *view_of(m, ATTN_FIELD_ENCODER_SEQ_LENS, 0);
    attn__set_number(view_of(m, ATTN_FIELD_MAX_ENCODER_SEQ_LEN, 0), l->max_len);
    attn__set_number(view_of(m, ATTN_FIELD_NUM_ENCODER_TOKENS, 0), 0);
    show_array(&l->encoder_lens, place, ATTN_INT32, 0, view_of(m, ATTN_FIELD_CROSS_SLOT_MAPPING, 0));
    show_table(&l->cross_table, place, batch, l->cross_width, l->row_stride,
               view_of(m, ATTN_FIELD_CROSS_BLOCK_TABLES, 0));
}
