/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What a kernel of calls over peer memory is launched with, and how the memory is laid out that it and the
 * host share.
 */
#ifndef ATTN_NCCL_PEER_CALL_H
#define ATTN_NCCL_PEER_CALL_H

#include <stdint.h>

/* Tests may choose fewer threads of a CTA, and an even number of the first call that comes sooner to 0: all
 * runs of some length pass it. */
#ifndef PEER_FIRST
#define PEER_THREADS 512
#define PEER_FIRST   UINT32_C(0xffffff00)
#endif

enum {
    PEER_RANKS = 8,       /* most of a connection */
    PEER_CTAS = 128,      /* most of a launch */
    PEER_BOUND = 1 << 20, /* most bytes of a call, all blocks together */
    PEER_LINE = 16,       /* bytes of a line: 8 of data, each 4 with the number of the call behind them */
    PEER_ENDED = 0x100    /* in attn_peer_words.failed: the connection was ended */
};

/* Of so many calls, a power of 2, two renew all lines (peer-kernel.h); those before number 0 are the first,
 * and until then lines that nobody wrote say 0. */
#define PEER_RENEWAL (UINT32_C(1) << 20)
#define PEER_AHEAD   16u

/* In memory of the own device. */
struct attn_peer_state {
    uint32_t number; /* of the next call */
    uint32_t done;   /* CTAs of the call under way that are */
    uint32_t failed; /* not 0: kernels return at once */
    uint32_t reserved;
};

/* In memory of the host. */
struct attn_peer_words {
    uint32_t failed; /* by the device: 1 + the rank that did not come, or PEER_ENDED */
    uint32_t ended;  /* by the host: kernels are to return */
};

/* One launch. Staging of a rank has two slots, each a region of `lines` lines for every sender. */
struct attn_peer_call {
    uint64_t send, receive; /* addresses */
    uint64_t bytes;         /* of a block */
    uint64_t step;          /* from a block that is sent to the next; 0: all get the same */
    uint64_t timeout_ns;
    uint64_t state, words;
    uint64_t staging[PEER_RANKS]; /* of all ranks, as this one addresses it */
    uint32_t rank, size;
    uint32_t lines;
    uint32_t ctas; /* of the grid */
};

/* Lines that the largest block takes. */
static inline uint32_t peer_lines(uint32_t size)
{
    return (PEER_BOUND / size + 7) / 8;
}

#endif
