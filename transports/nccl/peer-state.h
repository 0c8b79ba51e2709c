/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of calls over peer memory share on the host. */
#ifndef ATTN_NCCL_PEER_STATE_H
#define ATTN_NCCL_PEER_STATE_H

#include "peer-call.h"
#include "peer.h"

/* CUDA's CUipcMemHandle. */
struct peer_handle {
    char bytes[64];
};

#include "driver.h"

enum { RECORD_VERSION = 1 };

/* What a rank tells the others. */
struct record {
    uint32_t version;
    uint32_t able; /* 0: `why` says why not */
    char boot[40]; /* of the host */
    uint64_t process[2];
    uint64_t context; /* valid in the same process, as is `staging` */
    uint64_t staging;
    struct peer_handle handle; /* of staging, for other processes */
    char bus[16];              /* where the device is */
    char why[96];
};

/* Small things in device memory. */
struct desk {
    struct attn_peer_state state;
    struct record own, all[PEER_RANKS];
};

struct attn__peer {
    struct gpu_driver cuda;
    struct attn__peer_setup setup;
    gpu_ordinal device;
    gpu_handle context, stream, module, words_kernel, bytes_kernel;
    gpu_pointer desk, staging;
    gpu_pointer mapped[PEER_RANKS]; /* staging of others, as this rank addresses it */
    bool opened[PEER_RANKS];        /* of another process */
    struct attn_peer_words *words;
    struct record own, all[PEER_RANKS];
};

int32_t attn__peer_fail(const struct attn__peer *peer, const char *what, gpu_result result,
                        struct attn_error *err);
/* Says why this rank cannot; the first reason stays. Always false. */
bool attn__peer_refuse(struct attn__peer *peer, const char *why);

/*
 * What all ranks make together when each has prepared its own part: whether calls go over peer memory, or why
 * they do not.
 */
int32_t attn__peer_agree(struct attn__peer *peer, bool *on, char *why, size_t size, struct attn_error *err);

#endif
