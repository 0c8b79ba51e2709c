/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The forward pass of a model over a chunk of tokens. */
#ifndef GENERATE_FORWARD_H
#define GENERATE_FORWARD_H

#include <stdint.h>

#include "attention.h"
#include "failure.h"
#include "model.h"

struct forward;

/* The model must outlive it; max_chunk is the most tokens of a step. */
int forward_create(const struct model *model, uint32_t max_chunk, struct forward **out, struct failure *err);
void forward_destroy(struct forward *f);

/*
 * Runs "count" tokens behind "past" earlier ones. Logits are written for the rows from first_row on, each
 * vocab floats; first_row = count wants none.
 */
int forward_step(struct forward *f, struct attention *attention, const int32_t *tokens, uint32_t past,
                 uint32_t count, uint32_t first_row, float *logits, struct failure *err);

/* Runs a whole prompt in chunks; logits receives the last row. */
int forward_prompt(struct forward *f, struct attention *attention, const int32_t *tokens, uint32_t count,
                   uint32_t chunk, float *logits, struct failure *err);

#endif
