/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files that make random cases share. */
#ifndef RANDOM_CASE_H
#define RANDOM_CASE_H

#include "second.h"

struct rng {
    uint64_t state;
};

/* A number below count. */
uint32_t pick(struct rng *rng, uint32_t count);

/* Lengths, positions and where the keys are; then scales, masks and contents. */
void lay_out_batch(struct random_case *c, struct rng *rng);
void lay_out_tensors(struct random_case *c, struct rng *rng);

enum { CASE_PAGES = 13 }; /* of a paged cache */

#endif
