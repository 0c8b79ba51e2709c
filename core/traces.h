/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a plugin may have left in its process: taken before it is loaded, compared after its finish. */
#ifndef ATTN_TRACES_H
#define ATTN_TRACES_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { TRACES_SIGNALS = 65 };

struct traces {
    int output; /* file in memory behind stdout and stderr; -1 = none */
    uint32_t descriptors;
    uint32_t threads;
    uint64_t environment; /* hash of all variables */
    sigset_t mask;
    void (*handlers[TRACES_SIGNALS])(int);
    mode_t umask;
    int rounding;
    int exceptions;
    unsigned control; /* flush to zero and the like */
    char locale[128];
    char directory[256];
};

typedef void (*traces_tell_fn)(void *user, const char *text);

/* Also turns stdout and stderr into a file in memory, so that output is seen. */
void traces_take(struct traces *traces);
/* Tells every difference. */
void traces_compare(const struct traces *before, traces_tell_fn tell, void *user);

#endif
