/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Advances metadata to the next decode step: host arrays here, device arrays by advance_step of the backend.
 */
#include "step.h"

#include "advance.h"
#include "fail.h"
#include "parts.h"

static int32_t *ints(const struct attn_metadata_impl *m, uint32_t field, uint32_t group)
{
    struct attn_view *view = attn__field(m, field, group);

    return view->kind == ATTN_VIEW_ARRAY || view->kind == ATTN_VIEW_LIST ? view->host : NULL;
}

/* The host's arrays of one group. Tokens and positions exist once, and are advanced with the first group. */
static struct attn_advance host_arrays(const struct attn__step *step, uint32_t g)
{
    const struct attn_metadata_impl *m = &step->b->whole;
    const struct attn_view *table = attn__field(m, ATTN_FIELD_BLOCK_TABLES, g);
    const struct attn_view *indices = attn__field(m, ATTN_FIELD_PAGED_KV_INDICES, g);

    return (struct attn_advance){.seqs = step->seqs,
                                 .queries = step->queries,
                                 .num_tokens = step->num_tokens,
                                 .block = step->b->group[g].params.block,
                                 .keep_padding = step->b->infer,
                                 .table_width = (uint32_t)table->shape[1],
                                 .index_size = table->dtype == ATTN_INT64 ? 8 : 4,
                                 .table_stride = step->b->group[g].table.stride,
                                 .table = table->host,
                                 .query_starts = step->starts,
                                 .accepted = step->args->accepted,
                                 .slots = (int64_t *)attn__field(m, ATTN_FIELD_SLOT_MAPPING, g)->host,
                                 .seq_lens = ints(m, ATTN_FIELD_SEQ_LENS_TENSOR, g),
                                 .context_lens = g == 0 ? ints(m, ATTN_FIELD_CONTEXT_LENS_TENSOR, 0) : NULL,
                                 .seq_starts = ints(m, ATTN_FIELD_SEQ_START_LOC, g),
                                 .csr_capacity = indices->kind == ATTN_VIEW_ARRAY ? indices->shape[0] : 0,
                                 .csr_indptr = ints(m, ATTN_FIELD_PAGED_KV_INDPTR, g),
                                 .csr_indices = indices->host,
                                 .csr_last_page_lens = ints(m, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, g),
                                 .csr_pages = ints(m, ATTN_FIELD_BLOCK_TABLE_BOUND, g)};
}

static int64_t *longs(const struct attn_buffer *buffer)
{
    return buffer->data != NULL ? (int64_t *)(void *)((char *)buffer->data + buffer->byte_offset) : NULL;
}

/* Where kernels read the host's arrays, tokens and positions are host memory too. */
static void add_tokens(const struct attn__step *step, struct attn_advance *arrays)
{
    arrays->sampled = longs(&step->args->sampled);
    arrays->tokens = longs(&step->args->tokens);
    arrays->positions = longs(&step->args->positions);
}

static void device_arrays(const struct attn__step *step, uint32_t g, struct attn_kv_advance_step_args *to)
{
    const struct attn_metadata_impl *m = &step->b->whole;
    const struct attn_view *table = attn__field(m, ATTN_FIELD_BLOCK_TABLES, g);

    ATTN_INIT(to);
    to->block = step->b->group[g].params.block;
    to->seqs = step->seqs;
    to->queries = step->queries;
    to->num_tokens = step->num_tokens;
    to->keep_padding = step->b->infer ? 1 : 0;
    to->index_dtype = table->dtype;
    to->table_width = (uint32_t)table->shape[1];
    to->table = table->device;
    to->table_stride = table->stride;
    if (step->max_q > 1)
        to->query_starts = attn__field(m, ATTN_FIELD_QUERY_START_LOC, 0)->device;
    to->accepted = step->args->accepted_device;
    to->slots = attn__field(m, ATTN_FIELD_SLOT_MAPPING, g)->device;
    to->seq_lens = attn__field(m, ATTN_FIELD_SEQ_LENS_TENSOR, g)->device;
    to->seq_starts = attn__field(m, ATTN_FIELD_SEQ_START_LOC, g)->device;
    if (g == 0) {
        to->sampled = step->args->sampled;
        to->tokens = step->args->tokens;
        to->positions = step->args->positions;
        if (!step->b->infer)
            to->context_lens = attn__field(m, ATTN_FIELD_CONTEXT_LENS_TENSOR, 0)->device;
    }
    if (!step->b->infer)
        return;
    to->csr_capacity = attn__field(m, ATTN_FIELD_PAGED_KV_INDICES, g)->shape[0];
    to->csr_indptr = attn__field(m, ATTN_FIELD_PAGED_KV_INDPTR, g)->device;
    to->csr_indices = attn__field(m, ATTN_FIELD_PAGED_KV_INDICES, g)->device;
    to->last_page_lens = attn__field(m, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, g)->device;
    to->csr_pages = attn__field(m, ATTN_FIELD_BLOCK_TABLE_BOUND, g)->device;
}

