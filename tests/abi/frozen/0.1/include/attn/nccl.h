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
 * it; NULL is libnccl.so.2 or librccl.so.1, whichever is loaded. attn_cp_wait waits at most `timeout_ns`, 1
 * at least.
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
/* After the work that was put on streams is done. */
ATTN_API void attn_nccl_ranks_destroy(struct attn_nccl_ranks *ranks);
/* Fills this rank's collectives, which one thread at a time uses. */
ATTN_API int32_t attn_nccl_ranks_get(struct attn_nccl_ranks *ranks, struct attn_collectives *out,
                                     struct attn_error *err);

#endif

#ifdef __cplusplus
}
#endif
#endif
