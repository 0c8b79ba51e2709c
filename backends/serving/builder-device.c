/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Steps whose arrays are on the device already. The metadata shows the caller's arrays, and one kernel per
 * cache group computes the others: it is the kernel that advances a step, used here to advance by 0 tokens.
 */
#include "builder-device.h"
#include "advance.h"
#include "args.h"
#include "builder-part.h"
#include "check.h"
#include "fail.h"

#define INVALID(err, field, ...) attn__fail((err), ATTN_E_INVALID, 0, (field), __VA_ARGS__)

static int32_t check_counts(const struct attn_builder_impl *b, const struct attn_builder_device_args *a,
                            const struct attn_batch *batch, struct attn_error *err)
{
    if (batch->seqs == 0 || batch->num_tokens == 0)
        return INVALID(err, "seqs", "the batch has %u sequences and %u query tokens; at least one is needed",
                       batch->seqs, batch->num_tokens);
    if (batch->seqs > b->params.max_seqs || batch->num_tokens > b->params.max_tokens)
        return attn__fail(
            err, ATTN_E_SIZE, 0, "seqs",
            "the batch has %u sequences and %u query tokens; the builder was made for %u and %u", batch->seqs,
            batch->num_tokens, b->params.max_seqs, b->params.max_tokens);
    if (a->prefills > batch->seqs || a->prompt_tokens > batch->num_tokens)
        return INVALID(err, "prefills", "prefills is %u of %u sequences, prompt_tokens %u of %u query tokens",
                       a->prefills, batch->seqs, a->prompt_tokens, batch->num_tokens);
    if (!b->flavour->drafts && batch->num_tokens - a->prompt_tokens != batch->seqs - a->prefills)
        return INVALID(err, "num_tokens",
                       "%u decodes have %u query tokens; one each is accepted in this flavour",
                       batch->seqs - a->prefills, batch->num_tokens - a->prompt_tokens);
    return ATTN_OK;
}

/* Batches of this or an older version, into those of the groups; none is used before all are checked. */
static int32_t take_batches(struct attn_builder_impl *b, const struct attn_builder_device_args *a,
                            struct attn_error *err)
{
    int32_t status = ATTN_OK;

    if (b->whole.step.queries > 0)
        return INVALID(err, "batches", "the step has %u sequences already; a step is added or on the device",
                       b->whole.step.queries);
    for (uint32_t g = 0; g < b->params.groups && status == ATTN_OK; g++) {
        if (a->batches == NULL || a->batches[g] == NULL)
            return INVALID(err, "batches", "the batch of group %u is NULL; each of %u cache groups has one",
                           g, b->params.groups);
        status = attn__take(&b->group[g].batch, sizeof b->group[g].batch, a->batches[g], ATTN__ARGS_MIN,
                            "batches", err);
    }
    return status;
}

static int32_t check_batch(const struct attn_builder_impl *b, uint32_t g, struct attn_error *err)
{
    const struct attn_batch *batch = &b->group[g].batch, *first = &b->group[0].batch;
    const uint32_t cell = b->params.index_dtype == ATTN_INT64 ? 8 : 4;

    if (batch->seqs != first->seqs || batch->num_tokens != first->num_tokens)
        return INVALID(err, "batches", "group %u has %u sequences and %u query tokens, group 0 has %u and %u",
                       g, batch->seqs, batch->num_tokens, first->seqs, first->num_tokens);
    if (batch->kv_lens.data == NULL || batch->table.data == NULL || batch->q_offsets.data == NULL)
        return INVALID(err, "batches", "group %u lacks q_offsets, kv_lens or table", g);
    if (batch->table_width == 0 || batch->table_stride < (int64_t)batch->table_width * cell ||
        batch->table_stride % cell != 0)
        return INVALID(err, "table_stride",
                       "the table of group %u has %u columns of %u bytes and rows %lld bytes apart", g,
                       batch->table_width, cell, (long long)batch->table_stride);
    return ATTN_OK;
}

int32_t attn__builder_set_device(struct attn_builder_impl *b, const struct attn_builder_device_args *a,
                                 struct attn_error *err)
{
    struct attn_step *step = &b->whole.step;

