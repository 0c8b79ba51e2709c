/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The kernels of calls over peer memory as host code: every thread of a CTA is a fiber, CTAs start in their
 * order, one to three of them run by turns, and launches of several ranks run at the same time, each in the
 * thread of its rank. Some are slow between what they send and what they receive.
 * What tests/gpu/fiber.c has in one place, for one launch at a time, a launch has for itself here.
 */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fiber-names.h"
extern "C" {
#include "fiber-switch.h"
}

#define GPU_INLINE                      static inline
#define GPU_KERNEL(name, threads, ctas) static void name
#define GPU_ARGUMENT(type, arg)         const type arg

namespace
{

enum { THREADS = 512, STACK = 64 << 10, TURNS = 3 };

enum fiber_state { READY, AT_BARRIER, DONE };

/* A CTA that runs. */
struct cta {
    struct cta *next; /* that is free */
    struct fiber_stack scheduler, stacks[THREADS];
    enum fiber_state state[THREADS];
    struct fiber_grid grid;
    fiber_kernel_fn kernel;
    const void *argument;
    uint32_t x, y, current, waiting, done, looks;
};

thread_local struct cta *own;
struct cta *free_list;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct cta *take_cta()
{
    pthread_mutex_lock(&lock);
    struct cta *cta = free_list;
    if (cta != nullptr)
        free_list = cta->next;
    pthread_mutex_unlock(&lock);
    if (cta == nullptr) {
        cta = static_cast<struct cta *>(calloc(1, sizeof *cta));
        for (auto &stack : cta->stacks)
            fiber_stack_create(&stack, STACK);
    }
    return cta;
}

void give_cta(struct cta *cta)
{
    pthread_mutex_lock(&lock);
    cta->next = free_list;
    free_list = cta;
    pthread_mutex_unlock(&lock);
}

/* Others run until this fiber is chosen again. */
void let_others()
{
    fiber_step(&own->stacks[own->current], &own->scheduler);
}

void run_fiber()
{
    fiber_arrive(&own->scheduler);
    own->kernel(own->argument);
    own->state[own->current] = DONE;
    own->done++;
    fiber_leave(&own->stacks[own->current], &own->scheduler);
}

/* All that have not returned are at the barrier. */
void open_barrier()
{
    if (own->waiting == 0 || own->waiting + own->done < own->grid.threads)
        return;
    for (uint32_t i = 0; i < own->grid.threads; i++)
        if (own->state[i] == AT_BARRIER)
            own->state[i] = READY;
    own->waiting = 0;
}

void begin_cta(uint32_t x, uint32_t y)
{
    own->x = x;
    own->y = y;
    own->waiting = own->done = own->looks = 0;
    for (uint32_t i = 0; i < own->grid.threads; i++) {
        own->state[i] = READY;
        fiber_stack_start(&own->stacks[i], run_fiber);
    }
}

/* Every thread that can goes on. Returns whether any came to an end or to the barrier. */
bool step_cta()
{
    const uint32_t before = own->done + own->waiting;

    for (uint32_t i = 0; i < own->grid.threads; i++) {
        own->current = own->grid.order % 2 == 0 ? i : own->grid.threads - 1 - i;
        if (own->state[own->current] == READY)
            fiber_step(&own->scheduler, &own->stacks[own->current]);
    }
    const bool more = own->done + own->waiting != before;
    open_barrier();
    return more;
}

void run_grid(struct cta **places, uint32_t count, const struct fiber_grid *grid)
{
    const uint32_t ctas = grid->x * grid->y;
    uint32_t begun = 0, done = 0;

    for (uint32_t i = 0; i < count; i++)
        places[i]->done = grid->threads;
    while (done < ctas) {
        bool more = false;
        for (uint32_t i = 0; i < count; i++) {
            own = places[i];
            if (own->done == grid->threads && begun < ctas) {
                begin_cta(begun % grid->x, begun / grid->x);
                begun++;
            } else if (own->done == grid->threads) {
                continue;
            }
            more = step_cta() || more;
            done += own->done == grid->threads;
        }
        if (!more) /* all wait for another rank */
            sched_yield();
    }
}

uint32_t gpu_thread()
{
    return own->current;
}
uint32_t gpu_threads()
{
    return own->grid.threads;
}
uint32_t gpu_cta()
{
    return own->x;
}
uint32_t gpu_cta_y()
{
    return own->y;
}
uint32_t gpu_ctas()
{
    return own->grid.x;
}
void gpu_barrier()
{
    own->state[own->current] = AT_BARRIER;
    own->waiting++;
    let_others();
}
uint32_t gpu_atomic_or(uint32_t *at, uint32_t bits)
{
    return __atomic_fetch_or(at, bits, __ATOMIC_RELAXED);
}
uint32_t gpu_atomic_count(uint32_t *at, uint32_t last)
{
    uint32_t was = __atomic_load_n(at, __ATOMIC_RELAXED);

    while (!__atomic_compare_exchange_n(at, &was, was >= last ? 0 : was + 1, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        continue;
    return was;
}

/* Halves of a line arrive one after the other, in either order. */
void peer_store_line(uint64_t at, uint64_t a, uint64_t b)
{
    uint64_t *line = reinterpret_cast<uint64_t *>(at);

    const uint32_t first = (at / 16 + own->grid.order) % 2;

    __atomic_store_n(line + first, first == 0 ? a : b, __ATOMIC_RELAXED);
    if ((at / 16 + own->grid.order) % 7 < 2)
        let_others();
    __atomic_store_n(line + 1 - first, first == 0 ? b : a, __ATOMIC_RELAXED);
}
void peer_load_line(uint64_t at, uint64_t *a, uint64_t *b)
{
    const uint64_t *line = reinterpret_cast<const uint64_t *>(at);

    if (own->looks++ == 0 && own->grid.order % 5 == 0)
        usleep(300);
    *a = __atomic_load_n(line, __ATOMIC_RELAXED);
    *b = __atomic_load_n(line + 1, __ATOMIC_RELAXED);
}
uint32_t peer_load_own(uint64_t at)
{
    return __atomic_load_n(reinterpret_cast<const uint32_t *>(at), __ATOMIC_RELAXED);
}
uint32_t peer_load_host(uint64_t at)
{
    return peer_load_own(at);
}
void peer_store_host(uint64_t at, uint32_t value)
{
    __atomic_store_n(reinterpret_cast<uint32_t *>(at), value, __ATOMIC_RELAXED);
}
uint64_t peer_now_ns()
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * UINT64_C(1000000000) + static_cast<uint64_t>(now.tv_nsec);
}
void peer_pause()
{
    let_others();
}

#include "peer-kernel.h"

DRIVER_KERNEL(attn_peer_words, attn_peer_call)
DRIVER_KERNEL(attn_peer_bytes, attn_peer_call)

const struct driver_kernel kernels[] = {DRIVER_LINE_OF(attn_peer_words, attn_peer_call, PEER_THREADS),
                                        DRIVER_LINE_OF(attn_peer_bytes, attn_peer_call, PEER_THREADS)};

} // namespace

extern "C" const struct driver_kernel *driver_find(const char *name)
{
    for (const auto &kernel : kernels)
        if (strcmp(kernel.name, name) == 0)
            return &kernel;
    return nullptr;
}

extern "C" void fiber_launch(fiber_kernel_fn kernel, const void *argument, const struct fiber_grid *grid)
{
    const uint32_t count = 1 + grid->order % TURNS;
    struct cta *places[TURNS];

    if (grid->threads > THREADS)
        abort();
    for (uint32_t i = 0; i < count; i++) {
        places[i] = take_cta();
        places[i]->grid = *grid;
        places[i]->kernel = kernel;
        places[i]->argument = argument;
    }
    run_grid(places, count, grid);
    for (uint32_t i = 0; i < count; i++)
        give_cta(places[i]);
}
