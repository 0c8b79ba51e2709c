/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The text of attn-info explain. */
#ifndef EXPLAIN_PRINT_H
#define EXPLAIN_PRINT_H

#include <stdbool.h>

#include "attn/attn.h"

/*
 * The winner and why it is, then one block for all candidates that answered alike. `explicit`: the text of
 * the decision is a refusal in a backend's own words, and the headline.
 */
void explain_print(const struct attn_decision *decision, bool explicit);

/* True if the candidate serves any part of a batch with a generic kernel. */
bool explain_has_generic(const struct attn_candidate *candidate);

/* The refusals of one candidate: those of the whole backend, then those of its kernels, nearest first. Unless
 * the candidate serves well each code has its advice once; `given` counts the codes in `codes` that had it.
 */
struct advised {
    uint32_t codes[64];
    unsigned given;
};
void explain_print_reasons(const struct attn_candidate *candidate, struct advised *advised);

#endif
