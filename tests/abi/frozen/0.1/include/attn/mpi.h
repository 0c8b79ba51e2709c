/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Ranks that are processes of MPI, for attn/parallel.h: collectives of host memory over a communicator. In a
 * library of its own, libattn-mpi, which is built for the MPI that was found; libattn itself needs none.
 *
 * Experimental, as attn/parallel.h is.
 */
#ifndef ATTN_MPI_H
#define ATTN_MPI_H

#include "attn/parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef ATTN_EXPERIMENTAL

/* One rank's end of a connection. */
struct attn_mpi_ranks;

/*
 * Connects the ranks of a communicator, all of which make this call. `comm` is the address of an MPI_Comm,
 * which is duplicated; NULL is MPI_COMM_WORLD, and then MPI is initialised (MPI_THREAD_SERIALIZED) unless it
 * was. A call waits at most `timeout_ns` for the others, 1 at least. ATTN_E_INVALID names a parameter;
 * ATTN_E_PEER carries MPI's own words.
 *
 * After a failed call MPI_Finalize may wait for ever: _exit or MPI_Abort ends such a process. A rank that is
 * to see the death of another has to outlive it: mpirun --enable-recovery, of Open MPI.
 */
ATTN_API int32_t attn_mpi_ranks_create(const void *comm, uint64_t timeout_ns, struct attn_mpi_ranks **out,
                                       struct attn_error *err);
/* All ranks make this call. Ends MPI if attn_mpi_ranks_create has begun it; after a failure it does nothing.
 */
ATTN_API void attn_mpi_ranks_destroy(struct attn_mpi_ranks *ranks);
/* Fills this rank's collectives, which one thread at a time uses, that of abort included. */
ATTN_API int32_t attn_mpi_ranks_get(struct attn_mpi_ranks *ranks, struct attn_collectives *out,
                                    struct attn_error *err);

#endif

#ifdef __cplusplus
}
#endif
#endif
