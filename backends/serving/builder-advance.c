/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Advances metadata to the next decode step: host arrays here, device arrays by advance_step of the backend.
 */
#include "builder-advance.h"

#include "advance.h"
#include "fail.h"

/* The host's arrays of one group. Tokens and positions exist once, and are advanced with the first group. */
static struct attn_advance host_arrays(const struct attn__next_step *next, uint32_t g)
{
    const struct attn_step *step = &next->b->whole.step;
    const struct attn_step_group *group = &step->group[g];

    return (struct attn_advance){
        .seqs = next->seqs,
        .queries = next->queries,
        .num_tokens = next->num_tokens,
        .block = group->block,
        .keep_padding = next->b->flavour->pages,
        .table_width = group->table.width,
        .index_size = attn__index_size(group->table.dtype),
        .table_stride = group->table.stride,
        .table = group->table.host,
        .query_starts = next->starts,
        .accepted = next->args->accepted,
        .slots = attn__longs(&group->slots),
        .seq_lens = attn__ints(&group->seq_lens),
        .context_lens = g == 0 && !next->b->flavour->pages ? attn__ints(&step->context_lens) : NULL,
        .seq_starts = attn__ints(&group->seq_starts),
        .csr_capacity = group->page_indices.count,
        .csr_indptr = attn__ints(&group->page_starts),
        .csr_indices = group->page_indices.host,
        .csr_last_page_lens = attn__ints(&group->last_page_lens),
        .csr_pages = attn__ints(&group->pages_in_use),
        .shard = next->b->shard,
        .rank_lens = attn__ints(&group->rank_lens)};
}

static int64_t *longs(const struct attn_buffer *buffer)
{
    return buffer->data != NULL ? (int64_t *)(void *)((char *)buffer->data + buffer->byte_offset) : NULL;
}

/* Where kernels read the host's arrays, tokens and positions are host memory too. */
static void add_tokens(const struct attn__next_step *next, struct attn_advance *arrays)
{
    arrays->sampled = longs(&next->args->sampled);
    arrays->tokens = longs(&next->args->tokens);
    arrays->positions = longs(&next->args->positions);
}

static void device_arrays(const struct attn__next_step *next, uint32_t g,
                          struct attn_kv_advance_step_args *to)
{
    const struct attn_step *step = &next->b->whole.step;
    const struct attn_step_group *group = &step->group[g];

    ATTN_INIT(to);
    to->block = group->block;
    to->seqs = next->seqs;
    to->queries = next->queries;
    to->num_tokens = next->num_tokens;
    to->keep_padding = next->b->flavour->pages ? 1 : 0;
    to->index_dtype = group->table.dtype;
    to->table_width = group->table.width;
    to->table = group->table.device;
    to->table_stride = group->table.stride;
    if (next->max_q > 1)
        to->query_starts = step->query_starts.device;
    to->accepted = next->args->accepted_device;
    to->slots = group->slots.device;
    to->seq_lens = group->seq_lens.device;
    to->seq_starts = group->seq_starts.device;
    if (g == 0) {
        to->sampled = next->args->sampled;
        to->tokens = next->args->tokens;
        to->positions = next->args->positions;
        if (!next->b->flavour->pages)
            to->context_lens = step->context_lens.device;
    }
    to->csr_capacity = group->page_indices.count;
    to->csr_indptr = group->page_starts.device;
    to->csr_indices = group->page_indices.device;
    to->last_page_lens = group->last_page_lens.device;
    to->csr_pages = group->pages_in_use.device;
}

/*
 * Moves the step to the next host copy of the circular buffer, because transfers from this one may still be
 * under way. Block tables have memory of their own and stay.
 */
static void carry_to_next_copy(struct attn_builder_impl *b)
{
    const char *old = b->blocks[b->copy];

    b->copy = (b->copy + 1) % b->params.steps;
    char *block = b->blocks[b->copy];
    if (block == old)
        return;
    memcpy(block, old, b->small_bytes);
    for (uint32_t i = 0; i < b->place_count; i++) {
        const struct attn__array_place *place = &b->places[i];
        const uint64_t bytes = place->array->count * attn__index_size(place->dtype);
        if (place->offset >= b->small_bytes && place->array->dtype != 0)
            memcpy(block + place->offset, old + place->offset, bytes);
        place->array->host = block + place->offset;
    }
}

/* attn_builder_set_row may have lengthened rows beyond the columns that the step showed. */
static void widen(struct attn_builder_impl *b)
{
    const struct attn_step *step = &b->whole.step;

    for (uint32_t g = 0; g < step->groups && step->graph == 0; g++) {
        const struct attn__table *table = &b->group[g].table;
        struct attn_step_array *shown = &step->group[g].table;
        for (uint64_t i = 0; shown->dtype != 0 && i < shown->count; i++)
            if (table->row[step->first_row + i].filled > shown->width)
                shown->width = table->row[step->first_row + i].filled;
    }
}

