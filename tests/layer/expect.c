/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counts answers, and makes descriptions of layers to change. */
#include "expect.h"

#include <stdio.h>

static uint32_t count, failed;

void expect(int32_t status, const struct attn_error *err, int32_t wanted, const char *field,
            const char *words, const char *what)
{
    const bool good =
        status == wanted &&
        (wanted == ATTN_OK || (strcmp(err->field, field) == 0 && strstr(err->message, words) != NULL));

    printf("%s %u - %s\n", good ? "ok" : "not ok", ++count, what);
    if (!good)
        printf("# %s, %s: %s\n", attn_status_name(status), err->field, err->message);
    failed += !good;
}

int expect_end(void)
{
    printf("1..%u\n", count);
    return failed != 0;
}

void create_init(struct create *create, const char *problem)
{
    static float per_head[16] = {1, 1, 1, 1};
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_problem_parse(problem, &create->problem, &err) != ATTN_OK)
        printf("# %s: %s\n", problem, err.message);
    memset(&create->layer_class, 0, sizeof create->layer_class);
    create->layer_class.problem = &create->problem;
    ATTN_INIT(&create->desc);
    create->desc.layer_class = &create->layer_class;
    create->desc.softmax_scale = 1;
    if (create->problem.alibi != ATTN_ALIBI_NONE)
        create->desc.alibi_slopes.data = per_head;
    if (create->problem.sinks == 1) {
        create->desc.sinks.data = per_head;
        create->desc.sinks_dtype = ATTN_F32;
    }
}
