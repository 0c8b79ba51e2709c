/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The arrays of a graph's step: whether they fit the buffers, and their way there. */
#include "state-put.h"
#include "attn/device.h"
#include "call.h"

/* One array or table of the step. */
struct piece {
    struct attn_view view;
    uint64_t to; /* offset in the buffers */
    uint64_t to_stride;
    uint64_t rows;
    uint64_t bytes; /* of a row */
};

static int32_t fail_shape(uint32_t field, const struct attn_view *view, uint64_t rows, uint64_t columns,
                          struct attn_error *err)
{
    return attn__fail(err, ATTN_E_INVALID, 0, attn_field_name(field),
                      "%s of the step is [%llu, %llu]; the graph's is [%llu, %llu]", attn_field_name(field),
                      (unsigned long long)(view->kind == ATTN_VIEW_ARRAY ? view->shape[0] : 0),
                      (unsigned long long)view->shape[1], (unsigned long long)rows,
                      (unsigned long long)columns);
}

static int32_t get_piece(const struct attn__put *put, uint32_t field, uint32_t index,
                         const struct attn__capture_array *array, uint64_t count, struct piece *out,
                         struct attn_error *err)
{
    const int32_t status = attn__step_get(&put->step, field, index, &out->view, err);
    const uint32_t size = out->view.dtype == ATTN_INT64 ? 8 : 4;

    if (status != ATTN_OK)
        return status;
    if (out->view.kind != ATTN_VIEW_ARRAY || size != array->size || out->view.shape[0] != count)
        return fail_shape(field, &out->view, count, 0, err);
    out->to = array->offset;
    out->to_stride = 0;
    out->rows = 1;
    out->bytes = count * array->size;
    return ATTN_OK;
}

/* A block table, `width` columns of each row. */
static int32_t get_table(const struct attn__put *put, uint32_t field, uint32_t index,
                         const struct attn__capture_array *array, uint32_t width, struct piece *out,
                         struct attn_error *err)
{
    const struct attn__capture_layout *l = &put->clone->capture->layout;
    const int32_t status = get_piece(put, field, index, array, put->clone->batch, out, err);

    if (status != ATTN_OK)
        return status;
    if (out->view.rank != 2 || out->view.shape[1] != width)
        return fail_shape(field, &out->view, put->clone->batch, width, err);
    out->to_stride = l->row_stride;
    out->rows = put->clone->batch;
    out->bytes = (uint64_t)width * 4;
    return ATTN_OK;
}

static int32_t move_piece(struct attn__put *put, const struct piece *piece, struct attn_error *err)
{
    const struct attn__capture *capture = put->clone->capture;
    const char *host = piece->view.host;
    struct attn_buffer from = piece->view.device, to = capture->place.device;
    int32_t status = ATTN_OK;

    if (piece->bytes == 0)
        return ATTN_OK;
    if (put->image != NULL) {
        for (uint64_t i = 0; i < piece->rows; i++)
            memcpy(put->image + piece->to + i * piece->to_stride, host + (int64_t)i * piece->view.stride,
                   piece->bytes);
        return ATTN_OK;
    }
    to.byte_offset += piece->to;
    for (uint64_t i = 0; i < piece->rows && status == ATTN_OK; i++) {
        status = attn_memory_copy(capture->core->backend, &to, &from, piece->bytes, ATTN_COPY_ON_DEVICE,
                                  put->stream, err);
        to.byte_offset += piece->to_stride;
        from.byte_offset += (uint64_t)piece->view.stride;
    }
    return status;
}

/* ---------------------------------------------------------------- checks of values */

/* What a capture bakes in is the longest sequence. */
static int32_t check_lens(const int32_t *lens, uint32_t count, uint64_t most, const char *name,
                          struct attn_error *err)
{
    for (uint32_t i = 0; lens != NULL && i < count; i++)
        if (lens[i] < 0 || (uint64_t)lens[i] > most)
            return attn__fail(err, ATTN_E_SIZE, 0, name,
                              "%s[%u] is %d; graphs were captured for 0 to %llu tokens", name, i, lens[i],
                              (unsigned long long)most);
    return ATTN_OK;
}

static uint64_t most_tokens(const struct attn__capture_layout *l, uint32_t width, uint32_t block)
{
    const uint64_t room = (uint64_t)width * block;

    return room < l->max_len ? room : l->max_len;
}

/* ---------------------------------------------------------------- fields */

/* Checks a piece, or moves it. */
typedef int32_t (*piece_fn)(struct attn__put *put, const struct piece *piece, struct attn_error *err);

static int32_t note_piece(struct attn__put *put, const struct piece *piece, struct attn_error *err)
{
    (void)err;
    put->on_host = put->on_host && piece->view.host != NULL;
    return ATTN_OK;
}

static int32_t each_table(struct attn__put *put, uint32_t g, piece_fn fn, struct attn_error *err)
{
    const struct attn__capture_layout *l = &put->clone->capture->layout;
    const struct attn__capture_group *group = &l->group[g];
    const uint32_t batch = put->clone->batch;
    struct piece piece;
    int32_t status = get_piece(put, ATTN_FIELD_SEQ_LENS_TENSOR, g, &l->lens[g], batch, &piece, err);

    if (status == ATTN_OK && fn == note_piece)
        status = check_lens(piece.view.host, batch, most_tokens(l, group->width, group->block),
                            "seq_lens_tensor", err);
    if (status == ATTN_OK)
        status = fn(put, &piece, err);
    if (status == ATTN_OK)
        status = get_table(put, ATTN_FIELD_BLOCK_TABLES, g, &group->table, group->width, &piece, err);
    return status == ATTN_OK ? fn(put, &piece, err) : status;
}

