/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The parts of the kind `side-effects`. */
#ifndef SIDE_EFFECTS_H
#define SIDE_EFFECTS_H

#include "life.h"

/* side-effects-repeat.c: what grows with every life, and what is left after any order of closing. */
void live_often(struct isolated *isolated, const char *plugin);
void destroy_in_every_order(struct isolated *isolated, const char *plugin);

/* side-effects-file.c: constructors, destructors, and functions of the C library that no plugin needs. */
void read_file(struct isolated *isolated, const char *plugin);

#endif
