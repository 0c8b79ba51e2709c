/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The one way in which the parts of attn-generate say what went wrong. */
#ifndef GENERATE_FAILURE_H
#define GENERATE_FAILURE_H

struct failure {
    char text[1024];
};

/* Stores a formatted text; f may be NULL. Returns -1, so that callers can write "return failure_set(…)". */
int failure_set(struct failure *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
