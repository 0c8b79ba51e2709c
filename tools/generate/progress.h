/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A line at a terminal that says how far a batch is. */
#ifndef GENERATE_PROGRESS_H
#define GENERATE_PROGRESS_H

#include "batch.h"

/* Whether standard error is a terminal that can rewrite a line; otherwise nothing of this prints anything. */
bool progress_begin(void);
/* Replaces the line, ten times a second at most. */
void progress_show(const struct batch_progress *p);
/* Removes the line, so that a text can take its place. */
void progress_clear(void);

#endif
