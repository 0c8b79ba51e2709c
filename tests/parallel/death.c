/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A rank of MPI that gathers again and again; one is killed, or ends the connection, in the middle.
 *
 * usage: death kill|abort LIMIT (seconds), under mpirun. Each rank that was not killed prints how long it
 * waited and the message; exit status 0 if it was ATTN_E_PEER.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attn/mpi.h"

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void die(const struct attn_collectives *net, const char *how)
{
    if (strcmp(how, "abort") == 0)
        net->abort(net->arg, "no more memory");
    else
        raise(SIGKILL);
}

int main(int argc, char **argv)
{
    static uint64_t send, receive[64];
    const struct attn_buffer from = {&send, 0}, into = {receive, 0};
    struct attn_mpi_ranks *ranks = NULL;
    struct attn_collectives net;
    struct attn_error err;
    int32_t status;
    double began = 0;

    ATTN_INIT(&err);
    ATTN_INIT(&net);
    if (argc != 3)
        return 2;
    status = attn_mpi_ranks_create(NULL, (uint64_t)(atof(argv[2]) * 1e9), &ranks, &err);
    if (status == ATTN_OK)
        status = attn_mpi_ranks_get(ranks, &net, &err);
    for (uint32_t call = 0; call < 100 && status == ATTN_OK; call++) {
        began = now();
        if (call == 50 && net.rank == net.size - 1)
            die(&net, argv[1]);
        send = call * net.size + net.rank;
        status = net.all_gather(net.arg, &from, &into, sizeof send, NULL, &err);
        for (uint32_t r = 0; r < net.size && status == ATTN_OK; r++)
            if (receive[r] != call * net.size + r)
                status = ATTN_E_STATE;
    }
    printf("%s %.3f %s\n", attn_status_name(status), now() - began, err.message);
    fflush(stdout);
    _exit(status == ATTN_E_PEER ? 0 : 1);
}
