/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * States on the CPU, in both flavours: captured for a ladder of sizes, replayed with random padded batches
 * and held against steps without a graph, bit for bit; the order of calls, lifetimes and errors by field.
 */
#include <stdio.h>
#include <stdlib.h>

#include "allocations.h"
#include "core.h"
#include "model.h"
#include "world.h"

enum { SIZES = 4, STEPS = 400 };
static const uint32_t sizes[SIZES] = {16, 8, 4, 1}; /* from large to small */

static uint32_t passed, failed;
static struct attn_error err;

static void check(bool good, const char *what, const char *detail)
{
    printf("%s %u - %s%s%s\n", good ? "ok" : "not ok", ++passed, what, detail[0] != 0 ? ": " : "", detail);
    if (!good)
        printf("# %s: %s\n", err.field, err.message);
    failed += !good;
}

static void must(int32_t status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "%s: %s\n", err.field, err.message);
    exit(1);
}

/* One captured size. */
struct captured {
    struct attn_state *state;
    struct attn_graph *graph;
};

static void get_slots(const struct attn_state *clone, struct attn_buffer *out)
{
    struct attn_view view;

    for (uint32_t i = 0; i < MODEL_CLASSES; i++) {
        ATTN_INIT(&view);
        must(attn_state_get_input(clone, ATTN_FIELD_SLOT_MAPPING, i, &view, &err));
        out[i] = view.device;
    }
}

static void capture(struct model *model, void *stream, struct captured *out)
{
    must(attn_state_begin_capture(model->state, sizes[0], NULL, &err));
    for (uint32_t i = 0; i < SIZES; i++) {
        struct attn_state_capture_args args;
        struct attn_metadata *metadata = NULL;
        struct attn_buffer slots[MODEL_CLASSES];
        ATTN_INIT(&args);
        args.batch = sizes[i];
        must(attn_state_get_capture_metadata(model->state, &args, NULL, &metadata, &err));
        must(attn_state_clone(model->state, sizes[i], &out[i].state, &err));
        must(attn_state_begin_forward(out[i].state, metadata, NULL, &err));
        get_slots(out[i].state, slots);
        must(model_layers(model, out[i].state, 1, slots, sizes[i], NULL, &err)); /* warm-up */
        must(attn_graph_begin(model->backend, stream, &out[i].graph, &err));
        must(attn_state_begin_forward(out[i].state, metadata, stream, &err));
        must(model_layers(model, out[i].state, 1, slots, sizes[i], stream, &err));
        must(attn_graph_end(out[i].graph, &err));
    }
    must(attn_state_end_capture(model->state, &err));
}

static int32_t run_eager(struct model *model, uint32_t seqs, uint32_t prompts, uint32_t seed)
{
    struct attn_metadata *metadata = model_step(model, seqs, prompts, 0, 0, seed);
    struct attn_buffer slots[MODEL_CLASSES];
    uint32_t rows = 0;

    for (uint32_t i = 0; i < MODEL_CLASSES; i++) {
        struct attn_view view;
        ATTN_INIT(&view);
        must(attn_metadata_get(metadata, ATTN_FIELD_SLOT_MAPPING, i, &view, &err));
        slots[i] = view.device;
        rows = (uint32_t)view.shape[0];
    }
    int32_t status = attn_state_begin_forward(model->state, metadata, NULL, &err);
    return status == ATTN_OK ? model_layers(model, model->state, 0, slots, rows, NULL, &err) : status;
}

static int32_t replay(struct model *model, const struct captured *captured, uint32_t seqs, uint32_t seed)
{
    uint32_t size = SIZES - 1;

    while (sizes[size] < seqs)
        size--;
    struct attn_metadata *metadata = model_step(model, seqs, 0, 1, sizes[size] - seqs, seed);
    const int32_t status = attn_state_prepare(model->state, metadata, NULL, &err);
    return status == ATTN_OK ? attn_graph_launch(captured[size].graph, NULL, &err) : status;
}

static bool is_same(const struct model *model, uint32_t seqs)
{
    const struct model_memory *a = model->memory[0], *b = model->memory[1];

    for (uint32_t i = 0; i < MODEL_CLASSES; i++)
        if (memcmp(a->out[i], b->out[i], seqs * sizeof a->out[i][0]) != 0)
            return false;
    return memcmp(a->cache, b->cache, sizeof a->cache) == 0;
}

