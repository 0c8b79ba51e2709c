/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The plugin's own threads. A run is open while its caller works on it; workers join an open run and take the
 * next worker number. The caller closes the run when its own work is done and waits only for those that
 * joined, so that a worker which the system has not scheduled yet costs nothing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cpu.h"

/* How long a thread spins before it sleeps: about the cost of a wake-up. */
#define SPIN_NANOSECONDS 20000

struct cpu_pool {
    uint32_t threads;     /* workers wanted + 1 */
    pid_t pid;            /* a child after fork has no workers */
    pthread_mutex_t user; /* locked by the caller that uses the workers */
    pthread_t *ids;
    uint32_t workers; /* started */
    bool started;

    pthread_mutex_t lock; /* everything below */
    pthread_cond_t wake;
    pthread_cond_t done;
    _Atomic uint32_t generation; /* number of runs; written with the lock, read without */
    _Atomic uint32_t running;    /* workers in the run; as generation */
    uint32_t asleep;
    bool open;
    bool stop;
    uint32_t next_worker;
    uint32_t wanted; /* workers of the open run, its caller included */
    cpu_worker_fn fn;
    void *arg;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Spins, for a while, as long as the word has the value. */
static void spin_while(const _Atomic uint32_t *word, uint32_t value)
{
    uint64_t end = now() + SPIN_NANOSECONDS;

    do {
        for (uint32_t i = 0; i < 64; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value)
                return;
            relax();
        }
    } while (now() < end);
}

/* Spins until no worker is in the run, or for a while. */
static void spin_until_idle(const struct cpu_pool *pool)
{
    uint32_t running = atomic_load_explicit(&pool->running, memory_order_acquire);
    uint64_t end = now() + SPIN_NANOSECONDS;

    while (running != 0 && now() < end) {
        for (uint32_t i = 0; i < 64 && running != 0; i++) {
            relax();
            running = atomic_load_explicit(&pool->running, memory_order_acquire);
        }
    }
}

/* One worker in one run. The lock is held on entry and on return. */
static void join_run(struct cpu_pool *pool)
{
    cpu_worker_fn fn = pool->fn;
    void *arg = pool->arg;
    uint32_t worker = pool->next_worker++;

    atomic_fetch_add(&pool->running, 1);
    pthread_mutex_unlock(&pool->lock);
    fn(arg, worker);
    pthread_mutex_lock(&pool->lock);
    if (atomic_fetch_sub(&pool->running, 1) == 1)
        pthread_cond_signal(&pool->done);
}

static void *work(void *arg)
{
    struct cpu_pool *pool = arg;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        uint32_t seen = atomic_load(&pool->generation);
        if (pool->open && pool->next_worker < pool->wanted)
            join_run(pool);
        if (pool->stop)
            break;
        if (atomic_load(&pool->generation) != seen)
            continue;
        pthread_mutex_unlock(&pool->lock);
        spin_while(&pool->generation, seen);
        pthread_mutex_lock(&pool->lock);
        while (atomic_load(&pool->generation) == seen && !pool->stop) {
            pool->asleep++;
            pthread_cond_wait(&pool->wake, &pool->lock);
            pool->asleep--;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Workers take no signals: handlers belong to the program's threads. Starts as many as the system allows. */
static void start(struct cpu_pool *pool)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t all, before;

    pool->started = true;
    sigfillset(&all);
    /* A crash must reach the program's handler wherever it happens. */
    for (size_t i = 0; i < sizeof synchronous / sizeof synchronous[0]; i++)
        sigdelset(&all, synchronous[i]);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return;
    while (pool->workers + 1 < pool->threads &&
           pthread_create(&pool->ids[pool->workers], NULL, work, pool) == 0)
        pool->workers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

struct cpu_pool *cpu_pool_create(uint32_t threads)
{
    struct cpu_pool *pool = calloc(1, sizeof *pool);

    if (pool == NULL)
        return NULL;
    pool->ids = calloc(threads, sizeof *pool->ids);
    if (pool->ids == NULL) {
        free(pool);
        return NULL;
    }
    pool->threads = threads;
    pool->pid = getpid();
    pthread_mutex_init(&pool->user, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    return pool;
}

void cpu_pool_destroy(struct cpu_pool *pool)
{
    if (pool == NULL)
        return;
    /* In a child after fork threads that no longer exist may hold the locks. */
    if (pool->pid == getpid()) {
        pthread_mutex_lock(&pool->lock);
        pool->stop = true;
        atomic_fetch_add(&pool->generation, 1);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
        for (uint32_t i = 0; i < pool->workers; i++)
            pthread_join(pool->ids[i], NULL);
        pthread_cond_destroy(&pool->done);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->lock);
        pthread_mutex_destroy(&pool->user);
    }
    free(pool->ids);
    free(pool);
}

static void open_run(struct cpu_pool *pool, uint32_t workers, cpu_worker_fn fn, void *arg)
{
    pthread_mutex_lock(&pool->lock);
    pool->fn = fn;
    pool->arg = arg;
    pool->wanted = workers;
    pool->next_worker = 1;
    pool->open = true;
    atomic_fetch_add(&pool->generation, 1);
    if (pool->asleep > workers - 1)
        for (uint32_t i = 0; i + 1 < workers; i++)
            pthread_cond_signal(&pool->wake);
    else if (pool->asleep > 0)
        pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void close_run(struct cpu_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->open = false;
    pthread_mutex_unlock(&pool->lock);
    spin_until_idle(pool);
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->running) != 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void cpu_pool_run(struct cpu_pool *pool, uint32_t workers, cpu_worker_fn fn, void *arg)
{
    workers = workers < pool->threads ? workers : pool->threads;
    if (workers < 2 || pool->pid != getpid() || pthread_mutex_trylock(&pool->user) != 0) {
        fn(arg, 0);
        return;
    }
    if (!pool->started)
        start(pool);
    if (pool->workers > 0)
        open_run(pool, workers, fn, arg);
    fn(arg, 0);
    if (pool->workers > 0)
        close_run(pool);
    pthread_mutex_unlock(&pool->user);
}
