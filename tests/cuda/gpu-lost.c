/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory that is not there, calls that fail, and devices that are lost. */
#include <stdio.h>
#include <stdlib.h>

#include "test-gpu.h"

static bool runs(struct world *world, struct job *job)
{
    return job_spoil(job, world) == ATTN_OK && job_run(job, world) == ATTN_OK &&
           job_judge(job, world) == ATTN_OK && !job->wrong;
}

/* Also by a graph, for which the driver may want memory. */
static bool goes_on(struct world *world, struct job *job)
{
    return runs(world, job) && use_graph(job, world) == ATTN_OK && !job->wrong;
}

/* ---------------------------------------------------------------- memory */

enum { MOST_PIECES = 4096 };

/* Takes all that there is, in ever smaller pieces; the last refusal stands in world->err. */
static uint32_t take_all(struct world *world, struct job *job, struct attn_buffer pieces[MOST_PIECES],
                         uint64_t least)
{
    uint32_t count = 0;

    for (uint64_t size = (uint64_t)1 << 34; size >= least && count < MOST_PIECES;)
        if (world->table->memory->alloc(job->backend, size, &pieces[count], &world->err) == ATTN_OK)
            count++;
        else
            size /= 2;
    return count;
}

void test_exhausted(struct world *world, const struct shim *shim)
{
    static const uint64_t sizes[] = {(uint64_t)1 << 46, (uint64_t)1 << 62, UINT64_MAX};
    static struct attn_buffer pieces[MOST_PIECES];
    struct attn_buffer buffer;
    struct job job, second;
    bool refused = true;

    world_begin(world, NULL);
    check(world, job_init(&job, world, 0, NULL) == ATTN_OK, "a backend is open");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        refused = refused &&
                  world->table->memory->alloc(job.backend, sizes[i], &buffer, &world->err) == ATTN_E_MEMORY &&
                  buffer.data == NULL && world->err.reason == ATTN_REASON_MEMORY;
    check(world, refused && strstr(world->err.message, world->vendor->out_of_memory) != NULL,
          "more than a device has is refused, in the driver's words");
    const uint32_t before = shim->living(shim->primary());
    const uint32_t count = take_all(world, &job, pieces, 1);
    check(world,
          count > 0 && world->err.reason == ATTN_REASON_MEMORY &&
              shim->living(shim->primary()) == before + count,
          "all of the memory is taken, and one byte more refused");
    check(world, runs(world, &job), "what was made before goes on without it");
    const int32_t status = job_init_beside(&second, world, &job);
    check(world, status == ATTN_E_MEMORY, "nothing more begins");
    job_finish(&second, world);
    check(world, shim->living(shim->primary()) == before + count, "what did not begin left nothing");
    for (uint32_t i = 0; i < count; i++)
        world->table->memory->free(job.backend, &pieces[i]);
    check(world,
          job_init_beside(&second, world, &job) == ATTN_OK && goes_on(world, &second) && goes_on(world, &job),
          "after it is given back all begins and goes on");
    job_finish(&second, world);
    job_finish(&job, world);
    world_end(world);
    check_clean(world, "nothing is left");
}

/* ---------------------------------------------------------------- failures and losses */

void test_failures(struct world *world)
{
    use_failing(world, NULL, GPU_INVALID_VALUE, ATTN_E_DEVICE, "INVALID_VALUE");
    use_failing(world, NULL, GPU_OUT_OF_MEMORY, ATTN_E_MEMORY, "OUT_OF_MEMORY");
    use_failing(world, NULL, GPU_LAUNCH_FAILED, ATTN_E_DEVICE_LOST, "LAUNCH_FAILED");
}

static bool is_lost(struct world *world, int32_t status)
{
    return status == ATTN_E_DEVICE_LOST && world->err.reason == ATTN_REASON_DEVICE_LOST;
}

