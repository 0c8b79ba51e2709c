/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A use of the plugin from opening to closing, and the same with each of its calls to the driver failing. */
#include <stdio.h>

#include "world.h"

static void count_call(void *arg)
{
    ++*(int *)arg;
}

/* Events and pinned memory. */
static int32_t use_memory(struct job *job, struct world *world)
{
    const struct attn_memory_table *memory = world->table->memory;
    void *event = NULL, *pinned = NULL;
    int32_t status = memory->alloc_pinned(job->backend, 100, &pinned, &world->err);

    if (status == ATTN_OK)
        status = memory->event_create(job->backend, &event, &world->err);
    if (status == ATTN_OK)
        status = memory->event_record(job->backend, event, job->stream, &world->err);
    if (status == ATTN_OK)
        status = memory->event_query(job->backend, event, &world->err);
    if (status == ATTN_E_BUSY)
        status = ATTN_OK;
    if (status == ATTN_OK)
        status = memory->event_synchronize(job->backend, event, &world->err);
    memory->event_destroy(job->backend, event);
    memory->free_pinned(job->backend, pinned);
    return status;
}

int32_t use_graph(struct job *job, struct world *world)
{
    const struct attn_memory_table *memory = world->table->memory;
    const uint32_t given = job->batch.given;
    struct attn_graph_impl *graph = NULL;
    int called = 0;
    int32_t status = memory->graph_begin(job->backend, job->stream, &graph, &world->err);

    if (status != ATTN_OK)
        return status;
    job->batch.given = 0;
    status = memory->graph_add_host(graph, count_call, &called, &world->err);
    if (status == ATTN_OK)
        status = job_run(job, world);
    if (status == ATTN_OK)
        status = memory->graph_end(graph, &world->err);
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        status = job_spoil(job, world);
        if (status == ATTN_OK)
            status = memory->graph_launch(graph, job->stream, &world->err);
        if (status == ATTN_OK)
            status = job_judge(job, world);
    }
    job->batch.given = given;
    job->wrong = job->wrong || (status == ATTN_OK && called != 2);
    memory->graph_destroy(graph);
    return status;
}

int32_t use_all(struct world *world, void *native, bool *out_wrong)
{
    struct job job;
    struct attn_device_info infos[4];
    uint32_t count;
    int32_t status = world->plugin->get_devices(world->instance, infos, 4, &count, &world->err);

    memset(&job, 0, sizeof job);
    if (status == ATTN_OK)
        status = job_init(&job, world, 0, native);
    if (status == ATTN_OK)
        status = use_memory(&job, world);
    if (status == ATTN_OK)
        status = job_run(&job, world);
    if (status == ATTN_OK)
        status = job_judge(&job, world);
    if (status == ATTN_OK)
        status = use_graph(&job, world);
    *out_wrong = job.wrong;
    job_finish(&job, world);
    return status;
}

void use_failing(struct world *world, const struct fake_machine *machine, gpu_result result, int32_t status,
                 const char *name)
{
    uint64_t call = 0, bad = 0, last = 0;
    char text[256], what[96];

    do {
        bool wrong;
        uint32_t depth;
        world_begin(world, machine);
        world->fake->fail(++call, result);
        int32_t got = use_all(world, NULL, &wrong);
        world_end(world);
        last = *world->fake->failed() == '\0';
        const uint32_t left = world->fake->leaks(text, sizeof text);
        const bool sticky = status == ATTN_E_DEVICE_LOST;
        world->fake->current(&depth);
        const char *failed = world->fake->failed();
        /* What is lost is not released, nor is what a release did not get to: its context cannot be entered.
         */
        const bool kept = sticky || (got == ATTN_OK && world_enters(world, failed));
        if ((got == ATTN_OK && wrong) || (got != ATTN_OK && got != status && got != ATTN_E_DEVICE) ||
            depth != 0 || *world->fake->offence() != '\0' || (left != 0 && !kept)) {
            printf("# call %llu, %s: status %d, left %u (%s), depth %u, %s; %s\n", (unsigned long long)call,
                   failed, got, left, text, depth, world->fake->offence(), world->err.message);
            bad++;
        }
    } while (last == 0 && call < 1000);
    snprintf(what, sizeof what, "%s of each of %llu calls", name, (unsigned long long)call - 1);
    check(world, bad == 0 && call > 60, what);
}
