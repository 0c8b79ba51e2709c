/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn_layer_create refuses: status, field and text; and the original's words. */
#include <math.h>
#include <stdio.h>

#include "expect.h"

static void expect_create(struct attn_backend *backend, const struct create *create, int32_t wanted,
                          const char *field, const char *words, const char *what)
{
    struct attn_layer *layer = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    const int32_t status = attn_layer_create(backend, create != NULL ? &create->desc : NULL, &layer, &err);
    expect(status, &err, wanted, field, words, what);
    if (status != ATTN_OK && layer != NULL)
        expect(status, &err, ATTN_OK, "", "", "a failing create leaves no layer");
    attn_layer_destroy(layer);
}

static void test_description(struct attn_backend *backend)
{
    static const float bad[] = {0, -1, NAN, INFINITY};
    struct create create;
    struct attn_error err;
    float slopes[4];

    ATTN_INIT(&err);
    create_init(&create, HEADS "q=bf16");
    expect_create(backend, &create, ATTN_OK, "", "", "a plain layer is made");
    expect_create(NULL, &create, ATTN_E_INVALID, "backend", "NULL", "no backend");
    expect_create(backend, NULL, ATTN_E_INVALID, "desc", "NULL", "no description");
    expect(attn_layer_create(backend, &create.desc, NULL, &err), &err, ATTN_E_INVALID, "out", "out is NULL",
           "nowhere to put the layer");
    create.desc.struct_size = 4;
    expect_create(backend, &create, ATTN_E_INVALID, "desc", "struct_size 4",
                  "a description that is too small");
    create_init(&create, HEADS "q=bf16");
    create.desc.layer_class = NULL;
    expect_create(backend, &create, ATTN_E_INVALID, "layer_class", "layer_class is NULL", "no class");
    create_init(&create, HEADS "q=bf16");
    create.layer_class.problem = NULL;
    expect_create(backend, &create, ATTN_E_INVALID, "problem", "NULL", "no problem");
    for (uint32_t i = 0; i < 4; i++) {
        create_init(&create, HEADS "q=bf16");
        create.desc.softmax_scale = bad[i];
        expect_create(backend, &create, ATTN_E_INVALID, "softmax_scale", "finite and > 0",
                      "a softmax scale that is none");
    }
    create_init(&create, HEADS "q=bf16 alibi=key");
    create.desc.alibi_slopes.data = NULL;
    expect_create(backend, &create, ATTN_E_INVALID, "alibi_slopes", "not given", "slopes are missing");
    create_init(&create, HEADS "q=bf16");
    create.desc.alibi_slopes.data = slopes;
    expect_create(backend, &create, ATTN_E_INVALID, "alibi_slopes", "does not use", "slopes without use");
    create_init(&create, HEADS "q=bf16 sinks=1");
    create.desc.sinks.data = NULL;
    expect_create(backend, &create, ATTN_E_INVALID, "sinks", "not given", "sinks are missing");
    create_init(&create, HEADS "q=bf16 sinks=1");
    create.desc.sinks_dtype = ATTN_F16;
    expect_create(backend, &create, ATTN_E_INVALID, "sinks_dtype", "ATTN_BF16", "sinks of a wrong type");
    create_init(&create, HEADS "q=bf16");
    create.desc.sinks.data = slopes;
    expect_create(backend, &create, ATTN_E_INVALID, "sinks", "does not use", "sinks without use");
    create_init(&create, HEADS "q=bf16");
    create.problem.heads = 3;
    expect_create(backend, &create, ATTN_E_INVALID, "kv_heads", "heads=3",
                  "heads that kv_heads do not divide");
    create_init(&create, HEADS "q=bf16 type=encoder_decoder kv_source=cache+new");
    expect_create(backend, &create, ATTN_E_UNSUPPORTED, "kv_source", "kv_source=cache is accepted",
                  "cross-attention over old and new keys");
    create_init(&create, "heads=8 head_dim=63 q=bf16 layout=paged-x");
    expect_create(backend, &create, ATTN_E_UNSUPPORTED, "head_dim", "63", "what the query refuses");
}

int main(void)
{
    static const char *const names[] = {"cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};

    for (uint32_t i = 0; i < 3; i++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = NULL;
        if (!fixture_open(names[i], &context, &backend))
            return 1;
        printf("# %s\n", names[i]);
        test_description(backend);
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    return expect_end();
}
