/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What one of several ranks has of a step: its keys in a cache of its own, and the batch that says so. */
#ifndef SHARD_H
#define SHARD_H

#include "conform.h"

struct shard {
    struct arena arena;
    struct attn_kv_desc kv;
    struct attn_batch batch;
    struct attn_batch_host host;
    struct attn_tensors tensors; /* those of the step over this cache */
};

/* Whether keys of a case can be sharded so many at a time: only whole pages can be missing. */
bool shard_allows(const struct conform_case *the_case, uint32_t interleave);
/* Copies the keys of rank `rank` of `world`, and their scales, out of the step's cache. */
void shard_init(struct shard *shard, struct step *step, uint32_t rank, uint32_t world, uint32_t interleave);
void shard_finish(struct shard *shard);

#endif
