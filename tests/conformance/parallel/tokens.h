/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step whose query tokens are spread over ranks: what one rank has of it, and where its results belong. */
#ifndef TOKENS_H
#define TOKENS_H

#include "attn/parallel.h"
#include "shard.h"

struct tokens {
    const struct step *step;
    uint32_t rank, size, interleave, count;
    uint32_t *rows; /* of the step */
    struct attn_tensors tensors;
    int32_t q_lens[STEP_SEQS];
};

/* Whether query tokens of the step are the last of its keys, none of which is missing, and what
 * ATTN_CP_TOKENS refuses is not there. */
bool tokens_allow(const struct step *step, uint32_t pass, uint32_t size);
/* Own queries and results in memory of `shard`, whose cache is read. */
void tokens_init(struct tokens *tokens, struct shard *shard, const struct step *step, uint32_t rank,
                 uint32_t size, uint32_t interleave);
void tokens_finish(struct tokens *tokens);
/* Two steps of two layers each: the last one counts. */
int32_t tokens_run(const struct tokens *tokens, const struct shard *shard, struct attn_cp *cp,
                   struct attn_error *err);
/* Copies results to where the step has them. */
void tokens_take(const struct tokens *tokens);
/* The rank that has a query token of the step. */
uint32_t tokens_owner(const struct step *step, uint32_t row, uint32_t size, uint32_t interleave);

#endif
