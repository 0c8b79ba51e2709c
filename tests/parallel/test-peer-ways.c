/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests what becomes of ranks that do not come to a call over peer memory, and who goes by NCCL for what
 * reason.
 */
#include "peer-ends.h"

enum { LIMIT_MS = 1000 };

#define LONG_NS UINT64_C(60000000000)

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
        cr_assert_lt(rank->seconds, 30);
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

Test(peer_ways, a_rank_that_does_not_come_is_named)
{
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = UINT64_C(1000000) * LIMIT_MS, .missing = 1};

    run_ranks(ranks, 3, lose_rank, &job);
    for (uint32_t r = 0; r < 3; r += 2) {
        char message[160];
        snprintf(message, sizeof message,
                 "rank 1 did not come to a call over peer memory in which rank %u of 3 waited 1 s", r);
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

Test(peer_ways, a_connection_that_is_ended_ends_calls)
{
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = LONG_NS};

    run_ranks(ranks, 2, end_rank, &job);
    cr_assert_eq(ranks[0].status, ATTN_E_PEER);
    cr_assert_str_eq(ranks[0].err.message, "rank 0 of 2 ended the connection: the program ends");
    cr_assert_lt(ranks[0].seconds, 30);
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

Test(peer_ways, one_rank_goes_by_nccl)
{
    run_by_nccl(1, "there are not 2 to 8 ranks", false);
}

Test(peer_ways, ranks_that_were_told_so_go_by_nccl)
{
    setenv("ATTN_NCCL_PEER", "never", 1);
    run_by_nccl(2, "rank 0 cannot: ATTN_NCCL_PEER is never", false);
}

Test(peer_ways, devices_apart_go_by_nccl)
{
    peers()->apart = 2;
    run_by_nccl(4, "rank 0 cannot: its device cannot access that of another rank", false);
}

Test(peer_ways, memory_that_is_not_mapped_goes_by_nccl)
{
    peers()->refuses = 1;
    run_by_nccl(3, "rank 0 cannot: its driver does not map memory of another process", true);
}

Test(peer_ways, a_build_without_kernels_goes_by_nccl)
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

Test(peer_ways, one_rank_decides_for_all)
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
Test(peer_ways, a_driver_that_fails_leaves_nothing, .timeout = 60)
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

Test(peer_ways, a_wrong_variable_is_named)
{
    struct rank ranks[MOST_RANKS];
    struct job job = {.timeout_ns = LONG_NS};

    setenv("ATTN_NCCL_PEER", "no", 1);
    run_ranks(ranks, 1, wrong_variable, &job);
}
