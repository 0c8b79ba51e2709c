/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The same steps through a second set of caches in f32, and how far apart the logits are. */
#ifndef ENGINE_COMPARE_H
#define ENGINE_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine.h"
#include "model/llama.h"

struct comparison {
    struct attention *attention; /* NULL: nothing is compared */
    float *logits;
    uint32_t positions; /* rows of logits that were compared */
    uint32_t others;    /* of them with another largest logit */
    double largest;     /* absolute difference, NaN where a logit is not a number */
    uint32_t sequence;  /* where it is: index of the sequence, */
    uint32_t position;  /* of the token whose output the logits are, */
    int32_t token;      /* and of the logit */
};

/* Allocates logits for "rows" rows. */
int comparison_start(struct comparison *c, const struct engine *e, const struct attention_options *options,
                     uint32_t rows, struct failure *err);
void comparison_finish(struct comparison *c);

/* Runs a step through the second caches; one that advances follows the step before without a builder. */
int comparison_step(struct comparison *c, const struct engine *e, const struct forward_part *parts,
                    uint32_t count, bool advances, struct failure *err);

/* Judges row number "row" of the last step against the logits of the first caches. */
void comparison_judge(struct comparison *c, const float *logits, uint32_t row, uint32_t vocab,
                      uint32_t sequence, uint32_t position);

#endif
