/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of this test share. */
#ifndef TEST_SERVE_H
#define TEST_SERVE_H

#include "serve.h"

void check(bool good, const char *what, const char *why);
/* Fills the options of a small model on the no-op plugin. */
void make_options(struct serve_options *options, const struct serve_trace *trace);

/* test-rows.c: in every step the block table holds the sequences' blocks. */
void test_rows(const struct serve_trace *trace);

#endif
