/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Collectives over a communicator of MPI. Each is put under way and tested until it is done, the limit has
 * passed, or another rank has sent word that it ends the connection.
 */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "args.h"
#include "attn/mpi.h"
#include "check.h"
#include "fail.h"

enum { TEXT = 256, END_TAG = 1, SHIFT_TAG = 2 };

struct attn_mpi_ranks {
    MPI_Comm comm;    /* own */
    bool initialised; /* MPI, by this library */
    int rank, size;
    uint64_t timeout_ns;
    MPI_Request word; /* of a rank that ends the connection */
    char word_text[TEXT];
    char sent_text[TEXT]; /* own word: MPI may read it until the process ends */
    bool ended;
    char why[TEXT];
};

static void end(struct attn_mpi_ranks *ranks, const char *why)
{
    if (!ranks->ended)
        snprintf(ranks->why, sizeof ranks->why, "%s", why);
    ranks->ended = true;
}

static void end_by_error(struct attn_mpi_ranks *ranks, const char *call, int error)
{
    char words[MPI_MAX_ERROR_STRING] = "", why[TEXT];
    int length = 0;

    MPI_Error_string(error, words, &length);
    snprintf(why, sizeof why, "%s: MPI says: %.160s", call, words);
    end(ranks, why);
}

/* ---------------------------------------------------------------- calls */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Whether another rank has ended the connection. */
static bool has_word(struct attn_mpi_ranks *ranks)
{
    int came = 0;

    if (MPI_Test(&ranks->word, &came, MPI_STATUS_IGNORE) != MPI_SUCCESS || !came)
        return false;
    ranks->word_text[TEXT - 1] = '\0';
    end(ranks, ranks->word_text);
    return true;
}

/* Until a request that was put under way is done. */
static void await(struct attn_mpi_ranks *ranks, const char *call, MPI_Request *request)
{
    const uint64_t began = now_ns();
    char why[TEXT];

    for (;;) {
        int done = 0;
        const int error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS)
            end_by_error(ranks, call, error);
        if (done || error != MPI_SUCCESS || has_word(ranks))
            return;
        if (now_ns() - began > ranks->timeout_ns)
            break;
        sched_yield();
    }
    snprintf(why, sizeof why, "rank %d of %d waited for others in %s for %.3g s", ranks->rank, ranks->size,
             call, (double)ranks->timeout_ns * 1e-9);
    end(ranks, why);
}

static int32_t begin(struct attn_mpi_ranks *ranks, const char *call, uint64_t bytes, struct attn_error *err)
{
    if (bytes > INT_MAX)
        return attn__fail(err, ATTN_E_SIZE, 0, "bytes", "%s of %llu bytes; MPI takes blocks of up to %d",
                          call, (unsigned long long)bytes, INT_MAX);
    return ranks->ended ? attn__fail(err, ATTN_E_PEER, 0, "collectives", "%s", ranks->why) : ATTN_OK;
}

static int32_t finish(struct attn_mpi_ranks *ranks, const char *call, int error, MPI_Request *request,
                      struct attn_error *err)
{
    if (error == MPI_SUCCESS)
        await(ranks, call, request);
    else
        end_by_error(ranks, call, error);
    return ranks->ended ? attn__fail(err, ATTN_E_PEER, 0, "collectives", "%s", ranks->why) : ATTN_OK;
}

static int32_t all_gather(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                          uint64_t bytes, void *stream, struct attn_error *err)
{
    struct attn_mpi_ranks *ranks = arg;
    const int32_t status = begin(ranks, "all_gather", bytes, err);
    MPI_Request request;

    (void)stream;
    if (status != ATTN_OK)
        return status;
    const int error = MPI_Iallgather(attn__address(send), (int)bytes, MPI_BYTE, attn__address(receive),
                                     (int)bytes, MPI_BYTE, ranks->comm, &request);
    return finish(ranks, "all_gather", error, &request, err);
}

static int32_t all_to_all(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                          uint64_t bytes, void *stream, struct attn_error *err)
{
    struct attn_mpi_ranks *ranks = arg;
    const int32_t status = begin(ranks, "all_to_all", bytes, err);
    MPI_Request request;

    (void)stream;
    if (status != ATTN_OK)
        return status;
    const int error = MPI_Ialltoall(attn__address(send), (int)bytes, MPI_BYTE, attn__address(receive),
                                    (int)bytes, MPI_BYTE, ranks->comm, &request);
    return finish(ranks, "all_to_all", error, &request, err);
}