/* FNV-1a over the results of a step without a graph; flavours must agree on them. */
static uint32_t hash_results(const struct model *model, uint32_t seqs)
{
    uint32_t hash = UINT32_C(2166136261);

    for (uint32_t i = 0; i < MODEL_CLASSES; i++) {
        const unsigned char *bytes = (const unsigned char *)model->memory[0]->out[i];
        for (size_t k = 0; k < seqs * sizeof model->memory[0]->out[0][0]; k++)
            hash = (hash ^ bytes[k]) * UINT32_C(16777619);
    }
    return hash;
}

/* Any order of sizes, with steps of prompts in between that no graph serves. */
static void test_replay(struct attn_backend *backend)
{
    static uint32_t hashes[STEPS]; /* of the flavour before */
    static bool known;
    uint32_t unlike = 0;
    const char *name = attn_backend_get_name(backend);
    struct captured captured[SIZES];
    struct model model;
    void *stream = NULL;
    uint64_t made = 0;
    bool same = true;

    model_init(&model, backend);
    must(attn_stream_create(backend, &stream, &err));
    /* Slots of padding are negative: the warm-up changed no cache. */
    capture(&model, stream, captured);
    check(memcmp(model.memory[0]->cache, model.memory[1]->cache, sizeof model.memory[0]->cache) == 0,
          "warm-up and capture write no cache", name);
    for (uint32_t step = 0; step < STEPS && same; step++) {
        uint32_t seqs = 1 + step * 7919u % sizes[0];
        uint64_t before = allocations_made();
        same = run_eager(&model, seqs, 0, step) == ATTN_OK && replay(&model, captured, seqs, step) == ATTN_OK;
        made += step > 0 ? allocations_made() - before : 0;
        same = same && is_same(&model, seqs);
        uint32_t hash = hash_results(&model, seqs);
        unlike += known && hash != hashes[step];
        hashes[step] = hash;
        if (same && step % 10 == 0) {
            same = run_eager(&model, 5, 3, step) == ATTN_OK;
            memcpy(model.memory[1]->cache, model.memory[0]->cache, sizeof model.memory[0]->cache);
        }
        if (!same)
            printf("# step %u of %u sequences\n", step, seqs);
    }
    check(same, "400 random batches on graphs equal steps without one", name);
    check(unlike == 0, "all flavours agree on the results", name);
    known = true;
    if (allocations_counted())
        check(made == 0, "no allocation after the first step", name);
    for (uint32_t i = 0; i < SIZES; i++) {
        attn_graph_destroy(captured[i].graph);
        attn_state_destroy(captured[i].state);
    }
    attn_stream_destroy(backend, stream);
    model_finish(&model);
}

