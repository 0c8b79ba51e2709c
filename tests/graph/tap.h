/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What tests of this folder report with. */
#ifndef TEST_GRAPH_TAP_H
#define TEST_GRAPH_TAP_H

#include <stdbool.h>

#include "attn/attn.h"

/* What the last call said. */
extern struct attn_error err;

/* One line of TAP. */
void check(bool good, const char *what, const char *detail);
/* What a test cannot go on without. */
void must(int32_t status);
/* The plan line; the exit status. */
int finish_checks(void);

#define REFUSED(call, wanted, name)                                                                          \
    do {                                                                                                     \
        ATTN_INIT(&err);                                                                                     \
        int32_t status_ = (call);                                                                            \
        check(status_ == (wanted) && strcmp(err.field, (name)) == 0, "refused", #call);                      \
    } while (0)

#endif
