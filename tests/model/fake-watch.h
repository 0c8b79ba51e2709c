/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Asks the driver that stands in for CUDA's, where ATTN_CUDA_LIBRARY names it, whether all was in order. */
#ifndef FAKE_WATCH_H
#define FAKE_WATCH_H

struct fake;

struct fake_watch {
    const struct fake *fake; /* NULL: there is none, and nothing is said about it */
};

void fake_watch_begin(struct fake_watch *w);
/* One result line if anybody asked the driver: kernels ran, nothing wrong was done, everything was released.
 */
void fake_watch_end(const struct fake_watch *w);

#endif
