/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Ranks that are GPUs connected by NCCL, or by RCCL on AMD, for attn/parallel.h: collectives of device memory
 * as work of a stream, which graphs capture. In a library of its own, libattn-nccl, which is built without
 * NCCL and finds the one that made the communicator in the process.
 *
 * Experimental, as attn/parallel.h is.
 */
#ifndef ATTN_NCCL_H
#define ATTN_NCCL_H

#include "attn/parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef ATTN_EXPERIMENTAL

/* One rank's end of a connection. */
struct attn_nccl_ranks;

/*
 * Takes a communicator, an ncclComm_t, which stays the program's. `library` is the file of the NCCL that made
 * it; NULL is libnccl.so.2 or librccl.so.1, whichever is loaded. attn_cp_wait, and a call that waits for
 * another rank, wait at most `timeout_ns`, 1 at least.
 *
 * All ranks make this call, each in a thread of its own where they are threads: it communicates, on a stream
 * of its own, and waits at most `timeout_ns` for the others. They agree there how small calls go: over memory
 * that GPUs of one host map from each other (attn_nccl_ranks_peer), which takes 4 MiB of each; all others go
 * by NCCL. Calls of one rank follow each other, on one stream or on several that the program orders.
 *
 * Blocks lie in the memory of the communicator's device, and streams are of the backend's plans. Calls return
 * at once: failures of the network are known in attn_cp_wait. Ending the connection is ncclCommAbort, after
 * which the program does not use or destroy the communicator any more; other ranks learn of it by their limit
 * or by NCCL.
 *
 * ATTN_E_INVALID names a parameter; ATTN_E_UNSUPPORTED: no such library, or one without a function that is
 * needed; ATTN_E_PEER carries NCCL's own words.
 */
ATTN_API int32_t attn_nccl_ranks_create(const char *library, void *comm, uint64_t timeout_ns,
                                        struct attn_nccl_ranks **out, struct attn_error *err);
/* After the work that was put on streams is done, on all ranks, and after graphs that captured it. */
ATTN_API void attn_nccl_ranks_destroy(struct attn_nccl_ranks *ranks);
/* Fills this rank's collectives, which one thread at a time uses. */
ATTN_API int32_t attn_nccl_ranks_get(struct attn_nccl_ranks *ranks, struct attn_collectives *out,
                                     struct attn_error *err);

/*
 * 1 if calls of at most 1 MiB, all blocks together, go over peer memory; the same on all ranks. 0 if all go
 * by NCCL: then *why, unless `why` is NULL, is a sentence that says what is missing, valid until the handle
 * is destroyed. Wanted are CUDA, 2 to 8 ranks on GPUs of one host that can access each other, a library that
 * was built with nvcc, and no rank with ATTN_NCCL_PEER=never in its environment.
 */
ATTN_API int32_t attn_nccl_ranks_peer(const struct attn_nccl_ranks *ranks, const char **why);

#endif

#ifdef __cplusplus
}
#endif
#endif
