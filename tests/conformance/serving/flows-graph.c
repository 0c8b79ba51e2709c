/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Flows of decodes that are padded to captured sizes, through the clones of a state beside steps without a
 * graph. What padding holds changes nothing, and it is written nowhere.
 */
#include "flows.h"

enum { SIZES = 3 };
static const uint32_t sizes[SIZES] = {MANY, 4, 1}; /* from large to small */

/* ---------------------------------------------------------------- clones */

int32_t graph_clone(struct model *model, uint32_t size, uint32_t num_tokens, struct attn_state **out,
                    struct attn_metadata **out_metadata, struct attn_error *err)
{
    struct attn_state_capture_args args;

    ATTN_INIT(&args);
    args.batch = size;
    args.num_tokens = num_tokens;
    args.encoder_decoder = model->def->cross;
    model->at = "attn_state_get_capture_metadata";
    const int32_t status = attn_state_get_capture_metadata(model->state, &args, NULL, out_metadata, err);
    if (status != ATTN_OK)
        return status;
    model->at = "attn_state_clone";
    return attn_state_clone(model->state, size, out, err);
}

static bool capture(struct model *model, struct attn_state **clones)
{
    struct attn_metadata *metadata;
    struct attn_error err;

    ATTN_INIT(&err);
    model->at = "attn_state_begin_capture";
    int32_t status = attn_state_begin_capture(model->state, MANY, NULL, &err);
    for (uint32_t i = 0; i < SIZES && status == ATTN_OK; i++)
        status = graph_clone(model, sizes[i], 0, &clones[i], &metadata, &err);
    if (status == ATTN_OK) {
        model->at = "attn_state_end_capture";
        status = attn_state_end_capture(model->state, &err);
    }
    return status == ATTN_OK || model_fail(model, model->at, &err);
}

/* ---------------------------------------------------------------- steps */

struct step_def graph_decodes(struct sequence_state *all, uint32_t first, uint32_t seqs)
{
    struct step_def step = {.count = seqs, .row = UINT32_MAX};

    for (uint32_t n = 0; n < seqs; n++)
        step.entries[n] = (struct entry){.sequence = &all[(first + n) % MANY], .q_len = 1};
    return step;
}

/* ... padded to the next size. */
static struct step_def padded(struct sequence_state *all, uint32_t first, uint32_t seqs)
{
    struct step_def step = graph_decodes(all, first, seqs);
    uint32_t size = SIZES;

    while (sizes[size - 1] < seqs)
        size--;
    step.graph = true;
    step.pad = sizes[size - 1] - seqs;
    return step;
}

bool graph_begin(struct model *model, struct sequence_state *all)
{
    struct step_def step = {.count = MANY, .row = UINT32_MAX};

    memset(all, 0, MANY * sizeof *all);
    for (uint32_t n = 0; n < MANY; n++) {
        all[n].id = n + 1;
        all[n].encoder_len = model->def->cross == 1 ? 2 + n : 0;
        step.entries[n] = (struct entry){.sequence = &all[n], .prompt = 1, .q_len = 1 + 2 * n};
    }
    return model_step(model, &step);
}

static bool run_padded(struct model *model, enum step_way way, uint32_t steps)
{
    static const uint32_t seqs[] = {3, 8, 1, 5, 4, 7, 2, 6};
    struct sequence_state all[MANY];
    struct attn_state *clones[SIZES] = {NULL};
    bool good = capture(model, clones) && graph_begin(model, all);

    for (uint32_t i = 0; i < steps && good; i++) {
        struct step_def step =
            i % 5 == 4 ? graph_decodes(all, 3 * i, seqs[i % 8]) : padded(all, 3 * i, seqs[i % 8]);
        step.way = way;
        good = model_step(model, &step);
    }
    for (uint32_t i = 0; i < SIZES; i++)
        attn_state_destroy(clones[i]);
    return good;
}

bool flow_padded(struct model *model)
{
    return run_padded(model, STEP_BUILT, 16);
}

bool flow_device_padded(struct model *model)
{
    return run_padded(model, STEP_DEVICE, 4);
}
