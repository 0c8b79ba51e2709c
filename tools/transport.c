/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the library of a transport where the loader finds it: a tool runs without MPI and NCCL unless it is
 * asked for them. */
#define _GNU_SOURCE
#include "transport.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/mpi.h"
#include "attn/nccl.h"

struct transport {
    struct attn_mpi_ranks *mpi;
    void (*mpi_destroy)(struct attn_mpi_ranks *ranks);
    struct attn_nccl_ranks *nccl;
    void (*nccl_destroy)(struct attn_nccl_ranks *ranks);
    int32_t (*nccl_peer)(const struct attn_nccl_ranks *ranks, const char **why);
    void *comm; /* of NCCL */
    int (*comm_destroy)(void *comm);
    struct attn_backend *backend; /* of a device that ranks share */
    struct attn_collectives meeting;
    struct attn_collectives net;
};

enum { SHARING_MOST = 64 };

static int32_t fail(struct attn_error *err, int32_t status, const char *text, const char *more)
{
    err->status = status;
    snprintf(err->field, sizeof err->field, "transport");
    snprintf(err->message, sizeof err->message, text, more);
    return status;
}

/* Functions of a library have no type of their own. */
static bool find(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);

    memcpy(out, &address, sizeof address);
    return address != NULL;
}

static void *open_library(const char *name, int flags, const char *text, struct attn_error *err)
{
    void *library = dlopen(name, RTLD_NOW | flags);

    if (library == NULL)
        fail(err, ATTN_E_UNSUPPORTED, text, dlerror());
    return library;
}

static int32_t make(struct transport **out, struct attn_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out != NULL ? ATTN_OK : fail(err, ATTN_E_MEMORY, "no memory for a %s", "transport");
}

static int32_t finish(struct transport **out, int32_t status, struct attn_collectives *out_collectives)
{
    if (status == ATTN_OK) {
        (*out)->net = *out_collectives;
        return status;
    }
    transport_close(*out);
    *out = NULL;
    return status;
}

/* ---------------------------------------------------------------- MPI */

static int32_t connect_mpi(struct transport *transport, uint64_t timeout_ns,
                           struct attn_collectives *out_collectives, struct attn_error *err)
{
    int32_t (*create)(const void *, uint64_t, struct attn_mpi_ranks **, struct attn_error *);
    int32_t (*get)(struct attn_mpi_ranks *, struct attn_collectives *, struct attn_error *);

    /* Components of an MPI look for its symbols among those of the program. */
    void *library = open_library("libattn-mpi.so.0", RTLD_GLOBAL, "transport mpi is not here: %.200s", err);
    if (library == NULL)
        return ATTN_E_UNSUPPORTED;
    if (!find(library, "attn_mpi_ranks_create", &create) || !find(library, "attn_mpi_ranks_get", &get) ||
        !find(library, "attn_mpi_ranks_destroy", &transport->mpi_destroy))
        return fail(err, ATTN_E_UNSUPPORTED, "libattn-mpi.so.0 is of another version: %.200s", dlerror());
    const int32_t status = create(NULL, timeout_ns, &transport->mpi, err);
    return status == ATTN_OK ? get(transport->mpi, out_collectives, err) : status;
}

int32_t transport_open_mpi(uint64_t timeout_ns, struct transport **out,
                           struct attn_collectives *out_collectives, struct attn_error *err)
{
    int32_t status = make(out, err);

    if (status == ATTN_OK)
        status = connect_mpi(*out, timeout_ns, out_collectives, err);
    return finish(out, status, out_collectives);
}

/* ---------------------------------------------------------------- NCCL */

static const char *nccl_name(void)
{
    const char *given = secure_getenv("ATTN_NCCL_LIBRARY");

    return given != NULL && given[0] != '\0' ? given : "libnccl.so.2";
}

static void *open_nccl(struct attn_error *err)
{
    return open_library(
        nccl_name(), 0,
        "transport nccl is not here: %.160s; install NCCL, or name its file by ATTN_NCCL_LIBRARY", err);
}

