/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The parts of the kind `manners`. */
#ifndef MANNERS_H
#define MANNERS_H

#include "life.h"

/* manners-repeat.c: what grows with every life, and what is left after any order of closing. */
void live_often(struct apart *apart, const char *plugin);
void destroy_in_every_order(struct apart *apart, const char *plugin);

/* manners-file.c: constructors, destructors, and functions of the C library that no plugin needs. */
void read_file(struct apart *apart, const char *plugin);

#endif