#define REFUSED(call, wanted, name)                                                                          \
    do {                                                                                                     \
        ATTN_INIT(&err);                                                                                     \
        int32_t status_ = (call);                                                                            \
        check(status_ == (wanted) && strcmp(err.field, (name)) == 0, "refused", #call);                      \
    } while (0)

static int32_t get_capture(struct model *model, uint32_t batch, uint32_t cross)
{
    struct attn_state_capture_args args;
    struct attn_metadata *metadata;

    ATTN_INIT(&args);
    args.batch = batch;
    args.encoder_decoder = cross;
    return attn_state_get_capture_metadata(model->state, &args, NULL, &metadata, &err);
}

static void test_order(struct attn_backend *backend)
{
    const bool infer = strcmp(attn_backend_get_name(backend), "cpu/flashinfer") == 0;
    struct attn_state *clone = NULL, *small = NULL;
    struct attn_state_step step;
    struct attn_view view;
    struct model model;

    ATTN_INIT(&step);
    ATTN_INIT(&view);
    model_init(&model, backend);
    REFUSED(get_capture(&model, 4, 0), ATTN_E_INVALID, "state");
    REFUSED(attn_state_clone(model.state, 4, &clone, &err), ATTN_E_INVALID, "state");
    REFUSED(attn_state_end_capture(model.state, &err), ATTN_E_STATE, "state");
    REFUSED(attn_state_get_step(model.state, 0, &step, &err), ATTN_E_STATE, "state");
    REFUSED(attn_state_begin_capture(model.state, 0, NULL, &err), ATTN_E_INVALID, "max_batch");
    REFUSED(attn_state_begin_capture(model.state, MODEL_SEQS + 1, NULL, &err), ATTN_E_INVALID, "max_batch");
    must(attn_state_begin_capture(model.state, 8, NULL, &err));
    REFUSED(attn_state_begin_capture(model.state, 8, NULL, &err), ATTN_E_STATE, "state");
    REFUSED(get_capture(&model, 9, 0), ATTN_E_INVALID, "batch");
    REFUSED(get_capture(&model, 4, 1), ATTN_E_INVALID, "encoder_decoder");
    check(infer == (strncmp(err.message, "Expected attn_backend name to be either", 39) == 0),
          "the original's words", "encoder_decoder");
    must(get_capture(&model, 8, 0));
    REFUSED(attn_state_clone(model.state, 4, &clone, &err), ATTN_E_STATE, "batch");
    must(attn_state_clone(model.state, 8, &clone, &err));
    REFUSED(attn_state_clone(model.state, 8, &small, &err), ATTN_E_STATE, "batch");
    must(get_capture(&model, 4, 0));
    must(attn_state_clone(model.state, 4, &small, &err));
    must(get_capture(&model, 2, 0)); /* nobody takes it */
    struct attn_metadata *metadata = model_step(&model, 3, 0, 0, 0, 1);
    if (infer)
        REFUSED(attn_state_begin_forward(model.state, metadata, NULL, &err), ATTN_E_INVALID, "state");
    must(attn_state_end_capture(model.state, &err));
    must(attn_state_begin_forward(model.state, metadata, NULL, &err));
    REFUSED(attn_state_get_step(model.state, MODEL_CLASSES, &step, &err), ATTN_E_INVALID, "layer_class");
    REFUSED(attn_state_prepare(model.state, metadata, NULL, &err), ATTN_E_INVALID, "use_cuda_graph");
    REFUSED(attn_state_begin_forward(clone, metadata, NULL, &err), ATTN_E_INVALID, "use_cuda_graph");
    REFUSED(attn_state_get_input(model.state, ATTN_FIELD_SLOT_MAPPING, 0, &view, &err), ATTN_E_STATE,
            "state");
    must(attn_state_get_input(clone, ATTN_FIELD_BLOCK_TABLES, 1, &view, &err));
    check((view.kind == ATTN_VIEW_NULL) == infer, "inputs are those of the flavour", "block_tables");
    metadata = model_step(&model, 3, 0, 1, 1, 1);
    REFUSED(attn_state_begin_forward(clone, metadata, NULL, &err), ATTN_E_INVALID, "num_decode_tokens");
    must(attn_state_prepare(model.state, metadata, NULL, &err));
    must(attn_state_begin_forward(model.state, metadata, NULL, &err));
    check(attn_state_get_step(small, 0, &step, &err) == ATTN_OK && step.batch->seqs == 4,
          "a state finds its clone by the size", "4");
    REFUSED(attn_state_get_step(clone, 0, &step, &err), ATTN_E_STATE, "state");
    metadata = model_step(&model, 3, 0, 1, 2, 1);
    REFUSED(attn_state_begin_forward(model.state, metadata, NULL, &err), ATTN_E_STATE, "num_decode_tokens");
    metadata = model_step(&model, 3, 1, 1, 1, 1);
    REFUSED(attn_state_begin_forward(model.state, metadata, NULL, &err), ATTN_E_INVALID,
            "num_prefill_tokens");
    must(attn_builder_reset(model.builder, &err));
    REFUSED(attn_state_begin_forward(model.state, metadata, NULL, &err), ATTN_E_STATE, "metadata");
    /* A clone outlives its state. */
    attn_state_destroy(model.state);
    model.state = NULL;
    metadata = model_step(&model, 8, 0, 1, 0, 1);
    check(attn_state_prepare(clone, metadata, NULL, &err) == ATTN_OK &&
              attn_state_begin_forward(clone, metadata, NULL, &err) == ATTN_OK,
          "a clone outlives its state", "");
    attn_state_destroy(clone);
    attn_state_destroy(small);
    model_finish(&model);
}

/* ---------------------------------------------------------------- a backend with faults */

static struct attn__backend plain; /* the tables as they are */
static const void *busy, *last;    /* events */
static uint32_t prepared, fail_prepare, fail_alloc;
static uint64_t staged;

static int32_t query_event(struct attn_backend_impl *backend, void *event, struct attn_error *words)
{
    return event == busy ? ATTN_E_BUSY : plain.memory.event_query(backend, event, words);
}

static int32_t record_event(struct attn_backend_impl *backend, void *event, void *stream,
                            struct attn_error *words)
{
    last = event;
    return plain.memory.event_record(backend, event, stream, words);
}

static int32_t prepare_many(const struct attn_plan_impl *const *plans,
                            const struct attn_batch *const *batches, const struct attn_span *schedules,
                            uint32_t n, const struct attn_span *staging, void *stream,
                            struct attn_error *words)
{
    int32_t status = ATTN_OK;

    prepared++;
    staged = staging->size;
    for (uint32_t i = 0; i < n && status == ATTN_OK; i++)
        status = i == 1 && fail_prepare != 0
                     ? (int32_t)ATTN_E_DEVICE
                     : plain.plan.prepare(plans[i], batches[i], &schedules[i], staging, stream, words);
    return status;
}

static int32_t sizes_staged(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    int32_t status = plain.plan.sizes(plan, out);

    out->staging = 100;
    return status;
}

static int32_t alloc_some(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                          struct attn_error *words)
{
    if (fail_alloc > 0 && --fail_alloc == 0)
        return ATTN_E_MEMORY;
    return plain.memory.alloc(backend, size, out, words);
}

static bool is_stateless(const struct attn_state *state)
{
    struct attn_state_step step;

    ATTN_INIT(&step);
    return attn_state_get_step(state, 0, &step, NULL) == ATTN_E_STATE;
}

/* One staging block for all classes, steps in flight, and what a failure leaves. */
static void test_faults(struct attn_backend *backend)
{
    struct attn__backend *entry = backend->entry;
    struct attn_state *clone = NULL;
    struct model model;

    plain = *entry;
    entry->memory.event_query = query_event;
    entry->memory.event_record = record_event;
    entry->plan.prepare_many = prepare_many;
    entry->plan.sizes = sizes_staged;
    model_init(&model, backend);
    prepared = 0;
    struct attn_metadata *metadata = model_step(&model, 5, 2, 0, 0, 3);
    check(attn_state_begin_forward(model.state, metadata, NULL, &err) == ATTN_OK && prepared == 1 &&
              staged >= 200 && !is_stateless(model.state),
          "all classes are prepared at once, with the staging of all", "");
    busy = last;
    check(attn_state_begin_forward(model.state, metadata, NULL, &err) == ATTN_OK && prepared == 2,
          "two steps may be under way", "");
    REFUSED(attn_state_begin_forward(model.state, metadata, NULL, &err), ATTN_E_BUSY, "steps");
    check(prepared == 2 && !is_stateless(model.state), "a busy step changes nothing", "");
    busy = NULL;
    fail_prepare = 1;
    check(attn_state_begin_forward(model.state, metadata, NULL, &err) == ATTN_E_DEVICE &&
              is_stateless(model.state),
          "after a failed step there is none", "");
    fail_prepare = 0;
    check(attn_state_begin_forward(model.state, metadata, NULL, &err) == ATTN_OK &&
              !is_stateless(model.state),
          "and the next one is as good as any", "");
    must(attn_state_begin_capture(model.state, 4, NULL, &err));
    must(get_capture(&model, 4, 0));
    must(attn_state_clone(model.state, 4, &clone, &err));
    must(attn_state_end_capture(model.state, &err));
    if (strcmp(attn_backend_get_name(backend), "cpu/flash-attn") == 0) {
        model.first_q = 2; /* the right number of tokens, but not one of each sequence */
        metadata = model_step(&model, 3, 0, 1, 0, 3);
        REFUSED(attn_state_begin_forward(clone, metadata, NULL, &err), ATTN_E_INVALID, "max_query_len");
        check(is_stateless(model.state) && is_stateless(clone), "nobody has a step then", "");
    }
    attn_state_destroy(clone);
    model_finish(&model);
    entry->memory.event_create = NULL;
    model_describe(&model, backend);
    REFUSED(attn_state_create(backend, model.classes, MODEL_CLASSES, &model.params, &model.state, &err),
            ATTN_E_UNSUPPORTED, "events");
    entry->memory = plain.memory;
    entry->plan = plain.plan;
}

/* Without memory for one of its blocks nothing is left over; a capture can still be ended or begun again. */
static void test_memory(struct attn_backend *backend)
{
    struct attn__backend *entry = backend->entry;
    struct model model;
    int32_t status = ATTN_E_MEMORY;
    bool good = true;

    plain = *entry;
    entry->memory.alloc = alloc_some;
    model_describe(&model, backend);
    for (uint32_t nth = 1; status != ATTN_OK && nth < 20; nth++) {
        fail_alloc = nth;
        status = attn_state_create(backend, model.classes, MODEL_CLASSES, &model.params, &model.state, &err);
        good = good && (status == ATTN_OK || (status == ATTN_E_MEMORY && model.state == NULL));
    }
    check(good && status == ATTN_OK, "a state is made whole or not at all", "");
    fail_alloc = 1;
    check(attn_state_begin_capture(model.state, 8, NULL, &err) == ATTN_E_MEMORY &&
              attn_state_begin_capture(model.state, 8, NULL, &err) == ATTN_OK,
          "a capture that could not begin can begin again", "");
    fail_alloc = 1;
    status = get_capture(&model, 8, 0);
    check(status == (model.problems[0].addressing == ATTN_CSR ? (int32_t)ATTN_E_MEMORY : ATTN_OK) &&
              attn_state_end_capture(model.state, &err) == ATTN_OK,
          "a capture can be ended after a failure", "");
    fail_alloc = 0;
    entry->memory = plain.memory;
    attn_state_destroy(model.state);
}

static void test_parameters(struct attn_backend *backend)
{
    struct attn_state *state = NULL;
    struct model model;

    model_describe(&model, backend);
#define CREATE() attn_state_create(backend, model.classes, MODEL_CLASSES, &model.params, &state, &err)
    REFUSED(attn_state_create(NULL, model.classes, 2, &model.params, &state, &err), ATTN_E_INVALID,
            "backend");
    REFUSED(attn_state_create(backend, NULL, 2, &model.params, &state, &err), ATTN_E_INVALID, "classes");
    REFUSED(attn_state_create(backend, model.classes, 2, NULL, &state, &err), ATTN_E_INVALID, "params");
    model.params.group = NULL;
    REFUSED(CREATE(), ATTN_E_INVALID, "group");
    model.params.group = model.groups;
    model.params.flavour = 9;
    REFUSED(CREATE(), ATTN_E_INVALID, "flavour");
    model.params.flavour = 0;
    model.params.index_dtype = ATTN_F16;
    REFUSED(CREATE(), ATTN_E_INVALID, "index_dtype");
    model.params.index_dtype = 0;
    model.classes[1].group = 2;
    REFUSED(CREATE(), ATTN_E_INVALID, "group");
    model.classes[1].group = 1;
    model.groups[1].block = 16;
    REFUSED(CREATE(), ATTN_E_INVALID, "block");
    model.groups[1].block = 8;
    uint32_t addressing = model.problems[1].addressing;
    model.problems[1].addressing = addressing == ATTN_CSR ? ATTN_TABLE : ATTN_CSR;
    REFUSED(CREATE(), ATTN_E_INVALID, "addr");
    model.problems[1].addressing = addressing;
    model.problems[1].max_q = 0;
    REFUSED(CREATE(), ATTN_E_INVALID, "max_q");
    check(strstr(err.message, "classes[1]") != NULL, "the class is named", "");
    model.problems[1].max_q = 4;
    check(CREATE() == ATTN_OK, "and then it is made", "");
    attn_state_destroy(state);
    attn_state_destroy(NULL);
}

int main(void)
{
    static const char *const names[] = {"cpu/flash-attn", "cpu/flashinfer"};

    ATTN_INIT(&err);
    for (uint32_t i = 0; i < 2; i++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = NULL;
        backend_open(names[i], &context, &backend);
        test_replay(backend);
        test_order(backend);
        test_parameters(backend);
        test_faults(backend);
        test_memory(backend);
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    printf("1..%u\n", passed);
    return failed != 0;
}
