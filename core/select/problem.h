/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The keys of the problem string, shared by the table (problem-keys.c) and its users (problem.c). */
#ifndef ATTN_PROBLEM_H
#define ATTN_PROBLEM_H

#include "core.h"

#define ATTN__COUNT_MAX    UINT32_C(0x7fffffff)
#define ATTN__HEAD_DIM_MAX UINT32_C(65536)
#define ATTN__BLOCK_MAX    (UINT32_C(1) << 20)

/* One key. `next` and `least` mean what the functions of the row make of them. */
struct attn__key {
    const char *name;
    const char *fallback; /* the default, "" if the key must be given */
    const char *values;   /* what is accepted, for people */
    /* False if `value` is not accepted. */
    bool (*parse)(const struct attn__key *key, const char *value, struct attn_problem *problem);
    /* Writes the value. */
    void (*format)(const struct attn__key *key, const struct attn_problem *problem, char *text, size_t size);
    /* True if the key must be written, given the problem and what its default would be. */
    bool (*differs)(const struct attn__key *key, const struct attn_problem *problem);
    uint32_t member;                   /* offset in struct attn_problem */
    uint32_t second;                   /* keys that set two members: offset of the other one, else 0 */
    const struct attn__value *choices; /* enumerated keys; ends with name NULL */
    uint32_t least;                    /* numbers */
    uint32_t most;
};

struct attn__value {
    const char *name;
    uint32_t value;
};

/* In canonical order. */
extern const struct attn__key attn__keys[];
extern const uint32_t attn__key_count;

/* Gives every member that is not given its default; checks nothing. */
void attn__problem_fill(struct attn_problem *problem);

/* Name of an enumerated member's value under a key, "?" if it has none. */
const char *attn__key_choice(const char *key, uint32_t value);

/* attn_problem_resolve, and det=1 under ATTN_DETERMINISTIC=1. */
int32_t attn__problem_take(const struct attn_context *context, const struct attn_problem *problem,
                           struct attn_problem *out, struct attn_error *err);

#endif
