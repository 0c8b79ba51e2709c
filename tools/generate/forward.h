/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The forward pass of a model over the tokens of a step. */
#ifndef GENERATE_FORWARD_H
#define GENERATE_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "attention.h"
#include "failure.h"
#include "model.h"

struct forward;

/* The model must outlive it; max_rows is the most tokens of a step. */
int forward_create(const struct model *model, uint32_t max_rows, struct forward **out, struct failure *err);
void forward_destroy(struct forward *f);

/* What a sequence brings to a step. Logits are wanted for its tokens from first_row on; place.count: none. */
struct forward_part {
    struct attention_part place;
    const int32_t *tokens;
    uint32_t first_row;
};

/* Runs the parts together. Logits receive vocab floats for each token that wants them, part by part. */
int forward_run(struct forward *f, struct attention *attention, const struct forward_part *parts,
                uint32_t count, float *logits, struct failure *err);

/*
 * After a step of one token for each part: the step of the tokens that follow, one for each part again, in
 * the blocks that the parts of the step before held.
 */
int forward_advance(struct forward *f, struct attention *attention, const struct forward_part *parts,
                    uint32_t count, float *logits, struct failure *err);

/* Where the time of all steps went, in seconds. */
struct forward_times {
    double products;  /* with weight matrices */
    double attention; /* the layers on libattn, and beginning their steps */
    double rest;      /* norms, rotation, activation */
};
void forward_get_times(const struct forward *f, struct forward_times *out);

/*
 * Asked before each layer, where it returns true the step fails; NULL: never. What the step wrote to the
 * caches by then is nobody's.
 */
void forward_set_stop(struct forward *f, bool (*stop)(void *user), void *user);

/* A step of sequence 0 alone: "count" tokens behind "past" earlier ones. */
int forward_step(struct forward *f, struct attention *attention, const int32_t *tokens, uint32_t past,
                 uint32_t count, uint32_t first_row, float *logits, struct failure *err);

/* Runs a whole prompt of sequence 0 in chunks; logits receives the last row. */
int forward_prompt(struct forward *f, struct attention *attention, const int32_t *tokens, uint32_t count,
                   uint32_t chunk, float *logits, struct failure *err);

#endif
