/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every flow of a layer on every backend of the CPU, step by step against the oracle. */
#include <stdio.h>

#include "layer-rig.h"

static uint32_t count, failed;

static void report(bool good, const char *backend, const char *name, const char *why)
{
    printf("%s %u - %s: %s\n", good ? "ok" : "not ok", ++count, backend, name);
    if (!good)
        printf("# %s\n", why);
    failed += !good;
}

static void flow_decoder(struct model *model)
{
    struct sequence_state a = {.id = 1}, b = {.id = 2};
    struct step_def step = {
        .entries = {{.sequence = &a, .prompt = 1, .q_len = 9}, {.sequence = &b, .prompt = 1, .q_len = 5}},
        .count = 2,
        .row = UINT32_MAX};
    bool good = model_step(model, &step);

    step.entries[0].prompt = step.entries[1].prompt = 0;
    step.entries[0].q_len = step.entries[1].q_len = 1;
    for (uint32_t i = 0; i < 4 && good; i++)
        good = model_step(model, &step);
    report(good, model->name, model->def->name, model->why);
}

int main(void)
{
    static const char *const names[] = {"cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};
    static const struct model_def defs[] = {
        {.name = "decoder", .classes = {{.problem = "q=f32 heads=4 kv_heads=2 head_dim=32"}}},
        {.name = "decoder chunked",
         .classes = {{.problem = "q=f32 heads=4 kv_heads=2 head_dim=32"}},
         .chunked = 1},
    };

    for (uint32_t i = 0; i < 3; i++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = NULL;
        if (!rig_open(names[i], &context, &backend))
            return 1;
        for (uint32_t d = 0; d < sizeof defs / sizeof defs[0]; d++) {
            static struct model model;
            if (model_init(&model, &defs[d], context, backend, d + 1))
                flow_decoder(&model);
            else
                report(false, names[i], defs[d].name, model.why);
            model_finish(&model);
        }
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    printf("1..%u\n", count);
    return failed != 0;
}
