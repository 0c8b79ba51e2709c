/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzz target for problem strings: what is accepted is printed and read again as the same problem. */
#include "fuzz.h"
#include "select/problem.h"

static void check_round(const struct attn_problem *problem)
{
    struct attn_problem again, whole;
    struct attn_error err;
    char text[2048];
    size_t needed = 0, again_needed = 0;
    ATTN_INIT(&again);
    ATTN_INIT(&err);
    FUZZ_CHECK(attn_problem_format(problem, text, sizeof text, &needed, &err) == ATTN_OK);
    FUZZ_CHECK(needed == strlen(text) + 1);
    FUZZ_CHECK(attn_problem_parse(text, &again, &err) == ATTN_OK);
    FUZZ_CHECK(memcmp(problem, &again, sizeof again) == 0);
    FUZZ_CHECK(attn_problem_resolve(problem, &whole, &err) == ATTN_OK);
    FUZZ_CHECK(memcmp(problem, &whole, sizeof whole) == 0);
    /* One byte too few is told with the number that would do. */
    char *small = malloc(needed - 1);
    FUZZ_CHECK(small != NULL);
    FUZZ_CHECK(attn_problem_format(problem, small, needed - 1, &again_needed, &err) == ATTN_E_SIZE);
    FUZZ_CHECK(again_needed == needed && fuzz_ends(small, needed - 1));
    free(small);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct attn_problem problem;
    struct attn_error err;
    char *text = fuzz_text(data, size);
    ATTN_INIT(&problem);
    ATTN_INIT(&err);
    int32_t status = attn_problem_parse(text, &problem, &err);
    if (status == ATTN_OK) {
        check_round(&problem);
    } else {
        FUZZ_CHECK(status == ATTN_E_INVALID && err.message[0] != '\0');
        FUZZ_CHECK(fuzz_ends(err.message, sizeof err.message));
        for (const char *p = err.message; *p != '\0'; p++)
            FUZZ_CHECK(*p >= ' ' && *p <= '~');
    }
    free(text);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
