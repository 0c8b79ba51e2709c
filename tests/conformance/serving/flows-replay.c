/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Flows of whole steps, with their planning, that are captured once and launched: decodes, and prompts and
 * decodes in any mix. What padding holds changes nothing, and it is written nowhere.
 */
#include "flows.h"

#include "attn/device.h"

enum { WHOLE = 4, MIXED = 5 };

struct recorded {
    struct sequence_state all[MANY];
    struct attn_state *clone;
    struct attn_metadata *metadata;
    struct attn_graph *graph;
    void *stream;
    struct call calls[CLASSES];
};

/* Planning and all layers, on a stream: NULL warms up. */
static int32_t run_layers(struct recorded *recorded, struct model *model, void *stream,
                          struct attn_error *err)
{
    model->at = "attn_state_begin_forward of a capture";
    int32_t status = attn_state_begin_forward(recorded->clone, recorded->metadata, stream, err);

    for (uint32_t c = 0; c < model->count && status == ATTN_OK; c++) {
        if (model->problems[c].type == ATTN_ENCODER)
            continue;
        model->at = "attn_layer_forward of a capture";
        model->class_at = c;
        status = attn_layer_forward(model->layers[c], recorded->clone, recorded->metadata,
                                    model->caches[c].kv, &recorded->calls[c].tensors, stream, err);
    }
    return status;
}

/* ATTN_E_UNSUPPORTED with no clone: the backend plans on the host alone. */
static int32_t record(struct recorded *recorded, struct model *model, uint32_t size, uint32_t num_tokens,
                      struct attn_error *err)
{
    model->at = "attn_state_begin_capture";
    int32_t status = attn_state_begin_capture(model->state, size, NULL, err);

    if (status == ATTN_OK)
        status = graph_clone(model, size, num_tokens, &recorded->clone, &recorded->metadata, err);
    if (status == ATTN_OK)
        status = run_layers(recorded, model, NULL, err);
    if (status != ATTN_OK)
        return status;
    model->at = "attn_graph_begin";
    status = attn_graph_begin(model->backend, recorded->stream, &recorded->graph, err);
    if (status == ATTN_OK)
        status = run_layers(recorded, model, recorded->stream, err);
    if (status != ATTN_OK)
        return status;
    model->at = "attn_graph_end";
    status = attn_graph_end(recorded->graph, err);
    if (status != ATTN_OK)
        return status;
    model->at = "attn_state_end_capture";
    return attn_state_end_capture(model->state, err);
}

/* Rows behind a step hold what it must not be possible to read. */
static void spoil(const struct attn_layer_tensors *tensors)
{
    const struct attn_tensor *const all[] = {&tensors->q, &tensors->q_rope, &tensors->k_new, &tensors->k_rope,
                                             &tensors->v_new};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const struct guarded *memory = all[i]->buffer.data != NULL ? arena_buffer(all[i]->buffer.data) : NULL;
        if (memory != NULL)
            memset(memory->data, 0xff, memory->size);
    }
}

/* A step is prepared and launched; the builder has copied nothing. */
static bool launch(struct recorded *recorded, struct model *model, const struct step_def *step)
{
    struct attn_error err;

    ATTN_INIT(&err);
    for (uint32_t n = 0; n < step->count; n++)
        sequence_grow(model, step->entries[n].sequence,
                      step->entries[n].sequence->len + step->entries[n].q_len);
    int32_t status = model_build(model, step, &err);
    if (status == ATTN_OK) {
        model->at = "attn_state_prepare";
        status = attn_state_prepare(model->state, model->metadata, recorded->stream, &err);
    }
    for (uint32_t c = 0; c < model->count; c++) {
        spoil(&recorded->calls[c].tensors);
        call_fill(&recorded->calls[c], model, c, step);
    }
    if (status == ATTN_OK) {
        model->at = "attn_graph_launch";
        status = attn_graph_launch(recorded->graph, recorded->stream, &err);
    }
    if (status == ATTN_OK) {
        model->at = "attn_stream_synchronize";
        status = attn_stream_synchronize(model->backend, recorded->stream, &err);
    }
    if (status != ATTN_OK)
        return model_fail(model, model->at, &err);
    for (uint32_t c = 0; c < model->count; c++)
        if (model->problems[c].type != ATTN_ENCODER && !call_judge(model, c, step, &recorded->calls[c]))
            return false;
    for (uint32_t n = 0; n < step->count; n++)
        step->entries[n].sequence->len += step->entries[n].q_len;
    return true;
}

static bool launch_steps(struct recorded *recorded, struct model *model)
{
    bool good = true;

    for (uint32_t i = 0; i < 8 && good; i++) {
        struct step_def step = graph_decodes(recorded->all, 3 * i, 1 + i % WHOLE);
        if (i % 3 == 2) {
            good = model_step(model, &step);
            continue;
        }
        step.graph = step.host_only = true;
        step.pad = WHOLE - step.count;
        good = launch(recorded, model, &step);
    }
    return good;
}

