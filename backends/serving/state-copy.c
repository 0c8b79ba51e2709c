/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks the arrays of a step against the capture buffers of its graph, and copies them there. */
#include "state-copy.h"
#include "fail.h"

/* One array or table of the step. */
struct input {
    struct attn_view view;
    uint64_t to; /* offset in the buffers */
    uint64_t to_stride;
    uint64_t rows;
    uint64_t bytes; /* of a row */
};

static int32_t fail_shape(uint32_t field, const struct attn_view *view, uint64_t rows, uint64_t columns,
                          struct attn_error *err)
{
    return attn__fail(err, ATTN_E_INVALID, 0, attn__field_name(field),
                      "%s of the step is [%llu, %llu]; the graph's is [%llu, %llu]", attn__field_name(field),
                      (unsigned long long)(view->kind == ATTN_VIEW_ARRAY ? view->shape[0] : 0),
                      (unsigned long long)view->shape[1], (unsigned long long)rows,
                      (unsigned long long)columns);
}

static int32_t get_input(const struct attn__step_copy *copy, uint32_t field, uint32_t index,
                         const struct attn__capture_array *array, uint64_t count, struct input *out,
                         struct attn_error *err)
{
    const int32_t status = attn__step_get(&copy->step, field, index, &out->view, err);
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

/* A block table of `width` columns. */
static int32_t get_table(const struct attn__step_copy *copy, uint32_t field, uint32_t index,
                         const struct attn__capture_array *array, uint32_t width, struct input *out,
                         struct attn_error *err)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const int32_t status = get_input(copy, field, index, array, copy->seqs, out, err);

    if (status != ATTN_OK)
        return status;
    if (out->view.rank != 2 || out->view.shape[1] != width)
        return fail_shape(field, &out->view, copy->seqs, width, err);
    out->to_stride = l->row_stride;
    out->rows = copy->seqs;
    out->bytes = (uint64_t)width * 4;
    return ATTN_OK;
}

static int32_t copy_input(struct attn__step_copy *copy, const struct input *input, struct attn_error *err)
{
    const struct attn__capture *capture = copy->clone->capture;
    const char *host = input->view.host;
    struct attn_buffer from = input->view.device, to = capture->place.device;
    int32_t status = ATTN_OK;

    if (input->bytes == 0)
        return ATTN_OK;
    if (copy->image != NULL) {
        for (uint64_t i = 0; i < input->rows; i++)
            memcpy(copy->image + input->to + i * input->to_stride, host + (int64_t)i * input->view.stride,
                   input->bytes);
        return ATTN_OK;
    }
    to.byte_offset += input->to;
    for (uint64_t i = 0; i < input->rows && status == ATTN_OK; i++) {
        status = capture->core->host.memory_copy(capture->core->host.backend, &to, &from, input->bytes,
                                                 ATTN_COPY_ON_DEVICE, copy->stream, err);
        to.byte_offset += input->to_stride;
        from.byte_offset += (uint64_t)input->view.stride;
    }
    return status;
}

/* ---------------------------------------------------------------- checks of values */

/* Captured kernels are launched for sequences of up to this length. */
static int32_t check_lens(const int32_t *lens, uint32_t count, uint64_t limit, const char *name,
                          struct attn_error *err)
{
    for (uint32_t i = 0; lens != NULL && i < count; i++)
        if (lens[i] < 0 || (uint64_t)lens[i] > limit)
            return attn__fail(err, ATTN_E_SIZE, 0, name,
                              "%s[%u] is %d; graphs were captured for 0 to %llu tokens", name, i, lens[i],
                              (unsigned long long)limit);
    return ATTN_OK;
}

static uint64_t token_limit(const struct attn__capture_layout *l, uint32_t width, uint32_t block)
{
    const uint64_t room = (uint64_t)width * block;

    return room < l->max_len ? room : l->max_len;
}

/* ---------------------------------------------------------------- fields */

/* check_input or copy_input. */
typedef int32_t (*input_fn)(struct attn__step_copy *copy, const struct input *input, struct attn_error *err);

static int32_t check_input(struct attn__step_copy *copy, const struct input *input, struct attn_error *err)
{
    (void)err;
    copy->on_host = copy->on_host && input->view.host != NULL;
    return ATTN_OK;
}

