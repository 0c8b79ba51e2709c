/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Colour, on a terminal alone: not into files and pipes, not with NO_COLOR, not with TERM=dumb. */
#ifndef STYLE_H
#define STYLE_H

#include <stdio.h>

enum style { STYLE_PLAIN, STYLE_TITLE, STYLE_GOOD, STYLE_BAD };

/* Looks at the descriptor that output goes to, and at the environment. */
void style_init(int fd);
void style_print(FILE *stream, enum style style, const char *text);

#endif
