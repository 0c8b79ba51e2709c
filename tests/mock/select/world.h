/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A context over chosen mocks, with everything that it logs: what tests of selection and handles start from.
 */
#ifndef ATTN_TEST_WORLD_H
#define ATTN_TEST_WORLD_H

#include "attn/attn.h"
#include "malformed.h"

struct world {
    struct malformed malformed;
    struct attn_context *context;
    struct attn_error err;
    char log[16384]; /* "LEVEL subsystem: text" lines */
    size_t log_used;
};

/* `mocks` is a list of names separated by spaces, `variables` of "NAME=VALUE" by semicolons, or NULL. */
void world_open(struct world *world, const char *mocks, const char *variables);
void world_close(struct world *world);
/* attn_select of one problem string with the two options, NULL = not given. */
int32_t world_select(struct world *world, const char *problem, const char *backend, const char *device,
                     struct attn_decision **out);
/* How often a text stands in the log. */
unsigned world_said(const struct world *world, const char *text);
/* The candidate of that name and device (NULL = none), or NULL. */
const struct attn_candidate *world_candidate(const struct attn_decision *decision, const char *name,
                                             const char *device);
/* "name device ok|REASON,REASON;" for every candidate in order. */
const char *world_list(const struct attn_decision *decision);

#endif
