/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests collectives of ranks that are threads: what arrives, and how a rank that is missing ends the others.
 */
#include <stdio.h>
#include <string.h>

#include "ranks.h"

enum { WORDS = 5, CALLS = 200 };

static struct attn_buffer buffer(void *data)
{
    return (struct attn_buffer){data, 0};
}

/* ---------------------------------------------------------------- what arrives */

static uint32_t word(uint32_t from, uint32_t to, uint32_t call, uint32_t i)
{
    return ((from * 31 + to) * 1009 + call) * 17 + i;
}

/* Buffers are written again at once: what was sent before has to have arrived everywhere. */
static void exchange_many(struct rank *rank)
{
    uint32_t send[MOST_RANKS][WORDS], room[MOST_RANKS + 1][WORDS], (*receive)[WORDS] = room + 1;

    for (uint32_t call = 0; call < CALLS; call++) {
        const bool all = call % 3 == 1, shift = call % 3 == 2;
        for (uint32_t to = 0; to < rank->size; to++)
            for (uint32_t i = 0; i < WORDS; i++)
                send[to][i] = word(rank->number, to, call, i);
        const struct attn_buffer from = buffer(send), into = {room, sizeof room[0]};
        rank->status =
            (all     ? rank->net.all_to_all
             : shift ? rank->net.shift
                     : rank->net.all_gather)(rank->net.arg, &from, &into, sizeof send[0], NULL, &rank->err);
        if (rank->status != ATTN_OK)
            return;
        for (uint32_t block = 0; block < (shift ? 1 : rank->size); block++) {
            const uint32_t sender = shift ? (rank->number + rank->size - 1) % rank->size : block;
            for (uint32_t i = 0; i < WORDS; i++)
                if (receive[block][i] != word(sender, all ? rank->number : 0, call, i))
                    rank->status = ATTN_E_STATE;
        }
    }
}

Test(local, blocks_arrive_from_every_rank)
{
    struct rank ranks[MOST_RANKS];

    for (uint32_t size = 1; size <= MOST_RANKS; size++) {
        ranks_run(ranks, size, 30, exchange_many, NULL);
        for (uint32_t r = 0; r < size; r++)
            cr_assert_eq(ranks[r].status, ATTN_OK, "rank %u of %u: %s", r, size, ranks[r].err.message);
    }
}

/* ---------------------------------------------------------------- who is missing */

static void gather(struct rank *rank, uint64_t bytes)
{
    static uint32_t send[WORDS];
    uint32_t receive[MOST_RANKS][WORDS];
    const struct attn_buffer from = buffer(send), into = buffer(receive);

    rank->status = rank->net.all_gather(rank->net.arg, &from, &into, bytes, NULL, &rank->err);
}

/* Makes `arg` calls and then no more, as a rank that was killed. */
static void die_early(struct rank *rank)
{
    const uint32_t *dead = rank->arg;

    for (uint32_t call = 0; call < 10 && rank->status == ATTN_OK; call++) {
        if (rank->number == *dead && call == 4)
            return;
        gather(rank, sizeof(uint32_t));
    }
}

Test(local, a_dead_rank_ends_the_others_within_the_limit)
{
    struct rank ranks[MOST_RANKS];
    char wanted[96];

    for (uint32_t n = 0; n < 20; n++) {
        const uint32_t size = 2 + n % 3, dead = n % size;
        snprintf(wanted, sizeof wanted, "rank %u of %u did not come to all_gather within 0.3 s", dead, size);
        ranks_run(ranks, size, 0.3, die_early, (void *)(uintptr_t)&dead);
        for (uint32_t r = 0; r < size; r++) {
            if (r == dead)
                continue;
            cr_assert_eq(ranks[r].status, ATTN_E_PEER, "rank %u: %d", r, ranks[r].status);
            cr_assert_str_eq(ranks[r].err.message, wanted);
            cr_assert_lt(ranks[r].seconds, 20.0);
        }
    }
}

static void all_but_some(struct rank *rank)
{
    if (rank->number % 2 == 0)
        gather(rank, sizeof(uint32_t));
}

Test(local, late_ranks_are_named)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 7, 0.5, all_but_some, NULL);
    cr_assert_str_eq(ranks[0].err.message, "ranks 1, 3, 5 of 7 did not come to all_gather within 0.5 s");
}

static void differ(struct rank *rank)
{
    gather(rank, rank->number == 2 ? 8 : 4);
}

Test(local, calls_that_differ_are_refused_on_all_ranks)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 3, 30, differ, NULL);
    for (uint32_t r = 0; r < 3; r++) {
        cr_assert_eq(ranks[r].status, ATTN_E_PEER);
        cr_assert_str_eq(ranks[r].err.message,
                         "rank 0 calls all_gather of 4 bytes and rank 2 all_gather of 8; all "
                         "ranks make the same calls");
    }
}

static void abort_one(struct rank *rank)
{
    if (rank->number == 1)
        rank->net.abort(rank->net.arg, "no more memory");
    gather(rank, 4);
}

Test(local, a_rank_ends_the_connection_at_once)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 3, 300, abort_one, NULL);
    for (uint32_t r = 0; r < 3; r++) {
        cr_assert_eq(ranks[r].status, ATTN_E_PEER);
        cr_assert_str_eq(ranks[r].err.message, "rank 1 of 3 ended the connection: no more memory");
        cr_assert_lt(ranks[r].seconds, 100.0);
    }
}

/* ---------------------------------------------------------------- arguments */

Test(local, wrong_arguments_are_named)
{
    struct attn_local_ranks *ranks = NULL;
    struct attn_collectives net;
    struct attn_error err;

    ATTN_INIT(&net);
    ATTN_INIT(&err);
    cr_assert_eq(attn_local_ranks_create(0, 1, &ranks, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.message, "size is 0; accepted: 1 to 1024 ranks");
    cr_assert_eq(attn_local_ranks_create(1025, 1, &ranks, &err), ATTN_E_INVALID);
    cr_assert_eq(attn_local_ranks_create(2, 0, &ranks, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "timeout_ns");
    cr_assert_eq(attn_local_ranks_create(2, 1, NULL, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "out");
    cr_assert_null(ranks);
    cr_assert_eq(attn_local_ranks_create(2, UINT64_MAX, &ranks, &err), ATTN_OK);
    cr_assert_eq(attn_local_ranks_get(ranks, 2, &net, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.message, "rank is 2; accepted: below size, 2");
    cr_assert_eq(attn_local_ranks_get(NULL, 0, &net, &err), ATTN_E_INVALID);
    cr_assert_eq(attn_local_ranks_get(ranks, 0, NULL, &err), ATTN_E_INVALID);
    cr_assert_eq(attn_local_ranks_get(ranks, 1, &net, &err), ATTN_OK);
    cr_assert_eq(net.rank, 1u);
    cr_assert_eq(net.size, 2u);
    attn_local_ranks_destroy(ranks);
    attn_local_ranks_destroy(NULL);
}