static int32_t shift(void *arg, const struct attn_buffer *send, const struct attn_buffer *receive,
                     uint64_t bytes, void *stream, struct attn_error *err)
{
    struct attn_mpi_ranks *ranks = arg;
    const int next = (ranks->rank + 1) % ranks->size, before = (ranks->rank + ranks->size - 1) % ranks->size;
    int32_t status = begin(ranks, "shift", bytes, err);
    MPI_Request came, sent;

    (void)stream;
    if (status != ATTN_OK)
        return status;
    int error =
        MPI_Irecv(attn__address(receive), (int)bytes, MPI_BYTE, before, SHIFT_TAG, ranks->comm, &came);
    if (error == MPI_SUCCESS)
        error = MPI_Isend(attn__address(send), (int)bytes, MPI_BYTE, next, SHIFT_TAG, ranks->comm, &sent);
    status = finish(ranks, "shift", error, &came, err);
    return status == ATTN_OK ? finish(ranks, "shift", error, &sent, err) : status;
}

/* Sends word to all: so short a message leaves at once, whether or not it is received. */
static void abort_all(void *arg, const char *why)
{
    struct attn_mpi_ranks *ranks = arg;

    if (ranks->ended)
        return;
    snprintf(ranks->sent_text, sizeof ranks->sent_text, "rank %d of %d ended the connection: %s", ranks->rank,
             ranks->size, why);
    for (int i = 0; i < ranks->size; i++) {
        MPI_Request request;
        if (i != ranks->rank &&
            MPI_Isend(ranks->sent_text, TEXT, MPI_CHAR, i, END_TAG, ranks->comm, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    }
    end(ranks, ranks->sent_text);
}

/* ---------------------------------------------------------------- the connection */

static int initialise(struct attn_mpi_ranks *ranks)
{
    int is = 0, provided;

    MPI_Initialized(&is);
    ranks->initialised = !is;
    return is ? MPI_SUCCESS : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
}

static int connect_ranks(struct attn_mpi_ranks *ranks, const void *comm)
{
    int error = comm != NULL ? MPI_SUCCESS : initialise(ranks);

    if (error == MPI_SUCCESS)
        error = MPI_Comm_dup(comm != NULL ? *(const MPI_Comm *)comm : MPI_COMM_WORLD, &ranks->comm);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_set_errhandler(ranks->comm, MPI_ERRORS_RETURN);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_rank(ranks->comm, &ranks->rank);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_size(ranks->comm, &ranks->size);
    return error == MPI_SUCCESS ? MPI_Irecv(ranks->word_text, TEXT, MPI_CHAR, MPI_ANY_SOURCE, END_TAG,
                                            ranks->comm, &ranks->word)
                                : error;
}

int32_t attn_mpi_ranks_create(const void *comm, uint64_t timeout_ns, struct attn_mpi_ranks **out,
                              struct attn_error *err)
{
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out",
                          "out is NULL; a place for the connection is accepted");
    *out = NULL;
    if (timeout_ns == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "timeout_ns",
                          "timeout_ns is 0; accepted: nanoseconds, 1 at least");
    struct attn_mpi_ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "ranks", "no memory for a connection");
    ranks->timeout_ns = timeout_ns;
    const int error = connect_ranks(ranks, comm);
    if (error != MPI_SUCCESS) {
        end_by_error(ranks, "connecting", error);
        const int32_t status = attn__fail(err, ATTN_E_PEER, 0, "comm", "%s", ranks->why);
        free(ranks);
        return status;
    }
    *out = ranks;
    return ATTN_OK;
}

void attn_mpi_ranks_destroy(struct attn_mpi_ranks *ranks)
{
    /* What is under way after a failure uses the memory until the process ends. */
    if (ranks == NULL || ranks->ended)
        return;
    MPI_Cancel(&ranks->word);
    MPI_Wait(&ranks->word, MPI_STATUS_IGNORE);
    MPI_Comm_free(&ranks->comm);
    if (ranks->initialised)
        MPI_Finalize();
    free(ranks);
}

int32_t attn_mpi_ranks_get(struct attn_mpi_ranks *ranks, struct attn_collectives *out, struct attn_error *err)
{
    if (ranks == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "ranks", "attn_mpi_ranks_get: the handle is NULL");
    const int32_t status = attn__args_clear(out, sizeof *out, "out", err);
    if (status != ATTN_OK)
        return status;
    out->rank = (uint32_t)ranks->rank;
    out->size = (uint32_t)ranks->size;
    out->timeout_ns = ranks->timeout_ns;
    out->arg = ranks;
    out->all_gather = all_gather;
    out->all_to_all = all_to_all;
    out->shift = shift;
    out->abort = abort_all;
    return ATTN_OK;
}
