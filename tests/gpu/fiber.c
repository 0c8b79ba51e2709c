/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs the threads of one CTA after another, warp by warp, until all are done. */
#include "fiber.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "fiber-cta.h"

#define STACK_BYTES ((size_t)256 << 10)

struct fiber_cta fiber_cta;

/* The arrays marked GPU_SHARED; absent if there are none. */
extern unsigned char __start_gpu_shared_arrays[] __attribute__((weak));
extern unsigned char __stop_gpu_shared_arrays[] __attribute__((weak));

void fiber_die(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "fiber: CTA %u,%u,%u thread %u: ", fiber_cta.x, fiber_cta.y, fiber_cta.z,
            fiber_cta.current);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

static void run_thread(void)
{
    struct fiber_thread *thread = &fiber_cta.thread[fiber_cta.current];

    fiber_arrive(&fiber_cta.scheduler);
    fiber_cta.kernel(fiber_cta.argument);
    if (thread->product_count > 0)
        fiber_die("ends while products are under way");
    thread->state = FIBER_DONE;
    fiber_cta.done++;
    fiber_cta.warp[fiber_cta.current / GPU_WARP].ready--;
    fiber_open_barrier(0, fiber_cta.grid.threads - fiber_cta.done);
    fiber_leave(&thread->stack, &fiber_cta.scheduler);
}

static void begin_cta(void)
{
    const size_t fixed = (size_t)(__stop_gpu_shared_arrays - __start_gpu_shared_arrays);

    if (fixed > 0)
        memset(__start_gpu_shared_arrays, 0xff, fixed);
    if (fiber_cta.grid.shared > 0)
        memset(fiber_cta.shared, 0xff, fiber_cta.grid.shared);
    memset(fiber_cta.arrived, 0, sizeof fiber_cta.arrived);
    memset(fiber_cta.here, 0, sizeof fiber_cta.here);
    fiber_cta.done = fiber_cta.opened = fiber_cta.box_count = 0;
    for (uint32_t i = 0; i < fiber_cta.grid.threads; i++) {
        struct fiber_thread *thread = &fiber_cta.thread[i];
        thread->state = FIBER_READY;
        thread->copy_count = thread->groups = thread->arrival_count = 0;
        thread->product_count = thread->product_groups = 0;
        memset(thread->unfenced, 0, sizeof thread->unfenced);
        fiber_stack_start(&thread->stack, run_thread);
    }
    for (uint32_t i = 0; i < fiber_cta.grid.threads / GPU_WARP; i++)
        fiber_cta.warp[i] = (struct fiber_warp){.ready = GPU_WARP};
}

/* The i-th of `count` things in this launch's order. */
static uint32_t in_order(uint32_t i, uint32_t count)
{
    const uint32_t order = fiber_cta.grid.order;

    return order % 3 == 0 ? i : order % 3 == 1 ? count - 1 - i : (i + order) % count;
}

/* Lets every thread of a warp that can go on do so once; returns how many did. */
static uint32_t run_warp(uint32_t warp)
{
    uint32_t ran = 0;

    for (uint32_t i = 0; i < GPU_WARP && fiber_cta.warp[warp].ready > 0; i++) {
        const uint32_t index = warp * GPU_WARP + in_order(i, GPU_WARP);
        if (fiber_cta.thread[index].state != FIBER_READY)
            continue;
        fiber_cta.current = index;
        fiber_step(&fiber_cta.scheduler, &fiber_cta.thread[index].stack);
        ran++;
    }
    return ran;
}

/* Lets the threads go on that have paused longest; returns how many can. */
static uint32_t resume(void)
{
    uint32_t count = 0, first = UINT32_MAX;

    for (uint32_t i = 0; i < fiber_cta.grid.threads; i++)
        if (fiber_cta.thread[i].state == FIBER_PAUSED && fiber_cta.thread[i].paused < first)
            first = fiber_cta.thread[i].paused;
    for (uint32_t i = 0; i < fiber_cta.grid.threads; i++) {
        if (fiber_cta.thread[i].state != FIBER_PAUSED || fiber_cta.thread[i].paused != first)
            continue;
        fiber_cta.thread[i].state = FIBER_READY;
        fiber_cta.warp[i / GPU_WARP].ready++;
        count++;
    }
    return count;
}

static void run_cta(void)
{
    const uint32_t warps = fiber_cta.grid.threads / GPU_WARP;

    begin_cta();
    while (fiber_cta.done < fiber_cta.grid.threads) {
        uint32_t ran = 0;
        for (uint32_t i = 0; i < warps; i++) {
            uint32_t more;
            while ((more = run_warp(in_order(i, warps))) > 0)
                ran += more;
        }
        if (ran > 0 || resume() > 0)
            continue;
        for (uint32_t i = 0; i < fiber_cta.grid.threads && ran == 0; i++)
            ran += fiber_arrive_behind_copies(in_order(i, fiber_cta.grid.threads));
        if (ran == 0)
            ran += fiber_box_arrives();
        if (ran > 0)
            continue;
        for (uint32_t i = 0; i < fiber_cta.grid.threads; i++) {
            fiber_cta.current = i;
            if (fiber_cta.thread[i].state == FIBER_IN_WARP)
                fiber_die("waits for lanes of its warp that are gone or wait elsewhere");
            if (fiber_cta.thread[i].state == FIBER_AT_BARRIER)
                fiber_die("waits at barrier %u for threads that do not come", fiber_cta.thread[i].barrier);
            if (fiber_cta.thread[i].state == FIBER_AT_MBARRIER)
                fiber_die("waits for the barrier at byte %td of shared memory, where threads do not arrive",
                          (unsigned char *)fiber_cta.thread[i].mbarrier - fiber_cta.shared);
        }
    }
    if (fiber_cta.box_count > 0)
        fiber_die("a CTA ends with %u boxes under way", fiber_cta.box_count);
}

static void check_grid(const struct fiber_grid *grid)
{
    if (grid->threads == 0 || grid->threads > FIBER_THREADS || grid->threads % GPU_WARP != 0)
        fiber_die("a CTA of %u threads; multiples of %u up to %u are accepted", grid->threads, GPU_WARP,
                  FIBER_THREADS);
}

void fiber_launch(fiber_kernel_fn kernel, const void *argument, const struct fiber_grid *grid)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&lock);
    check_grid(grid);
    fiber_cta.grid = *grid;
    fiber_cta.kernel = kernel;
    fiber_cta.argument = argument;
    fiber_cta.shared = NULL;
    fiber_cta.scheduler = (struct fiber_stack){0};
    if (grid->shared > 0 && posix_memalign((void **)&fiber_cta.shared, 1024, grid->shared) != 0)
        fiber_die("no memory for %zu bytes of shared memory", grid->shared);
    for (uint32_t i = 0; i < grid->threads; i++)
        if (fiber_cta.thread[i].stack.base == NULL)
            fiber_stack_create(&fiber_cta.thread[i].stack, STACK_BYTES);
    for (fiber_cta.z = 0; fiber_cta.z < (grid->z > 0 ? grid->z : 1); fiber_cta.z++) {
        for (fiber_cta.y = 0; fiber_cta.y < (grid->y > 0 ? grid->y : 1); fiber_cta.y++) {
            for (uint32_t i = 0; i < grid->x; i++) {
                fiber_cta.x = in_order(i, grid->x);
                run_cta();
            }
        }
    }
    free(fiber_cta.shared);
    pthread_mutex_unlock(&lock);
}