/* Every entry that reaches the device says that it is lost. */
static bool all_say_so(struct world *world, struct job *job, void *event)
{
    const struct attn_memory_table *memory = world->table->memory;
    struct attn_graph_impl *graph;
    struct attn_plan_impl *plan;
    struct attn_buffer buffer;
    void *out;

    return is_lost(world, memory->alloc(job->backend, 64, &buffer, &world->err)) &&
           is_lost(world, memory->alloc_pinned(job->backend, 64, &out, &world->err)) &&
           is_lost(world, memory->stream_create(job->backend, &out, &world->err)) &&
           is_lost(world, memory->stream_synchronize(job->backend, job->stream, &world->err)) &&
           is_lost(world, memory->event_create(job->backend, &out, &world->err)) &&
           is_lost(world, memory->event_record(job->backend, event, job->stream, &world->err)) &&
           is_lost(world, memory->event_query(job->backend, event, &world->err)) &&
           is_lost(world, memory->event_synchronize(job->backend, event, &world->err)) &&
           is_lost(world, memory->graph_begin(job->backend, job->stream, &graph, &world->err)) &&
           is_lost(world, world->table->plan->create(job->backend, &job->problem, &plan, &world->err)) &&
           is_lost(world, job_spoil(job, world)) && is_lost(world, job_run(job, world));
}

/* Whether a device serves a job's problem; if not, for which reason. */
static uint32_t refusal(struct world *world, const struct job *job, int32_t ordinal)
{
    const struct attn_device device = device_of(world, ordinal);
    struct attn_reason reason = {0};
    struct attn_query out = {.struct_size = sizeof out, .reasons = &reason, .reason_capacity = 1};

    (void)world->table->query(world->instance, &device, &job->problem, &out);
    return out.accepted != 0 ? 0 : reason.code;
}

/* The first call of a wait fails as after a fault of a kernel; the other backend is of another context. */
void test_lost(struct world *world, const struct shim *shim, int devices)
{
    struct job job, other;
    void *event = NULL, *native = NULL;

    if (devices == 1 && !world->vendor->contexts) {
        check_skip("a lost device beside another", "one HIP device only");
        return;
    }
    world_begin(world, NULL);
    if (devices == 1) {
        native = world->fake->context_push(0);
        world->fake->context_pop();
    }
    check(world,
          job_init(&job, world, 0, NULL) == ATTN_OK &&
              world->table->memory->event_create(job.backend, &event, &world->err) == ATTN_OK &&
              job_init(&other, world, devices > 1 ? 1 : 0, native) == ATTN_OK &&
              job_run(&job, world) == ATTN_OK,
          "two contexts at work");
    world->fake->fail(world->fake->calls() + world->vendor->enter + 1, GPU_ILLEGAL_ADDRESS);
    int32_t status = world->table->memory->stream_synchronize(job.backend, job.stream, &world->err);
    check(world, is_lost(world, status) && strstr(world->err.message, world->vendor->fault) != NULL,
          "a sticky error is told in the driver's words");
    world->fake->fail(0, GPU_SUCCESS);
    const uint64_t before = world->fake->calls();
    check(world, all_say_so(world, &job, event) && world->fake->calls() == before,
          "then every entry says DEVICE_LOST without the driver");
    check(world, refusal(world, &job, 0) == ATTN_REASON_DEVICE_LOST,
          "and the device is refused: DEVICE_LOST");
    check(world, devices == 1 || refusal(world, &job, 1) == 0, "another device is not");
    check(world, goes_on(world, &other), "another context goes on");
    const uint64_t calls = world->fake->calls();
    world->table->memory->event_destroy(job.backend, event);
    job_finish(&job, world);
    check(world, world->fake->calls() == calls, "what is lost is released without the driver");
    check(world, goes_on(world, &other), "and the other context goes on");
    job_finish(&other, world);
    check(world, *world->fake->offence() == '\0' && shim->living(native) == 0, "nothing of it is left");
    world_end(world);
    world_begin(world, NULL);
    bool wrong;
    check(world, use_all(world, NULL, &wrong) == ATTN_OK && !wrong, "a new instance begins anew");
    world_end(world);
    check_clean(world, "nothing is left");
}

void test_faulty(struct world *world)
{
    struct job job;

    world_begin(world, NULL);
    check(world, job_init(&job, world, 0, NULL) == ATTN_OK, "a backend is opened");
    job.tensors.q.buffer = (struct attn_buffer){(void *)(uintptr_t)64, 0};
    int32_t status = job_run(&job, world);
    if (status == ATTN_OK)
        status = world->table->memory->stream_synchronize(job.backend, job.stream, &world->err);
    check(world, is_lost(world, status), "a kernel that reads nowhere loses the device");
    printf("# %s\n", world->err.message);
    const uint64_t before = world->fake->calls();
    struct attn_buffer buffer;
    check(world,
          is_lost(world, world->table->memory->alloc(job.backend, 64, &buffer, &world->err)) &&
              is_lost(world, job_run(&job, world)) && world->fake->calls() == before,
          "then every call says so without the driver");
    job_finish(&job, world);
    world_end(world);
}