int32_t transport_make_id(struct transport_id *out, struct attn_error *err)
{
    int (*get_id)(struct transport_id *);
    void *library = open_nccl(err);

    if (library == NULL)
        return ATTN_E_UNSUPPORTED;
    return find(library, "ncclGetUniqueId", &get_id) && get_id(out) == 0
               ? ATTN_OK
               : fail(err, ATTN_E_UNSUPPORTED, "%.160s makes no identity of ranks", nccl_name());
}

/* NCCL takes the device whose context is current. */
static int32_t enter_device(uint32_t device, struct attn_error *err)
{
    int (*get)(int *, int), (*retain)(void **, int), (*set)(void *);
    void *context, *library = open_library("libcuda.so.1", 0, "transport nccl wants CUDA: %.200s", err);
    int number;

    if (library == NULL)
        return ATTN_E_UNSUPPORTED;
    return find(library, "cuDeviceGet", &get) && find(library, "cuDevicePrimaryCtxRetain", &retain) &&
                   find(library, "cuCtxSetCurrent", &set) && get(&number, (int)device) == 0 &&
                   retain(&context, number) == 0 && set(context) == 0
               ? ATTN_OK
               : fail(err, ATTN_E_DEVICE, "a rank cannot enter its device of %s", "CUDA");
}

static int32_t connect_nccl(struct transport *transport, const struct transport_id *id, uint32_t rank,
                            uint32_t size, struct attn_error *err)
{
    int (*init)(void **, int, struct transport_id, int);
    void *library = open_nccl(err);

    if (library == NULL)
        return ATTN_E_UNSUPPORTED;
    return find(library, "ncclCommDestroy", &transport->comm_destroy) &&
                   find(library, "ncclCommInitRank", &init) &&
                   init(&transport->comm, (int)size, *id, (int)rank) == 0
               ? ATTN_OK
               : fail(err, ATTN_E_PEER, "%.160s connects no ranks; NCCL_DEBUG=WARN says why", nccl_name());
}

static int32_t wrap_nccl(struct transport *transport, uint64_t timeout_ns,
                         struct attn_collectives *out_collectives, struct attn_error *err)
{
    int32_t (*create)(const char *, void *, uint64_t, struct attn_nccl_ranks **, struct attn_error *);
    int32_t (*get)(struct attn_nccl_ranks *, struct attn_collectives *, struct attn_error *);
    void *library = open_library("libattn-nccl.so.0", 0, "transport nccl is not here: %.200s", err);

    if (library == NULL)
        return ATTN_E_UNSUPPORTED;
    if (!find(library, "attn_nccl_ranks_create", &create) || !find(library, "attn_nccl_ranks_get", &get) ||
        !find(library, "attn_nccl_ranks_peer", &transport->nccl_peer) ||
        !find(library, "attn_nccl_ranks_destroy", &transport->nccl_destroy))
        return fail(err, ATTN_E_UNSUPPORTED, "libattn-nccl.so.0 is of another version: %.200s", dlerror());
    const int32_t status = create(nccl_name(), transport->comm, timeout_ns, &transport->nccl, err);
    return status == ATTN_OK ? get(transport->nccl, out_collectives, err) : status;
}

int32_t transport_open_nccl(const struct transport_id *id, uint32_t rank, uint32_t size, uint32_t device,
                            uint64_t timeout_ns, struct transport **out,
                            struct attn_collectives *out_collectives, struct attn_error *err)
{
    int32_t status = make(out, err);

    if (status == ATTN_OK)
        status = enter_device(device, err);
    if (status == ATTN_OK)
        status = connect_nccl(*out, id, rank, size, err);
    if (status == ATTN_OK)
        status = wrap_nccl(*out, timeout_ns, out_collectives, err);
    return finish(out, status, out_collectives);
}

bool transport_has_peer(const struct transport *transport, const char **why)
{
    *why = NULL;
    return transport != NULL && transport->nccl != NULL && transport->nccl_peer(transport->nccl, why) == 1;
}

/* ---------------------------------------------------------------- ranks that share a device */

