/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * States on the CPU, in both flavours, through the plan API: captured for a ladder of sizes, replayed with
 * random padded batches and held against steps without a graph, bit for bit; the order of calls, and
 * lifetimes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "allocations.h"
#include "model.h"
#include "tap.h"
#include "world.h"

enum { SIZES = 4, STEPS = 400 };
static const uint32_t sizes[SIZES] = {16, 8, 4, 1}; /* from large to small */

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

static struct attn_metadata *captured_metadata;

static int32_t get_capture(struct model *model, uint32_t batch, uint32_t cross)
{
    struct attn_state_capture_args args;

    ATTN_INIT(&args);
    args.batch = batch;
    args.encoder_decoder = cross;
    return attn_state_get_capture_metadata(model->state, &args, NULL, &captured_metadata, &err);
}

static void test_order(struct attn_backend *backend)
{
    const bool infer = strcmp(attn_backend_get_name(backend), "cpu/flashinfer") == 0;
    struct attn_state *clone = NULL, *small = NULL;
    struct attn_state_step step;
    struct attn_view view;
    struct model model;
    uint64_t size;

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
    struct attn_metadata *metadata;
    REFUSED(attn_metadata_get_part(captured_metadata, ATTN_PART_DECODE, &metadata, &err), ATTN_E_STATE,
            "metadata");
    REFUSED(attn_metadata_serialise(captured_metadata, NULL, 0, &size, &err), ATTN_E_STATE, "metadata");
    metadata = model_step(&model, 3, 0, 0, 0, 1);
    if (infer)
        REFUSED(attn_state_begin_forward(model.state, metadata, NULL, &err), ATTN_E_INVALID, "state");
    must(attn_state_end_capture(model.state, &err));
    must(attn_state_begin_forward(model.state, metadata, NULL, &err));
    REFUSED(attn_state_get_step(model.state, MODEL_CLASSES, &step, &err), ATTN_E_INVALID, "layer_class");
    REFUSED(attn_state_get_step(model.state, 0, NULL, &err), ATTN_E_INVALID, "out");
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

/* Begins a step of one decode that a builder of other parameters than the state's made. */
static int32_t begin_other(const struct model *model, uint32_t flavour, uint32_t groups)
{
    const int64_t block = 0;
    struct attn_blocks blocks[MODEL_CLASSES];
    struct attn_builder_params params;
    struct attn_builder_add_args add;
    struct attn_builder *builder = NULL;
    struct attn_metadata *metadata = NULL;

    ATTN_INIT(&params);
    params.flavour = flavour;
    params.groups = groups;
    params.group = model->groups;
    params.max_seqs = params.max_tokens = 4;
    ATTN_INIT(&add);
    add.query_len = 1;
    add.blocks = blocks;
    for (uint32_t i = 0; i < MODEL_CLASSES; i++)
        blocks[i] = (struct attn_blocks){.kind = ATTN_BLOCKS_LIST, .count = 1, .blocks = &block};
    must(attn_builder_create(model->backend, &params, &builder, &err));
    must(attn_builder_add(builder, &add, &err));
    must(attn_builder_build(builder, NULL, NULL, &metadata, &err));
    const int32_t status = attn_state_begin_forward(model->state, metadata, NULL, &err);
    attn_builder_destroy(builder);
    return status;
}

/* Lists of pages and block tables cannot stand for each other, nor is a step without a cache group whole. */
static void test_other_builders(struct attn_backend *backend)
{
    const bool infer = strcmp(attn_backend_get_name(backend), "cpu/flashinfer") == 0;
    const uint32_t own = infer ? ATTN_FLASHINFER : ATTN_FLASH_ATTN;
    struct model model;

    model_init(&model, backend);
    must(begin_other(&model, own, MODEL_CLASSES));
    REFUSED(begin_other(&model, infer ? ATTN_FLASH_ATTN : ATTN_FLASHINFER, MODEL_CLASSES), ATTN_E_INVALID,
            "flavour");
    REFUSED(begin_other(&model, own, MODEL_CLASSES - 1), ATTN_E_INVALID, "groups");
    check(attn_state_begin_forward(model.state, model_step(&model, 2, 0, 0, 0, 1), NULL, &err) == ATTN_OK,
          "a state goes on after a refusal", "");
    model_finish(&model);
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
        test_other_builders(backend);
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    return finish_checks();
}
