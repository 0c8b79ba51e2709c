/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Models whose decodes are padded to captured sizes, beside steps without a graph. */
#include <stdio.h>

#include "expect.h"
#include "flows.h"

static uint32_t count, failed;

static void run_model(struct attn_context *context, struct attn_backend *backend, const struct model_def *def)
{
    static struct model model;
    bool good = model_init(&model, def, context, backend, count + 1) && flow_padded(&model);
    /* FlashInfer's padding has no page, and so no place for the key that it would bring. */
    if (model.flavour == ATTN_FLASHINFER && strstr(def->classes[0].problem, "cache+new") != NULL)
        good = !good && strstr(model.why, "padding of a FlashInfer step has no keys") != NULL;
    printf("%s %u - %s: %s\n", good ? "ok" : "not ok", ++count, attn_backend_get_name(backend), def->name);
    if (!good)
        printf("# %s\n", model.why);
    failed += !good;
    model_finish(&model);
}

#define GRAPH HEADS "graph=single "

static const struct model_def defs[] = {
    {.name = "one class", .classes = {{.problem = GRAPH "q=f32"}}},
    {.name = "windowed and full layers",
     .chunked = 1,
     .classes = {{.problem = GRAPH "q=f32 window=11"},
                 {.problem = GRAPH "q=f16 kv=e4m3 scales=token-head lse=1", .group = 1}}},
    {.name = "cache and new keys", .chunked = 1, .classes = {{.problem = GRAPH "q=f32 kv_source=cache+new"}}},
    {.name = "encoder and decoder",
     .cross = 1,
     .classes = {{.problem = GRAPH "q=f32"}, {.problem = GRAPH "type=encoder_decoder q=f32 kv=f16"}}},
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
