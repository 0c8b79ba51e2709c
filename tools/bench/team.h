/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Threads that do the same thing at the same time and are timed together. They are not bound to CPUs: on a
 * busy machine they must be able to move, as the threads of a backend are.
 */
#ifndef TEAM_H
#define TEAM_H

#include <stdint.h>

struct team;

typedef void (*team_fn)(void *arg, uint32_t index, uint32_t count);

/* Ends the program with a message if the threads cannot be had. */
struct team *team_create(uint32_t count);
void team_destroy(struct team *team);
/* Seconds from the first start to the last end. */
double team_run(struct team *team, team_fn fn, void *arg);

#endif
