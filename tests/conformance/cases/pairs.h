/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Pairs of key values of the problem string. Faults hide where two features meet, so the cases are counted by
 * the pairs that they hold, and made for the pairs that are missing.
 */
#ifndef PAIRS_H
#define PAIRS_H

#include "conform.h"

enum { MOST_KEYS = 40, MOST_VALUES = 14 };

/* A key of the problem string and its values, or classes of values. */
struct pair_key {
    const char *name;
    const char *const *labels;
    uint32_t count;
    const uint32_t *values; /* of the member at `offset`; NULL where there are classes */
    size_t offset;
    uint32_t (*get)(const struct attn_problem *problem);
    void (*set)(struct attn_problem *problem, uint32_t which);
};

extern const struct pair_key pair_keys[];
extern const uint32_t pair_key_count;

/* Which value of a key a resolved problem has; key->count if none of them. */
uint32_t pair_get(const struct pair_key *key, const struct attn_problem *problem);
void pair_set(const struct pair_key *key, struct attn_problem *problem, uint32_t which);
/*
 * Changes keys that contradict others, but not those whose bit in `pinned` is set, as far as that is
 * possible, and resolves the problem. False if it is still none.
 */
bool pairs_fit(struct attn_problem *problem, uint64_t pinned);
uint64_t pair_bit(const char *name);

/* ---------------------------------------------------------------- pairs-served.c */

/* Whether a target accepts the problem. */
bool pairs_served(const struct target_list *list, const struct attn_problem *problem);
/* A plain problem that a target accepts; false if there is none. */
bool pairs_plain(const struct target_list *list, uint32_t number, struct attn_problem *out);
/* Brings a problem that nobody accepts closer to a plain one until somebody does. */
void pairs_approach(const struct target_list *list, struct attn_problem *problem, uint64_t seed);

/* ---------------------------------------------------------------- pairs-cover.c */

typedef void (*pairs_case_fn)(void *user, const struct attn_problem *problem, uint64_t seed);

/* A case of this problem was judged. */
void pairs_judged(const struct attn_problem *problem);
/* Makes at most `most` cases for pairs that no case had yet, and leaves the counts in the report. */
void pairs_complete(const struct target_list *list, uint64_t seed, uint32_t most, pairs_case_fn run,
                    void *user);

#endif