static int32_t each_table(struct attn__step_copy *copy, uint32_t g, input_fn fn, struct attn_error *err)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const struct attn__capture_group *group = &l->group[g];
    const uint32_t batch = copy->seqs;
    struct input input;
    int32_t status = get_input(copy, ATTN_FIELD_SEQ_LENS_TENSOR, g, &l->lens[g], batch, &input, err);

    if (status == ATTN_OK && fn == check_input)
        status = check_lens(input.view.host, batch, token_limit(l, group->width, group->block),
                            "seq_lens_tensor", err);
    if (status == ATTN_OK)
        status = fn(copy, &input, err);
    if (status == ATTN_OK)
        status = get_table(copy, ATTN_FIELD_BLOCK_TABLES, g, &group->table, group->width, &input, err);
    return status == ATTN_OK ? fn(copy, &input, err) : status;
}

/* FlashInfer's arrays of one cache group. */
struct pages {
    struct attn_view indptr, last, indices;
    int64_t used;
};

static int32_t get_pages(const struct attn__step_copy *copy, uint32_t g, struct pages *out,
                         struct attn_error *err)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const uint32_t batch = copy->seqs;
    struct input input;
    int32_t status =
        get_input(copy, ATTN_FIELD_PAGED_KV_INDPTR, g, &l->group[g].indptr, (uint64_t)batch + 1, &input, err);

    out->indptr = input.view;
    if (status == ATTN_OK)
        status = get_input(copy, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, g, &l->group[g].last_page_lens, batch,
                           &input, err);
    out->last = input.view;
    if (status == ATTN_OK)
        status = attn__step_get(&copy->step, ATTN_FIELD_PAGED_KV_INDICES, g, &out->indices, err);
    if (status != ATTN_OK)
        return status;
    if (!copy->on_host || out->indptr.host == NULL || out->last.host == NULL || out->indices.host == NULL)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "paged_kv_indptr",
                          "paged_kv_indptr is known to the device alone; lengths follow from its host copy");
    if (out->indices.kind != ATTN_VIEW_ARRAY || (out->indices.dtype == ATTN_INT64 ? 8 : 4) != l->indices.size)
        return attn__fail(
            err, ATTN_E_INVALID, ATTN_REASON_INDEX, "paged_kv_indices",
            "paged_kv_indices of the step have another type; the state's index_dtype is accepted");
    out->used = ((const int32_t *)out->indptr.host)[batch];
    if (out->used < 0 || (uint64_t)out->used > l->group[g].max_indices ||
        (uint64_t)out->used > out->indices.shape[0])
        return attn__fail(err, ATTN_E_SIZE, 0, "paged_kv_indices",
                          "the step has %lld pages in cache group %u; the graphs were captured for %llu",
                          (long long)out->used, g, (unsigned long long)l->group[g].max_indices);
    return ATTN_OK;
}

/* True if a class of a cache group reads new keys beside its cache. */
static bool reads_new(const struct attn__state_core *core, uint32_t group)
{
    for (uint32_t i = 0; i < core->count; i++)
        if (core->problems[i].kv_source == ATTN_KV_CACHE_NEW && core->classes[i].group == group)
            return true;
    return false;
}

/* Computes sequence lengths from the pages; padding has no pages and gets length 0. */
static int32_t check_pages(const struct attn__step_copy *copy, uint32_t g, const struct pages *pages,
                           int32_t *lens, struct attn_error *err)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const int32_t *indptr = pages->indptr.host, *last = pages->last.host;
    const int32_t block = (int32_t)l->group[g].block;

    for (uint32_t i = 0; i < copy->seqs; i++) {
        const int64_t count = (int64_t)indptr[i + 1] - indptr[i];
        const int64_t len = count > 0 ? (count - 1) * block + last[i] : 0;
        if (count < 0 || len < 0 || len > l->max_len)
            return attn__fail(err, ATTN_E_SIZE, 0, "paged_kv_indptr",
                              "sequence %u has %lld pages and %lld tokens in cache group %u; graphs were "
                              "captured for 0 to %u tokens",
                              i, (long long)count, (long long)len, g, l->max_len);
        if (len == 0 && reads_new(copy->clone->core, g))
            return attn__fail_padding(err);
        if (lens != NULL)
            lens[i] = (int32_t)len;
    }
    return ATTN_OK;
}