/*
 * Moves the step to the next host copy of the circular buffer, because transfers from this one may still be
 * under way. Block tables have memory of their own and stay.
 */
static void carry_to_next_copy(struct attn_builder_impl *b)
{
    const struct attn_metadata_impl *m = &b->whole;
    char *old = b->blocks[b->step];
    const uint32_t sets = m->groups > m->modalities ? m->groups : m->modalities;

    attn__builder_next_copy(b);
    char *block = b->blocks[b->step];
    if (block == old)
        return;
    memcpy(block, old, b->small_bytes);
    for (size_t i = 0; i < (size_t)sets * ATTN_FIELDS; i++) {
        struct attn_view *view = &m->views[i];
        if (view->rank != 1 || view->host == NULL ||
            (view->kind != ATTN_VIEW_ARRAY && view->kind != ATTN_VIEW_LIST))
            continue;
        const size_t at = (size_t)((char *)view->host - old);
        if (at >= b->small_bytes)
            memcpy(block + at, view->host, view->shape[0] * (view->dtype == ATTN_INT64 ? 8 : 4));
        view->host = block + at;
    }
}

/* attn_builder_set_row may have lengthened rows beyond the columns that the step showed. */
static void widen(struct attn_builder_impl *b)
{
    const struct attn_metadata_impl *m = &b->whole;

    for (uint32_t g = 0; g < m->groups && m->graph == 0; g++) {
        const struct attn__table *table = &b->group[g].table;
        struct attn_view *view = attn__field(m, ATTN_FIELD_BLOCK_TABLES, g);
        for (uint64_t i = 0; view->kind == ATTN_VIEW_ARRAY && i < view->shape[0]; i++)
            if (table->row[m->first_row + i].filled > view->shape[1])
                view->shape[1] = table->row[m->first_row + i].filled;
    }
}

/* Sequences that were prefilled in the last step decode one token each from here on. */
static void prefills_to_decodes(const struct attn__step *step)
{
    struct attn_builder_impl *b = step->b;
    struct attn_metadata_impl *m = &b->whole;
    int32_t *starts = attn__i32(b->group, ATTN_FIELD_QUERY_START_LOC);

    for (uint32_t i = 0; i <= step->seqs; i++)
        starts[i] = (int32_t)i;
    attn__field(m, ATTN_FIELD_NUM_PREFILLS, 0)->value = 0;
    attn__field(m, ATTN_FIELD_NUM_PREFILL_TOKENS, 0)->value = 0;
    attn__field(m, ATTN_FIELD_MAX_PREFILL_SEQ_LEN, 0)->value = 0;
    attn__field(m, ATTN_FIELD_NUM_DECODE_TOKENS, 0)->value = step->seqs;
    attn__field(m, ATTN_FIELD_MAX_QUERY_LEN, 0)->value = 1;
    for (uint32_t g = 0; g < m->groups; g++)
        attn__field(m, ATTN_FIELD_SLOT_MAPPING, g)->shape[0] = step->seqs;
    m->prefills = m->prompt_tokens = m->prefills_without_table = b->prefills = b->prompt_tokens = 0;
    m->tokens = step->seqs;
    m->max_q = b->max_q = 1;
    b->decode_tokens = step->queries;
}

