/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests collectives over NCCL: what it is called with, and what becomes of its errors. It stands in for
 * itself. */
#include <stdio.h>
#include <string.h>

#include "attn/nccl.h"
#include "fake-nccl.h"
#include "ranks.h"

enum { WORDS = 3 };

/* What a rank of threads is by NCCL. */
struct end {
    void *comm;
    struct attn_nccl_ranks *ranks;
    struct attn_collectives net;
};

static void end_open(struct end *end, struct rank *rank)
{
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&end->net);
    end->comm = fake_nccl_create(&rank->net);
    cr_assert_eq(attn_nccl_ranks_create(NULL, end->comm, 7000000, &end->ranks, &err), ATTN_OK, "%s",
                 err.message);
    cr_assert_eq(attn_nccl_ranks_get(end->ranks, &end->net, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(end->net.rank, rank->number);
    cr_assert_eq(end->net.size, rank->size);
    cr_assert_eq(end->net.device, 1u);
    cr_assert_eq(end->net.timeout_ns, 7000000u);
}

static int end_close(struct end *end)
{
    attn_nccl_ranks_destroy(end->ranks);
    return fake_nccl_destroy(end->comm);
}

static void exchange(struct rank *rank)
{
    uint32_t send[MOST_RANKS][WORDS], receive[MOST_RANKS][WORDS], all[MOST_RANKS][WORDS], before[WORDS];
    const uint32_t last = (rank->number + rank->size - 1) % rank->size;
    struct end end;

    end_open(&end, rank);
    for (uint32_t to = 0; to < rank->size; to++)
        for (uint32_t i = 0; i < WORDS; i++)
            send[to][i] = (rank->number * MOST_RANKS + to) * WORDS + i;
    const struct attn_buffer from = {send, 0}, into = {receive, 0}, into_all = {all, 0},
                             into_before = {before, 0};
    rank->status = end.net.all_to_all(end.net.arg, &from, &into, sizeof send[0], NULL, &rank->err);
    if (rank->status == ATTN_OK)
        rank->status = end.net.all_gather(end.net.arg, &from, &into_all, sizeof send[0], NULL, &rank->err);
    if (rank->status == ATTN_OK)
        rank->status = end.net.shift(end.net.arg, &from, &into_before, sizeof before, NULL, &rank->err);
    if (rank->status == ATTN_OK)
        rank->status = end.net.check(end.net.arg, &rank->err);
    for (uint32_t i = 0; i < WORDS && rank->status == ATTN_OK; i++)
        if (before[i] != last * MOST_RANKS * WORDS + i)
            rank->status = ATTN_E_STATE;
    for (uint32_t r = 0; r < rank->size && rank->status == ATTN_OK; r++)
        for (uint32_t i = 0; i < WORDS; i++)
            if (receive[r][i] != (r * MOST_RANKS + rank->number) * WORDS + i ||
                all[r][i] != r * MOST_RANKS * WORDS + i)
                rank->status = ATTN_E_STATE;
    cr_assert_eq(end_close(&end), 0, "a connection that is destroyed leaves the communicator alone");
}

Test(nccl, blocks_arrive_from_every_rank)
{
    struct rank ranks[MOST_RANKS];

    for (uint32_t size = 1; size <= 5; size++) {
        ranks_run(ranks, size, 30, exchange, NULL);
        for (uint32_t r = 0; r < size; r++)
            cr_assert_eq(ranks[r].status, ATTN_OK, "rank %u of %u: %d %s", r, size, ranks[r].status,
                         ranks[r].err.message);
    }
}

static void lose_network(struct rank *rank)
{
    uint32_t word = 0, all[MOST_RANKS];
    const struct attn_buffer from = {&word, 0}, into = {all, 0};
    struct attn_error err;
    struct end end;

    ATTN_INIT(&err);
    end_open(&end, rank);
    cr_assert_eq(end.net.check(end.net.arg, &err), ATTN_OK);
    fake_nccl_fail(end.comm);
    rank->status = end.net.check(end.net.arg, &rank->err);
    end.net.abort(end.net.arg, rank->err.message);
    end.net.abort(end.net.arg, "again");
    cr_assert_eq(end.net.all_gather(end.net.arg, &from, &into, sizeof word, NULL, &err), ATTN_E_PEER);
    cr_assert_str_eq(err.message,
                     "rank 0 of 1 ended the connection: a collective on rank 0 of 1: NCCL says: remote "
                     "process exited or there was a network error");
    cr_assert_eq(end_close(&end), 1, "it is aborted once");
}

Test(nccl, a_failure_of_the_network_is_told)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 1, 30, lose_network, NULL);
    cr_assert_eq(ranks[0].status, ATTN_E_PEER);
}

static void wrong(struct rank *rank)
{
    struct attn_nccl_ranks *ranks = NULL;
    void *comm = fake_nccl_create(&rank->net);

    cr_assert_eq(attn_nccl_ranks_create(NULL, NULL, 1, &ranks, &rank->err), ATTN_E_INVALID);
    cr_assert_str_eq(rank->err.message, "comm is NULL; an ncclComm_t is accepted");
    cr_assert_eq(attn_nccl_ranks_create(NULL, comm, 0, &ranks, &rank->err), ATTN_E_INVALID);
    cr_assert_str_eq(rank->err.field, "timeout_ns");
    cr_assert_eq(attn_nccl_ranks_create(NULL, comm, 1, NULL, &rank->err), ATTN_E_INVALID);
    cr_assert_eq(attn_nccl_ranks_create("/nowhere/libnccl.so.2", comm, 1, &ranks, &rank->err),
                 ATTN_E_UNSUPPORTED);
    cr_assert_not_null(strstr(rank->err.message, "/nowhere/libnccl.so.2"), "%s", rank->err.message);
    cr_assert_eq(attn_nccl_ranks_create("libm.so.6", comm, 1, &ranks, &rank->err), ATTN_E_UNSUPPORTED);
    cr_assert_str_eq(rank->err.message, "library has no ncclCommCount; NCCL 2.7 or newer is accepted");
    cr_assert_null(ranks);
    cr_assert_eq(attn_nccl_ranks_get(NULL, &rank->net, &rank->err), ATTN_E_INVALID);
    attn_nccl_ranks_destroy(NULL);
    fake_nccl_destroy(comm);
}

Test(nccl, wrong_arguments_are_named)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 1, 30, wrong, NULL);
}
