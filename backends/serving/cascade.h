/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Whether a step's sequences begin with the same pages, and enough of them. */
#ifndef ATTN_SERVING_CASCADE_H
#define ATTN_SERVING_CASCADE_H

#include "attn/types.h"

/*
 * What `cascade` of a batch is to be: 1 if its problem allows it for so many tokens, and all sequences begin
 * with as many equal pages as make it worth while. `host` has the copies of the arrays that it needs; without
 * them (NULL, or without kv_lens) nobody can look, and the problem decides.
 */
uint32_t attn__batch_has_cascade(const struct attn_problem *problem, const struct attn_batch *batch,
                                 const struct attn_batch_host *host);

#endif
