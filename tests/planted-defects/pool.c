/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Threads: the caller's, or one worker beside the caller. */
#include <pthread.h>

#include "defect.h"

/* Tasks that are dealt out one by one. */
struct deal {
    attn_task_fn fn;
    void *arg;
    uint32_t n;
    _Atomic uint32_t next;
};

struct pool {
    pthread_mutex_t busy; /* one deal at a time */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    pthread_t worker;
    struct deal *deal; /* what the worker is to help with */
    bool stop;
};

static void work(struct deal *deal)
{
    uint32_t i;

    while ((i = atomic_fetch_add(&deal->next, 1)) < deal->n)
        deal->fn(deal->arg, i);
}

static void *run_worker(void *arg)
{
    struct pool *pool = arg;

    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        if (pool->deal == NULL) {
            pthread_cond_wait(&pool->changed, &pool->lock);
            continue;
        }
        struct deal *deal = pool->deal;
        pthread_mutex_unlock(&pool->lock);
        work(deal);
        pthread_mutex_lock(&pool->lock);
        pool->deal = NULL;
        pthread_cond_broadcast(&pool->changed);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

struct pool *pool_create(void)
{
    struct pool *pool = calloc(1, sizeof *pool);

    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->busy, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    if (pthread_create(&pool->worker, NULL, run_worker, pool) == 0)
        return pool;
    free(pool);
    return NULL;
}

void pool_destroy(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    pthread_join(pool->worker, NULL);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->busy);
    free(pool);
}

static void deal_out(struct pool *pool, struct deal *deal)
{
    if (pthread_mutex_trylock(&pool->busy) != 0) { /* another thread has the worker */
        work(deal);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->deal = deal;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    work(deal);
    pthread_mutex_lock(&pool->lock);
    while (pool->deal != NULL)
        pthread_cond_wait(&pool->changed, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&pool->busy);
}

int32_t pool_execute(const struct attn_backend_impl *backend, void *stream, attn_task_fn fn, void *arg,
                     uint32_t n, struct attn_error *err)
{
    const struct attn_cpu_executor *executor = stream;
    struct deal deal = {.fn = fn, .arg = arg, .n = n};

    if (executor != NULL && executor->kind == ATTN_EXECUTOR_PARALLEL_FOR)
        return executor->parallel_for(executor->arg, fn, arg, n);
    if (executor != NULL && executor->kind == ATTN_EXECUTOR_TEAM) {
        for (uint32_t i = executor->ith; i < n; i += executor->nth)
            fn(arg, i);
        executor->barrier(executor->arg);
        return ATTN_OK;
    }
    if (executor != NULL)
        return attn_util_fail(err, ATTN_E_INVALID, "stream", "this kind of executor is not known");
    deal_out(backend->pool, &deal);
    return ATTN_OK;
}