/* Waits for own work, tells where it lies, and learns where that of the others does. */
static int32_t tell(struct transport *own, const struct attn_buffer *send, void *stream,
                    struct attn_buffer all[SHARING_MOST], struct attn_error *err)
{
    struct attn_buffer here = *send;
    const struct attn_buffer from = {&here, 0}, into = {all, 0};
    const int32_t status = attn_stream_synchronize(own->backend, stream, err);

    return status == ATTN_OK ? own->meeting.all_gather(own->meeting.arg, &from, &into, sizeof here, NULL, err)
                             : status;
}

/* One block of each of `count` ranks from `first` on, behind `skipped` others that it sends. */
struct blocks {
    uint32_t first, count, skipped;
};

/* Copies them, and meets again when all have. */
static int32_t copy_blocks(struct transport *own, const struct attn_buffer *send,
                           const struct attn_buffer *receive, struct blocks blocks, uint64_t bytes,
                           void *stream, struct attn_error *err)
{
    struct attn_buffer all[SHARING_MOST], none[SHARING_MOST];
    int32_t status = tell(own, send, stream, all, err);

    for (uint32_t i = 0; i < blocks.count && status == ATTN_OK; i++) {
        struct attn_buffer from = all[(blocks.first + i) % own->meeting.size], to = *receive;
        from.byte_offset += blocks.skipped * bytes;
        to.byte_offset += i * bytes;
        status = attn_memory_copy(own->backend, &to, &from, bytes, ATTN_COPY_ON_DEVICE, stream, err);
    }
    return status == ATTN_OK ? tell(own, send, stream, none, err) : status;
}

static int32_t device_all_gather(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                                 uint64_t bytes, void *stream, struct attn_error *err)
{
    struct transport *own = arg;

    return copy_blocks(own, send, receive, (struct blocks){0, own->meeting.size, 0}, bytes, stream, err);
}

static int32_t device_all_to_all(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                                 uint64_t bytes, void *stream, struct attn_error *err)
{
    struct transport *own = arg;

    return copy_blocks(own, send, receive, (struct blocks){0, own->meeting.size, own->meeting.rank}, bytes,
                       stream, err);
}

static int32_t device_shift(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                            uint64_t bytes, void *stream, struct attn_error *err)
{
    struct transport *own = arg;

    return copy_blocks(own, send, receive, (struct blocks){own->meeting.rank + own->meeting.size - 1, 1, 0},
                       bytes, stream, err);
}

static void device_abort(void *arg, const char *why)
{
    struct transport *own = arg;

    own->meeting.abort(own->meeting.arg, why);
}

int32_t transport_share_device(struct attn_backend *backend, const struct attn_collectives *meeting,
                               struct transport **out, struct attn_collectives *out_collectives,
                               struct attn_error *err)
{
    int32_t status = make(out, err);

    if (status == ATTN_OK && meeting->size > SHARING_MOST)
        status = fail(err, ATTN_E_INVALID, "so many ranks do not share a device; accepted: %s", "1 to 64");
    if (status == ATTN_OK) {
        (*out)->backend = backend;
        (*out)->meeting = *meeting;
        *out_collectives = *meeting;
        out_collectives->device = 1;
        out_collectives->arg = *out;
        out_collectives->all_gather = device_all_gather;
        out_collectives->all_to_all = device_all_to_all;
        out_collectives->shift = device_shift;
        out_collectives->abort = device_abort;
    }
    return finish(out, status, out_collectives);
}

/* ---------------------------------------------------------------- */

void transport_close(struct transport *transport)
{
    struct attn_error err;

    if (transport == NULL)
        return;
    ATTN_INIT(&err);
    /* A connection that was ended has no communicator any more. */
    const bool ended =
        transport->net.check != NULL && transport->net.check(transport->net.arg, &err) != ATTN_OK;
    if (transport->mpi != NULL)
        transport->mpi_destroy(transport->mpi);
    if (transport->nccl != NULL)
        transport->nccl_destroy(transport->nccl);
    if (transport->comm != NULL && !ended)
        transport->comm_destroy(transport->comm);
    free(transport); /* libraries that were loaded stay */
}
