/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests small calls over peer memory: what arrives, by calls and by graphs, and which way calls go. Kernels
 * are host code. */
#include "../../transports/nccl/peer-call.h"
#include "peer-ends.h"

/* Two calls before that with number 0 are too long to have one. All calls are more than it takes for numbers
 * to pass 0, and for lines to be renewed. */
enum {
    CALL_0 = (int)(0u - PEER_FIRST) + 2,
    FIRST_LONG = 51,
    CALLS = CALL_0 > 200 ? CALL_0 + 82 : CALL_0 + 46,
    SLACK = 64,
    SETUP_CALLS = 2
};
_Static_assert(CALL_0 % 2 == 0 && CALL_0 > FIRST_LONG + 24, "number 0 has the slot that call 51 has not");

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
    if (number == FIRST_LONG || number == CALL_0 || number == CALL_0 + 42)
        call.bytes = most;
    if (number == FIRST_LONG + 1 || number == (FIRST_LONG + CALL_0) / 2 + 8)
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
    struct job job = {.timeout_ns = UINT64_C(60000000000), .there = there};

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
    for (uint32_t turn = 0; turn < CALLS / GRAPH_CALLS && rank->status == ATTN_OK; turn++) {
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
    struct job job = {.timeout_ns = UINT64_C(60000000000)};

    run_ranks(ranks, 3, replay, &job);
    for (uint32_t r = 0; r < 3; r++)
        cr_assert_eq(ranks[r].status, ATTN_OK, "rank %u: %d %s", r, ranks[r].status, ranks[r].err.message);
    check_driver();
}
