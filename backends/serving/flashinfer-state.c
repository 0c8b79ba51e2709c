/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * FlashInfer: what a state makes of a step's lists of pages. Kernels want the lengths of sequences, which
 * follow from the pages; graphs read packed lists from their buffers.
 */
#include "fail.h"
#include "flashinfer.h"
#include "state-copy.h"

/* ---------------------------------------------------------------- batches */

uint64_t attn__pages_workspace(const struct attn__state_core *core)
{
    return core->flavour->pages ? (uint64_t)core->params.groups * core->max_seqs * sizeof(int32_t) : 0;
}

/* A graph reads all arrays from the capture buffers. */
static void set_captured(const struct attn__step_view *view, uint32_t group, struct attn__run *run)
{
    const struct attn__capture_layout *layout = &view->state->capture->layout;
    const struct attn__capture_group *buffers = &layout->group[group];
    struct attn_batch *batch = run->batch;
    struct attn_batch_host *host = run->host;

    host->kv_lens = attn__set_capture(view, &layout->lens[group], &batch->kv_lens);
    host->csr_indptr = attn__set_capture(view, &buffers->indptr, &batch->csr_indptr);
    host->csr_indices = attn__set_capture(view, &layout->indices, &batch->csr_indices);
    host->last_page_lens = attn__set_capture(view, &buffers->last_page_lens, &batch->last_page_lens);
}

static int32_t fail_padding(struct attn_error *err)
{
    return attn__fail(
        err, ATTN_E_UNSUPPORTED, ATTN_REASON_KV_SOURCE, "kv_source",
        "padding of a FlashInfer step has no keys, and kv_source=cache+new reads one of each sequence; "
        "kv_source=cache is accepted");
}

/* Computes the lengths on the host, from where they are copied to the core's workspace. */
static int32_t set_lens(const struct attn__step_view *view, uint32_t group, struct attn__run *run,
                        struct attn_error *err)
{
    const struct attn__state_core *core = view->state->core;
    const struct attn_step_group *from = &view->step->group[group];
    const int32_t *starts = attn__ints(&from->page_starts), *lasts = attn__ints(&from->last_page_lens);
    const int32_t block = (int32_t)core->groups[group].block;
    int32_t *lens = view->lens + (size_t)group * core->max_seqs;

    for (uint32_t i = 0; i < run->batch->seqs; i++) {
        lens[i] = starts[i + 1] > starts[i] ? (starts[i + 1] - starts[i] - 1) * block + lasts[i] : 0;
        if (lens[i] == 0 && run->source == ATTN_KV_CACHE_NEW)
            return fail_padding(err);
    }
    run->batch->kv_lens = core->lens.buffer;
    run->batch->kv_lens.byte_offset += (uint64_t)group * core->max_seqs * sizeof(int32_t);
    run->host->kv_lens = lens;
    run->host->csr_indptr = starts;
    run->host->csr_indices = from->page_indices.host;
    run->host->last_page_lens = lasts;
    return ATTN_OK;
}

int32_t attn__pages_batch(const struct attn__step_view *view, uint32_t group, uint32_t seqs,
                          struct attn__run *run, bool *out_found, struct attn_error *err)
{
    const struct attn_step_group *from = &view->step->group[group];
    const uint32_t max_seqs = view->state->core->max_seqs;

    *out_found = from->page_starts.dtype != 0 && from->page_starts.count > 1;
    if (!*out_found)
        return ATTN_OK;
    if (view->state->batch != 0) {
        set_captured(view, group, run);
        return ATTN_OK;
    }
    if (seqs > max_seqs)
        return attn__fail(err, ATTN_E_INVALID, ATTN_REASON_MAX_SEQS, "seqs",
                          "the step has %u sequences; the largest max_seqs of the classes is %u", seqs,
                          max_seqs);
    if (from->page_starts.count != (uint64_t)seqs + 1 || from->last_page_lens.count != seqs)
        return attn__fail(err, ATTN_E_INVALID, 0, "paged_kv_indptr",
                          "paged_kv_indptr has %llu elements; %u sequences want %u",
                          (unsigned long long)from->page_starts.count, seqs, seqs + 1);
    run->batch->csr_indptr = from->page_starts.device;
    run->batch->csr_indices = from->page_indices.device;
    run->batch->last_page_lens = from->last_page_lens.device;
    if (from->page_starts.host != NULL && from->last_page_lens.host != NULL)
        return set_lens(view, group, run, err);
    run->batch->kv_lens = from->seq_lens.device; /* a step that is on the device came with its lengths */
    return ATTN_OK;
}

/* ---------------------------------------------------------------- graphs */

int32_t attn__pages_make_plans(struct attn_state_impl *clone, struct attn_error *err)
{
    struct attn__state_core *core = clone->core;
    const int32_t status = attn__set_create(core, &clone->fields.step, &clone->set, err);

    if (status != ATTN_OK)
        return status;
    const struct attn_plan_sizes *own = &clone->set->sizes, *all = &core->set->sizes;
    if (own->scratch > all->scratch || own->counters > all->counters || own->staging > all->staging)
        return attn__fail(err, ATTN_E_PLUGIN, 0, "batch",
                          "%s: a plan for %u sequences asks for more memory than one for the maxima",
                          core->host.name, clone->batch);
    return ATTN_OK;
}

bool attn__pages_lay_out_small(struct attn__capture_layout *l, uint32_t g)
{
    const uint64_t batch = l->max_batch;

    return attn__capture_place_array(&l->group[g].indptr, batch + 1, 4, &l->bytes) &&
           attn__capture_place_array(&l->group[g].last_page_lens, batch, 4, &l->bytes);
}

