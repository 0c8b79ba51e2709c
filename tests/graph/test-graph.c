/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Graphs on the CPU: a replay does what the same calls do at once, bit for bit, with whatever the arrays hold
 * then; what may be captured, when, and from where it may be launched.
 */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "allocations.h"
#include "world.h"

static uint32_t passed, failed;

static void check(bool good, const char *format, const char *detail)
{
    printf("%s %u - ", good ? "ok" : "not ok", ++passed);
    printf(format, detail); /* NOLINT: all formats are in this file */
    printf("\n");
    failed += !good;
}

static struct attn_graph *capture(struct world *world, void *stream, bool plan_inside)
{
    struct attn_graph *graph = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_graph_begin(world->backend, stream, &graph, &err) != ATTN_OK ||
        (plan_inside && world_prepare(world, false, stream, &err) != ATTN_OK)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    world_step(world, stream, graph);
    if (attn_graph_end(graph, &err) != ATTN_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return graph;
}

/* One member of a team that launches. */
struct member {
    struct attn_graph *graph;
    struct attn_cpu_executor executor;
    int32_t status;
};

static void meet(void *arg)
{
    pthread_barrier_wait(arg);
}

static void *launch_in_team(void *arg)
{
    struct member *member = arg;

    member->status = attn_graph_launch(member->graph, &member->executor, NULL);
    return NULL;
}

enum { TEAM = 3 };

static int32_t launch_by_team(struct attn_graph *graph)
{
    struct member members[TEAM];
    pthread_t threads[TEAM];
    pthread_barrier_t barrier;
    int32_t status = ATTN_OK;

    pthread_barrier_init(&barrier, NULL, TEAM);
    for (uint32_t i = 0; i < TEAM; i++) {
        members[i].graph = graph;
        ATTN_INIT(&members[i].executor);
        members[i].executor.kind = ATTN_EXECUTOR_TEAM;
        members[i].executor.ith = i;
        members[i].executor.nth = TEAM;
        members[i].executor.arg = &barrier;
        members[i].executor.barrier = meet;
        pthread_create(&threads[i], NULL, launch_in_team, &members[i]);
    }
    for (uint32_t i = 0; i < TEAM; i++) {
        pthread_join(threads[i], NULL);
        status = members[i].status != ATTN_OK ? members[i].status : status;
    }
    pthread_barrier_destroy(&barrier);
    return status;
}

enum { STEPS = 200 };

/* Steps at random; every tenth by a team, the others in turn on the stream and on none. */
static void test_replay(struct attn_backend *backend, uint32_t kv_dtype, bool plan_inside)
{
    const char *kind = kv_dtype == ATTN_F32 ? plan_inside ? "f32, planned inside" : "f32" : "e4m3";
    struct world replayed, eager;
    struct attn_error err;
    void *stream = NULL;
    uint64_t made = 0;
    bool same = true;

    ATTN_INIT(&err);
    world_init(&replayed, backend, kv_dtype);
    world_init(&eager, backend, kv_dtype);
    attn_stream_create(backend, &stream, NULL);
    struct attn_graph *graph = capture(&replayed, stream, plan_inside);
    replayed.scale = NAN; /* a host value, read when the call was made */
    check(replayed.memory->copied[0][0][0] == 0 && world_difference(&replayed, &eager) == NULL,
          "%s: a capture does nothing", kind);
    for (uint32_t step = 0; step < STEPS && same; step++) {
        world_change(&replayed, step);
        world_change(&eager, step);
        if (world_prepare(&eager, step % 2 == 0, NULL, &err) != ATTN_OK)
            break;
        world_step(&eager, NULL, NULL);
        uint64_t before = allocations_made();
        int32_t status = plan_inside ? ATTN_OK : world_prepare(&replayed, step % 2 == 1, NULL, &err);
        if (status == ATTN_OK)
            status = step % 10 == 9 ? launch_by_team(graph)
                                    : attn_graph_launch(graph, step % 2 == 0 ? stream : NULL, &err);
        made += step > 0 && step % 10 != 9 ? allocations_made() - before : 0;
        const char *difference = status == ATTN_OK ? world_difference(&replayed, &eager) : err.message;
        same = difference == NULL;
        if (!same)
            printf("# step %u: %s\n", step, difference);
    }
    check(same, "%s: 200 replays with other contents equal calls at once", kind);
    if (allocations_counted())
        check(made == 0, "%s: a step on a graph allocates nothing", kind);
    attn_graph_destroy(graph);
    attn_stream_destroy(backend, stream);
    world_finish(&replayed);
    world_finish(&eager);
}

/* Handles of a capture may go before it. */
static void test_lifetimes(struct attn_backend *backend)
{
    struct world replayed, eager;
    void *stream = NULL;

    world_init(&replayed, backend, ATTN_F32);
    world_init(&eager, backend, ATTN_F32);
    attn_stream_create(backend, &stream, NULL);
    world_change(&replayed, 7);
    world_change(&eager, 7);
    world_prepare(&replayed, true, NULL, NULL);
    world_prepare(&eager, true, NULL, NULL);
    struct attn_graph *graph = capture(&replayed, stream, false);
    attn_plan_destroy(replayed.plan);
    attn_kv_destroy(replayed.kv);
    attn_stream_destroy(backend, stream);
    replayed.plan = NULL;
    replayed.kv = NULL;
    int32_t status = attn_graph_launch(graph, NULL, NULL);
    world_step(&eager, NULL, NULL);
    check(status == ATTN_OK && world_difference(&replayed, &eager) == NULL, "%s",
          "plan, cache and stream may be destroyed before their graph");
    attn_graph_destroy(graph);
    world_finish(&replayed);
    world_finish(&eager);
}

#define REFUSED(call, wanted, name)                                                                          \
    do {                                                                                                     \
        ATTN_INIT(&err);                                                                                     \
        int32_t status_ = (call);                                                                            \
        check(status_ == (wanted) && strcmp(err.field, (name)) == 0, "refused: %s", #call);                  \
        if (status_ != (wanted))                                                                             \
            printf("# %d, %s: %s\n", status_, err.field, err.message);                                       \
    } while (0)

static void test_order(struct attn_backend *backend)
{
    struct attn_graph *graph = NULL, *second = NULL;
    struct attn_context *context = NULL;
    struct attn_backend *other = NULL;
    struct attn_cpu_executor team;
    struct attn_error err;
    void *stream = NULL, *event = NULL;
    int number = 0;

    ATTN_INIT(&team);
    team.kind = ATTN_EXECUTOR_TEAM;
    team.nth = 1;
    attn_stream_create(backend, &stream, NULL);
    attn_event_create(backend, &event, NULL);
    REFUSED(attn_graph_begin(backend, NULL, &graph, &err), ATTN_E_STATE, "stream");
    REFUSED(attn_graph_begin(backend, stream, NULL, &err), ATTN_E_INVALID, "out");
    REFUSED(attn_graph_begin(backend, &team, &graph, &err), ATTN_E_UNSUPPORTED, "stream.kind");
    check(attn_graph_begin(backend, stream, &graph, NULL) == ATTN_OK, "%s", "a stream is captured");
    REFUSED(attn_graph_begin(backend, stream, &second, &err), ATTN_E_STATE, "stream");
    REFUSED(attn_graph_launch(graph, NULL, &err), ATTN_E_STATE, "graph");
    check(strstr(err.message, "is still captured") != NULL, "%s", err.message);
    REFUSED(attn_graph_add_host(graph, NULL, &number, &err), ATTN_E_INVALID, "fn");
    REFUSED(attn_stream_synchronize(backend, stream, &err), ATTN_E_STATE, "stream");
    REFUSED(attn_event_record(backend, event, stream, &err), ATTN_E_STATE, "stream");
    backend_open("cpu/flashinfer", &context, &other);
    REFUSED(attn_stream_synchronize(other, stream, &err), ATTN_E_INVALID, "stream"); /* not its capture */
    attn_backend_destroy(other);
    attn_context_destroy(context);
    check(attn_graph_end(graph, NULL) == ATTN_OK, "%s", "a graph without calls is one");
    REFUSED(attn_graph_add_host(graph, (attn_host_fn)(uintptr_t)free, NULL, &err), ATTN_E_STATE, "graph");
    REFUSED(attn_graph_end(graph, &err), ATTN_E_STATE, "graph");
    check(strstr(err.message, "its contents are fixed") != NULL, "%s", err.message);
    attn_graph_begin(backend, stream, &second, NULL);
    REFUSED(attn_graph_launch(graph, stream, &err), ATTN_E_STATE, "stream");
    attn_graph_destroy(second); /* ends its capture */
    check(attn_graph_launch(graph, stream, NULL) == ATTN_OK, "%s", "the stream is free again");
    check(attn_event_record(backend, event, stream, NULL) == ATTN_OK &&
              attn_event_query(backend, event, NULL) == ATTN_OK &&
              attn_event_synchronize(backend, event, NULL) == ATTN_OK,
          "%s", "an event is reached as soon as it is recorded");
    attn_graph_destroy(graph);
    attn_graph_begin(backend, stream, &graph, NULL);
    attn_stream_destroy(backend, stream);
    REFUSED(attn_graph_end(graph, &err), ATTN_E_STATE, "stream");
    REFUSED(attn_graph_launch(graph, NULL, &err), ATTN_E_STATE, "graph");
    attn_graph_destroy(graph);
    attn_graph_destroy(NULL);
    attn_event_destroy(backend, event);
}

/* Wrong arguments are told when the call is made, and leave the capture as it was. */
static void test_arguments(struct attn_backend *backend)
{
    struct attn_graph *graph = NULL;
    struct attn_kv_write_args write;
    struct attn_error err;
    struct world world;
    void *stream = NULL;

    world_init(&world, backend, ATTN_F32);
    world_change(&world, 1);
    attn_stream_create(backend, &stream, NULL);
    attn_graph_begin(backend, stream, &graph, NULL);
    REFUSED(world_prepare(&world, true, stream, &err), ATTN_E_STATE, "batch.host");
    ATTN_INIT(&write);
    write.k_dtype = write.v_dtype = ATTN_INT8;
    write.num_tokens = ROWS;
    write.k_new.buffer.data = world.memory->k_new;
    write.v_new = write.k_new;
    write.kv = world.kv;
    write.slot_mapping.data = world.memory->slots;
    REFUSED(attn_kv_write(backend, &write, stream, &err), ATTN_E_UNSUPPORTED, "k_dtype");
    check(attn_graph_end(graph, NULL) == ATTN_OK && attn_graph_launch(graph, NULL, NULL) == ATTN_OK, "%s",
          "a call that was refused is not in the graph");
    attn_graph_destroy(graph);

    /* A schedule that was never prepared, and a page that the cache lacks, are told by the launch. */
    graph = capture(&world, stream, false);
    REFUSED(attn_graph_launch(graph, stream, &err), ATTN_E_INVALID, "schedule");
    world_prepare(&world, true, NULL, NULL);
    world.memory->slots[3] = PAGES * BLOCK;
    REFUSED(attn_graph_launch(graph, stream, &err), ATTN_E_INVALID, "slot_mapping");
    attn_graph_destroy(graph);
    attn_stream_destroy(backend, stream);
    world_finish(&world);
}

/* A launch has its line in ATTN_LOG=trace. */
static void test_trace(void)
{
    char name[] = "/tmp/attn-graph-XXXXXX", text[4096] = "";
    struct attn_context *context = NULL;
    struct attn_backend *backend = NULL;
    struct attn_graph *graph = NULL;
    void *stream = NULL;
    int fd = mkstemp(name);

    setenv("ATTN_LOG", "trace:call", 1);
    setenv("ATTN_LOG_FILE", name, 1);
    backend_open("cpu/flash-attn", &context, &backend);
    unsetenv("ATTN_LOG");
    unsetenv("ATTN_LOG_FILE");
    attn_stream_create(backend, &stream, NULL);
    bool good = attn_graph_begin(backend, stream, &graph, NULL) == ATTN_OK &&
                attn_graph_end(graph, NULL) == ATTN_OK && attn_graph_launch(graph, stream, NULL) == ATTN_OK;
    ssize_t size = read(fd, text, sizeof text - 1);
    check(good && size > 0 && strstr(text, " call: graph_launch,cpu/flash-attn,cpu:0,,,,") != NULL, "%s",
          "a launch is traced");
    close(fd);
    unlink(name);
    attn_graph_destroy(graph);
    attn_stream_destroy(backend, stream);
    attn_backend_destroy(backend);
    attn_context_destroy(context);
}

int main(void)
{
    struct attn_context *context = NULL;
    struct attn_backend *backend = NULL;

    backend_open("cpu/flash-attn", &context, &backend);
    test_replay(backend, ATTN_F32, false);
    test_replay(backend, ATTN_F32, true);
    test_replay(backend, ATTN_E4M3, false);
    test_lifetimes(backend);
    test_order(backend);
    test_arguments(backend);
    test_trace();
    attn_backend_destroy(backend);
    attn_context_destroy(context);
    printf("1..%u\n", passed);
    return failed != 0;
}
