/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The one way in which the parts of the engines under tools/ say what went wrong. */
#ifndef FAILURE_H
#define FAILURE_H

struct failure {
    char text[1024];
};

/* Stores a formatted text; f may be NULL. Returns -1, so that callers can write "return failure_set(…)". */
int failure_set(struct failure *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
