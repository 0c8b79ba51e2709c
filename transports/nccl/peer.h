/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Small calls over memory that the GPUs of one host map from each other. */
#ifndef ATTN_NCCL_PEER_H
#define ATTN_NCCL_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "attn/types.h"

struct attn__peer;

/* What connects ranks until they have mapped their memory: all_gather of device memory, on a stream. */
struct attn__peer_setup {
    uint32_t rank, size;
    int device; /* of CUDA */
    bool never; /* this rank does not want it, so that none gets it */
    uint64_t timeout_ns;
    int32_t (*gather)(void *arg, uint64_t send, uint64_t receive, uint64_t bytes, void *stream,
                      struct attn_error *err);
    void *arg;
};

/*
 * All ranks make this call, and get the same: calls go over peer memory, or `why` says why not and *out is
 * NULL. An error is one of what connects them.
 */
int32_t attn__peer_create(const struct attn__peer_setup *setup, struct attn__peer **out, char *why,
                          size_t why_size, struct attn_error *err);
/* NULL is accepted. */
void attn__peer_destroy(struct attn__peer *peer);

/* Whether blocks of so many bytes are sent here: the same on all ranks, whatever their addresses are. */
bool attn__peer_takes(const struct attn__peer *peer, uint64_t bytes);
/* Blocks to send are `step` bytes apart; 0: all ranks get the same one. */
int32_t attn__peer_call(struct attn__peer *peer, const void *send, void *receive, uint64_t bytes,
                        uint64_t step, void *stream, struct attn_error *err);
/* The failure of a call that a stream has done. */
int32_t attn__peer_check(const struct attn__peer *peer, struct attn_error *err);
/* Calls under way end. */
void attn__peer_end(struct attn__peer *peer);

#endif
