/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ggml's own threads for libattn's work: threads of an OpenMP library spin on between the nodes of a graph.
 */
#define _GNU_SOURCE
#include "client.h"

#include <dlfcn.h>
#include <stdatomic.h>

/* A parallel region of the OpenMP library that the process has: this name is in GNU's and in LLVM's. */
static parallel_fn parallel_region(void)
{
    static const char *const libraries[] = {"libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"};
    void *found = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    for (size_t i = 0; found == NULL && i < sizeof libraries / sizeof libraries[0]; i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        found = library != NULL ? dlsym(library, "GOMP_parallel") : NULL;
    }
    parallel_fn region;
    *(void **)&region = found;
    return region;
}

struct job {
    attn_task_fn fn;
    void *arg;
    uint32_t tasks;
    _Atomic uint32_t next;
};

static void take_tasks(void *arg)
{
    struct job *job = arg;
    for (;;) {
        const uint32_t task = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (task >= job->tasks)
            return;
        job->fn(job->arg, task);
    }
}

static int32_t parallel_for(void *arg, attn_task_fn fn, void *task_arg, uint32_t tasks)
{
    const struct team *team = arg;
    struct job job = {.fn = fn, .arg = task_arg, .tasks = tasks};
    /* A team of ggml's size, whatever the tasks: GNU's library ends the threads that a smaller one leaves
     * out. */
    team->region(take_tasks, &job, team->executor.threads, 0);
    return ATTN_OK;
}

void team_init(struct team *team)
{
    ATTN_INIT(&team->executor);
    team->region = parallel_region();
    team->executor.kind = team->region != NULL ? ATTN_EXECUTOR_PARALLEL_FOR : ATTN_EXECUTOR_POOL;
    team->executor.parallel_for = parallel_for;
    team->executor.arg = team;
}
