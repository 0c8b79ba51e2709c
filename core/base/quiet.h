/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes without signals: a pipe without reader or a file at its size limit must not end the program. */
#ifndef ATTN_QUIET_H
#define ATTN_QUIET_H

#include <signal.h>

struct attn__quiet {
    sigset_t before, pending;
};

/* Between begin and end writes of this thread fail with EPIPE or EFBIG, without SIGPIPE or SIGXFSZ. errno is
 * kept. */
void attn__quiet_begin(struct attn__quiet *quiet);
void attn__quiet_end(const struct attn__quiet *quiet);

#endif