/* Sequences that were prefilled in the last step decode one token each from here on. */
static void prefills_to_decodes(const struct attn__next_step *next)
{
    struct attn_builder_impl *b = next->b;
    struct attn_step *step = &b->whole.step;
    int32_t *starts = attn__ints(&step->query_starts);

    for (uint32_t i = 0; i <= next->seqs; i++)
        starts[i] = (int32_t)i;
    for (uint32_t g = 0; g < step->groups; g++)
        step->group[g].slots.count = next->seqs;
    step->prefills = step->prefill_tokens = step->prefills_without_table = step->max_prefill_len = 0;
    step->num_tokens = step->decode_tokens = next->seqs;
    step->max_q = 1;
    b->decode_tokens = next->queries;
}

static int32_t on_device(const struct attn__next_step *next, void *stream, struct attn_error *err)
{
    struct attn_builder_impl *b = next->b;
    int32_t status = attn__builder_flush_tables(b, stream, err);

    if (status == ATTN_OK && next->args->prefill_to_decode != 0) {
        const struct attn_step_array *starts = &b->whole.step.query_starts;
        const struct attn_buffer from = {starts->host, 0};
        status =
            b->memory->copy(b->backend, &starts->device, &from, ((uint64_t)next->seqs + 1) * sizeof(int32_t),
                            ATTN_COPY_TO_DEVICE, stream, err);
    }
    for (uint32_t g = 0; g < b->whole.step.groups && status == ATTN_OK; g++) {
        struct attn_kv_advance_step_args arrays;
        device_arrays(next, g, &arrays);
        status = b->kv->advance_step(b->backend, &arrays, stream, err);
    }
    return status;
}

/* The lists and maxima that kernels do not read, and that the device therefore cannot advance. */
static void update_host_lists(const struct attn__next_step *next)
{
    const struct attn_step *step = &next->b->whole.step;

    for (uint32_t g = 0; g < step->groups; g++) {
        struct attn_step_group *group = &step->group[g];
        const int32_t *lens = attn__ints(&group->seq_lens);
        int32_t max_len = 0;
        for (uint32_t i = 0; lens != NULL && i < next->seqs; i++)
            max_len = lens[i] > max_len ? lens[i] : max_len;
        if (lens != NULL && group->seq_lens_list.dtype != 0)
            memcpy(group->seq_lens_list.host, lens, next->seqs * sizeof *lens);
        group->max_decode_len =
            lens != NULL
                ? (uint32_t)max_len
                : group->max_decode_len + (next->args->max_accepted > 0 ? next->args->max_accepted : 1);
    }
}

int32_t attn__builder_advance(struct attn_builder_impl *b, const struct attn_advance_args *args, void *stream,
                              struct attn_error *err)
{
    struct attn_step *step = &b->whole.step;
    struct attn_advance_args own = *args;
    struct attn__next_step next = {.b = b, .args = &own, .seqs = args->seqs, .queries = args->queries};
    const bool mirrored = step->group->seq_lens.host != NULL;

    if (b->direct && own.accepted == NULL)
        own.accepted = (const int32_t *)(const void *)longs(&own.accepted_device);
    widen(b);
    int32_t status = attn__next_step_check(&next, err);
    if (status == ATTN_OK && !b->direct && b->shard.world != 0)
        status =
            attn__fail(err, ATTN_E_UNSUPPORTED, 0, "cp_world",
                       "cp_world is %u; on a device with memory of its own steps of ranks do not advance: "
                       "the next one is to be built",
                       b->params.cp_world);
    if (status == ATTN_OK && !b->direct && (b->kv == NULL || b->kv->advance_step == NULL))
        status = attn__fail(err, ATTN_E_UNSUPPORTED, 0, "advance_step", "the backend offers no advance_step");
    if (status == ATTN_OK && !b->direct && (args->accepted != NULL) != (args->accepted_device.data != NULL) &&
        mirrored)
        status = attn__fail(err, ATTN_E_INVALID, 0, "accepted",
                            "accepted and accepted_device hold the same counts: give both or none");
    for (uint32_t g = 0; g < step->groups && status == ATTN_OK && mirrored; g++) {
        const struct attn_advance arrays = host_arrays(&next, g);
        status = attn__advance_check(&arrays, err);
    }
    if (status != ATTN_OK)
        return status;
    if (!b->direct && mirrored)
        carry_to_next_copy(b);
    next.starts = next.starts != NULL ? attn__ints(&step->query_starts) : NULL;
    b->adds_stale = true;
    step->number++;
    if (args->prefill_to_decode != 0)
        prefills_to_decodes(&next);
    if (!b->direct)
        status = on_device(&next, stream, err);
    for (uint32_t g = 0; g < step->groups && status == ATTN_OK && mirrored; g++) {
        struct attn_advance arrays = host_arrays(&next, g);
        if (b->direct && g == 0)
            add_tokens(&next, &arrays);
        attn__advance_write(&arrays);
    }
    if (status == ATTN_OK)
        update_host_lists(&next);
    return status;
}
