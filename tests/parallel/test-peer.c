/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Tests small calls over peer memory: what arrives, which way calls go, and what becomes of ranks that do not
 * come. Ranks are threads with a device each of a driver that stands in, where kernels are host code.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../transports/nccl/peer-call.h"
#include "attn/nccl.h"
#include "fake-nccl.h"
#include "fake-peer.h"
#include "fake.h"
#include "ranks.h"

/* More than it takes for numbers of calls to pass 0, and for lines to be renewed. */
enum { CALLS = 340, CALL_0 = 258, SLACK = 64, SETUP_CALLS = 2, LIMIT_MS = 300 };

#define LONG_NS UINT64_C(60000000000)

/* A library of ranks. */
struct end_library {
    int32_t (*create)(const char *library, void *comm, uint64_t timeout_ns, struct attn_nccl_ranks **out,
                      struct attn_error *err);
    void (*destroy)(struct attn_nccl_ranks *ranks);
    int32_t (*get)(struct attn_nccl_ranks *ranks, struct attn_collectives *out, struct attn_error *err);
    int32_t (*peer)(const struct attn_nccl_ranks *ranks, const char **why);
};

/* What a test runs on each rank. */
struct job {
    uint64_t timeout_ns;
    bool there; /* odd ranks use the second library */
    const char *why;
    uint32_t missing;
    pthread_barrier_t open;
    int ways[MOST_RANKS]; /* attn_nccl_ranks_peer; -1: there is no connection */
};

struct end {
    struct end_library library;
    void *comm;
    struct attn_nccl_ranks *ranks;
    struct attn_collectives net;
};

static void find(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);

    cr_assert_not_null(address, "%s", name);
    memcpy(out, &address, sizeof address);
}

static struct end_library open_end(const char *variable)
{
    struct end_library end;
    void *library = dlopen(getenv(variable), RTLD_NOW | RTLD_LOCAL);

    cr_assert_not_null(library, "%s", dlerror());
    find(library, "attn_nccl_ranks_create", &end.create);
    find(library, "attn_nccl_ranks_destroy", &end.destroy);
    find(library, "attn_nccl_ranks_get", &end.get);
    find(library, "attn_nccl_ranks_peer", &end.peer);
    return end;
}

static void *find_driver(const char *name)
{
    void *library = dlopen(getenv("ATTN_CUDA_LIBRARY"), RTLD_NOW), *address = NULL;

    cr_assert_not_null(library, "%s", dlerror());
    find(library, name, &address);
    return address;
}

static const struct fake *fake(void)
{
    fake_get_fn get;
    void *address = find_driver("fake_get");

    memcpy(&get, &address, sizeof get);
    return get();
}

static struct fake_peer *peers(void)
{
    return find_driver("fake_peer");
}

static void end_open(struct end *end, struct rank *rank)
{
    const struct job *job = rank->arg;

    ATTN_INIT(&end->net);
    end->library = open_end(job->there && rank->number % 2 == 1 ? "PEER_THERE" : "PEER_HERE");
    end->comm = fake_nccl_create(&rank->net);
    cr_assert_eq(end->library.create(NULL, end->comm, job->timeout_ns, &end->ranks, &rank->err), ATTN_OK,
                 "%s", rank->err.message);
    cr_assert_eq(end->library.get(end->ranks, &end->net, &rank->err), ATTN_OK, "%s", rank->err.message);
}

static void end_close(struct end *end)
{
    end->library.destroy(end->ranks);
    fake_nccl_destroy(end->comm);
}

/* The driver stays loaded, with what it has counted. */
static void run_ranks(struct rank *ranks, uint32_t size, void (*fn)(struct rank *rank), struct job *job)
{
    (void)fake();
    pthread_barrier_init(&job->open, NULL, size);
    ranks_run(ranks, size, 60, fn, job);
    pthread_barrier_destroy(&job->open);
}

/* Nothing is left, and nothing was done that a driver does not take. */
static void check_driver(void)
{
    char text[256];

    cr_assert_str_eq(fake()->offence(), "");
    cr_assert_eq(fake()->leaks(text, sizeof text), 0u, "left: %s", text);
    cr_assert_eq(peers()->opened, 0);
}