static int32_t on_device(const struct attn__step *step, void *stream, struct attn_error *err)
{
    struct attn_builder_impl *b = step->b;
    int32_t status = attn__builder_flush_tables(b, stream, err);

    if (status == ATTN_OK && step->args->prefill_to_decode != 0) {
        const struct attn_view *starts = attn__field(&b->whole, ATTN_FIELD_QUERY_START_LOC, 0);
        const struct attn_buffer from = {starts->host, 0};
        status =
            b->memory->copy(b->backend, &starts->device, &from, ((uint64_t)step->seqs + 1) * sizeof(int32_t),
                            ATTN_COPY_TO_DEVICE, stream, err);
    }
    for (uint32_t g = 0; g < b->whole.groups && status == ATTN_OK; g++) {
        struct attn_kv_advance_step_args arrays;
        device_arrays(step, g, &arrays);
        status = b->kv->advance_step(b->backend, &arrays, stream, err);
    }
    return status;
}

/* The lists and maxima that kernels do not read, and that the device therefore cannot advance. */
static void update_host_lists(const struct attn__step *step)
{
    const struct attn_metadata_impl *m = &step->b->whole;

    for (uint32_t g = 0; g < m->groups; g++) {
        const int32_t *lens = ints(m, ATTN_FIELD_SEQ_LENS_TENSOR, g);
        int32_t *list = ints(m, ATTN_FIELD_SEQ_LENS, g), max_len = 0;
        struct attn_view *longest = attn__field(m, ATTN_FIELD_MAX_DECODE_SEQ_LEN, g);
        for (uint32_t i = 0; lens != NULL && i < step->seqs; i++)
            max_len = lens[i] > max_len ? lens[i] : max_len;
        if (lens != NULL && list != NULL)
            memcpy(list, lens, step->seqs * sizeof *list);
        if (longest->kind == ATTN_VIEW_NUMBER)
            longest->value =
                lens != NULL ? max_len
                             : longest->value + (step->args->max_accepted > 0 ? step->args->max_accepted : 1);
    }
}

int32_t attn__builder_advance(struct attn_builder_impl *b, const struct attn_advance_args *args, void *stream,
                              struct attn_error *err)
{
    struct attn_advance_args own = *args;
    struct attn__step step = {.b = b, .args = &own, .seqs = args->seqs, .queries = args->queries};
    const bool mirrored = attn__field(&b->whole, ATTN_FIELD_SEQ_LENS_TENSOR, 0)->host != NULL;

    if (b->direct && own.accepted == NULL)
        own.accepted = (const int32_t *)(const void *)longs(&own.accepted_device);
    widen(b);
    int32_t status = attn__step_check(&step, err);
    if (status == ATTN_OK && !b->direct && (b->kv == NULL || b->kv->advance_step == NULL))
        status = attn__fail(err, ATTN_E_UNSUPPORTED, 0, "advance_step", "the backend offers no advance_step");
    if (status == ATTN_OK && !b->direct && (args->accepted != NULL) != (args->accepted_device.data != NULL) &&
        mirrored)
        status = attn__fail(err, ATTN_E_INVALID, 0, "accepted",
                            "accepted and accepted_device hold the same counts: give both or none");
    for (uint32_t g = 0; g < b->whole.groups && status == ATTN_OK && mirrored; g++) {
        const struct attn_advance arrays = host_arrays(&step, g);
        status = attn__advance_check(&arrays, err);
    }
    if (status != ATTN_OK)
        return status;
    if (!b->direct && mirrored)
        carry_to_next_copy(b);
    step.starts = step.starts != NULL ? ints(&b->whole, ATTN_FIELD_QUERY_START_LOC, 0) : NULL;
    b->adds_stale = true;
    b->whole.step++;
    attn__parts_drop(b);
    if (args->prefill_to_decode != 0)
        prefills_to_decodes(&step);
    if (!b->direct)
        status = on_device(&step, stream, err);
    for (uint32_t g = 0; g < b->whole.groups && status == ATTN_OK && mirrored; g++) {
        struct attn_advance arrays = host_arrays(&step, g);
        if (b->direct && g == 0)
            add_tokens(&step, &arrays);
        attn__advance_write(&arrays);
    }
    if (status == ATTN_OK)
        update_host_lists(&step);
    return status;
}
