/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A GPU plugin's graphs on the fake driver: what is kept, what is refused, and what goes in which order.
 */
#include <stdio.h>

#include "world.h"

static const struct fake_machine good = {.devices = 1, .major = 8, .minor = 0, .version = 12040};

static void add_one(void *arg)
{
    ++*(int *)arg;
}

/* What a capture refuses with ATTN_E_STATE; the rest of it is kept all the same. */
static void test_refused(struct world *world)
{
    const struct attn_memory_table *memory = world->table->memory;
    struct attn_graph_impl *graph = NULL, *second = NULL;
    struct job job;
    void *event = NULL;

    world_begin(world, &good);
    check(world,
          job_init(&job, world, 0, NULL) == ATTN_OK &&
              memory->event_create(job.backend, &event, &world->err) == ATTN_OK &&
              memory->graph_begin(job.backend, NULL, &graph, &world->err) == ATTN_E_STATE,
          "stream NULL is not captured");
    check(world, memory->graph_begin(job.backend, job.stream, &graph, &world->err) == ATTN_OK, "a stream is");
    check(world, memory->graph_begin(job.backend, job.stream, &second, &world->err) == ATTN_E_STATE,
          "but not twice");
    check(world, memory->event_record(job.backend, event, job.stream, &world->err) == ATTN_E_STATE,
          "no event is recorded into it");
    check(world, memory->stream_synchronize(job.backend, job.stream, &world->err) == ATTN_E_STATE,
          "nothing waits for it");
    check(world, job_run(&job, world) == ATTN_E_STATE && strcmp(world->err.field, "batch.host") == 0,
          "no step with host copies is planned in it");
    job.batch.given = 0;
    check(world, job_run(&job, world) == ATTN_OK, "one without them is");
    check(world, memory->graph_end(graph, &world->err) == ATTN_OK, "the capture ends");
    check(world,
          job_spoil(&job, world) == ATTN_OK && memory->graph_launch(graph, NULL, &world->err) == ATTN_OK &&
              job_judge(&job, world) == ATTN_OK && !job.wrong,
          "a launch on stream NULL does what was kept");
    check(world,
          memory->graph_begin(job.backend, job.stream, &second, &world->err) == ATTN_OK &&
              memory->graph_launch(graph, job.stream, &world->err) == ATTN_E_STATE,
          "no graph is launched into a capture");
    memory->graph_destroy(second);
    check(world, memory->stream_synchronize(job.backend, job.stream, &world->err) == ATTN_OK,
          "a graph that is destroyed unended leaves its stream free");
    memory->graph_destroy(graph);
    memory->event_destroy(job.backend, event);
    job_finish(&job, world);
    world_end(world);
    check_clean(world, "nothing is left");
}

static void test_stream_gone(struct world *world)
{
    const struct attn_memory_table *memory = world->table->memory;
    struct attn_graph_impl *graph = NULL;
    struct job job;
    void *stream = NULL;
    int called = 0;

    world_begin(world, &good);
    check(world,
          job_init(&job, world, 0, NULL) == ATTN_OK &&
              memory->stream_create(job.backend, &stream, &world->err) == ATTN_OK &&
              memory->graph_begin(job.backend, stream, &graph, &world->err) == ATTN_OK,
          "a capture begins");
    memory->stream_destroy(job.backend, stream);
    check(world, memory->graph_add_host(graph, add_one, &called, &world->err) == ATTN_E_STATE,
          "when its stream is destroyed nothing is added");
    check(world, memory->graph_end(graph, &world->err) == ATTN_E_STATE, "nor does it end well");
    memory->graph_destroy(graph);
    job_finish(&job, world);
    world_end(world);
    check_clean(world, "nothing is left");
}

/* Plan and cache may go before the graph; values of the host are those of the capture. */
static void test_kept(struct world *world)
{
    const struct attn_memory_table *memory = world->table->memory;
    struct attn_graph_impl *graph = NULL;
    struct job job;

    world_begin(world, &good);
    check(world,
          job_init(&job, world, 0, NULL) == ATTN_OK &&
              memory->graph_begin(job.backend, job.stream, &graph, &world->err) == ATTN_OK,
          "a capture begins");
    job.batch.given = 0;
    check(world, job_run(&job, world) == ATTN_OK && memory->graph_end(graph, &world->err) == ATTN_OK,
          "and ends with a run in it");
    world->table->plan->destroy(job.plan);
    world->table->kv->destroy(job.kv);
    memset(&job.tensors, 0xff, sizeof job.tensors);
    memset(&job.batch, 0xff, sizeof job.batch);
    job.plan = NULL;
    job.kv = NULL;
    check(world,
          job_spoil(&job, world) == ATTN_OK &&
              memory->graph_launch(graph, job.stream, &world->err) == ATTN_OK &&
              job_judge(&job, world) == ATTN_OK && !job.wrong,
          "it is launched after plan, cache and arguments are gone");
    const uint64_t launches = world->fake->calls_of("cuLaunchKernel");
    const uint64_t before = world->fake->calls();
    check(world,
          memory->graph_launch(graph, job.stream, &world->err) == ATTN_OK &&
              world->fake->calls_of("cuLaunchKernel") == launches &&
              world->fake->calls() - before == world->vendor->enter + 2 + world->vendor->leave,
          "a launch is two calls in a context: is it captured, launch");
    memory->graph_destroy(graph);
    job_finish(&job, world);
    world_end(world);
    check_clean(world, "nothing is left");
}

/* A run allocates nothing and is a fixed number of calls. */
static void test_costs(struct world *world)
{
    struct job job;

    world_begin(world, &good);
    check(world, job_init(&job, world, 0, NULL) == ATTN_OK && job_run(&job, world) == ATTN_OK, "a first run");
    const uint64_t before = world->fake->calls(), modules = world->fake->calls_of("cuModuleLoadData");
    check(world,
          world->table->plan->run(job.plan, &job.batch, &job.tensors, job.kv, NULL, &job.schedule,
                                  &job.scratch, job.stream, &world->err) == ATTN_OK &&
              world->fake->calls() - before == world->vendor->enter + 1 + world->vendor->leave,
          "a run is one call in a context: launch");
    check(world, world->fake->calls_of("cuModuleLoadData") == modules && modules > 0,
          "modules are loaded when a plan is made, once");
    job_finish(&job, world);
    world_end(world);
    check_clean(world, "nothing is left");
}

int main(int argc, char **argv)
{
    static void (*const parts[])(struct world *) = {test_refused, test_stream_gone, test_kept, test_costs};

    return world_main(argc, argv, parts, sizeof parts / sizeof parts[0]);
}
