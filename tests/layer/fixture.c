/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the backends of the CPU for the tests of layers. */
#include "expect.h"

#include "allocations.h"
#include "output.h"

bool fixture_open(const char *name, struct attn_context **out_context, struct attn_backend **out)
{
    struct attn_select_options options;
    struct attn_open_config config;
    struct attn_decision *decision = NULL;
    struct attn_problem problem;
    struct attn_error err;

    if (allocations_counted())
        model_allocations = allocations_made;
    ATTN_INIT(&err);
    ATTN_INIT(&options);
    ATTN_INIT(&config);
    options.backend = name;
    config.threads = 2;
    int32_t status = attn_context_create(NULL, out_context, &err);
    if (status == ATTN_OK)
        status = attn_problem_parse("heads=4 head_dim=32 q=bf16", &problem, &err);
    if (status == ATTN_OK)
        status = attn_select(*out_context, &problem, 1, &options, &decision, &err);
    if (status == ATTN_OK)
        status = attn_backend_open(*out_context, decision, &config, out, &err);
    attn_decision_destroy(decision);
    if (status != ATTN_OK)
        complain("%s: %s", name, err.message);
    return status == ATTN_OK;
}
