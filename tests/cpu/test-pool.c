/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests the thread pool: lanes, concurrent callers, sleep and wake, signals, fork. Built for ThreadSanitizer
 * too. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cpu.h"

enum { THREADS = 4, CALLERS = 3 };

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                          \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* What a run shares: plain words, so that ThreadSanitizer sees a lane used twice or a run left early. */
struct shared {
    uint32_t sum[THREADS];
    uint32_t blocked[THREADS];
    _Atomic uint32_t next;
    uint32_t tasks;
};

static void take_tasks(void *arg, uint32_t lane)
{
    struct shared *shared = arg;
    sigset_t mask;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    shared->blocked[lane] = (uint32_t)sigismember(&mask, SIGTERM);
    for (;;) {
        uint32_t task = atomic_fetch_add(&shared->next, 1);
        if (task >= shared->tasks)
            return;
        shared->sum[lane] += task + 1;
    }
}

/* Lane number of everybody who came, when all came. */
static void meet(void *arg, uint32_t lane)
{
    struct shared *shared = arg;

    shared->sum[lane]++;
    atomic_fetch_add(&shared->next, 1);
    for (uint32_t i = 0; i < 100000 && atomic_load(&shared->next) < shared->tasks; i++)
        usleep(20);
}

static void run_once(struct cpu_pool *pool, uint32_t lanes, uint32_t tasks)
{
    struct shared shared = {.tasks = tasks};
    uint32_t sum = 0;

    cpu_pool_run(pool, lanes, take_tasks, &shared);
    for (uint32_t i = 0; i < THREADS; i++) {
        sum += shared.sum[i];
        CHECK(i < lanes || shared.sum[i] == 0);
    }
    CHECK(sum == tasks * (tasks + 1) / 2);
    CHECK(shared.blocked[0] == 0);
}

static void *call_often(void *arg)
{
    for (uint32_t i = 0; i < 3000; i++)
        run_once(arg, 1 + i % THREADS, i % 50);
    return NULL;
}

static void test_concurrent_callers(struct cpu_pool *pool)
{
    pthread_t ids[CALLERS];

    for (uint32_t i = 0; i < CALLERS; i++)
        CHECK(pthread_create(&ids[i], NULL, call_often, pool) == 0);
    for (uint32_t i = 0; i < CALLERS; i++)
        pthread_join(ids[i], NULL);
}

/* All lanes run at once and each has its number; also after the workers went to sleep. */
static void test_lanes(struct cpu_pool *pool)
{
    for (uint32_t n = 0; n < 20; n++) {
        struct shared shared = {.tasks = THREADS};
        cpu_pool_run(pool, THREADS, meet, &shared);
        for (uint32_t i = 0; i < THREADS; i++)
            CHECK(shared.sum[i] == 1);
        usleep(n % 2 == 0 ? 2000 : 5);
    }
}

static void look_at_signals(void *arg, uint32_t lane)
{
    meet(arg, lane);
    struct shared *shared = arg;
    sigset_t mask;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    shared->blocked[lane] = (uint32_t)sigismember(&mask, SIGTERM);
}

static void test_signals(struct cpu_pool *pool)
{
    struct shared shared = {.tasks = THREADS};

    cpu_pool_run(pool, THREADS, look_at_signals, &shared);
    CHECK(shared.blocked[0] == 0);
    for (uint32_t i = 1; i < THREADS; i++)
        CHECK(shared.blocked[i] == 1);
}

/* A child has no workers: it computes alone, and destroys without waiting for them. */
static void test_fork(struct cpu_pool *pool)
{
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        run_once(pool, THREADS, 10);
        cpu_pool_destroy(pool);
        _exit(7);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static uint32_t count_threads(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[128];
    uint32_t count = 0;

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "Threads: %u", &count);
    if (file != NULL)
        fclose(file);
    return count;
}

/* In a child nobody would join threads of a pool that its parent made: none are started. */
static void test_fork_before_the_start(void)
{
    struct cpu_pool *pool = cpu_pool_create(THREADS);
    int status;

    CHECK(pool != NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        const uint32_t before = count_threads();
        run_once(pool, THREADS, 10);
        const uint32_t after = count_threads();
        cpu_pool_destroy(pool);
        _exit(after == before ? 7 : 8);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    cpu_pool_destroy(pool);
}

static void *do_nothing(void *arg)
{
    return arg;
}

/* A sanitizer adds a thread of its own with the first one of the program. */
static uint32_t count_settled_threads(void)
{
    pthread_t id;

    CHECK(pthread_create(&id, NULL, do_nothing, NULL) == 0);
    pthread_join(id, NULL);
    usleep(50000);
    return count_threads();
}

int main(void)
{
    uint32_t before = count_settled_threads();
    struct cpu_pool *pool = cpu_pool_create(THREADS);

    alarm(120);
    CHECK(pool != NULL);
    CHECK(count_threads() == before); /* lazy */
    test_lanes(pool);
    CHECK(count_threads() == before + THREADS - 1);
    test_signals(pool);
    test_concurrent_callers(pool);
    test_fork(pool);
    test_fork_before_the_start();
    cpu_pool_destroy(pool);
    /* A joined thread leaves the system's list a moment later. */
    for (uint32_t i = 0; i < 1000 && count_threads() != before; i++)
        usleep(1000);
    CHECK(count_threads() == before);
    pool = cpu_pool_create(1);
    run_once(pool, 1, 5);
    cpu_pool_destroy(pool);
    cpu_pool_destroy(NULL);
    puts("pool: all checks passed");
    return 0;
}
