/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Many threads open, plan, capture and close on one instance of a GPU plugin at once. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "world.h"

enum { THREADS = 6, ROUNDS = 50 };

static const struct fake_machine good = {.devices = 2, .major = 9, .minor = 0, .version = 13000};

/* All begin a round together: the last round's contexts are gone, or going. */
static pthread_barrier_t start;

struct thread {
    pthread_t id;
    int32_t ordinal;
    struct world world;
    bool good;
};

/* No kernel runs: launches are captured and dropped. */
static bool use(struct thread *thread)
{
    struct world *world = &thread->world;
    const struct attn_memory_table *memory = world->table->memory;
    struct attn_graph_impl *graph = NULL;
    struct attn_device_info info;
    struct job job;
    void *event = NULL;
    uint32_t count;
    int32_t status = world->plugin->get_devices(world->instance, &info, 1, &count, &world->err);

    if (status != ATTN_OK)
        return false;
    status = job_init(&job, world, thread->ordinal, NULL);
    if (status == ATTN_OK)
        status = memory->event_create(job.backend, &event, &world->err);
    if (status == ATTN_OK)
        status = memory->event_record(job.backend, event, job.stream, &world->err);
    if (status == ATTN_OK)
        status = memory->graph_begin(job.backend, job.stream, &graph, &world->err);
    job.batch.given = 0;
    if (status == ATTN_OK)
        status = job_run(&job, world);
    if (graph != NULL)
        memory->graph_destroy(graph);
    if (event != NULL)
        memory->event_destroy(job.backend, event);
    job_finish(&job, world);
    return status == ATTN_OK;
}

static void *run(void *arg)
{
    struct thread *thread = arg;

    thread->good = true;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&start);
        thread->good = use(thread) && thread->good;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct thread threads[THREADS];
    struct world world;
    bool all = true;

    if (argc != 3)
        return 2;
    world_init(&world, argv[1], argv[2]);
    world_begin(&world, &good);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        threads[i].world = world;
        threads[i].ordinal = i % 2;
        if (pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0)
            abort();
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i].id, NULL);
        all = all && threads[i].good;
        world.err = threads[i].good ? world.err : threads[i].world.err;
    }
    check(&world, all, "threads on two devices of one instance");
    check(&world, world.fake->calls_of("cuInit") == 1, "the driver is started once");
    world_end(&world);
    check_clean(&world, "nothing is left");
    return check_end();
}
