/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files about problems share: the table of keys, the names of values, and the defaults. */
#ifndef ATTN_PROBLEM_H
#define ATTN_PROBLEM_H

#include "core.h"

#define ATTN__COUNT_MAX    UINT32_C(0x7fffffff)
#define ATTN__HEAD_DIM_MAX UINT32_C(65536)
#define ATTN__BLOCK_MAX    (UINT32_C(1) << 20)

/* One key of the problem string. */
struct attn__key {
    const char *name;
    const char *fallback; /* the default, "" if the key must be given */
    const char *values;   /* accepted values, for messages */
    /* False if `value` is not accepted. */
    bool (*parse)(const struct attn__key *key, const char *value, struct attn_problem *problem);
    void (*format)(const struct attn__key *key, const struct attn_problem *problem, char *text, size_t size);
    /* True if the value differs from the default that the problem gives it, and so has to be written. */
    bool (*differs)(const struct attn__key *key, const struct attn_problem *problem);
    uint32_t member;                   /* offset in struct attn_problem */
    uint32_t second;                   /* offset of a second member that the key sets, or 0 */
    const struct attn__value *choices; /* enumerated keys; ends with name NULL */
    uint32_t min;                      /* numbers */
    uint32_t max;
};

struct attn__value {
    const char *name;
    uint32_t value;
};

/* In canonical order. */
extern const struct attn__key attn__keys[];
extern const uint32_t attn__key_count;

/* Fills in defaults, without checks. */
void attn__problem_fill(struct attn_problem *problem);

/* Name of a value of an enumerated key, "?" if it has none. */
const char *attn__key_choice(const char *key, uint32_t value);

/* attn_problem_resolve, with det=1 if ATTN_DETERMINISTIC is 1. */
int32_t attn__problem_take(const struct attn_context *context, const struct attn_problem *problem,
                           struct attn_problem *out, struct attn_error *err);

#endif
