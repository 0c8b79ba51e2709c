/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Results as TAP lines, and the common beginning of the model tests. */
#ifndef TESTS_MODEL_TAP_H
#define TESTS_MODEL_TAP_H

#include <stdbool.h>

#include "serve/engine.h"

/* Prints "ok N - name" or "not ok N - name"; the name is formatted. */
void tap_result(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a comment line. */
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints the plan; returns the exit status: 0, or 1 if anything failed or nothing was tested. */
int tap_finish(void);

/* Prints why nothing is tested; returns the exit status: 77, or 0 with --tap, where the line says it. */
int tap_skip(bool tap, const char *reason);

/*
 * Loads the model that the path, else ATTN_MODEL names. Returns 0, or -1 after a message; *out_absent tells
 * that there is no such file.
 */
int model_open(struct engine *e, const char *path, bool *out_absent);

#endif