bool attn__pages_lay_out_indices(struct attn__capture_layout *l)
{
    uint64_t indices = 0;
    bool fits = true;

    for (uint32_t g = 0; g < l->groups && fits; g++)
        fits = !__builtin_add_overflow(indices, l->group[g].max_indices, &indices);
    /* indptr is of i32 */
    return fits && indices <= INT32_MAX &&
           attn__capture_place_array(&l->indices, indices, attn__index_size(l->index_dtype), &l->bytes);
}

void attn__pages_fill(const struct attn__capture_layout *l, uint32_t g, char *image)
{
    const struct attn__capture_group *group = &l->group[g];

    attn__capture_fill_i32(image, &group->indptr, l->max_batch + UINT64_C(1), 0, 1);
    attn__capture_fill_i32(image, &group->last_page_lens, l->max_batch, (int32_t)group->block, 0);
    for (uint64_t i = 0; i < l->max_batch; i++) /* all groups use the same indices */
        if (l->indices.size == 8)
            ((int64_t *)(void *)(image + l->indices.offset))[i] = (int64_t)i;
        else
            ((int32_t *)(void *)(image + l->indices.offset))[i] = (int32_t)i;
}

/* True if a class of a cache group reads new keys beside its cache. */
static bool reads_new(const struct attn__state_core *core, uint32_t group)
{
    for (uint32_t i = 0; i < core->count; i++)
        if (core->problems[i].kv_source == ATTN_KV_CACHE_NEW && core->classes[i].group == group)
            return true;
    return false;
}

/* Tokens of a sequence; padding has no pages. */
static int64_t length(const struct attn_step_group *from, uint32_t block, uint32_t i)
{
    const int32_t *starts = attn__ints(&from->page_starts);
    const int64_t pages = (int64_t)starts[i + 1] - starts[i];

    return pages > 0 ? (pages - 1) * block + attn__ints(&from->last_page_lens)[i] : 0;
}

static int32_t check_lengths(const struct attn__step_copy *copy, uint32_t g, struct attn_error *err)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const struct attn_step_group *from = &copy->step->group[g];
    const int32_t *starts = attn__ints(&from->page_starts);
    const bool wants_keys = reads_new(copy->clone->core, g);

    for (uint32_t i = 0; i < copy->seqs; i++) {
        const int64_t pages = (int64_t)starts[i + 1] - starts[i], len = length(from, l->group[g].block, i);
        if (pages < 0 || len < 0 || len > l->max_len)
            return attn__fail(err, ATTN_E_SIZE, 0, "paged_kv_indptr",
                              "sequence %u has %lld pages and %lld tokens in cache group %u; graphs were "
                              "captured for 0 to %u tokens",
                              i, (long long)pages, (long long)len, g, l->max_len);
        if (len == 0 && wants_keys)
            return fail_padding(err);
    }
    return ATTN_OK;
}

int32_t attn__pages_check_copy(struct attn__step_copy *copy, uint32_t g, struct attn_error *err)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const struct attn_step_group *from = &copy->step->group[g];
    const struct attn_step_array *indices = &from->page_indices;
    int32_t status =
        attn__copy_check_shape("paged_kv_indptr", &from->page_starts, copy->seqs + UINT64_C(1), 4, err);

    if (status == ATTN_OK)
        status = attn__copy_check_shape("paged_kv_last_page_len", &from->last_page_lens, copy->seqs, 4, err);
    if (status != ATTN_OK)
        return status;
    if (!copy->on_host || from->page_starts.host == NULL || from->last_page_lens.host == NULL ||
        indices->host == NULL)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "paged_kv_indptr",
                          "paged_kv_indptr is known to the device alone; lengths follow from its host copy");
    if (indices->dtype == 0 || attn__index_size(indices->dtype) != l->indices.size)
        return attn__fail(
            err, ATTN_E_INVALID, ATTN_REASON_INDEX, "paged_kv_indices",
            "paged_kv_indices of the step have another type; the state's index_dtype is accepted");
    const int64_t used = attn__ints(&from->page_starts)[copy->seqs];
    if (used < 0 || (uint64_t)used > l->group[g].max_indices || (uint64_t)used > indices->count)
        return attn__fail(err, ATTN_E_SIZE, 0, "paged_kv_indices",
                          "the step has %lld pages in cache group %u; the graphs were captured for %llu",
                          (long long)used, g, (unsigned long long)l->group[g].max_indices);
    return check_lengths(copy, g, err);
}

void attn__pages_copy(struct attn__step_copy *copy, uint32_t g)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const struct attn_step_group *from = &copy->step->group[g];
    const int32_t *starts = attn__ints(&from->page_starts);
    const uint64_t used = (uint64_t)starts[copy->seqs];
    int32_t *indptr = (int32_t *)(void *)(copy->image + l->group[g].indptr.offset);
    int32_t *lens = (int32_t *)(void *)(copy->image + l->lens[g].offset);
    int32_t *lasts = (int32_t *)(void *)(copy->image + l->group[g].last_page_lens.offset);

    for (uint32_t i = 0; i <= copy->seqs; i++)
        indptr[i] = starts[i] + (int32_t)copy->indices;
    for (uint32_t i = 0; i < copy->seqs; i++)
        lens[i] = (int32_t)length(from, l->group[g].block, i);
    memcpy(lasts, from->last_page_lens.host, copy->seqs * sizeof(int32_t));
    for (uint32_t i = copy->seqs; i < copy->clone->batch; i++) { /* has no pages */
        indptr[i + 1] = indptr[i];
        lasts[i] = 0;
    }
    memcpy(copy->image + l->indices.offset + copy->indices * l->indices.size, from->page_indices.host,
           used * l->indices.size);
    copy->indices += used;
    copy->end = l->indices.offset + copy->indices * l->indices.size;
}