/* ---------------------------------------------------------------- what arrives */

static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

static uint8_t byte_of(uint32_t call, uint32_t from, uint32_t to, uint64_t i)
{
    return (uint8_t)(mix((call * 16 + from) * 16 + to) + mix((uint32_t)(i / 64)) + (uint32_t)i * 7);
}

/* Call `number` of a sequence that is the same on all ranks. */
struct call {
    uint32_t number;
    bool to_all;
    uint64_t bytes;
    uint32_t send_at, receive_at; /* of this rank alone */
};

/*
 * Mostly short ones, of all lengths to 300 bytes; some are the longest, and two too long. The one with number
 * 0 (the two have none) is the first in its slot that is so long: lines that nobody wrote say 0, too.
 */
static struct call call_of(const struct rank *rank, uint32_t number)
{
    const uint64_t most = PEER_BOUND / rank->size;
    const uint32_t random = mix(number + 1);
    const bool even = random % 3 != 0; /* multiples of 8 at addresses that are */
    struct call call = {.number = number, .to_all = random >> 4 & 1, .bytes = 1 + (random >> 8) % 300};

    if (number % 61 == 7)
        call.bytes = 1 + (random >> 8) % 40000;
    if (number == 51 || number == CALL_0 || number == 300)
        call.bytes = most;
    if (number == 52 || number == 162)
        call.bytes = most + 1;
    if (even && call.bytes <= most)
        call.bytes = call.bytes > 16 ? call.bytes & ~UINT64_C(7) : 16;
    call.send_at = even ? 0 : mix(random + rank->number) % 8;
    call.receive_at = even ? 8 : mix(random + rank->number + 99) % 8;
    return call;
}

static int32_t make_call(const struct end *end, struct rank *rank, const struct call *call, uint8_t *send,
                         uint8_t *receive, void *stream)
{
    const struct attn_buffer from = {send, call->send_at}, into = {receive, call->receive_at};

    return call->to_all ? end->net.all_to_all(end->net.arg, &from, &into, call->bytes, stream, &rank->err)
                        : end->net.all_gather(end->net.arg, &from, &into, call->bytes, stream, &rank->err);
}

static void fill(const struct rank *rank, const struct call *call, uint8_t *send)
{
    for (uint32_t to = 0; to < (call->to_all ? rank->size : 1); to++)
        for (uint64_t i = 0; i < call->bytes; i++)
            send[call->send_at + to * call->bytes + i] =
                byte_of(call->number, rank->number, call->to_all ? to : 0, i);
}

/* How many bytes are not what their sender sent, or were written beside the blocks. */
static uint64_t count_wrong(const struct rank *rank, const struct call *call, const uint8_t *receive)
{
    uint64_t wrong = 0;

    for (uint32_t from = 0; from < rank->size; from++)
        for (uint64_t i = 0; i < call->bytes; i++)
            wrong += receive[call->receive_at + from * call->bytes + i] !=
                     byte_of(call->number, from, call->to_all ? rank->number : 0, i);
    for (uint32_t i = 0; i < call->receive_at; i++)
        wrong += receive[i] != 0xee;
    for (uint32_t i = 0; i < SLACK - 8; i++)
        wrong += receive[call->receive_at + rank->size * call->bytes + i] != 0xee;
    return wrong;
}

static void exchange(struct rank *rank)
{
    const size_t room = 2 * PEER_BOUND + SLACK;
    uint8_t *send = malloc(room), *receive = malloc(room);
    int by_nccl = SETUP_CALLS;
    const char *why;
    struct end end;

    end_open(&end, rank);
    cr_assert_eq(end.library.peer(end.ranks, &why), 1, "%s", why);
    for (uint32_t number = 0; number < CALLS && rank->status == ATTN_OK; number++) {
        const struct call call = call_of(rank, number);
        memset(receive, 0xee, call.bytes * rank->size + SLACK);
        fill(rank, &call, send);
        by_nccl += call.bytes > PEER_BOUND / rank->size;
        if (mix(number) % 50 == rank->number ||
            (number == CALL_0 && rank->number == 0)) /* ranks are not always in step */
            usleep(2000);
        rank->status = make_call(&end, rank, &call, send, receive, NULL);
        const uint64_t wrong = rank->status == ATTN_OK ? count_wrong(rank, &call, receive) : 0;
        if (wrong > 0) {
            rank->status = ATTN_E_STATE;
            snprintf(rank->err.message, sizeof rank->err.message,
                     "call %u of %llu bytes: %llu bytes are wrong", number, (unsigned long long)call.bytes,
                     (unsigned long long)wrong);
        }
        if (rank->status == ATTN_OK)
            rank->status = end.net.check(end.net.arg, &rank->err);
    }
    if (rank->status == ATTN_OK)
        cr_assert_eq(fake_nccl_calls(end.comm), by_nccl, "%d, not %d", fake_nccl_calls(end.comm), by_nccl);
    end_close(&end);
    free(send);
    free(receive);
}

