/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step of a state: inputs into capture buffers, plans for all classes, and what a layer runs with. */
#include "attn/device.h"
#include "call.h"
#include "state.h"

static struct attn_state *find_clone(struct attn_state *state, uint64_t batch)
{
    for (struct attn_state *clone = state->clones; clone != NULL; clone = clone->next)
        if (clone->batch == batch)
            return clone;
    return NULL;
}

/* A number of a step's metadata. */
static int32_t number(const struct attn_metadata *metadata, uint32_t field, int64_t *out,
                      struct attn_error *err)
{
    struct attn_view view;

    ATTN_INIT(&view);
    const int32_t status = attn_metadata_get(metadata, field, 0, &view, err);
    *out = status == ATTN_OK && view.kind == ATTN_VIEW_NUMBER ? view.value : 0;
    return status;
}

/* The state that a step is for: itself, or the clone of a graph's size. */
static int32_t find_state(struct attn_state *state, const struct attn_metadata *metadata,
                          struct attn_state **out, struct attn_error *err)
{
    int64_t graph, prompts, decodes;
    int32_t status = number(metadata, ATTN_FIELD_USE_CUDA_GRAPH, &graph, err);

    *out = state;
    if (status == ATTN_OK)
        status = number(metadata, ATTN_FIELD_NUM_PREFILL_TOKENS, &prompts, err);
    if (status == ATTN_OK)
        status = number(metadata, ATTN_FIELD_NUM_DECODE_TOKENS, &decodes, err);
    if (status != ATTN_OK || (graph == 0 && state->batch == 0))
        return status;
    if (graph == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "use_cuda_graph",
                          "use_cuda_graph is 0; the state of a captured size takes steps of graphs");
    if (prompts != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "num_prefill_tokens",
                          "num_prefill_tokens is %lld; a graph of one token each has none",
                          (long long)prompts);
    if (state->batch == 0)
        *out = find_clone(state, (uint64_t)decodes);
    if (*out == NULL || (*out)->batch != (uint64_t)decodes)
        return attn__fail(err, *out == NULL ? ATTN_E_STATE : ATTN_E_INVALID, 0, "num_decode_tokens",
                          "num_decode_tokens is %lld; no graph of that size %s", (long long)decodes,
                          *out == NULL ? "was captured" : "is this state's");
    return ATTN_OK;
}

/* ---------------------------------------------------------------- prepare */

/* One field into its buffer, row by row if strides differ. */
static int32_t copy_field(const struct attn_state *clone, const struct attn_metadata *metadata,
                          uint32_t field, uint32_t index, void *stream, struct attn_error *err)
{
    struct attn_backend *backend = clone->core->backend;
    const struct attn_view *to = attn__field(&clone->fields, field, index);
    struct attn_view from;

    ATTN_INIT(&from);
    int32_t status = attn_metadata_get(metadata, field, index, &from, err);
    if (status != ATTN_OK || to->kind == ATTN_VIEW_NULL || to->shape[0] == 0)
        return status;
    if (from.kind != ATTN_VIEW_ARRAY || from.dtype != to->dtype || from.shape[0] != to->shape[0] ||
        (to->rank == 2 && from.shape[1] != to->shape[1]))
        return attn__fail(err, ATTN_E_INVALID, 0, attn_field_name(field),
                          "%s of the step is [%llu, %llu]; the graph's is [%llu, %llu]",
                          attn_field_name(field), (unsigned long long)from.shape[0],
                          (unsigned long long)from.shape[1], (unsigned long long)to->shape[0],
                          (unsigned long long)to->shape[1]);
    const uint64_t element = to->dtype == ATTN_INT64 ? 8 : 4;
    const uint64_t row = to->rank == 2 ? to->shape[1] * element : to->shape[0] * element;
    const bool whole = to->rank == 2 && from.stride == to->stride;
    const uint64_t copies = to->rank == 2 && !whole ? to->shape[0] : 1;
    struct attn_buffer target = to->device, source = from.device;
    for (uint64_t i = 0; i < copies && status == ATTN_OK; i++) {
        status = attn_memory_copy(backend, &target, &source, whole ? row * to->shape[0] : row,
                                  ATTN_COPY_ON_DEVICE, stream, err);
        target.byte_offset += (uint64_t)to->stride;
        source.byte_offset += (uint64_t)from.stride;
    }
    return status;
}

int32_t attn_state_prepare(struct attn_state *state, const struct attn_metadata *metadata, void *stream,
                           struct attn_error *err)
{
    static const uint32_t grouped[] = {ATTN_FIELD_SLOT_MAPPING, ATTN_FIELD_SEQ_LENS_TENSOR,
                                       ATTN_FIELD_BLOCK_TABLES};
    struct attn_state *clone = NULL;
    int32_t status = attn__state_begin(state, "attn_state_prepare", err);

