/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranks that are processes: the libraries that connect them (transports/), opened by name. */
#ifndef TRANSPORT_H
#define TRANSPORT_H

#include "attn/parallel.h"

struct transport;

/* Names for messages and --help: "local, mpi". */
#define TRANSPORTS "local, mpi"

/*
 * Connects this process with the others that were started with it. `name` is mpi; ATTN_E_INVALID names what
 * else was said, ATTN_E_UNSUPPORTED says why the library cannot be opened. With ATTN_OK *out_collectives is
 * filled.
 */
int32_t transport_open(const char *name, uint64_t timeout_ns, struct transport **out,
                       struct attn_collectives *out_collectives, struct attn_error *err);
/* All processes make this call. */
void transport_close(struct transport *transport);

#endif