static void run_exchange(uint32_t size, bool there)
{
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = UINT64_C(10000000000), .there = there};

    run_ranks(ranks, size, exchange, &job);
    for (uint32_t r = 0; r < size; r++)
        cr_assert_eq(ranks[r].status, ATTN_OK, "rank %u of %u: %s", r, size, ranks[r].err.message);
    check_driver();
}

Test(peer, blocks_arrive_on_2_ranks)
{
    run_exchange(2, false);
}

Test(peer, blocks_arrive_on_3_ranks)
{
    run_exchange(3, false);
}

Test(peer, blocks_arrive_on_4_ranks)
{
    run_exchange(4, false);
    cr_assert_eq(peers()->enabled, 4 * 3);
}

Test(peer, blocks_arrive_on_8_ranks)
{
    run_exchange(8, false);
}

Test(peer, blocks_arrive_from_other_processes)
{
    run_exchange(4, true);
    cr_assert_eq(peers()->enabled, 4, "ranks of one process map nothing");
}

/* ---------------------------------------------------------------- graphs */

/* The driver's calls of streams and graphs. */
struct graph_calls {
    int (*push)(void *context), (*pop)(void **context), (*retain)(void **context, int device);
    int (*release)(int device);
    int (*create)(void **stream, unsigned flags), (*destroy)(void *stream);
    int (*begin)(void *stream, int mode), (*end)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags),
        (*launch)(void *exec, void *stream);
    int (*exec_destroy)(void *exec), (*graph_destroy)(void *graph);
};

static void find_graph_calls(struct graph_calls *calls)
{
    void *library = dlopen(getenv("ATTN_CUDA_LIBRARY"), RTLD_NOW);

    find(library, "cuCtxPushCurrent_v2", &calls->push);
    find(library, "cuCtxPopCurrent_v2", &calls->pop);
    find(library, "cuDevicePrimaryCtxRetain", &calls->retain);
    find(library, "cuDevicePrimaryCtxRelease_v2", &calls->release);
    find(library, "cuStreamCreate", &calls->create);
    find(library, "cuStreamDestroy_v2", &calls->destroy);
    find(library, "cuStreamBeginCapture_v2", &calls->begin);
    find(library, "cuStreamEndCapture", &calls->end);
    find(library, "cuGraphInstantiateWithFlags", &calls->instantiate);
    find(library, "cuGraphLaunch", &calls->launch);
    find(library, "cuGraphExecDestroy", &calls->exec_destroy);
    find(library, "cuGraphDestroy", &calls->graph_destroy);
}

enum { GRAPH_CALLS = 3, GRAPH_BYTES = 40 };