    const struct attn_batch *first = &b->group[0].batch;
    int32_t status = take_batches(b, a, err);
    if (status == ATTN_OK)
        status = check_counts(b, a, first, err);
    for (uint32_t g = 0; g < b->params.groups && status == ATTN_OK; g++)
        status = check_batch(b, g, err);
    if (status == ATTN_OK && b->shard.world != 0)
        status =
            attn__fail(err, ATTN_E_UNSUPPORTED, 0, "cp_world",
                       "cp_world is %u; steps of ranks are added, not set on the device", b->params.cp_world);
    if (status == ATTN_OK && b->cross != NULL)
        status = attn__fail(err, ATTN_E_UNSUPPORTED, 0, "max_encoder_tokens",
                            "steps with an encoder are added, not set on the device");
    if (status == ATTN_OK && !b->direct && (b->kv == NULL || b->kv->advance_step == NULL))
        status = attn__fail(err, ATTN_E_UNSUPPORTED, 0, "advance_step",
                            "the backend has no advance_step, which works out slots on the device");
    if (status == ATTN_OK && !b->direct && a->prefills > 0 &&
        first->num_tokens - a->prompt_tokens != first->seqs - a->prefills)
        status = attn__fail(err, ATTN_E_UNSUPPORTED, 0, "num_tokens",
                            "%u decodes beside prompts have %u query tokens; accepted on a device: one each",
                            first->seqs - a->prefills, first->num_tokens - a->prompt_tokens);
    if (status != ATTN_OK)
        return status;
    b->on_device = true;
    b->positions = a->positions;
    step->queries = first->seqs;
    step->prefills = a->prefills;
    step->prefill_tokens = a->prompt_tokens;
    b->decode_tokens = first->num_tokens - a->prompt_tokens;
    step->max_q = first->max_q;
    b->max_decode_q = a->max_decode_query_len != 0 ? a->max_decode_query_len : first->max_q;
    step->max_prefill_len = a->prefills > 0 ? a->max_prefill_seq_len : 0;
    for (uint32_t g = 0; g < b->params.groups; g++) {
        struct attn__group *group = &b->group[g];
        const uint64_t pages = (uint64_t)group->batch.table_width * first->seqs;
        group->slots = first->num_tokens;
        group->longest = group->batch.table_width;
        group->step->max_decode_len = first->seqs > a->prefills ? group->batch.max_kv : 0;
        group->paged = first->seqs;
        group->total_blocks = pages < group->params.max_indices ? pages : group->params.max_indices;
    }
    return ATTN_OK;
}

/* Shows the caller's array in place of the builder's. */
static void show_caller_array(const struct attn_builder_impl *b, struct attn_step_array *array,
                              const struct attn_buffer *given)
{
    array->device = *given;
    array->host = b->direct ? attn__address(given) : NULL;
}

static void show_group(struct attn_builder_impl *b, uint32_t g)
{
    const struct attn_batch *batch = &b->group[g].batch;
    struct attn_step_group *group = b->group[g].step;
    struct attn_step_array *made[] = {&group->slots,        &group->seq_starts,     &group->page_starts,
                                      &group->page_indices, &group->last_page_lens, &group->pages_in_use};

    group->seq_lens_list.dtype = 0;
    show_caller_array(b, &group->seq_lens, &batch->kv_lens);
    show_caller_array(b, &group->table, &batch->table);
    group->table.stride = batch->table_stride;
    group->table.width = batch->table_width;
    for (size_t i = 0; !b->direct && i < sizeof made / sizeof made[0]; i++)
        made[i]->host = NULL;
}

