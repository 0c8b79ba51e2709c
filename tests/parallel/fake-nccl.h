/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What tests do with the NCCL of fake-nccl.c, beside calling it. */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include "attn/parallel.h"

/* A communicator over ranks that are threads. */
void *fake_nccl_create(const struct attn_collectives *net);
/* From now on the network has failed. */
void fake_nccl_fail(void *comm);
/* All-gathers and groups of this communicator. */
int fake_nccl_calls(const void *comm);
/* Returns how often it was aborted. */
int fake_nccl_destroy(void *comm);

/* NCCL's, so that the compiler knows them. */
int ncclCommCount(const void *comm, int *out);
int ncclCommUserRank(const void *comm, int *out);
int ncclCommCuDevice(const void *comm, int *out);
int ncclAllGather(const void *send, void *receive, size_t count, int dtype, void *comm, void *stream);
int ncclGroupStart(void);
int ncclSend(const void *send, size_t count, int dtype, int peer, void *comm, void *stream);
int ncclRecv(void *receive, size_t count, int dtype, int peer, void *comm, void *stream);
int ncclGroupEnd(void);
int ncclCommGetAsyncError(void *comm, int *out);
int ncclCommAbort(void *comm);
const char *ncclGetErrorString(int result);

#endif