/* A graph of three calls, so that a replay begins with the other slot than the one before. */
static void replay(struct rank *rank)
{
    static const size_t room = GRAPH_BYTES * MOST_RANKS + SLACK;
    uint8_t *send[GRAPH_CALLS], *receive[GRAPH_CALLS];
    struct graph_calls cuda;
    struct call calls[GRAPH_CALLS];
    void *context, *stream, *graph, *exec;
    struct end end;

    find_graph_calls(&cuda);
    end_open(&end, rank);
    cr_assert_eq(cuda.retain(&context, (int)rank->number), 0);
    cr_assert_eq(cuda.push(context), 0);
    cr_assert_eq(cuda.create(&stream, 1), 0);
    cr_assert_eq(cuda.begin(stream, 2), 0);
    for (uint32_t i = 0; i < GRAPH_CALLS; i++) {
        send[i] = malloc(room);
        receive[i] = malloc(room);
        calls[i] = (struct call){.to_all = i == 1, .bytes = GRAPH_BYTES - 8 * i};
        cr_assert_eq(make_call(&end, rank, &calls[i], send[i], receive[i], stream), ATTN_OK);
    }
    cr_assert_eq(cuda.end(stream, &graph), 0);
    cr_assert_eq(cuda.instantiate(&exec, graph, 0), 0);
    for (uint32_t turn = 0; turn < 100 && rank->status == ATTN_OK; turn++) {
        for (uint32_t i = 0; i < GRAPH_CALLS; i++) {
            calls[i].number = turn * GRAPH_CALLS + i;
            memset(receive[i], 0xee, room);
            fill(rank, &calls[i], send[i]);
        }
        cr_assert_eq(cuda.launch(exec, stream), 0);
        for (uint32_t i = 0; i < GRAPH_CALLS; i++)
            if (count_wrong(rank, &calls[i], receive[i]) > 0)
                rank->status = ATTN_E_STATE;
        if (rank->status == ATTN_OK)
            rank->status = end.net.check(end.net.arg, &rank->err);
    }
    cr_assert_eq(cuda.exec_destroy(exec), 0);
    cr_assert_eq(cuda.graph_destroy(graph), 0);
    cr_assert_eq(cuda.destroy(stream), 0);
    cr_assert_eq(cuda.pop(&context), 0);
    cr_assert_eq(cuda.release((int)rank->number), 0);
    end_close(&end);
    for (uint32_t i = 0; i < GRAPH_CALLS; i++) {
        free(send[i]);
        free(receive[i]);
    }
}

Test(peer, graphs_are_replayed)
{
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = UINT64_C(10000000000)};

    run_ranks(ranks, 3, replay, &job);
    for (uint32_t r = 0; r < 3; r++)
        cr_assert_eq(ranks[r].status, ATTN_OK, "rank %u: %d %s", r, ranks[r].status, ranks[r].err.message);
    check_driver();
}

/* ---------------------------------------------------------------- ranks that do not come */

/* All make one call, then all but one another. */
static void lose_rank(struct rank *rank)
{
    struct job *job = rank->arg;
    uint8_t send[16] = {0}, receive[16 * MOST_RANKS];
    const struct attn_buffer from = {send, 0}, into = {receive, 0};
    struct attn_error err;
    struct end end;

    ATTN_INIT(&err);
    end_open(&end, rank);
    cr_assert_eq(end.net.all_gather(end.net.arg, &from, &into, sizeof send, NULL, &rank->err), ATTN_OK);
    cr_assert_eq(end.net.check(end.net.arg, &rank->err), ATTN_OK, "%s", rank->err.message);
    if (rank->number != job->missing) {
        const double began = ranks_now();
        cr_assert_eq(end.net.all_gather(end.net.arg, &from, &into, sizeof send, NULL, &err), ATTN_OK);
        rank->seconds = ranks_now() - began;
        cr_assert_gt(rank->seconds, 0.9e-3 * LIMIT_MS);
        cr_assert_lt(rank->seconds, 10);
        rank->status = end.net.check(end.net.arg, &rank->err);
        const double again = ranks_now();
        cr_assert_eq(end.net.all_gather(end.net.arg, &from, &into, sizeof send, NULL, &err), ATTN_E_PEER);
        cr_assert_eq(end.net.all_to_all(end.net.arg, &from, &into, 1, NULL, &err), ATTN_E_PEER);
        cr_assert_eq(end.net.shift(end.net.arg, &from, &into, sizeof send, NULL, &err), ATTN_E_PEER);
        cr_assert_lt(ranks_now() - again, 0.5e-3 * LIMIT_MS, "later calls do not wait");
    }
    pthread_barrier_wait(&job->open);
    end_close(&end);
}