/* The arrays that the kernel of a group reads and writes. */
static void arrays_of(const struct attn_builder_impl *b, uint32_t g, struct attn_kv_advance_step_args *to)
{
    const struct attn__group *group = &b->group[g];
    const struct attn_step_group *step = group->step;

    ATTN_INIT(to);
    to->block = group->params.block;
    to->seqs = to->queries = b->whole.step.queries;
    to->num_tokens = b->whole.step.prefill_tokens + b->decode_tokens;
    to->index_dtype = b->params.index_dtype;
    to->table_width = group->batch.table_width;
    to->table = group->batch.table;
    to->table_stride = group->batch.table_stride;
    to->query_starts = group->batch.q_offsets;
    to->accepted = b->zeros.device;
    to->slots = step->slots.device;
    to->seq_lens = group->batch.kv_lens;
    to->seq_starts = step->seq_starts.device;
    if ((group->params.given & ATTN_GIVEN_WINDOW) != 0) {
        to->windowed = b->whole.step.prefills;
        to->window = group->params.window;
    }
    if (g == 0) {
        to->positions = b->positions;
        to->context_lens = b->whole.step.context_lens.device;
    }
    if (!b->flavour->pages)
        return;
    to->csr_capacity = group->total_blocks;
    to->csr_indptr = step->page_starts.device;
    to->csr_indices = step->page_indices.device;
    to->last_page_lens = step->last_page_lens.device;
    to->csr_pages =
        b->whole.step.decode_starts.device; /* scratch: pages_in_use stays 0 until a step advances */
}

static int32_t run_here(const struct attn_kv_advance_step_args *args, bool check, struct attn_error *err)
{
    const struct attn_advance arrays = attn__advance_arrays(args);

    if (check)
        return attn__advance_check(&arrays, err);
    attn__advance_write(&arrays);
    return ATTN_OK;
}

static int32_t copy_zeros(struct attn_builder_impl *b, const struct attn_step_array *array, void *stream,
                          struct attn_error *err)
{
    const struct attn_buffer from = {b->zeros.host, 0};

    return b->memory->copy(b->backend, &array->device, &from,
                           (uint64_t)b->whole.step.queries * sizeof(int32_t), ATTN_COPY_TO_DEVICE, stream,
                           err);
}

/* Query starts of the decodes. A device with memory of its own gets decodes of one token alone. */
static int32_t make_decode_starts(struct attn_builder_impl *b, void *stream, struct attn_error *err)
{
    struct attn_step_array *starts = &b->whole.step.decode_starts;
    const struct attn_buffer from = {starts->host, 0};

    attn__parts_prepare(b, b->direct ? (const int32_t *)attn__address(&b->group[0].batch.q_offsets) : NULL);
    if (b->direct || b->whole.step.prefills == 0)
        return ATTN_OK;
    starts->host = NULL;
    return b->memory->copy(b->backend, &starts->device, &from, starts->count * sizeof(int32_t),
                           ATTN_COPY_TO_DEVICE, stream, err);
}

int32_t attn__builder_build_device(struct attn_builder_impl *b, const struct attn_builder_build_args *args,
                                   void *stream, struct attn_error *err)
{
    struct attn_step *step = &b->whole.step;
    struct attn_kv_advance_step_args arrays;
    int32_t status = ATTN_OK;

    if (args->pad > 0)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "pad",
                          "pad is %u; padding of a step on the device is in its arrays", args->pad);
    attn__builder_place(b);
    for (uint32_t g = 0; b->direct && g < b->params.groups && status == ATTN_OK; g++) {
        arrays_of(b, g, &arrays);
        status = run_here(&arrays, true, err);
    }
    if (status == ATTN_OK && !b->direct)
        status = copy_zeros(b, &b->zeros, stream, err);
    for (uint32_t g = 0; g < b->params.groups && status == ATTN_OK; g++) {
        arrays_of(b, g, &arrays);
        if (b->flavour->pages && !b->direct)
            status = copy_zeros(b, &b->group[g].step->pages_in_use, stream, err);
        if (status == ATTN_OK)
            status = b->direct ? run_here(&arrays, false, err)
                               : b->kv->advance_step(b->backend, &arrays, stream, err);
    }
    if (status != ATTN_OK)
        return status;
    attn__builder_show(b, args, step->queries);
    show_caller_array(b, &step->query_starts, &b->group[0].batch.q_offsets);
    if (!b->direct)
        step->context_lens.host = NULL;
    for (uint32_t g = 0; g < b->params.groups; g++)
        show_group(b, g);
    return b->flavour->pages ? ATTN_OK : make_decode_starts(b, stream, err);
}
