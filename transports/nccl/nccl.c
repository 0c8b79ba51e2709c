/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Collectives over a communicator of NCCL, whose functions are found in the library that made it; small ones
 * over peer memory (peer.h).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "args.h"
#include "attn/nccl.h"
#include "check.h"
#include "fail.h"
#include "peer-call.h"
#include "peer.h"

/* Numbers of nccl.h, the same in every release. */
enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_INT8 = 0 };

struct functions {
    int (*count)(const void *comm, int *out);
    int (*rank)(const void *comm, int *out);
    int (*all_gather)(const void *send, void *receive, size_t count, int dtype, void *comm, void *stream);
    int (*send)(const void *send, size_t count, int dtype, int peer, void *comm, void *stream);
    int (*receive)(void *receive, size_t count, int dtype, int peer, void *comm, void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*async_error)(void *comm, int *out);
    int (*abort)(void *comm);
    const char *(*error_string)(int result);
    int (*device)(const void *comm, int *out); /* or NULL */
};

static const struct {
    const char *name;
    size_t offset;
} names[] = {{"ncclCommCount", offsetof(struct functions, count)},
             {"ncclCommUserRank", offsetof(struct functions, rank)},
             {"ncclAllGather", offsetof(struct functions, all_gather)},
             {"ncclSend", offsetof(struct functions, send)},
             {"ncclRecv", offsetof(struct functions, receive)},
             {"ncclGroupStart", offsetof(struct functions, group_start)},
             {"ncclGroupEnd", offsetof(struct functions, group_end)},
             {"ncclCommGetAsyncError", offsetof(struct functions, async_error)},
             {"ncclCommAbort", offsetof(struct functions, abort)},
             {"ncclGetErrorString", offsetof(struct functions, error_string)}};

struct attn_nccl_ranks {
    void *library;
    struct functions nccl;
    void *comm; /* the program's */
    int rank, size;
    uint64_t timeout_ns;
    struct attn__peer *peer; /* small calls go this way, or NULL */
    char why_not[160];       /* they do not */
    bool ended;
    char why[256]; /* it was */
};

/* ---------------------------------------------------------------- calls */

static int32_t fail(const struct attn_nccl_ranks *ranks, const char *call, int result, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_PEER, 0, "collectives", "%s on rank %d of %d: NCCL says: %s", call,
                      ranks->rank, ranks->size, ranks->nccl.error_string(result));
}

static int32_t begin(const struct attn_nccl_ranks *ranks, struct attn_error *err)
{
    return ranks->ended ? attn__fail(err, ATTN_E_PEER, 0, "collectives", "%s", ranks->why)
                        : attn__peer_check(ranks->peer, err);
}

/* Calls of a communicator that does not block are under way when they return. */
static bool is_good(int result)
{
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
}

static int32_t all_gather(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                          uint64_t bytes, void *stream, struct attn_error *err)
{
    struct attn_nccl_ranks *ranks = arg;
    const int32_t status = begin(ranks, err);

    if (status != ATTN_OK)
        return status;
    if (attn__peer_takes(ranks->peer, bytes))
        return attn__peer_call(ranks->peer, attn__address(send), attn__address(receive), bytes, 0, stream,
                               err);
    const int result = ranks->nccl.all_gather(attn__address(send), attn__address(receive), bytes, NCCL_INT8,
                                              ranks->comm, stream);
    return is_good(result) ? ATTN_OK : fail(ranks, "all_gather", result, err);
}

/* A group of sends and receives, that of the own block too, is one operation. */
static int32_t all_to_all(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                          uint64_t bytes, void *stream, struct attn_error *err)
{
    struct attn_nccl_ranks *ranks = arg;
    const struct functions *nccl = &ranks->nccl;
    const int32_t status = begin(ranks, err);

    if (status != ATTN_OK)
        return status;
    if (attn__peer_takes(ranks->peer, bytes))
        return attn__peer_call(ranks->peer, attn__address(send), attn__address(receive), bytes, bytes, stream,
                               err);
    int result = nccl->group_start();
    for (int i = 0; i < ranks->size && is_good(result); i++) {
        result =
            nccl->send(attn__address(send) + (size_t)i * bytes, bytes, NCCL_INT8, i, ranks->comm, stream);
        if (is_good(result))
            result = nccl->receive(attn__address(receive) + (size_t)i * bytes, bytes, NCCL_INT8, i,
                                   ranks->comm, stream);
    }
    const int ended = nccl->group_end(); /* also after a failure, or the group goes on */
    if (is_good(result))
        result = ended;
    return is_good(result) ? ATTN_OK : fail(ranks, "all_to_all", result, err);
}