static int32_t each_list(struct attn__step_copy *copy, uint32_t g, input_fn fn, struct attn_error *err)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const uint32_t batch = copy->seqs;
    struct pages pages;
    int32_t status = get_pages(copy, g, &pages, err);

    if (status != ATTN_OK || fn == check_input)
        return status == ATTN_OK ? check_pages(copy, g, &pages, NULL, err) : status;
    const uint64_t to = l->indices.offset + copy->indices * l->indices.size;
    int32_t *indptr = (int32_t *)(void *)(copy->image + l->group[g].indptr.offset);
    for (uint32_t i = 0; i <= batch; i++)
        indptr[i] = ((const int32_t *)pages.indptr.host)[i] + (int32_t)copy->indices;
    memcpy(copy->image + l->group[g].last_page_lens.offset, pages.last.host, batch * sizeof(int32_t));
    memcpy(copy->image + to, pages.indices.host, (uint64_t)pages.used * l->indices.size);
    copy->indices += (uint64_t)pages.used;
    copy->end = l->indices.offset + copy->indices * l->indices.size;
    return check_pages(copy, g, &pages, (int32_t *)(void *)(copy->image + l->lens[g].offset), err);
}

static int32_t each_cross(struct attn__step_copy *copy, input_fn fn, struct attn_error *err)
{
    const struct attn__state_core *core = copy->clone->core;
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const uint32_t batch = copy->seqs;
    struct input input;
    int32_t status =
        get_input(copy, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR, 0, &l->encoder_lens, batch, &input, err);

    if (status == ATTN_OK && fn == check_input)
        status = check_lens(input.view.host, batch, token_limit(l, l->cross_width, core->cross_block),
                            "encoder_seq_lens_tensor", err);
    if (status == ATTN_OK)
        status = fn(copy, &input, err);
    if (status == ATTN_OK)
        status =
            get_table(copy, ATTN_FIELD_CROSS_BLOCK_TABLES, 0, &l->cross_table, l->cross_width, &input, err);
    return status == ATTN_OK ? fn(copy, &input, err) : status;
}

static int32_t each_input(struct attn__step_copy *copy, input_fn fn, struct attn_error *err)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    int32_t status = ATTN_OK;

    copy->end = l->rows + copy->clone->batch * l->row_stride;
    copy->indices = 0;
    for (uint32_t g = 0; g < l->groups && status == ATTN_OK; g++) {
        struct input slots;
        status = get_input(copy, ATTN_FIELD_SLOT_MAPPING, g, &l->group[g].slots,
                           (uint64_t)copy->seqs * copy->clone->tokens, &slots, err);
        if (status == ATTN_OK)
            status = fn(copy, &slots, err);
        if (status == ATTN_OK)
            status = copy->clone->core->infer ? each_list(copy, g, fn, err) : each_table(copy, g, fn, err);
    }
    return status == ATTN_OK && copy->clone->cross ? each_cross(copy, fn, err) : status;
}

/* Sequences of the graph that the step does not have: they write no cache, and see the first tokens of block
 * 0. */
static void pad_image(const struct attn__step_copy *copy)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const uint64_t seqs = copy->seqs, batch = copy->clone->batch, tokens = copy->clone->tokens;

    for (uint32_t g = 0; g < l->groups && seqs < batch; g++) {
        int32_t *lens = (int32_t *)(void *)(copy->image + l->lens[g].offset);
        memset(copy->image + l->group[g].slots.offset + seqs * tokens * sizeof(int64_t), 0xff,
               (batch - seqs) * tokens * sizeof(int64_t));
        for (uint64_t i = seqs; i < batch; i++)
            lens[i] = (int32_t)tokens;
    }
    if (seqs < batch) /* rows of block tables */
        memset(copy->image + l->rows + seqs * l->row_stride, 0, (batch - seqs) * l->row_stride);
}

/* How many sequences there are; a step of one token each is as large as its graph. */
static int32_t count_seqs(struct attn__step_copy *copy, struct attn_error *err)
{
    int64_t decodes;
    const int32_t status = attn__step_number(&copy->step, ATTN_FIELD_NUM_DECODE_TOKENS, 0, &decodes, err);

    copy->seqs = copy->clone->tokens == 1 ? copy->clone->batch : (uint32_t)decodes / copy->clone->tokens;
    return status;
}

int32_t attn__step_copy_check(struct attn__step_copy *copy, struct attn_error *err)
{
    copy->on_host = true;
    int32_t status = count_seqs(copy, err);

    if (status == ATTN_OK)
        status = each_input(copy, check_input, err);
    if (status != ATTN_OK || copy->on_host || copy->seqs == copy->clone->batch)
        return status;
    return attn__fail(
        err, ATTN_E_UNSUPPORTED, 0, "num_decode_tokens",
        "the step has %u sequences and is known to the device alone; the graph's %u are accepted", copy->seqs,
        copy->clone->batch);
}

int32_t attn__step_copy_run(struct attn__step_copy *copy, struct attn_error *err)
{
    const int32_t status = each_input(copy, copy_input, err);

    if (status == ATTN_OK && copy->image != NULL)
        pad_image(copy);
    return status;
}
