/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn-info explain says of cp=1. */
#ifndef EXPLAIN_RANKS_H
#define EXPLAIN_RANKS_H

#include "attn/attn.h"
#include "jsonout.h"

/* A table of the largest step of one sequence on 2 to 256 ranks; nothing unless the problem says cp=1,
 * max_rows and max_kv. */
void explain_ranks_print(const struct attn_problem *problem);
/* The same as an array `ranks`, which is empty then. */
void explain_ranks_json(struct jsonout *json, const struct attn_problem *problem);

#endif
