/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranks that are threads, connected by attn_local_ranks: one makes its calls on the thread of the caller. */
#include "ranks.h"
#include "attention-impl.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

/* Ranks begin every call together: longer than this one of them waits for nobody. */
#define TIMEOUT_NS UINT64_C(120000000000)

struct rank {
    struct attention_ranks *ranks;
    struct attention *attention;
    pthread_t thread; /* of all but rank 0 */
    bool started;
    sem_t go;
    sem_t done;
    int status;
    struct failure err;
};

struct attention_ranks {
    struct attn_local_ranks *connection;
    uint32_t count;
    struct rank *list;
    rank_call call; /* that is made; NULL: threads end */
    const void *args;
};

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) < 0) /* a signal came */
        continue;
}

static void make_call(struct rank *r)
{
    const struct attn_collectives *net = &r->attention->net;
    r->status = r->ranks->call(r->attention, r->ranks->args, &r->err);
    if (r->status < 0)
        net->abort(net->arg, r->err.text);
}

static void *work(void *arg)
{
    struct rank *r = arg;
    for (;;) {
        wait_for(&r->go);
        if (!r->ranks->call)
            return NULL;
        make_call(r);
        sem_post(&r->done);
    }
}

int ranks_call(struct attention *a, rank_call call, const void *args, struct failure *err)
{
    struct attention_ranks *ranks = a->ranks;
    if (!ranks)
        return call(a, args, err);
    ranks->call = call;
    ranks->args = args;
    for (uint32_t i = 1; i < ranks->count; i++)
        sem_post(&ranks->list[i].go);
    make_call(&ranks->list[0]);
    for (uint32_t i = 1; i < ranks->count; i++)
        wait_for(&ranks->list[i].done);
    for (uint32_t i = 0; i < ranks->count; i++)
        if (ranks->list[i].status < 0)
            return failure_set(err, "%s", ranks->list[i].err.text);
    return 0;
}

/* ---------------------------------------------------------------- creating */

static int make_rank(struct attention_ranks *ranks, uint32_t number, const struct attention_shape *shape,
                     const struct attention_options *options, struct failure *err)
{
    struct rank *r = &ranks->list[number];
    struct attention_options own = *options;
    struct attn_collectives net;
    struct attn_error error;
    ATTN_INIT(&net);
    ATTN_INIT(&error);
    if (attn_local_ranks_get(ranks->connection, number, &net, &error) < 0)
        return device_fail(err, "ranks", &error);
    own.seed += number; /* blocks lie elsewhere on each rank */
    if (options->threads)
        own.threads = options->threads > ranks->count ? options->threads / ranks->count : 1;
    if (attention_create_rank(shape, &own, &net, &r->attention, err) < 0)
        return -1;
    if (number == 0)
        return 0;
    if (pthread_create(&r->thread, NULL, work, r) != 0)
        return failure_set(err, "no thread for rank %" PRIu32 " of %" PRIu32, number, ranks->count);
    r->started = true;
    return 0;
}

static int make_ranks(struct attention_ranks *ranks, const struct attention_shape *shape,
                      const struct attention_options *options, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    for (uint32_t i = 0; i < ranks->count; i++) {
        ranks->list[i].ranks = ranks;
        sem_init(&ranks->list[i].go, 0, 0);
        sem_init(&ranks->list[i].done, 0, 0);
    }
    if (attn_local_ranks_create(ranks->count, TIMEOUT_NS, &ranks->connection, &error) < 0)
        return device_fail(err, "ranks", &error);
    for (uint32_t i = 0; i < ranks->count; i++)
        if (make_rank(ranks, i, shape, options, err) < 0)
            return -1;
    return 0;
}

int ranks_create(const struct attention_shape *shape, const struct attention_options *options,
                 struct attention **out, struct failure *err)
{
    struct attention_ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks)
        ranks->list = calloc(options->ranks, sizeof *ranks->list);
    if (!ranks || !ranks->list) {
        free(ranks);
        return failure_set(err, "no memory for %" PRIu32 " ranks", options->ranks);
    }
    ranks->count = options->ranks;
    if (make_ranks(ranks, shape, options, err) < 0) {
        ranks_stop(ranks);
        attention_destroy(ranks->list[0].attention);
        ranks_free(ranks);
        return -1;
    }
    *out = ranks->list[0].attention;
    (*out)->ranks = ranks;
    return 0;
}

void ranks_stop(struct attention_ranks *ranks)
{
    if (!ranks)
        return;
    ranks->call = NULL;
    for (uint32_t i = 1; i < ranks->count; i++) {
        struct rank *r = &ranks->list[i];
        if (r->started) {
            sem_post(&r->go);
            pthread_join(r->thread, NULL);
        }
        attention_destroy(r->attention);
    }
}

void ranks_free(struct attention_ranks *ranks)
{
    if (!ranks)
        return;
    attn_local_ranks_destroy(ranks->connection);
    for (uint32_t i = 0; i < ranks->count; i++) {
        sem_destroy(&ranks->list[i].go);
        sem_destroy(&ranks->list[i].done);
    }
    free(ranks->list);
    free(ranks);
}
