/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Graphs of the OpenCL plugin: a launch does what the same calls do at once, bit for bit, in their order and
 * with what the arrays hold then; functions of the program are called in between; what may be captured, when,
 * and what may go before a graph.
 */
#include <stdio.h>
#include <time.h>

#include "world.h"

#define LARGE (UINT64_C(32) << 20)

/* ---------------------------------------------------------------- the order of copies and functions */

static struct {
    int32_t in, a, b;
    uint32_t calls;
    int32_t log[LAUNCHES][2];
} chain;

/* Late, so that what does not wait for it is done before. */
static void count_up(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    ++*(int32_t *)arg;
}

static void note(void *arg)
{
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    chain.log[chain.calls][0] = chain.a;
    chain.log[chain.calls++][1] = chain.b;
}

/*
 * A function is called between copies of what it changes; all launches are enqueued before any is waited for.
 * The first copy takes long, so that the function is not called while the graph is launched.
 */
static void test_order(void)
{
    const uint64_t size = sizeof chain.in;
    struct attn_buffer a = allocate(size), b = allocate(size), other = allocate(size),
                       large = allocate(LARGE);
    struct attn_graph *graph = NULL;
    void *stream = NULL;
    bool good = true;

    must(attn_stream_create(backend, &stream, &err));
    must(attn_graph_begin(backend, stream, &graph, &err));
    copy(large, (struct attn_buffer){large.data, LARGE / 2}, LARGE / 2, ATTN_COPY_ON_DEVICE, stream);
    copy(a, at(&chain.in), size, ATTN_COPY_TO_DEVICE, stream);
    must(attn_graph_add_host(graph, count_up, &chain.in, &err));
    copy(b, at(&chain.in), size, ATTN_COPY_TO_DEVICE, stream);
    copy(other, a, size, ATTN_COPY_ON_DEVICE, stream);
    copy(at(&chain.a), other, size, ATTN_COPY_TO_HOST, stream);
    copy(at(&chain.b), b, size, ATTN_COPY_TO_HOST, stream);
    must(attn_graph_add_host(graph, note, NULL, &err));
    must(attn_graph_end(graph, &err));
    check(chain.in == 0 && chain.calls == 0, "a capture does nothing", "");
    for (int i = 0; i < LAUNCHES; i++)
        must(attn_graph_launch(graph, stream, &err));
    attn_graph_destroy(graph); /* what was launched is done all the same */
    must(attn_stream_synchronize(backend, stream, &err));
    for (int i = 0; i < LAUNCHES; i++)
        good = good && chain.log[i][0] == i && chain.log[i][1] == i + 1;
    check(good && chain.calls == LAUNCHES && chain.in == LAUNCHES, "copies and functions are done in order",
          "");
    attn_stream_destroy(backend, stream);
    attn_memory_free(backend, &a);
    attn_memory_free(backend, &b);
    attn_memory_free(backend, &other);
    attn_memory_free(backend, &large);
}

/* ---------------------------------------------------------------- what is refused */

static void test_refusals(void)
{
    struct attn_graph *graph = NULL, *second = NULL;
    void *stream = NULL, *event = NULL, *other = NULL;

    must(attn_stream_create(backend, &stream, &err));
    must(attn_stream_create(backend, &other, &err));
    must(attn_event_create(backend, &event, &err));
    REFUSED(attn_graph_begin(backend, NULL, &graph, &err), ATTN_E_STATE, "stream");
    must(attn_graph_begin(backend, stream, &graph, &err));
    REFUSED(attn_graph_begin(backend, stream, &second, &err), ATTN_E_STATE, "stream");
    REFUSED(attn_stream_synchronize(backend, stream, &err), ATTN_E_STATE, "stream");
    REFUSED(attn_event_record(backend, event, stream, &err), ATTN_E_STATE, "stream");
    check(attn_event_record(backend, event, other, &err) == ATTN_OK, "another stream is not captured", "");
    must(attn_graph_end(graph, &err));
    must(attn_graph_begin(backend, stream, &second, &err));
    REFUSED(attn_graph_launch(graph, stream, &err), ATTN_E_STATE, "stream");
    attn_graph_destroy(second);
    check(attn_graph_launch(graph, stream, &err) == ATTN_OK &&
              attn_event_record(backend, event, stream, &err) == ATTN_OK &&
              attn_event_synchronize(backend, event, &err) == ATTN_OK,
          "a graph that is destroyed ends its capture", "");
    attn_graph_destroy(graph);
    must(attn_graph_begin(backend, stream, &graph, &err));
    attn_stream_destroy(backend, stream);
    REFUSED(attn_graph_add_host(graph, count_up, NULL, &err), ATTN_E_STATE, "stream");
    REFUSED(attn_graph_end(graph, &err), ATTN_E_STATE, "stream");
    attn_graph_destroy(graph);
    attn_stream_destroy(backend, other);
    attn_event_destroy(backend, event);
}

int main(void)
{
    if (!world_open("opencl")) {
        printf("1..0 # SKIP %s\n", err.message);
        world_close();
        return 0;
    }
    test_order();
    test_step();
    test_refusals();
    world_close();
    return finish_checks();
}
