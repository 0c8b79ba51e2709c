/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A GPU's plugin on a driver that is watched (shim.h): that of this machine, on which all is skipped without
 * a device, or the fake. Contexts, several devices, threads with streams, memory that is not there, failures
 * of every call, and devices that are lost.
 *
 * test-gpu PLUGIN SHIM [LIBRARY] [--faulty]
 *
 * For HIP's plugin SHIM is the runtime that stands in, over the library that watches.
 *
 * With --faulty only a kernel that reads nowhere runs, for tools that are to see it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "test-gpu.h"

static bool works(struct world *world, void *native)
{
    bool wrong = true;

    return use_all(world, native, &wrong) == ATTN_OK && !wrong;
}

static void test_contexts(struct world *world, const struct shim *shim)
{
    uint32_t depth;

    world_begin(world, NULL);
    check(world, works(world, NULL), "a use gives the right result");
    check(world, world->fake->current(&depth) == NULL, "and leaves no context behind");
    gpu_handle own = world->fake->context_push(0);
    check(world, own != NULL && works(world, NULL), "the same under a context of the caller");
    check(world, world->fake->current(&depth) == own, "which stays the current one");
    const uint64_t retained = world->fake->calls_of("cuDevicePrimaryCtxRetain");
    check(world, works(world, own) && world->fake->calls_of("cuDevicePrimaryCtxRetain") == retained,
          "the caller's context is used where it is given, and no other");
    world->fake->context_pop();
    check(world, works(world, own) && world->fake->current(&depth) == NULL, "also by a thread that has none");
    check(world, shim->living(own) == 0, "nothing of it stays there");
    world_end(world);
    check_clean(world, "nothing is left");
}

/* Two jobs take turns under a third context, or on a device of the caller; each has its things in its own. */
static void take_turns(struct world *world, const struct shim *shim, struct job jobs[2],
                       const gpu_handle contexts[2], const char *what)
{
    gpu_handle third = world->fake->context_push(0);
    bool good = third != NULL || !world->vendor->contexts, kept = true;
    uint32_t depth, first;

    world->fake->current(&first);

    for (int i = 0; i < 20 && good; i++) {
        struct job *job = &jobs[i % 2];
        good = job_spoil(job, world) == ATTN_OK && job_run(job, world) == ATTN_OK &&
               job_judge(job, world) == ATTN_OK && use_graph(job, world) == ATTN_OK && !job->wrong;
        kept = kept && world->fake->current(&depth) == third && depth == first;
    }
    check(world, good, what);
    check(world, kept, "the caller's context is current after each call");
    check(world,
          contexts[0] != contexts[1] && shim->living(contexts[0]) >= 3 && shim->living(contexts[1]) >= 3 &&
              shim->living(third) == 0,
          "streams, memory and modules are in the context of their backend");
    world->fake->context_pop();
}

static void test_two_contexts(struct world *world, const struct shim *shim)
{
    struct job jobs[2];

    world_begin(world, NULL);
    gpu_handle own = world->fake->context_push(0);
    world->fake->context_pop();
    check(world,
          job_init(&jobs[0], world, 0, NULL) == ATTN_OK && job_init(&jobs[1], world, 0, own) == ATTN_OK,
          "two contexts of one device are open");
    take_turns(world, shim, jobs, (gpu_handle[]){shim->primary(), own}, "they take turns");
    job_finish(&jobs[0], world);
    job_finish(&jobs[1], world);
    world_end(world);
    check_clean(world, "nothing is left");
}

static void test_two_devices(struct world *world, const struct shim *shim, int devices)
{
    gpu_handle contexts[2];
    struct job jobs[2];
    bool good = true;

    if (devices < 2) {
        check_skip("two devices in one process",
                   world->vendor->contexts ? "one CUDA device only" : "one HIP device only");
        return;
    }
    world_begin(world, NULL);
    for (int i = 1; i >= 0; i--) { /* the second one first: nothing may rest on the order */
        good = good && job_init(&jobs[i], world, i, NULL) == ATTN_OK;
        contexts[i] = shim->primary();
    }
    check(world, good, "two devices are open");
    take_turns(world, shim, jobs, contexts, "they take turns");
    job_finish(&jobs[0], world);
    check(world, shim->living(contexts[0]) == 0 && shim->living(contexts[1]) >= 3,
          "closing one leaves the other");
    check(world, job_run(&jobs[1], world) == ATTN_OK && job_judge(&jobs[1], world) == ATTN_OK,
          "which goes on");
    job_finish(&jobs[1], world);
    world_end(world);
    check_clean(world, "nothing is left");
}