Test(peer, a_rank_that_does_not_come_is_named)
{
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = UINT64_C(1000000) * LIMIT_MS, .missing = 1};

    run_ranks(ranks, 3, lose_rank, &job);
    for (uint32_t r = 0; r < 3; r += 2) {
        char message[160];
        snprintf(message, sizeof message,
                 "rank 1 did not come to a call over peer memory in which rank %u of 3 waited 0.3 s", r);
        cr_assert_eq(ranks[r].status, ATTN_E_PEER);
        cr_assert_str_eq(ranks[r].err.message, message);
    }
    check_driver();
}

/* Ends the connection of a rank that waits for another one without a limit that matters. */
static void *abort_soon(void *arg)
{
    struct attn_collectives *net = arg;

    usleep(100000);
    net->abort(net->arg, "the program ends");
    return NULL;
}

static void end_rank(struct rank *rank)
{
    struct job *job = rank->arg;
    uint8_t send[16] = {0}, receive[16 * MOST_RANKS];
    const struct attn_buffer from = {send, 0}, into = {receive, 0};
    pthread_t thread;
    struct end end;

    end_open(&end, rank);
    if (rank->number == 0) {
        pthread_create(&thread, NULL, abort_soon, &end.net);
        cr_assert_eq(end.net.all_gather(end.net.arg, &from, &into, sizeof send, NULL, &rank->err), ATTN_OK);
        pthread_join(thread, NULL);
        rank->status = end.net.check(end.net.arg, &rank->err);
        cr_assert_eq(end.net.all_gather(end.net.arg, &from, &into, sizeof send, NULL, &rank->err),
                     ATTN_E_PEER);
    }
    pthread_barrier_wait(&job->open);
    end_close(&end);
}

Test(peer, a_connection_that_is_ended_ends_calls)
{
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = LONG_NS};

    run_ranks(ranks, 2, end_rank, &job);
    cr_assert_eq(ranks[0].status, ATTN_E_PEER);
    cr_assert_str_eq(ranks[0].err.message, "rank 0 of 2 ended the connection: the program ends");
    cr_assert_lt(ranks[0].seconds, 10);
    check_driver();
}

/* ---------------------------------------------------------------- which way */

/* All calls go by NCCL, for the reason that is expected, and arrive. */
static void go_by_nccl(struct rank *rank)
{
    const struct job *job = rank->arg;
    uint8_t send = (uint8_t)(7 + rank->number), receive[MOST_RANKS];
    const struct attn_buffer from = {&send, 0}, into = {receive, 0};
    const char *why = NULL;
    struct end end;

    end_open(&end, rank);
    cr_assert_eq(end.library.peer(end.ranks, NULL), 0);
    cr_assert_eq(end.library.peer(end.ranks, &why), 0);
    cr_assert_str_eq(why, job->why);
    const int before = fake_nccl_calls(end.comm);
    rank->status = end.net.all_gather(end.net.arg, &from, &into, 1, NULL, &rank->err);
    cr_assert_eq(fake_nccl_calls(end.comm), before + 1);
    for (uint32_t r = 0; r < rank->size; r++)
        cr_assert_eq(receive[r], 7 + r);
    end_close(&end);
}

static void run_by_nccl(uint32_t size, const char *why, bool there)
{
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = LONG_NS, .why = why, .there = there};

    run_ranks(ranks, size, go_by_nccl, &job);
    for (uint32_t r = 0; r < size; r++)
        cr_assert_eq(ranks[r].status, ATTN_OK, "%s", ranks[r].err.message);
    check_driver();
}

Test(peer, one_rank_goes_by_nccl)
{
    run_by_nccl(1, "there are not 2 to 8 ranks", false);
}

Test(peer, ranks_that_were_told_so_go_by_nccl)
{
    setenv("ATTN_NCCL_PEER", "never", 1);
    run_by_nccl(2, "rank 0 cannot: ATTN_NCCL_PEER is never", false);
}

Test(peer, devices_apart_go_by_nccl)
{
    peers()->apart = 2;
    run_by_nccl(4, "rank 0 cannot: its device cannot access that of another rank", false);
}

Test(peer, memory_that_is_not_mapped_goes_by_nccl)
{
    peers()->refuses = 1;
    run_by_nccl(3, "rank 0 cannot: its driver does not map memory of another process", true);
}

