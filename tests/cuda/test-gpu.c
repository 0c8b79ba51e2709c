/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The CUDA plugin on the driver and the device of this machine: contexts, graphs, threads, memory that is not
 * there, and last a device that is lost. Without a device all of it is skipped.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "world.h"

/* The driver beside the plugin, as another user of the device has it. */
static struct {
    cuda_result (*get_current)(cuda_handle *context);
    cuda_result (*create)(cuda_handle *context, unsigned flags, cuda_device device);
    cuda_result (*destroy)(cuda_handle context);
} driver;

static void find(void *library, const char *name, void *out)
{
    void *symbol = library != NULL ? dlsym(library, name) : NULL;

    memcpy(out, &symbol, sizeof symbol);
}

static void nothing_fails(uint64_t call, cuda_result result)
{
    (void)call, (void)result;
}

static void reset(const struct fake_machine *machine)
{
    (void)machine;
}

static const char *no_offence(void)
{
    return "";
}

static cuda_handle current(uint32_t *depth)
{
    cuda_handle context = NULL;

    driver.get_current(&context);
    *depth = context != NULL;
    return context;
}

/* A real driver counts nothing. */
static const struct fake real = {
    .reset = reset, .fail = nothing_fails, .offence = no_offence, .current = current};

static void count(void *arg)
{
    ++*(int *)arg;
}

/* A run at once, and one of a graph that is launched twice. */
static int32_t use(struct job *job, struct world *world)
{
    const struct attn_memory_table *memory = world->table->memory;
    const uint32_t given = job->batch.given;
    struct attn_graph_impl *graph = NULL;
    int called = 0;
    int32_t status = job_run(job, world);

    if (status == ATTN_OK)
        status = job_judge(job, world);
    if (status == ATTN_OK)
        status = memory->graph_begin(job->backend, job->stream, &graph, &world->err);
    if (status != ATTN_OK)
        return status;
    job->batch.given = 0;
    status = job_run(job, world);
    if (status == ATTN_OK)
        status = memory->graph_add_host(graph, count, &called, &world->err);
    if (status == ATTN_OK)
        status = memory->graph_end(graph, &world->err);
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        status = job_spoil(job, world);
        if (status == ATTN_OK)
            status = memory->graph_launch(graph, job->stream, &world->err);
        if (status == ATTN_OK)
            status = job_judge(job, world);
    }
    job->wrong = job->wrong || (status == ATTN_OK && called != 2);
    job->batch.given = given;
    memory->graph_destroy(graph);
    return status;
}

static bool works(struct world *world, void *native)
{
    struct job job;
    int32_t status = job_init(&job, world, 0, native);

    if (status == ATTN_OK)
        status = use(&job, world);
    job_finish(&job, world);
    return status == ATTN_OK && !job.wrong;
}

static void test_contexts(struct world *world)
{
    cuda_handle own = NULL, now = NULL;

    check(world, works(world, NULL), "a run and a graph");
    check(world, driver.get_current(&now) == CUDA_SUCCESS && now == NULL, "leave no context behind");
    check(world, driver.create(&own, 0, 0) == CUDA_SUCCESS && works(world, NULL),
          "under a context of the caller");
    check(world, driver.get_current(&now) == CUDA_SUCCESS && now == own, "which stays current");
    check(world, works(world, own), "in a context of the caller");
    driver.destroy(own);
}

static void test_exhausted(struct world *world)
{
    struct attn_buffer buffer;
    struct job job;

    check(world,
          job_init(&job, world, 0, NULL) == ATTN_OK &&
              world->table->memory->alloc(job.backend, (uint64_t)1 << 46, &buffer, &world->err) ==
                  ATTN_E_MEMORY &&
              strstr(world->err.message, "CUDA_ERROR_OUT_OF_MEMORY") != NULL,
          "memory that is not there is refused");
    check(world, use(&job, world) == ATTN_OK && !job.wrong, "and all goes on");
    job_finish(&job, world);
}

struct thread {
    pthread_t id;
    struct world world;
    bool good;
};

static void *run_thread(void *arg)
{
    struct thread *thread = arg;

    thread->good = true;
    for (int i = 0; i < 10; i++)
        thread->good = thread->good && works(&thread->world, NULL);
    return NULL;
}

static void test_threads(struct world *world)
{
    struct thread threads[4];
    bool good = true;

    for (int i = 0; i < 4; i++) {
        threads[i].world = *world;
        if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) != 0)
            abort();
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i].id, NULL);
        good = good && threads[i].good;
    }
    check(world, good, "four threads open, run and close");
}

static void test_lost(struct world *world)
{
    struct attn_buffer buffer;
    struct job job;

    check(world, job_init(&job, world, 0, NULL) == ATTN_OK, "a backend is opened");
    job.tensors.q.buffer = (struct attn_buffer){(void *)(uintptr_t)64, 0};
    int32_t status = job_run(&job, world);
    if (status == ATTN_OK)
        status = world->table->memory->stream_synchronize(job.backend, job.stream, &world->err);
    check(world, status == ATTN_E_DEVICE_LOST, "a kernel that reads nowhere loses the device");
    printf("# %s\n", world->err.message);
    check(world,
          world->table->memory->alloc(job.backend, 64, &buffer, &world->err) == ATTN_E_DEVICE_LOST &&
              job_run(&job, world) == ATTN_E_DEVICE_LOST,
          "then every call says so");
    job_finish(&job, world);
}

int main(int argc, char **argv)
{
    struct world world;
    struct attn_device_info info;
    uint32_t devices = 0;

    if (argc != 3)
        return 2;
    world_init(&world, argv[1], argv[2]);
    world.fake = &real;
    world.library = NULL;
    world_begin(&world, NULL);
    int32_t status = world.plugin->get_devices(world.instance, &info, 1, &devices, &world.err);
    if (status != ATTN_OK || devices == 0) {
        printf("1..0 # SKIP no CUDA device\n");
        world_end(&world);
        return 0;
    }
    printf("# %s, %s\n", info.name, info.arch);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    find(library, "cuCtxGetCurrent", &driver.get_current);
    find(library, "cuCtxCreate_v2", &driver.create);
    find(library, "cuCtxDestroy_v2", &driver.destroy);
    test_contexts(&world);
    test_exhausted(&world);
    test_threads(&world);
    test_lost(&world);
    world_end(&world);
    return check_end();
}
