/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a session allocates, and that it goes on after an allocation that failed. */
#include <stdio.h>
#include <stdlib.h>

#include "../graph/tap.h"
#include "failing.h"
#include "pair.h"

static const struct pair_case sample = {.problem = "heads=4 kv_heads=2 head_dim=16 q=f32 lse=1"};
static const struct pair_step small = {2, {1, 3}, {9, 12}}, large = {5, {1, 9, 30, 1, 2}, {40, 30, 60, 9, 2}};

/* What stays from first use on, as loaded libraries do, is there before blocks are counted. */
static void warm_up(void)
{
    struct pair pair;
    pair_open(&pair, &sample, 0);
    must(pair_forward(&pair, &large));
    pair_run(&pair, &large);
    pair_close(&pair);
}

/* Each allocation of attn_open fails once. */
static void test_open(void)
{
    uint32_t failures = 0, wrong = 0, lost = 0;
    for (uint32_t n = 0; n < 4000; n++) {
        const int64_t blocks = failing_blocks();
        struct attn_session *session = (struct attn_session *)&session;
        ATTN_INIT(&err);
        failing_begin(n);
        const int32_t status = attn_open(sample.problem, NULL, &session, &err);
        const bool failed = failing_end(NULL);
        failures += failed;
        wrong += (status == ATTN_OK) != (session != NULL) || (status != ATTN_OK && err.message[0] == 0);
        attn_close(session);
        lost += failing_blocks() != blocks;
        if (!failed)
            break;
    }
    char detail[80];
    snprintf(detail, sizeof detail, "%u failures, %u wrong, %u with lost blocks", failures, wrong, lost);
    check(failures > 10 && wrong == 0 && lost == 0, "attn_open has no session where it fails", detail);
}

/* The same for a step after others: an error of its own, and the same step works then. */
static void test_forward(const struct pair_step *before, const struct pair_step *step, const char *what)
{
    uint32_t failures = 0, wrong = 0, lost = 0;
    for (uint32_t n = 0; n < 400; n++) {
        const int64_t blocks = failing_blocks();
        struct pair pair;
        pair_open(&pair, &sample, 0);
        if (before != NULL) {
            must(pair_forward(&pair, before));
            pair_run(&pair, before);
        }
        ATTN_INIT(&err);
        failing_begin(n);
        const int32_t status = pair_forward(&pair, step);
        const bool failed = failing_end(NULL);
        failures += failed;
        wrong += status != ATTN_OK && (status != ATTN_E_MEMORY || err.message[0] == 0);
        for (int i = before != NULL ? 0 : 1; i < 2; i++) { /* the step before it still works */
            wrong += pair_forward(&pair, i == 0 ? before : step) != ATTN_OK;
            pair_run(&pair, i == 0 ? before : step);
        }
        wrong += !pair_is_same(&pair);
        pair_close(&pair);
        lost += failing_blocks() != blocks;
        if (!failed)
            break;
    }
    char detail[80];
    snprintf(detail, sizeof detail, "%u failures, %u wrong, %u with lost blocks", failures, wrong, lost);
    check(failures > 0 && wrong == 0 && lost == 0, what, detail);
}

/* A step that no memory is left for does not stand in the way of smaller ones. */
static void test_limit(void)
{
    static const struct pair_step huge = {1, {8000000}, {8000000}};
    struct pair pair;
    pair_open(&pair, &sample, 0);
    for (int i = 0; i < 2; i++) {
        failing_above(2 * 1024 * 1024);
        const int32_t status = pair_forward(&pair, &huge);
        const int32_t after = pair_forward(&pair, &small);
        failing_above(0);
        pair_run(&pair, &small);
        check(status == ATTN_E_MEMORY && after == ATTN_OK && pair_is_same(&pair), "a smaller step is served",
              err.message);
    }
    pair_close(&pair);
}

static void test_counts(void)
{
    struct pair pair;
    uint32_t count;
    pair_open(&pair, &sample, 0);
    must(pair_forward(&pair, &large));
    for (int i = 0; i < 3; i++) {
        failing_begin(UINT32_MAX);
        must(pair_forward(&pair, i < 2 ? &large : &small));
        failing_end(&count);
        check(count == 0, "allocates nothing",
              i == 0   ? "the next layer"
              : i == 1 ? "another one"
                       : "a smaller step");
    }
    pair_close(&pair);
}

int main(int argc, char **argv)
{
    (void)argv;                     /* the plugin of lazy.c allocates for each launch */
    setenv("ATTN_THREADS", "2", 1); /* each has scratch of its own */
    if (failing_works()) {
        warm_up();
        test_open();
        test_forward(NULL, &small, "the first step fails and works then");
        test_forward(&small, &large, "a larger step fails, the one before it works, and then both do");
        test_limit();
        if (argc == 1)
            test_counts();
    } else
        check(true,
              "allocations that fail # SKIP the allocator belongs to a sanitizer or is not the C library's",
              "");
    return finish_checks();
}