Test(peer, a_build_without_kernels_goes_by_nccl)
{
    setenv("PEER_HERE", getenv("PEER_WITHOUT"), 1);
    run_by_nccl(2, "rank 0 cannot: its library was built without nvcc", false);
}

/* One rank alone decides for all, whichever it is. */
static void without_kernels(struct rank *rank)
{
    const char *why = NULL;
    struct end end;

    end_open(&end, rank);
    cr_assert_eq(end.library.peer(end.ranks, &why), 0);
    cr_assert_str_eq(why, "rank 1 cannot: its library was built without nvcc");
    end_close(&end);
}

Test(peer, one_rank_decides_for_all)
{
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = LONG_NS, .there = true};

    setenv("PEER_THERE", getenv("PEER_WITHOUT"), 1);
    run_ranks(ranks, 3, without_kernels, &job);
    check_driver();
}

/* ---------------------------------------------------------------- a driver that fails */

static void create_on_failing(struct rank *rank)
{
    struct job *job = rank->arg;
    const struct end_library library = open_end("PEER_HERE");
    void *comm = fake_nccl_create(&rank->net);
    struct attn_nccl_ranks *ranks = NULL;

    rank->status = library.create(NULL, comm, LONG_NS, &ranks, &rank->err);
    cr_assert_eq(ranks != NULL, rank->status == ATTN_OK);
    job->ways[rank->number] = ranks != NULL ? library.peer(ranks, NULL) : -1;
    pthread_barrier_wait(&job->open);
    if (rank->number == 0)
        fake()->fail(0, 0);
    pthread_barrier_wait(&job->open);
    library.destroy(ranks);
    fake_nccl_destroy(comm);
}

/* Whichever call fails: ranks that go on go the same way, and nothing is left. */
Test(peer, a_driver_that_fails_leaves_nothing, .timeout = 60)
{
    const struct fake_machine machine = {.devices = 8, .major = 9, .version = 13000};
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = LONG_NS};
    bool failed = true;
    char text[256];
    uint32_t by_nccl = 0, errors = 0;

    setenv("FAKE_CUDA", "devices=8", 1);
    for (uint64_t call = 1; failed; call++) {
        fake()->reset(&machine);
        fake()->fail(call, GPU_OUT_OF_MEMORY);
        pthread_barrier_init(&job.open, NULL, 2);
        ranks_run(ranks, 2, 0.2, create_on_failing, &job);
        pthread_barrier_destroy(&job.open);
        failed = fake()->failed()[0] != '\0';
        cr_assert_eq(fake()->leaks(text, sizeof text), 0u, "call %d, %s, left: %s", (int)call,
                     fake()->failed(), text);
        cr_assert(ranks[0].status != ATTN_OK || ranks[1].status != ATTN_OK || job.ways[0] == job.ways[1],
                  "%s: %d and %d", fake()->failed(), job.ways[0], job.ways[1]);
        const bool needed = failed && strcmp(fake()->failed(), "cuCtxPopCurrent") != 0 &&
                            strcmp(fake()->failed(), "cuIpcGetMemHandle") != 0;
        cr_assert_eq(job.ways[0] == 1 && job.ways[1] == 1, !needed, "%s: %d and %d", fake()->failed(),
                     job.ways[0], job.ways[1]);
        by_nccl += job.ways[0] == 0;
        errors += job.ways[0] < 0;
    }
    cr_assert_gt(by_nccl, 10);
    cr_assert_gt(errors, 5);
}

static void wrong_variable(struct rank *rank)
{
    const struct end_library library = open_end("PEER_HERE");
    void *comm = fake_nccl_create(&rank->net);
    struct attn_nccl_ranks *ranks = NULL;

    cr_assert_eq(library.create(NULL, comm, 1, &ranks, &rank->err), ATTN_E_INVALID);
    cr_assert_str_eq(rank->err.message, "ATTN_NCCL_PEER=\"no\": auto or never is accepted");
    cr_assert_null(ranks);
    cr_assert_eq(library.peer(NULL, NULL), 0);
    fake_nccl_destroy(comm);
}

Test(peer, a_wrong_variable_is_named)
{
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = LONG_NS};

    setenv("ATTN_NCCL_PEER", "no", 1);
    run_ranks(ranks, 1, wrong_variable, &job);
}
