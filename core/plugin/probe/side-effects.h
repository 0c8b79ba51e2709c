/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Side effects of a plugin on its process: the state before it is loaded, compared after its finish. */
#ifndef ATTN_PLUGIN_SIDE_EFFECTS_H
#define ATTN_PLUGIN_SIDE_EFFECTS_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SIDE_EFFECTS_SIGNALS = 65 };

struct side_effects {
    int output; /* file in memory behind stdout and stderr; -1 = none */
    uint32_t descriptors;
    uint32_t threads;
    uint64_t environment; /* hash of all variables */
    sigset_t mask;
    void (*handlers[SIDE_EFFECTS_SIGNALS])(int);
    mode_t umask;
    int rounding;
    int exceptions;
    unsigned control; /* flush to zero and the like */
    char locale[128];
    char directory[256];
};

typedef void (*side_effects_tell_fn)(void *user, const char *text);

/* Also turns stdout and stderr into a file in memory, so that output is seen. */
void side_effects_begin(struct side_effects *state);
/* Tells every difference. */
void side_effects_end(const struct side_effects *before, side_effects_tell_fn tell, void *user);

#endif