/* FlashInfer: lengths follow from pages, so that padding of a graph has none. */
static int32_t put_lens(struct attn__put *put, uint32_t g, const int32_t *indptr, const int32_t *last,
                        struct attn_error *err)
{
    const struct attn__capture_layout *l = &put->clone->capture->layout;
    const uint32_t batch = put->clone->batch;
    const int32_t block = (int32_t)l->group[g].block;

    for (uint32_t i = 0; i < batch; i++) {
        const int64_t pages = (int64_t)indptr[i + 1] - indptr[i];
        const int64_t len = pages > 0 ? (pages - 1) * block + last[i] : 0;
        if (pages < 0 || len < 0 || len > l->max_len)
            return attn__fail(err, ATTN_E_SIZE, 0, "paged_kv_indptr",
                              "sequence %u has %lld pages and %lld tokens in cache group %u; graphs were "
                              "captured for 0 to %u tokens",
                              i, (long long)pages, (long long)len, g, l->max_len);
        if (put->image != NULL)
            ((int32_t *)(void *)(put->image + l->lens[g].offset))[i] = (int32_t)len;
    }
    return ATTN_OK;
}

static int32_t each_list(struct attn__put *put, uint32_t g, piece_fn fn, struct attn_error *err)
{
    const struct attn__capture_layout *l = &put->clone->capture->layout;
    const struct attn__capture_group *group = &l->group[g];
    const uint32_t batch = put->clone->batch;
    struct piece indptr, last, indices;
    int32_t status =
        get_piece(put, ATTN_FIELD_PAGED_KV_INDPTR, g, &group->indptr, (uint64_t)batch + 1, &indptr, err);

    if (status == ATTN_OK)
        status =
            get_piece(put, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, g, &group->last_page_lens, batch, &last, err);
    if (status == ATTN_OK)
        status = attn__step_get(&put->step, ATTN_FIELD_PAGED_KV_INDICES, g, &indices.view, err);
    if (status != ATTN_OK)
        return status;
    if (indptr.view.host == NULL || last.view.host == NULL || indices.view.host == NULL)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "paged_kv_indptr",
                          "paged_kv_indptr is known to the device alone; lengths follow from its host copy");
    const int32_t used = ((const int32_t *)indptr.view.host)[batch];
    if (used < 0 || (uint64_t)used > group->indices.elements || (uint64_t)used > indices.view.shape[0])
        return attn__fail(err, ATTN_E_SIZE, 0, "paged_kv_indices",
                          "the step has %d pages in cache group %u; the graphs were captured for %llu", used,
                          g, (unsigned long long)group->indices.elements);
    const uint64_t there = indices.view.shape[0];
    indices.view.shape[0] = (uint64_t)used;
    if (indices.view.kind != ATTN_VIEW_ARRAY ||
        (indices.view.dtype == ATTN_INT64 ? 8 : 4) != group->indices.size)
        return fail_shape(ATTN_FIELD_PAGED_KV_INDICES, &indices.view, there, 0, err);
    indices.to = group->indices.offset;
    indices.to_stride = 0;
    indices.rows = 1;
    indices.bytes = (uint64_t)used * group->indices.size;
    put->end = indices.to + indices.bytes;
    status = put_lens(put, g, indptr.view.host, last.view.host, err);
    if (status == ATTN_OK)
        status = fn(put, &indptr, err);
    if (status == ATTN_OK)
        status = fn(put, &last, err);
    return status == ATTN_OK ? fn(put, &indices, err) : status;
}

static int32_t each_cross(struct attn__put *put, piece_fn fn, struct attn_error *err)
{
    const struct attn__state_core *core = put->clone->core;
    const struct attn__capture_layout *l = &put->clone->capture->layout;
    const uint32_t batch = put->clone->batch;
    struct piece piece;
    int32_t status =
        get_piece(put, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR, 0, &l->encoder_lens, batch, &piece, err);

    if (status == ATTN_OK && fn == note_piece)
        status = check_lens(piece.view.host, batch, most_tokens(l, l->cross_width, core->cross_block),
                            "encoder_seq_lens_tensor", err);
    if (status == ATTN_OK)
        status = fn(put, &piece, err);
    if (status == ATTN_OK)
        status =
            get_table(put, ATTN_FIELD_CROSS_BLOCK_TABLES, 0, &l->cross_table, l->cross_width, &piece, err);
    return status == ATTN_OK ? fn(put, &piece, err) : status;
}

static int32_t each_piece(struct attn__put *put, piece_fn fn, struct attn_error *err)
{
    const struct attn__capture_layout *l = &put->clone->capture->layout;
    int32_t status = ATTN_OK;

    put->end = l->rows + put->clone->batch * l->row_stride;
    for (uint32_t g = 0; g < l->groups && status == ATTN_OK; g++) {
        struct piece slots;
        status =
            get_piece(put, ATTN_FIELD_SLOT_MAPPING, g, &l->group[g].slots, put->clone->batch, &slots, err);
        if (status == ATTN_OK)
            status = fn(put, &slots, err);
        if (status == ATTN_OK)
            status = put->clone->core->infer ? each_list(put, g, fn, err) : each_table(put, g, fn, err);
    }
    return status == ATTN_OK && put->clone->cross ? each_cross(put, fn, err) : status;
}

int32_t attn__put_check(struct attn__put *put, struct attn_error *err)
{
    put->on_host = true;
    return each_piece(put, note_piece, err);
}

int32_t attn__put_move(struct attn__put *put, struct attn_error *err)
{
    return each_piece(put, move_piece, err);
}
