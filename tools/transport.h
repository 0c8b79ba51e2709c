/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Connects ranks by the libraries of transports/, which are opened by name. */
#ifndef TRANSPORT_H
#define TRANSPORT_H

#include <stdbool.h>

#include "attn/parallel.h"

struct transport;

/* Names for messages and --help. */
#define TRANSPORTS "local, mpi, nccl"

/*
 * Connects this process with the others that were started with it, by MPI. ATTN_E_UNSUPPORTED says why the
 * library cannot be opened. With ATTN_OK *out_collectives is filled.
 */
int32_t transport_open_mpi(uint64_t timeout_ns, struct transport **out,
                           struct attn_collectives *out_collectives, struct attn_error *err);

/* What ranks of NCCL find each other by. */
struct transport_id {
    char bytes[128];
};

/* NCCL is the file that ATTN_NCCL_LIBRARY names, else libnccl.so.2. */
int32_t transport_make_id(struct transport_id *out, struct attn_error *err);
/*
 * Connects this thread, which works on device `device` of CUDA, with the threads of the other ranks: all make
 * this call.
 */
int32_t transport_open_nccl(const struct transport_id *id, uint32_t rank, uint32_t size, uint32_t device,
                            uint64_t timeout_ns, struct transport **out,
                            struct attn_collectives *out_collectives, struct attn_error *err);

/* Whether small calls go over peer memory (attn_nccl_ranks_peer); else *why says why not, NULL if ranks are
 * not NCCL's. */
bool transport_has_peer(const struct transport *transport, const char **why);

/*
 * Connects threads whose backends are on one device, by its memory: for tests of several ranks where there is
 * one. `meeting` is of host memory, as attn_local_ranks_get gives it. Calls wait for the stream, so that no
 * graph captures them.
 */
int32_t transport_share_device(struct attn_backend *backend, const struct attn_collectives *meeting,
                               struct transport **out, struct attn_collectives *out_collectives,
                               struct attn_error *err);

/* All ranks make this call. */
void transport_close(struct transport *transport);

#endif
