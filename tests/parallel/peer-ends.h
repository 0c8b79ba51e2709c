/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranks of NCCL for tests of calls over peer memory: each a thread with a device of a driver that stands in.
 */
#ifndef PEER_ENDS_H
#define PEER_ENDS_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn/nccl.h"
#include "fake-nccl.h"
#include "fake-peer.h"
#include "fake.h"
#include "ranks.h"

/* A library of ranks. */
struct end_library {
    int32_t (*create)(const char *library, void *comm, uint64_t timeout_ns, struct attn_nccl_ranks **out,
                      struct attn_error *err);
    void (*destroy)(struct attn_nccl_ranks *ranks);
    int32_t (*get)(struct attn_nccl_ranks *ranks, struct attn_collectives *out, struct attn_error *err);
    int32_t (*peer)(const struct attn_nccl_ranks *ranks, const char **why);
};

/* What a test runs on each rank. */
struct job {
    uint64_t timeout_ns;
    bool there; /* odd ranks use the second library */
    const char *why;
    uint32_t missing;
    pthread_barrier_t open;
    int ways[MOST_RANKS]; /* attn_nccl_ranks_peer; -1: there is no connection */
};

struct end {
    struct end_library library;
    void *comm;
    struct attn_nccl_ranks *ranks;
    struct attn_collectives net;
};

static inline void find(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);

    cr_assert_not_null(address, "%s", name);
    memcpy(out, &address, sizeof address);
}

static inline struct end_library open_end(const char *variable)
{
    struct end_library end;
    void *library = dlopen(getenv(variable), RTLD_NOW | RTLD_LOCAL);

    cr_assert_not_null(library, "%s", dlerror());
    find(library, "attn_nccl_ranks_create", &end.create);
    find(library, "attn_nccl_ranks_destroy", &end.destroy);
    find(library, "attn_nccl_ranks_get", &end.get);
    find(library, "attn_nccl_ranks_peer", &end.peer);
    return end;
}

static inline void *find_driver(const char *name)
{
    void *library = dlopen(getenv("ATTN_CUDA_LIBRARY"), RTLD_NOW), *address = NULL;

    cr_assert_not_null(library, "%s", dlerror());
    find(library, name, &address);
    return address;
}

static inline const struct fake *fake(void)
{
    fake_get_fn get;
    void *address = find_driver("fake_get");

    memcpy(&get, &address, sizeof get);
    return get();
}

static inline struct fake_peer *peers(void)
{
    return find_driver("fake_peer");
}

static inline void end_open(struct end *end, struct rank *rank)
{
    const struct job *job = rank->arg;

    ATTN_INIT(&end->net);
    end->library = open_end(job->there && rank->number % 2 == 1 ? "PEER_THERE" : "PEER_HERE");
    end->comm = fake_nccl_create(&rank->net);
    cr_assert_eq(end->library.create(NULL, end->comm, job->timeout_ns, &end->ranks, &rank->err), ATTN_OK,
                 "%s", rank->err.message);
    cr_assert_eq(end->library.get(end->ranks, &end->net, &rank->err), ATTN_OK, "%s", rank->err.message);
}

static inline void end_close(struct end *end)
{
    end->library.destroy(end->ranks);
    fake_nccl_destroy(end->comm);
}

/* The driver stays loaded, with what it has counted. */
static inline void run_ranks(struct rank *ranks, uint32_t size, void (*fn)(struct rank *rank),
                             struct job *job)
{
    (void)fake();
    pthread_barrier_init(&job->open, NULL, size);
    ranks_run(ranks, size, 60, fn, job);
    pthread_barrier_destroy(&job->open);
}

/* Nothing is left, and nothing was done that a driver does not take. */
static inline void check_driver(void)
{
    char text[256];

    cr_assert_str_eq(fake()->offence(), "");
    cr_assert_eq(fake()->leaks(text, sizeof text), 0u, "left: %s", text);
    cr_assert_eq(peers()->opened, 0);
}

#endif
