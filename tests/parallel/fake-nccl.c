/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * NCCL for tests: ranks are threads, memory is the host's, and work is done when a call returns. Beside
 * NCCL's own functions it has one that makes a communicator, and can be told to fail.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fake-nccl.h"

enum { SUCCESS = 0, UNHANDLED = 1, REMOTE = 6, RANKS = 8 };

struct fake_comm {
    struct attn_collectives net;
    int async; /* what ncclCommGetAsyncError says */
    int aborted;
    int calls;
};

/* Sends and receives of the group of this thread. */
static _Thread_local struct {
    int depth;
    struct fake_comm *comm;
    size_t bytes;
    const void *send;
    void *receive;
    int sends, receives;
    int to, from; /* of the first send and receive */
} group;

#define EXPORT __attribute__((visibility("default")))

EXPORT void *fake_nccl_create(const struct attn_collectives *net)
{
    struct fake_comm *comm = calloc(1, sizeof *comm);

    comm->net = *net;
    return comm;
}

EXPORT void fake_nccl_fail(void *comm)
{
    ((struct fake_comm *)comm)->async = REMOTE;
}

EXPORT int fake_nccl_destroy(void *comm)
{
    const int aborted = ((struct fake_comm *)comm)->aborted;

    free(comm);
    return aborted;
}

EXPORT int fake_nccl_calls(const void *comm)
{
    return ((const struct fake_comm *)comm)->calls;
}

static int done(int32_t status)
{
    return status == ATTN_OK ? SUCCESS : UNHANDLED;
}

EXPORT int ncclCommCount(const void *comm, int *out)
{
    *out = (int)((const struct fake_comm *)comm)->net.size;
    return SUCCESS;
}

EXPORT int ncclCommUserRank(const void *comm, int *out)
{
    *out = (int)((const struct fake_comm *)comm)->net.rank;
    return SUCCESS;
}

/* Ranks have the devices of their numbers. */
EXPORT int ncclCommCuDevice(const void *comm, int *out)
{
    return ncclCommUserRank(comm, out);
}

EXPORT int ncclAllGather(const void *send, void *receive, size_t count, int dtype, void *comm, void *stream)
{
    struct fake_comm *own = comm;
    const struct attn_buffer from = {(void *)(uintptr_t)send, 0}, into = {receive, 0};

    own->calls++;
    return dtype == 0 && !own->aborted
               ? done(own->net.all_gather(own->net.arg, &from, &into, count, stream, NULL))
               : UNHANDLED;
}

EXPORT int ncclGroupStart(void)
{
    group.depth++;
    group.sends = group.receives = 0;
    return SUCCESS;
}

/* Blocks of a group lie one behind the other, in the order of ranks; or there is one to the next rank. */
EXPORT int ncclSend(const void *send, size_t count, int dtype, int peer, void *comm, void *stream)
{
    (void)stream;
    if (group.depth != 1 || dtype != 0)
        return UNHANDLED;
    if (group.sends == 0) {
        group.send = send;
        group.bytes = count;
        group.comm = comm;
        group.to = peer;
    }
    const int number = group.sends++;
    return peer == group.to + number && send == (const char *)group.send + (size_t)number * count ? SUCCESS
                                                                                                  : UNHANDLED;
}

EXPORT int ncclRecv(void *receive, size_t count, int dtype, int peer, void *comm, void *stream)
{
    (void)stream;
    if (group.depth != 1 || dtype != 0 || comm != group.comm || count != group.bytes)
        return UNHANDLED;
    if (group.receives == 0) {
        group.receive = receive;
        group.from = peer;
    }
    const int number = group.receives++;
    return peer == group.from + number && receive == (char *)group.receive + (size_t)number * count
               ? SUCCESS
               : UNHANDLED;
}

EXPORT int ncclGroupEnd(void)
{
    const struct attn_buffer from = {(void *)(uintptr_t)group.send, 0}, into = {group.receive, 0};
    const int size = (int)group.comm->net.size, rank = (int)group.comm->net.rank;

    group.comm->calls++;
    if (--group.depth != 0 || group.sends != group.receives || group.comm->aborted)
        return UNHANDLED;
    if (group.sends == 1 && group.to == (rank + 1) % size && group.from == (rank + size - 1) % size)
        return done(group.comm->net.shift(group.comm->net.arg, &from, &into, group.bytes, NULL, NULL));
    if (group.sends != size || group.to != 0 || group.from != 0)
        return UNHANDLED;
    return done(group.comm->net.all_to_all(group.comm->net.arg, &from, &into, group.bytes, NULL, NULL));
}

EXPORT int ncclCommGetAsyncError(void *comm, int *out)
{
    *out = ((struct fake_comm *)comm)->async;
    return SUCCESS;
}

EXPORT int ncclCommAbort(void *comm)
{
    struct fake_comm *own = comm;

    own->aborted++;
    own->net.abort(own->net.arg, "aborted");
    return SUCCESS;
}

EXPORT const char *ncclGetErrorString(int result)
{
    return result == REMOTE ? "remote process exited or there was a network error" : "unhandled cuda error";
}
