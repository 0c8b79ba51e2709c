/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writing without signals: a pipe without reader or a file at its limit must not end the program. */
#ifndef ATTN_QUIET_H
#define ATTN_QUIET_H

#include <signal.h>

struct attn__quiet {
    sigset_t before, pending;
};

/* Between the two, this thread gets EPIPE and EFBIG without SIGPIPE and SIGXFSZ. errno stays. */
void attn__quiet_begin(struct attn__quiet *quiet);
void attn__quiet_end(const struct attn__quiet *quiet);

#endif
