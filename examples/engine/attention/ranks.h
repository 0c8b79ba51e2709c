/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranks of the attention layers that are threads: all make the same calls, each on its part of the keys. */
#ifndef ENGINE_RANKS_H
#define ENGINE_RANKS_H

#include "attention.h"

struct attention_ranks;

/* Makes options->ranks ranks, and a thread for each but the first, whose object is the one returned. */
int ranks_create(const struct attention_shape *shape, const struct attention_options *options,
                 struct attention **out, struct failure *err);
/* Ends the threads, and the ranks but the first. NULL is ignored. */
void ranks_stop(struct attention_ranks *ranks);
/* The rest, once the first rank is gone too. */
void ranks_free(struct attention_ranks *ranks);

typedef int (*rank_call)(struct attention *a, const void *args, struct failure *err);

/* Makes a call on all ranks at once, or here if there is but one. A rank that fails ends the others. */
int ranks_call(struct attention *a, rank_call call, const void *args, struct failure *err);

#endif