static int32_t shift(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                     uint64_t bytes, void *stream, struct attn_error *err)
{
    struct attn_nccl_ranks *ranks = arg;
    const struct functions *nccl = &ranks->nccl;
    const int next = (ranks->rank + 1) % ranks->size, before = (ranks->rank + ranks->size - 1) % ranks->size;
    const int32_t status = begin(ranks, err);

    if (status != ATTN_OK)
        return status;
    int result = nccl->group_start();
    if (is_good(result))
        result = nccl->send(attn__address(send), bytes, NCCL_INT8, next, ranks->comm, stream);
    if (is_good(result))
        result = nccl->receive(attn__address(receive), bytes, NCCL_INT8, before, ranks->comm, stream);
    const int ended = nccl->group_end();
    if (is_good(result))
        result = ended;
    return is_good(result) ? ATTN_OK : fail(ranks, "shift", result, err);
}

static int32_t check(void *arg, struct attn_error *err)
{
    const struct attn_nccl_ranks *ranks = arg;
    const int32_t status = begin(ranks, err);
    int async = NCCL_SUCCESS;

    if (status != ATTN_OK)
        return status;
    const int result = ranks->nccl.async_error(ranks->comm, &async);
    if (!is_good(result))
        return fail(ranks, "ncclCommGetAsyncError", result, err);
    return is_good(async) ? ATTN_OK : fail(ranks, "a collective", async, err);
}

static void abort_comm(void *arg, const char *why)
{
    struct attn_nccl_ranks *ranks = arg;

    if (ranks->ended)
        return;
    ranks->ended = true;
    snprintf(ranks->why, sizeof ranks->why, "rank %d of %d ended the connection: %.180s", ranks->rank,
             ranks->size, why);
    attn__peer_end(ranks->peer);
    ranks->nccl.abort(ranks->comm);
}

/* ---------------------------------------------------------------- the connection */

/* The library that is there already: a communicator of one copy is nothing to another. */
static void *find_loaded(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);

    return library != NULL ? library : dlopen("librccl.so.1", RTLD_NOW | RTLD_NOLOAD);
}

static int32_t open_library(struct attn_nccl_ranks *ranks, const char *library, struct attn_error *err)
{
    ranks->library = library != NULL ? dlopen(library, RTLD_NOW) : find_loaded();
    if (ranks->library == NULL && library == NULL)
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, 0, "library",
            "library is NULL, and neither libnccl.so.2 nor librccl.so.1 is loaded; accepted: the file "
            "of the NCCL that made comm");
    if (ranks->library == NULL)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "library", "library cannot be loaded: %s", dlerror());
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *function = dlsym(ranks->library, names[i].name);
        if (function == NULL)
            return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "library",
                              "library has no %s; NCCL 2.7 or newer is accepted", names[i].name);
        memcpy((char *)&ranks->nccl + names[i].offset, &function, sizeof function);
    }
    void *device = dlsym(ranks->library, "ncclCommCuDevice");
    memcpy(&ranks->nccl.device, &device, sizeof device);
    return ATTN_OK;
}

static int32_t take_comm(struct attn_nccl_ranks *ranks, void *comm, struct attn_error *err)
{
    ranks->comm = comm;
    int result = ranks->nccl.count(comm, &ranks->size);
    if (is_good(result))
        result = ranks->nccl.rank(comm, &ranks->rank);
    return is_good(result) ? ATTN_OK
                           : attn__fail(err, ATTN_E_PEER, 0, "comm", "comm is of no use: NCCL says: %s",
                                        ranks->nccl.error_string(result));
}

/* ---------------------------------------------------------------- the way of small calls */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* An all-gather that is on its stream when this returns, also of a communicator that does not block. */
static int32_t gather_setup(void *arg, uint64_t send, uint64_t receive, uint64_t bytes, void *stream,
                            struct attn_error *err)
{
    const struct attn_nccl_ranks *ranks = arg;
    const struct timespec pause = {0, 50000};
    const uint64_t began = now_ns();
    int state = NCCL_IN_PROGRESS;
    int result = ranks->nccl.all_gather((const void *)(uintptr_t)send, (void *)(uintptr_t)receive, bytes,
                                        NCCL_INT8, ranks->comm, stream);

