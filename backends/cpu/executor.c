/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Whose threads a call runs on: the plugin's pool, the caller's parallel_for, or a team of the caller. */
#include "graph.h"

int32_t cpu_executor_init(struct cpu_executor *executor, const struct attn_backend_impl *backend,
                          void *stream, struct attn_error *err)
{
    const struct attn_cpu_executor *given = stream;

    *executor = (struct cpu_executor){.backend = backend, .threads = backend->threads};
    if (given == NULL) {
        executor->parallel_for = backend->instance->host.parallel_for;
        executor->parallel_for_arg = backend->instance->host.ctx;
        return ATTN_OK;
    }
    if (given->struct_size < sizeof *given)
        return attn__fail(err, ATTN_E_INVALID, 0, "stream",
                          "struct_size must be %zu or more for a struct attn_cpu_executor, it is %u",
                          sizeof *given, given->struct_size);
    executor->recording = given->recording;
    if (given->threads != 0 && given->threads < backend->threads)
        executor->threads = given->threads;
    if (given->recording != NULL && given->recording->backend != backend)
        return attn__fail(err, ATTN_E_INVALID, 0, "stream",
                          "the stream is captured by another backend; one of this backend is accepted");
    if (given->kind == ATTN_EXECUTOR_POOL) {
        executor->parallel_for = backend->instance->host.parallel_for;
        executor->parallel_for_arg = backend->instance->host.ctx;
        return ATTN_OK;
    }
    if (given->kind == ATTN_EXECUTOR_PARALLEL_FOR) {
        if (given->parallel_for == NULL)
            return attn__fail(err, ATTN_E_INVALID, 0, "stream.parallel_for",
                              "parallel_for is NULL; an executor of this kind needs the function");
        executor->parallel_for = given->parallel_for;
        executor->parallel_for_arg = given->arg;
        return ATTN_OK;
    }
    if (given->kind != ATTN_EXECUTOR_TEAM)
        return attn__fail(err, ATTN_E_INVALID, 0, "stream.kind",
                          "kind is %u; 1 (parallel_for), 2 (team) and 3 (pool) are accepted", given->kind);
    if (given->nth == 0 || given->ith >= given->nth)
        return attn__fail(err, ATTN_E_INVALID, 0, "stream.ith",
                          "ith is %u, but nth is %u; 0 to nth - 1 are accepted", given->ith, given->nth);
    if (given->nth > 1 && given->barrier == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "stream.barrier", "a team of %u needs a barrier",
                          given->nth);
    executor->team = given;
    return ATTN_OK;
}

void cpu_join(const struct cpu_executor *executor)
{
    if (executor->team != NULL && executor->team->nth > 1)
        executor->team->barrier(executor->team->arg);
}

/* A call, which its workers share. */
struct job {
    cpu_task_fn fn;
    void *arg;
    uint32_t tasks;
    _Atomic uint32_t *next;
};

/* All workers take task numbers from one counter, so that slow ones take fewer. */
static void run_worker(void *arg, uint32_t worker)
{
    const struct job *job = arg;

    for (;;) {
        uint32_t task = atomic_fetch_add_explicit(job->next, 1, memory_order_relaxed);
        if (task >= job->tasks)
            return;
        job->fn(job->arg, task, worker);
    }
}

/* The scratch is for a limited number of workers; further members of a team only wait. */
static void run_member(const struct cpu_executor *executor, _Atomic uint32_t *tickets, struct job *job)
{
    uint32_t ith = executor->team->ith, nth = executor->team->nth;
    uint32_t workers = executor->backend->threads < nth ? executor->backend->threads : nth;

    if (tickets == NULL) {
        for (uint64_t task = ith; ith < workers && task < job->tasks; task += workers)
            job->fn(job->arg, (uint32_t)task, ith);
        cpu_join(executor);
        return;
    }
    job->next = &tickets[0];
    if (ith < workers)
        run_worker(job, ith);
    /* The last member resets the counters before any of them can start the next call. */
    if (atomic_fetch_add_explicit(&tickets[1], 1, memory_order_acq_rel) + 1 == nth) {
        atomic_store_explicit(&tickets[0], 0, memory_order_relaxed);
        atomic_store_explicit(&tickets[1], 0, memory_order_relaxed);
    }
    cpu_join(executor);
}

int32_t cpu_execute(const struct cpu_executor *executor, _Atomic uint32_t *tickets, uint32_t tasks,
                    cpu_task_fn fn, void *arg, struct attn_error *err)
{
    _Atomic uint32_t next = 0;
    struct job job = {.fn = fn, .arg = arg, .tasks = tasks, .next = &next};
    uint32_t workers = executor->threads;

    workers = tasks < workers ? tasks : workers;
    if (executor->team != NULL) {
        run_member(executor, tickets, &job);
        return ATTN_OK;
    }
    if (workers < 2) {
        run_worker(&job, 0);
        return ATTN_OK;
    }
    if (executor->parallel_for == NULL) {
        cpu_pool_run(executor->backend->pool, workers, run_worker, &job);
        return ATTN_OK;
    }
    int32_t status = executor->parallel_for(executor->parallel_for_arg, run_worker, &job, workers);
    if (status == ATTN_OK && atomic_load(&next) >= tasks)
        return ATTN_OK;
    return attn__fail(
        err, status != ATTN_OK ? status : ATTN_E_INVALID, 0, "parallel_for",
        "the caller's parallel_for answered %d and ran %u of %u tasks; it must run all of them and answer 0",
        status, atomic_load(&next) < tasks ? atomic_load(&next) : tasks, tasks);
}
