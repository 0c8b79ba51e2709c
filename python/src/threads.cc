// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// torch's own threads for libattn's work on a CPU, so that the two never compete for processors.
#include "array.h"

#include <atomic>
#include <dlfcn.h>

namespace
{

using ParallelFn = void (*)(void (*)(void *), void *, unsigned, unsigned);

// A parallel region of the OpenMP library that torch is linked to: this name is in GNU's and in LLVM's.
ParallelFn parallel_region()
{
    if (void *preloaded = dlsym(RTLD_DEFAULT, "GOMP_parallel")) // what torch's own calls reach, too
        return (ParallelFn)preloaded;
    void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    return torch != nullptr ? (ParallelFn)dlsym(torch, "GOMP_parallel") : nullptr;
}

struct Job {
    attn_task_fn fn;
    void *arg;
    uint32_t tasks;
    std::atomic<uint32_t> next;
};

// What each thread of the team does.
void take_tasks(void *arg)
{
    Job &job = *(Job *)arg;
    for (uint32_t task; (task = job.next.fetch_add(1, std::memory_order_relaxed)) < job.tasks;)
        job.fn(job.arg, task);
}

int32_t parallel_for(void *region, attn_task_fn fn, void *arg, uint32_t tasks)
{
    Job job{fn, arg, tasks, {0}};
    // Always the whole team: GNU's library ends the threads that a smaller one leaves out.
    ((ParallelFn)region)(take_tasks, &job, 0, 0);
    return ATTN_OK;
}

} // namespace

uintptr_t torch_threads()
{
    static attn_cpu_executor executor;
    if (executor.arg == nullptr) { // or not yet: torch may be imported later
        ATTN_INIT(&executor);
        executor.kind = ATTN_EXECUTOR_PARALLEL_FOR;
        executor.arg = (void *)parallel_region();
        executor.parallel_for = parallel_for;
    }
    return executor.arg != nullptr ? (uintptr_t)&executor : 0;
}