    if (status == ATTN_OK)
        status = attn__metadata_begin(metadata, "attn_state_prepare", err);
    if (status == ATTN_OK)
        status = find_state(state, metadata, &clone, err);
    if (status != ATTN_OK)
        return status;
    if (clone->batch == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "use_cuda_graph",
                          "use_cuda_graph is 0; there is nothing to prepare for a step without a graph");
    /* FlashInfer's arrays are put into place when the step is planned. */
    const uint32_t fields = clone->core->infer ? 1 : 3;
    for (uint32_t g = 0; g < clone->core->params.groups; g++)
        for (uint32_t i = 0; i < fields && status == ATTN_OK; i++)
            status = copy_field(clone, metadata, grouped[i], g, stream, err);
    if (status == ATTN_OK && clone->cross)
        status = copy_field(clone, metadata, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR, 0, stream, err);
    if (status == ATTN_OK && clone->cross)
        status = copy_field(clone, metadata, ATTN_FIELD_CROSS_BLOCK_TABLES, 0, stream, err);
    return status;
}

/* ---------------------------------------------------------------- begin_forward */

static int32_t copy_lasts(const struct attn_state *clone, const struct attn_metadata *metadata, uint32_t g,
                          void *stream, struct attn_error *err)
{
    struct attn_buffer to = clone->capture->place.device;
    struct attn_view last;

    ATTN_INIT(&last);
    const int32_t status = attn_metadata_get(metadata, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, g, &last, err);
    to.byte_offset += clone->capture->layout.group[g].last_page_lens.offset;
    return status == ATTN_OK ? attn_memory_copy(clone->core->backend, &to, &last.device, last.shape[0] * 4,
                                                ATTN_COPY_ON_DEVICE, stream, err)
                             : status;
}

/* Index lists of a step into the buffers that its graph reads. */
static int32_t copy_pages(const struct attn_state *clone, const struct attn_metadata *metadata, uint32_t g,
                          void *stream, struct attn_error *err)
{
    const struct attn__capture_group *group = &clone->capture->layout.group[g];
    struct attn_view indptr, indices;

    ATTN_INIT(&indptr);
    ATTN_INIT(&indices);
    int32_t status = attn_metadata_get(metadata, ATTN_FIELD_PAGED_KV_INDPTR, g, &indptr, err);
    if (status == ATTN_OK)
        status = attn_metadata_get(metadata, ATTN_FIELD_PAGED_KV_INDICES, g, &indices, err);
    if (status != ATTN_OK || indptr.kind == ATTN_VIEW_NULL || indptr.host == NULL)
        return status; /* the batch was refused, or has no pages */
    const uint64_t used = (uint64_t)((const int32_t *)indptr.host)[indptr.shape[0] - 1];
    if (used > group->indices.elements)
        return attn__fail(err, ATTN_E_SIZE, 0, "paged_kv_indices",
                          "the step has %llu pages in cache group %u; the graphs were captured for %llu",
                          (unsigned long long)used, g, (unsigned long long)group->indices.elements);
    struct attn_buffer to = clone->capture->place.device;
    to.byte_offset += group->indptr.offset;
    status = attn_memory_copy(clone->core->backend, &to, &indptr.device, indptr.shape[0] * 4,
                              ATTN_COPY_ON_DEVICE, stream, err);
    to.byte_offset += group->indices.offset - group->indptr.offset;
    if (status == ATTN_OK)
        status = copy_lasts(clone, metadata, g, stream, err);
    return status == ATTN_OK ? attn_memory_copy(clone->core->backend, &to, &indices.device,
                                                used * group->indices.size, ATTN_COPY_ON_DEVICE, stream, err)
                             : status;
}

/* The runs that there are, in the order in which a layer has them. */
static uint32_t list_runs(const struct attn_state *state)
{
    static const enum attn__run_kind order[] = {ATTN__RUN_NEW, ATTN__RUN_PROMPTS, ATTN__RUN_MAIN};
    const struct attn__state_core *core = state->core;
    uint32_t count = 0;

    for (uint32_t i = 0; i < core->count * ATTN__RUNS; i++) {
        const enum attn__run_kind kind = order[i % ATTN__RUNS];
        const uint32_t r = i / ATTN__RUNS * ATTN__RUNS + kind;
        const struct attn_plan *plan = attn__set_plan(state->set, r / ATTN__RUNS, kind);
        if (core->batches[r].seqs == 0 || plan == NULL)
            continue;
        core->plan_list[count] = plan;
        core->batch_list[count] = &core->batches[r];
        core->schedule_list[count++] = state->set->schedules[r];
    }
    return count;
}