/* ---------------------------------------------------------------- threads */

enum { THREADS = 6, ROUNDS = 40 };

struct thread {
    pthread_t id;
    struct world world;
    struct job job;
    bool good;
};

static pthread_barrier_t start;

/* Runs at once and by graphs, on a stream of its own. */
static void *run_thread(void *arg)
{
    struct thread *thread = arg;
    struct world *world = &thread->world;
    struct job *job = &thread->job;

    pthread_barrier_wait(&start);
    for (int i = 0; i < ROUNDS && thread->good; i++) {
        thread->good = job_spoil(job, world) == ATTN_OK && job_run(job, world) == ATTN_OK &&
                       job_judge(job, world) == ATTN_OK && use_graph(job, world) == ATTN_OK && !job->wrong;
    }
    return NULL;
}

/* One backend and one plan; a stream, memory and a cache each. */
static void test_streams(struct world *world)
{
    static struct thread threads[THREADS];
    struct job first;
    bool good = true;

    world_begin(world, NULL);
    check(world, job_init(&first, world, 0, NULL) == ATTN_OK, "one backend and one plan");
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        threads[i].world = *world;
        threads[i].good = job_init_beside(&threads[i].job, world, &first) == ATTN_OK;
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) != 0)
            abort();
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i].id, NULL);
        good = good && threads[i].good;
        world->err = threads[i].good ? world->err : threads[i].world.err;
        job_finish(&threads[i].job, world);
    }
    check(world, good, "six threads run and capture on streams of their own");
    pthread_barrier_destroy(&start);
    job_finish(&first, world);
    world_end(world);
    check_clean(world, "nothing is left");
}

static void *open_thread(void *arg)
{
    struct thread *thread = arg;

    pthread_barrier_wait(&start);
    for (int i = 0; i < 5 && thread->good; i++)
        thread->good = works(&thread->world, NULL);
    return NULL;
}

static void test_openers(struct world *world)
{
    static struct thread threads[THREADS];
    bool good = true;

    world_begin(world, NULL);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        threads[i].world = *world;
        threads[i].good = true;
        if (pthread_create(&threads[i].id, NULL, open_thread, &threads[i]) != 0)
            abort();
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i].id, NULL);
        good = good && threads[i].good;
        world->err = threads[i].good ? world->err : threads[i].world.err;
    }
    check(world, good, "six threads open, run and close");
    pthread_barrier_destroy(&start);
    world_end(world);
    check_clean(world, "nothing is left");
}

int main(int argc, char **argv)
{
    const bool faulty = argc > 3 && strcmp(argv[argc - 1], "--faulty") == 0;
    const char *library = argc - faulty > 3 ? argv[3] : NULL;
    struct world world;
    shim_get_fn get;

    if (argc - faulty != 3 && argc - faulty != 4)
        return 2;
    void *symbol = world_find(argv[2], "shim_get");
    memcpy(&get, &symbol, sizeof get);
    const struct shim *shim = get();
    const int devices = shim->use(library);
    if (devices == 0) {
        printf("1..0 # SKIP no CUDA device\n");
        return 0;
    }
    world_init(&world, argv[1], argv[2]);
    for (int i = 0; i < devices && i < 2; i++)
        shim->hold(i);
    if (faulty) {
        test_faulty(&world);
        if (!shim->real())
            check(&world, strstr(world.fake->offence(), "attn_reference") != NULL,
                  "an emulator names the kernel that does");
        return check_end();
    }
    if (world.vendor->contexts) {
        test_contexts(&world, shim);
        test_two_contexts(&world, shim);
    }
    test_two_devices(&world, shim, devices);
    test_streams(&world);
    test_openers(&world);
    test_exhausted(&world, shim);
    test_failures(&world);
    test_lost(&world, shim, devices);
    if (shim->real())
        test_faulty(&world);
    return check_end();
}
