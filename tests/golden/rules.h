/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Mending rules: where the original has a defect, what it should have recorded. A rule is keyed on the file,
 * a condition on the input, and the member that it mends; never on a case.
 */
#ifndef GOLDEN_RULES_H
#define GOLDEN_RULES_H

#include <jansson.h>

enum rule {
    RULE_CONTEXT,
    RULE_STARTS,
    RULE_LONG_ROW,
    RULE_STALE_CELLS,
    RULE_SCALE,
    RULE_PLAIN_SCALES,
    RULES
};

/* Counts one use. */
void rules_hit(enum rule rule);
void rules_print(void);

#endif