    while (result == NCCL_IN_PROGRESS) {
        result = ranks->nccl.async_error(ranks->comm, &state);
        if (result == NCCL_SUCCESS)
            result = state;
        if (result == NCCL_IN_PROGRESS && now_ns() - began > ranks->timeout_ns)
            break;
        nanosleep(&pause, NULL);
    }
    return result == NCCL_SUCCESS ? ATTN_OK : fail(ranks, "attn_nccl_ranks_create", result, err);
}

static int32_t read_variable(bool *never, struct attn_error *err)
{
    const char *value = secure_getenv("ATTN_NCCL_PEER");

    *never = value != NULL && strcmp(value, "never") == 0;
    return *never || value == NULL || value[0] == '\0' || strcmp(value, "auto") == 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "ATTN_NCCL_PEER",
                            "ATTN_NCCL_PEER=\"%.40s\": auto or never is accepted", value);
}

static bool is_rccl(const struct attn_nccl_ranks *ranks)
{
    Dl_info info;
    void *function;

    memcpy(&function, &ranks->nccl.all_gather, sizeof function);
    return dladdr(function, &info) != 0 && info.dli_fname != NULL && strstr(info.dli_fname, "rccl") != NULL;
}

/* What is the same on all ranks is found first: where they differ, they have to tell each other. */
static int32_t find_way(struct attn_nccl_ranks *ranks, struct attn_error *err)
{
    struct attn__peer_setup setup = {.rank = (uint32_t)ranks->rank,
                                     .size = (uint32_t)ranks->size,
                                     .timeout_ns = ranks->timeout_ns,
                                     .gather = gather_setup,
                                     .arg = ranks};
    const int32_t status = read_variable(&setup.never, err);
    const char *why = NULL;

    if (status != ATTN_OK)
        return status;
    if (ranks->size < 2 || ranks->size > PEER_RANKS)
        why = "there are not 2 to 8 ranks";
    else if (is_rccl(ranks))
        why = "ranks are connected by RCCL";
    else if (ranks->nccl.device == NULL || ranks->nccl.device(ranks->comm, &setup.device) != NCCL_SUCCESS)
        why = "NCCL does not say which device a rank has";
    if (why == NULL)
        return attn__peer_create(&setup, &ranks->peer, ranks->why_not, sizeof ranks->why_not, err);
    snprintf(ranks->why_not, sizeof ranks->why_not, "%s", why);
    return ATTN_OK;
}

int32_t attn_nccl_ranks_create(const char *library, void *comm, uint64_t timeout_ns,
                               struct attn_nccl_ranks **out, struct attn_error *err)
{
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out",
                          "out is NULL; a place for the connection is accepted");
    *out = NULL;
    if (comm == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "comm", "comm is NULL; an ncclComm_t is accepted");
    if (timeout_ns == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "timeout_ns",
                          "timeout_ns is 0; accepted: nanoseconds, 1 at least");
    struct attn_nccl_ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "ranks", "no memory for a connection");
    ranks->timeout_ns = timeout_ns;
    int32_t status = open_library(ranks, library, err);
    if (status == ATTN_OK)
        status = take_comm(ranks, comm, err);
    if (status == ATTN_OK)
        status = find_way(ranks, err);
    if (status == ATTN_OK)
        *out = ranks;
    else
        attn_nccl_ranks_destroy(ranks);
    return status;
}

void attn_nccl_ranks_destroy(struct attn_nccl_ranks *ranks)
{
    if (ranks == NULL)
        return;
    attn__peer_destroy(ranks->peer);
    if (ranks->library != NULL)
        dlclose(ranks->library);
    free(ranks);
}

int32_t attn_nccl_ranks_get(struct attn_nccl_ranks *ranks, struct attn_collectives *out,
                            struct attn_error *err)
{
    if (ranks == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "ranks", "attn_nccl_ranks_get: the handle is NULL");
    const int32_t status = attn__args_clear(out, sizeof *out, "out", err);
    if (status != ATTN_OK)
        return status;
    out->rank = (uint32_t)ranks->rank;
    out->size = (uint32_t)ranks->size;
    out->device = 1;
    out->timeout_ns = ranks->timeout_ns;
    out->arg = ranks;
    out->all_gather = all_gather;
    out->all_to_all = all_to_all;
    out->shift = shift;
    out->check = check;
    out->abort = abort_comm;
    return ATTN_OK;
}

int32_t attn_nccl_ranks_peer(const struct attn_nccl_ranks *ranks, const char **why)
{
    const bool on = ranks != NULL && ranks->peer != NULL;

    if (why != NULL)
        *why = ranks == NULL ? "the handle is NULL" : on ? "" : ranks->why_not;
    return on ? 1 : 0;
}
