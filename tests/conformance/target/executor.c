/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The ways to lend a CPU backend threads: its own pool, a parallel_for, or a team that makes the call
 * together. */
#include "conform.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MOST_THREADS = 3 };

static bool nothing_lent;

void executors_lend_nothing(void)
{
    nothing_lent = true;
}

const char *executor_name(enum executor executor)
{
    static const char *const names[EXECUTORS] = {"pool", "serial parallel_for", "threaded parallel_for",
                                                 "team of 2", "team of 3"};
    return names[executor];
}

/* Tasks in falling order on the calling thread. */
static int32_t serial_for(void *arg, attn_task_fn fn, void *task_arg, uint32_t n)
{
    (void)arg;
    while (n > 0)
        fn(task_arg, --n);
    return ATTN_OK;
}

struct shared_tasks {
    attn_task_fn fn;
    void *task_arg;
    uint32_t n;
    _Atomic uint32_t next;
};

static void *take_tasks(void *arg)
{
    struct shared_tasks *tasks = arg;

    for (uint32_t i = atomic_fetch_add(&tasks->next, 1); i < tasks->n; i = atomic_fetch_add(&tasks->next, 1))
        tasks->fn(tasks->task_arg, i);
    return NULL;
}

static int32_t threaded_for(void *arg, attn_task_fn fn, void *task_arg, uint32_t n)
{
    struct shared_tasks tasks = {.fn = fn, .task_arg = task_arg, .n = n};
    pthread_t helper;

    (void)arg;
    if (pthread_create(&helper, NULL, take_tasks, &tasks) != 0)
        return ATTN_E_MEMORY;
    take_tasks(&tasks);
    pthread_join(helper, NULL);
    return ATTN_OK;
}

static void team_barrier(void *arg)
{
    pthread_barrier_wait(arg);
}

struct member {
    struct attn_cpu_executor executor;
    call_fn call;
    void *arg;
    struct attn_error err;
    int32_t status;
};

static void *run_member(void *arg)
{
    struct member *member = arg;

    ATTN_INIT(&member->err);
    member->status = member->call(member->arg, &member->executor, &member->err);
    return NULL;
}

static int32_t team_call(uint32_t threads, call_fn call, void *arg, struct attn_error *err)
{
    struct member members[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    pthread_barrier_t barrier;
    int32_t status = ATTN_OK;

    pthread_barrier_init(&barrier, NULL, threads);
    for (uint32_t i = 0; i < threads; i++) {
        members[i] = (struct member){.call = call, .arg = arg};
        ATTN_INIT(&members[i].executor);
        members[i].executor.kind = ATTN_EXECUTOR_TEAM;
        members[i].executor.arg = &barrier;
        members[i].executor.barrier = team_barrier;
        members[i].executor.ith = i;
        members[i].executor.nth = threads;
        if (i > 0 && pthread_create(&ids[i], NULL, run_member, &members[i]) != 0)
            abort(); /* the others would wait at the barrier for ever */
    }
    run_member(&members[0]);
    for (uint32_t i = 1; i < threads; i++)
        pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&barrier);
    for (uint32_t i = 0; i < threads && status == ATTN_OK; i++) {
        status = members[i].status;
        if (status != ATTN_OK && err != NULL)
            *err = members[i].err;
    }
    return status;
}

int32_t executor_call(enum executor executor, call_fn call, void *arg, struct attn_error *err)
{
    struct attn_cpu_executor lent;

    if (executor == EXECUTOR_POOL || nothing_lent)
        return call(arg, NULL, err);
    if (executor == EXECUTOR_TEAM_2 || executor == EXECUTOR_TEAM_3)
        return team_call(executor == EXECUTOR_TEAM_2 ? 2 : 3, call, arg, err);
    ATTN_INIT(&lent);
    lent.kind = ATTN_EXECUTOR_PARALLEL_FOR;
    lent.parallel_for = executor == EXECUTOR_SERIAL ? serial_for : threaded_for;
    lent.threads = executor == EXECUTOR_SERIAL ? 0 : 2;
    return call(arg, &lent, err);
}
