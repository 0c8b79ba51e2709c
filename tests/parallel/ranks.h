/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranks that are threads of a test: the same function on each. */
#ifndef RANKS_H
#define RANKS_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <time.h>

#include "attn/parallel.h"

enum { MOST_RANKS = 8 };

struct rank {
    uint32_t number, size;
    struct attn_collectives net;
    void *arg;
    int32_t status;
    struct attn_error err;
    double seconds; /* that the function took */
    void (*fn)(struct rank *rank);
    pthread_t thread;
};

static inline double ranks_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *ranks_thread(void *arg)
{
    struct rank *rank = arg;
    const double began = ranks_now();

    rank->fn(rank);
    rank->seconds = ranks_now() - began;
    return NULL;
}

/* Calls fn on every rank of a connection with this limit, and waits for all. */
static inline void ranks_run(struct rank *ranks, uint32_t size, double limit, void (*fn)(struct rank *rank),
                             void *arg)
{
    struct attn_local_ranks *connection;
    struct attn_error err;

    ATTN_INIT(&err);
    cr_assert_eq(attn_local_ranks_create(size, (uint64_t)(limit * 1e9), &connection, &err), ATTN_OK, "%s",
                 err.message);
    for (uint32_t r = 0; r < size; r++) {
        ranks[r] = (struct rank){.number = r, .size = size, .arg = arg, .fn = fn};
        ATTN_INIT(&ranks[r].err);
        ATTN_INIT(&ranks[r].net);
        cr_assert_eq(attn_local_ranks_get(connection, r, &ranks[r].net, &err), ATTN_OK, "%s", err.message);
    }
    for (uint32_t r = 0; r < size; r++)
        cr_assert_eq(pthread_create(&ranks[r].thread, NULL, ranks_thread, &ranks[r]), 0);
    for (uint32_t r = 0; r < size; r++)
        pthread_join(ranks[r].thread, NULL);
    attn_local_ranks_destroy(connection);
}

#endif
