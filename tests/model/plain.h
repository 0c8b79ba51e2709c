/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A model without libattn: no pages, no batches, no chunks, every sum in double precision, written down from
 * the definition of attention. What the engine gives in any configuration is held against it.
 */
#ifndef TESTS_MODEL_PLAIN_H
#define TESTS_MODEL_PLAIN_H

#include "serve/engine.h"

enum { PLAIN_TOKENS = 16 };

struct plain_result {
    int32_t ids[PLAIN_TOKENS];
    double margins[PLAIN_TOKENS]; /* between the two largest logits */
};

/* Greedy tokens behind a prompt. With `windows` false every layer sees all tokens. */
int plain_run(const struct model *model, const int32_t *prompt, uint32_t count, bool windows,
              struct plain_result *out, struct failure *err);

#endif
