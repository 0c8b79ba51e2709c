/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Decodes padded to captured sizes, through the clones of a state, beside steps without a graph: what padding
 * holds changes nothing, and it is written nowhere.
 */
#include <stdio.h>

#include "layer-fixture.h"

enum { SIZES = 3, SEQUENCES = 8 };
static const uint32_t sizes[SIZES] = {8, 4, 1}; /* from large to small */

static uint32_t count, failed;

static bool capture(struct model *model, struct attn_state **clones)
{
    struct attn_state_capture_args args;
    struct attn_metadata *metadata;
    struct attn_error err;

    ATTN_INIT(&err);
    int32_t status = attn_state_begin_capture(model->state, sizes[0], NULL, &err);
    for (uint32_t i = 0; i < SIZES && status == ATTN_OK; i++) {
        ATTN_INIT(&args);
        args.batch = sizes[i];
        args.encoder_decoder = model->def->cross;
        status = attn_state_get_capture_metadata(model->state, &args, NULL, &metadata, &err);
        if (status == ATTN_OK)
            status = attn_state_clone(model->state, sizes[i], &clones[i], &err);
    }
    if (status == ATTN_OK)
        status = attn_state_end_capture(model->state, &err);
    if (status != ATTN_OK)
        snprintf(model->why, sizeof model->why, "capture: %s (%s)", err.message, err.field);
    return status == ATTN_OK;
}

/* One token of each of `seqs` sequences from number `first` on, padded to the next size; or without a graph.
 */
static bool decode(struct model *model, struct sequence_state *all, uint32_t first, uint32_t seqs, bool graph)
{
    struct step_def step = {.count = seqs, .graph = graph, .row = UINT32_MAX};
    uint32_t size = SIZES;

    for (uint32_t n = 0; n < seqs; n++)
        step.entries[n] = (struct entry){.sequence = &all[(first + n) % SEQUENCES], .q_len = 1};
    while (graph && size > 0 && sizes[size - 1] < seqs)
        size--;
    step.pad = graph ? sizes[size - 1] - seqs : 0;
    return model_step(model, &step);
}

static bool run(struct model *model)
{
    static const uint32_t seqs[] = {3, 8, 1, 5, 4, 7, 2, 6};
    struct sequence_state all[SEQUENCES];
    struct step_def prompts = {.count = SEQUENCES, .row = UINT32_MAX};
    bool good = true;

    memset(all, 0, sizeof all);
    for (uint32_t n = 0; n < SEQUENCES; n++) {
        all[n].id = n + 1;
        all[n].encoder_len = model->def->cross == 1 ? 2 + n : 0;
        prompts.entries[n] = (struct entry){.sequence = &all[n], .prompt = 1, .q_len = 1 + 2 * n};
    }
    good = model_step(model, &prompts);
    for (uint32_t i = 0; i < 24 && good; i++)
        good = decode(model, all, 3 * i, seqs[i % 8], i % 5 != 4);
    return good;
}

static void run_model(struct attn_context *context, struct attn_backend *backend, const struct model_def *def)
{
    static struct model model;
    struct attn_state *clones[SIZES] = {NULL};

    bool good =
        model_init(&model, def, context, backend, count + 1) && capture(&model, clones) && run(&model);
    /* FlashInfer's padding has no page, and so no place for the key that it would bring. */
    if (model.flavour == ATTN_FLASHINFER && strstr(def->classes[0].problem, "cache+new") != NULL)
        good = !good && strstr(model.why, "batch.kv_lens[3] is 0") != NULL;
    printf("%s %u - %s: %s\n", good ? "ok" : "not ok", ++count, attn_backend_get_name(backend), def->name);
    if (!good)
        printf("# %s\n", model.why);
    failed += !good;
    for (uint32_t i = 0; i < SIZES; i++)
        attn_state_destroy(clones[i]);
    model_finish(&model);
}

#define HEADS "heads=4 kv_heads=2 head_dim=32 graph=single "

static const struct model_def defs[] = {
    {.name = "one class", .classes = {{.problem = HEADS "q=f32"}}},
    {.name = "windowed and full layers",
     .chunked = 1,
     .classes = {{.problem = HEADS "q=f32 window=11"},
                 {.problem = HEADS "q=f16 kv=e4m3 scales=token-head lse=1", .group = 1}}},
    {.name = "cache and new keys", .chunked = 1, .classes = {{.problem = HEADS "q=f32 kv_source=cache+new"}}},
    {.name = "encoder and decoder",
     .cross = 1,
     .classes = {{.problem = HEADS "q=f32"}, {.problem = HEADS "type=encoder_decoder q=f32 kv=f16"}}},
};

int main(void)
{
    static const char *const names[] = {"cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};

    for (uint32_t i = 0; i < 3; i++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = NULL;
        if (!fixture_open(names[i], &context, &backend))
            return 1;
        for (uint32_t d = 0; d < sizeof defs / sizeof defs[0]; d++)
            if (defs[d].cross == 0 || i == 0)
                run_model(context, backend, &defs[d]);
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    printf("1..%u\n", count);
    return failed != 0;
}