/* Lengths, index lists and plans of all classes. */
static int32_t plan_step(const struct attn_state *state, const struct attn_metadata *metadata,
                         const struct attn__slot *slot, void *stream, struct attn_error *err)
{
    const struct attn__state_core *core = state->core;
    const uint64_t staging = core->slot_bytes - core->lens.size;
    int32_t status = ATTN_OK;

    if (core->infer) {
        const struct attn_buffer from = {slot->memory, staging};
        status = attn_memory_copy(core->backend, &core->lens.buffer, &from, core->lens.size,
                                  ATTN_COPY_TO_DEVICE, stream, err);
    }
    for (uint32_t g = 0; g < core->params.groups && core->infer && state->batch != 0 && status == ATTN_OK;
         g++)
        if (metadata != &state->face.whole)
            status = copy_pages(state, metadata, g, stream, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_span span = {{slot != NULL ? slot->memory : NULL, 0}, staging};
    return attn_plan_prepare_many(core->plan_list, core->batch_list, core->schedule_list, list_runs(state),
                                  &span, stream, err);
}

/* The next block of staging, if its last copies are done. */
static int32_t take_slot(const struct attn__state_core *core, struct attn__slot **out, struct attn_error *err)
{
    struct attn_error words;

    *out = NULL;
    if (core->slots == NULL)
        return ATTN_OK;
    attn__error_open(&words);
    *out = &core->slots[core->turn];
    const int32_t status = attn_event_query(core->backend, (*out)->event, &words);
    if (status == ATTN_E_BUSY)
        return attn__fail(err, ATTN_E_BUSY, 0, "steps",
                          "the copies of %u earlier steps are still under way; a state made with more steps "
                          "can have more of them",
                          core->params.steps);
    return status == ATTN_OK ? ATTN_OK
                             : attn__fail(err, status, words.reason, words.field, "%s", words.message);
}

int32_t attn__state_forward(struct attn_state *state, const struct attn_metadata *metadata, void *stream,
                            struct attn_error *err)
{
    struct attn__state_core *core = state->core;
    struct attn__slot *slot;
    int32_t status = take_slot(core, &slot, err);

    if (status != ATTN_OK)
        return status;
    core->owner = NULL;
    int32_t *lens = NULL;
    if (core->infer) /* of groups without pages nothing is left over from another step */
        lens = memset((char *)slot->memory + (core->slot_bytes - core->lens.size), 0, core->lens.size);
    status = attn__state_batches(state, metadata, lens, err);
    if (status != ATTN_OK)
        return status;
    status = plan_step(state, metadata, slot, stream, err);
    if (slot != NULL) {
        /* Also after a failure: some of it may be under way. */
        const int32_t marked =
            attn_event_record(core->backend, slot->event, stream, status == ATTN_OK ? err : NULL);
        status = status == ATTN_OK ? marked : status;
        core->turn = (core->turn + 1) % core->params.steps;
    }
    for (uint32_t i = 0; i < core->count * ATTN__RUNS; i++) { /* host copies are read by a prepare alone */
        core->batches[i].given = 0;
        core->batches[i].host = NULL;
    }
    core->owner = status == ATTN_OK ? state : NULL;
    core->begun = metadata;
    return status;
}

int32_t attn_state_begin_forward(struct attn_state *state, const struct attn_metadata *metadata, void *stream,
                                 struct attn_error *err)
{
    struct attn_state *found = NULL;
    int32_t status = attn__state_begin(state, "attn_state_begin_forward", err);

    if (status == ATTN_OK)
        status = attn__metadata_begin(metadata, "attn_state_begin_forward", err);
    if (status == ATTN_OK && state->core->infer && state->batch == 0 && state->capture != NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "state",
                          "attn_state_begin_forward: graphs are captured; clones can begin steps, or end it");
    if (status == ATTN_OK)
        status = find_state(state, metadata, &found, err);
    if (status != ATTN_OK)
        return status;
    return attn__state_forward(found, metadata, stream, err);
}

/* The state whose step is begun, this one or a clone of it. */
int32_t attn__state_owner(const struct attn_state *state, const char *what, struct attn_error *err)
{
    const struct attn__state_core *core = state->core;

    if (core->owner == state || (core->owner != NULL && core->owner->parent == state))
        return ATTN_OK;
    return attn__fail(err, ATTN_E_STATE, 0, "state",
                      "%s: the state has no step; call attn_state_begin_forward first", what);
}

int32_t attn_state_get_step(const struct attn_state *state, uint32_t layer_class, struct attn_state_step *out,
                            struct attn_error *err)
{
    struct attn_state_step own;
    int32_t status = attn__state_begin(state, "attn_state_get_step", err);

    if (status != ATTN_OK)
        return status;
    const struct attn__state_core *core = state->core;
    if (layer_class >= core->count)
        return attn__fail(err, ATTN_E_INVALID, 0, "layer_class", "layer_class is %u; there are %u classes",
                          layer_class, core->count);
    status = attn__state_owner(state, "attn_state_get_step", err);
    if (status != ATTN_OK)
        return status;
    const size_t first = (size_t)layer_class * ATTN__RUNS;
    uint32_t kind = ATTN__RUN_MAIN, runs = 0;
    for (uint32_t k = 0; k < ATTN__RUNS; k++)
        if (core->batches[first + k].seqs > 0) {
            kind = k;
            runs++;
        }
    if (runs > 1)
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, 0, "layer_class",
            "class %u runs prompts and decodes of this step apart; attn_layer_forward does both",
            layer_class);
    ATTN_INIT(&own);
    own.plan = attn__set_plan(core->owner->set, layer_class, (enum attn__run_kind)kind);
    own.batch = &core->batches[first + kind];
    own.schedule = &core->owner->set->schedules[first + kind];
    own.scratch = &core->scratch;
    return attn__answer(out, &own, sizeof own, "out", err);
}
