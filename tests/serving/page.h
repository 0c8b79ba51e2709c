/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tables of docs/serving.md, made by the code that the page describes. */
#ifndef SERVING_PAGE_H
#define SERVING_PAGE_H

#include <stdio.h>

/* Writes the table of a name, or returns 0 if there is none of that name. */
int page_table(FILE *out, const char *name);

#endif
