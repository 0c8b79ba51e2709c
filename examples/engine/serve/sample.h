/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Chooses the next token from logits. */
#ifndef ENGINE_SAMPLE_H
#define ENGINE_SAMPLE_H

#include <stdint.h>

#include "failure.h"

struct sampler {
    double temperature; /* 0: always the largest logit */
    uint64_t state;     /* the seed at first */
};

/* Among equal largest logits the smallest id is taken. A logit that is not a number is a failure. */
int sampler_next(struct sampler *s, const float *logits, uint32_t count, int32_t *out, struct failure *err);

#endif
