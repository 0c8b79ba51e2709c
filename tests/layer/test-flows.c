/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Every flow of a layer with every kind of layer on every backend of the CPU, step by step against the
 * oracle.
 *
 * Argument: a kind by its name, or a number N to run each Nth case alone.
 */
#include <stdio.h>
#include <stdlib.h>

#include "expect.h"
#include "kinds.h"

static uint32_t count, failed, every = 1;

static void run_case(struct attn_context *context, struct attn_backend *backend, const struct kind *kind,
                     const struct flow *flow)
{
    struct model_def def = {.name = kind->name, .chunked = flow->chunked};
    static struct model model;
    static uint32_t number;

    if (number++ % every != 0)
        return;
    memcpy(def.classes, kind->classes, sizeof def.classes);
    memcpy(def.windows, kind->windows, sizeof def.windows);
    def.cross = (kind->has & FLOW_CROSS) != 0;
    const bool good = model_init(&model, &def, context, backend, count + 1) && flow->run(&model);
    printf("%s %u - %s: %s: %s\n", good ? "ok" : "not ok", ++count, attn_backend_get_name(backend),
           kind->name, flow->name);
    if (!good)
        printf("# %s\n", model.why);
    failed += !good;
    model_finish(&model);
}

/*
 * Encoders and cross-attention have fields in the FlashAttention flavour alone. FlashInfer's prompts read the
 * cache in every step, so that all of their tokens are to have slots.
 */
static bool is_served(uint32_t flavour, const struct kind *kind)
{
    if ((kind->has & FLOW_CROSS) != 0)
        return flavour == ATTN_FLASH_ATTN;
    return flavour != ATTN_FLASHINFER || kind->windows[0] == 0;
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 && strtoul(argv[1], NULL, 10) == 0 ? argv[1] : NULL;

    static const char *const names[] = {"", "cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};

    if (argc > 1 && only == NULL)
        every = (uint32_t)strtoul(argv[1], NULL, 10);
    for (uint32_t i = ATTN_FLASH_ATTN; i <= ATTN_ROCM_FLASH; i++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = NULL;
        if (!fixture_open(names[i], &context, &backend))
            return 1;
        for (uint32_t k = 0; k < kind_count; k++) {
            if (!is_served(i, &kinds[k]) || (only != NULL && strcmp(only, kinds[k].name) != 0))
                continue;
            for (uint32_t f = 0; f < flow_count; f++) {
                const uint32_t here =
                    (i == ATTN_FLASH_ATTN ? FLOW_SEVERAL : 0) | (i == ATTN_FLASHINFER ? 0 : FLOW_NO_PAGES);
                if ((flows[f].wants & ~(kinds[k].has | here)) == 0)
                    run_case(context, backend, &kinds[k], &flows[f]);
            }
        }
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    printf("1..%u\n", count);
    return failed != 0;
}
