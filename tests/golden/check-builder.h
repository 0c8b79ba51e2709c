/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files that begin with a scheduler's groups share. */
#ifndef GOLDEN_CHECK_BUILDER_H
#define GOLDEN_CHECK_BUILDER_H

#include "attn/input.h"
#include "steps.h"

/* Prepares the input of a row, compares what was recorded on the way, and leaves the step to be built. */
bool builder_prepare(struct golden *g, const json_t *row, struct step *step);

/* The planning calls of a FlashInfer step, recorded by a plan table that runs nothing. */
void check_plans(struct golden *g, const json_t *expected, const struct step *step,
                 struct attn_backend *backend, struct attn_metadata *metadata);

#endif
