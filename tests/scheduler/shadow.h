/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * An engine without arithmetic. What a block holds is a mark for each token, a function of all tokens up to
 * it; a step moves marks as it says and then looks whether every token of a part finds the marks that it
 * sees.
 */
#ifndef SHADOW_H
#define SHADOW_H

#include "scheduler-impl.h"

struct shadow {
    const struct scheduler *scheduler;
    uint64_t *cache[SCHEDULER_GROUPS]; /* [blocks, block] */
    uint64_t *host[SCHEDULER_GROUPS];
};

int shadow_init(struct shadow *shadow, const struct scheduler *s);
void shadow_finish(struct shadow *shadow);
/* Does a step. False with a text if a part does not find what it must. */
bool shadow_step(struct shadow *shadow, const struct scheduler_step *step, struct failure *why);
/* What follows a text, so that a run can be compared with another: a function of the tokens alone. */
int32_t shadow_next(const struct scheduled *sequence, uint32_t sample);
/* A token that was computed outside of a step, by lookahead. */
void shadow_compute(struct shadow *shadow, const struct scheduled *sequence, uint32_t token);
/*
 * False with a text unless every block is held as often as its count says, batch slots and lists agree with
 * states, and no list is longer than it has to be.
 */
bool shadow_check_owners(const struct shadow *shadow, struct scheduled *const *all, uint32_t count,
                         struct failure *why);

#endif