/*
 * What a warm-up writes goes nowhere: slots of a capture are -1. Where the device does not plan, no step is
 * recorded whole, and the other flow has shown what there is. `full` is a step with all rows of the graph.
 */
static bool run_recorded(struct recorded *recorded, struct model *model, const struct step_def *full,
                         uint32_t num_tokens, bool (*steps)(struct recorded *, struct model *))
{
    struct attn_error err;
    bool good = true;

    ATTN_INIT(&err);
    for (uint32_t c = 0; c < model->count; c++)
        call_init(&recorded->calls[c], model, c, full);
    model->at = "attn_stream_create";
    int32_t status = attn_stream_create(model->backend, &recorded->stream, &err);
    if (status == ATTN_OK)
        status = record(recorded, model, full->count, num_tokens, &err);
    for (uint32_t c = 0; c < model->count; c++)
        pattern_fill(recorded->calls[c].out);
    if (status != ATTN_OK && !(status == ATTN_E_UNSUPPORTED && recorded->graph == NULL))
        good = model_fail(model, model->at, &err);
    else if (status == ATTN_OK)
        good = steps(recorded, model);
    attn_graph_destroy(recorded->graph);
    attn_state_destroy(recorded->clone);
    if (recorded->stream != NULL)
        attn_stream_destroy(model->backend, recorded->stream);
    for (uint32_t c = 0; c < model->count; c++)
        call_finish(&recorded->calls[c]);
    return good;
}

bool flow_replayed(struct model *model)
{
    static struct recorded recorded;

    memset(&recorded, 0, sizeof recorded);
    if (!graph_begin(model, recorded.all))
        return false;
    const struct step_def full = graph_decodes(recorded.all, 0, WHOLE);
    return run_recorded(&recorded, model, &full, 0, launch_steps);
}

/* ---------------------------------------------------------------- any mix */

/* A step of a mix: query tokens of each sequence, 0 of those that have no part in it; prompts first. */
struct mix {
    uint32_t prompts[MIXED];
    uint32_t decodes[MIXED];
    bool eager;
};

/* Prompts at once and in chunks, of one token too, alone and beside decodes; the last sequence finds the
 * first block of sequence 0. */
static const struct mix mixes[] = {
    {.prompts = {13, 9}},
    {.prompts = {5, 0, 1}, .decodes = {0, 1}},
    {.prompts = {0, 0, 11, 7}, .decodes = {1, 1}, .eager = true},
    {.prompts = {0, 0, 0, 0, 20}, .decodes = {1, 1, 1, 1}},
    {.decodes = {1, 1, 1, 1, 1}},
    {.decodes = {0, 1}},
    {.prompts = {2, 0, 0, 8, 21}, .decodes = {0, 0, 1}},
};

static struct step_def mixed(struct sequence_state *all, const struct mix *mix)
{
    struct step_def step = {.row = UINT32_MAX};

    for (uint32_t i = 0; i < 2 * MIXED; i++) {
        const uint32_t n = i % MIXED, q_len = i < MIXED ? mix->prompts[n] : mix->decodes[n];
        const bool hit = all[n].parent != 0 && all[n].len == all[n].shared;
        if (q_len > 0)
            step.entries[step.count++] = (struct entry){.sequence = &all[n],
                                                        .prompt = i < MIXED,
                                                        .q_len = q_len,
                                                        .hit = hit ? all[n].len / BLOCK : 0};
    }
    return step;
}

static void share(struct sequence_state *to, const struct sequence_state *from)
{
    to->parent = from->id;
    to->shared = to->len = BLOCK;
    for (uint32_t g = 0; g < GROUPS; g++) {
        to->counts[g] = 1;
        to->blocks[g][0] = from->blocks[g][0];
    }
}

static bool launch_mixes(struct recorded *recorded, struct model *model)
{
    bool good = true;

    for (uint32_t i = 0; i < sizeof mixes / sizeof mixes[0] && good; i++) {
        if (i == 3)
            share(&recorded->all[MIXED - 1], &recorded->all[0]);
        struct step_def step = mixed(recorded->all, &mixes[i]);
        step.graph = step.host_only = !mixes[i].eager;
        good = mixes[i].eager ? model_step(model, &step) : launch(recorded, model, &step);
    }
    return good;
}

/* Rows behind a step's tokens are nobody's, and nobody writes them. */
bool flow_replayed_mix(struct model *model)
{
    static struct recorded recorded;
    struct step_def full = {.count = MIXED, .row = UINT32_MAX};

    memset(&recorded, 0, sizeof recorded);
    for (uint32_t n = 0; n < MIXED; n++) {
        recorded.all[n].id = n + 1;
        full.entries[n] = (struct entry){
            .sequence = &recorded.all[n], .prompt = 1, .q_len = (MIXED_ROWS + MIXED - 1) / MIXED};
    }
    return run_recorded(&recorded, model, &full, MIXED_ROWS, launch_mixes);
}
