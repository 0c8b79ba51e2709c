/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * attn-bench cp: attention over keys of several ranks, next to the same over all keys on one, and to what a
 * rank computes of it. Ranks are threads, or the processes that were started with this one.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench-cases.h"
#include "cp-rank.h"
#include "machine.h"
#include "output.h"
#include "transport.h"

enum { DEFAULT_REPS = 50, LAYERS_MOST = 64 };

/* ---------------------------------------------------------------- results */

/* What small calls of NCCL go by. */
static const char *way_of(const struct cp_rank *rank)
{
    const char *why;

    return transport_has_peer(rank->transport, &why) ? ", peer memory" : "";
}

static void emit(struct cp_group *group, const char *name, const struct cp_rank *rank,
                 const struct bench_case *measured, double *seconds)
{
    struct row row;
    char batch[128];

    row_init(&row, name, "cp");
    case_describe(measured, batch, sizeof batch);
    snprintf(row.batch, sizeof row.batch, "%s", batch);
    if (rank != NULL)
        snprintf(row.batch, sizeof row.batch, "%s, %u ranks, %s%s%s", batch, group->size, group->transport,
                 way_of(rank),
                 rank->pass == ATTN_CP_PASS_KEYS      ? ", keys passed"
                 : rank->pass == ATTN_CP_PASS_QUERIES ? ", queries passed"
                 : rank->pass == ATTN_CP_PASS_HEADS   ? ", heads passed"
                                                      : "");
    attn_problem_format(&measured->problem, row.problem, sizeof row.problem, NULL, NULL);
    row.threads = group->threads;
    row_set_times(&row, seconds, group->reps);
    bench_emit(group->bench, &row);
}

static int32_t measure_alone(struct cp_group *group, struct attn_error *err)
{
    double *seconds = need_memory(NULL, group->reps, sizeof *seconds);
    const int32_t status = cp_measure_alone(group, seconds, err);

    if (status == ATTN_OK)
        emit(group, "cp_alone", NULL, group->whole, seconds);
    free(seconds);
    return status;
}

/* ---------------------------------------------------------------- all ranks */

/* The failure that came first is the one that says most: others end with ATTN_E_PEER. */
static int32_t report(struct cp_group *group, const struct cp_rank *ranks, uint32_t count)
{
    const struct cp_rank *failed = NULL;

    for (uint32_t r = 0; r < count; r++)
        if (ranks[r].status != ATTN_OK && (failed == NULL || failed->status == ATTN_E_PEER))
            failed = &ranks[r];
    if (failed != NULL) {
        bench_complain(group->bench, "cp", failed->err.message);
        return failed->status;
    }
    if (ranks[0].meeting.rank == 0) {
        const char *why;
        if (!transport_has_peer(ranks[0].transport, &why) && why != NULL)
            bench_complain(group->bench, "small calls go by NCCL", why);
        emit(group, "cp_part", &ranks[0], &ranks[0].part, ranks[0].seconds[CP_PART]);
        emit(group, "cp_ranks", &ranks[0], group->whole, ranks[0].seconds[CP_RANKS]);
        if (ranks[0].bytes[CP_GATHER] != 0)
            emit(group, "cp_gather", &ranks[0], group->whole, ranks[0].seconds[CP_GATHER]);
        if (ranks[0].bytes[CP_EXCHANGE] != 0)
            emit(group, "cp_exchange", &ranks[0], group->whole, ranks[0].seconds[CP_EXCHANGE]);
    }
    return ATTN_OK;
}

static int32_t run_threads(struct cp_group *group, struct attn_error *err)
{
    struct attn_local_ranks *connection = NULL;
    struct cp_rank *ranks = need_memory(NULL, group->size, sizeof *ranks);
    struct transport_id id;
    int32_t status = measure_alone(group, err);

    if (status == ATTN_OK && strcmp(group->transport, "nccl") == 0) {
        status = transport_make_id(&id, err);
        group->id = &id;
    }
    memset(ranks, 0, group->size * sizeof *ranks);
    if (status == ATTN_OK)
        status = attn_local_ranks_create(group->size, LIMIT_NS, &connection, err);
    if (status != ATTN_OK)
        bench_complain(group->bench, "cp", err->message);
    for (uint32_t r = 0; r < group->size && status == ATTN_OK; r++) {
        ranks[r].group = group;
        ATTN_INIT(&ranks[r].meeting);
        attn_local_ranks_get(connection, r, &ranks[r].meeting, err);
        if (pthread_create(&ranks[r].thread, NULL, cp_rank_thread, &ranks[r]) != 0) {
            complain("a thread cannot be made");
            exit(EXIT_NO);
        }
    }
    for (uint32_t r = 0; r < group->size && status == ATTN_OK; r++)
        pthread_join(ranks[r].thread, NULL);
    if (status == ATTN_OK)
        status = report(group, ranks, group->size);
    for (uint32_t r = 0; r < group->size; r++)
        cp_rank_finish(&ranks[r]);
    attn_local_ranks_destroy(connection);
    free(ranks);
    return status;
}

/* Rank 0 measures one rank alone while the others wait for it. */
static int32_t run_process(struct cp_group *group, struct attn_error *err)
{
    struct transport *transport = NULL;
    struct cp_rank rank = {.group = group};
    int32_t status;

    ATTN_INIT(&rank.meeting);
    status = transport_open_mpi(LIMIT_NS, &transport, &rank.meeting, err);
    if (status == ATTN_OK && group->size != rank.meeting.size)
        status = ATTN_E_INVALID;
    if (status == ATTN_E_INVALID && transport != NULL)
        snprintf(err->message, sizeof err->message,
                 "ranks=%u, but %u processes were started together; accepted: %u", group->size,
                 rank.meeting.size, rank.meeting.size);
    if (status == ATTN_OK && rank.meeting.rank == 0)
        status = measure_alone(group, err);
    if (status != ATTN_OK) {
        bench_complain(group->bench, "cp", err->message);
        if (transport != NULL)
            rank.meeting.abort(rank.meeting.arg, err->message);
    } else {
        cp_rank_thread(&rank);
        status = report(group, &rank, 1);
    }
    cp_rank_finish(&rank);
    transport_close(transport);
    return status;
}

static int run_case(struct cp_group *group)
{
    const struct bench_keys *keys = &group->bench->keys;
    const double bytes = case_key_bytes(group->whole) / group->size;
    const uint32_t cpus = bench_threads(group->context, 0);
    struct attn_error err;

    ATTN_INIT(&err);
    group->threads = keys->threads != 0 ? keys->threads : cpus > group->size ? cpus / group->size : 1;
    group->reps = keys->reps != 0 ? keys->reps : DEFAULT_REPS;
    group->layers = keys->layers != 0 ? keys->layers
                                      : (uint32_t)fmin(ceil((double)machine_cold_set() / bytes), LAYERS_MOST);
    const bool nccl = strcmp(group->transport, "nccl") == 0;
    group->bench->text.name = nccl ? sizeof "exchange" - 1 : sizeof "alone" - 1;
    group->tokens = keys->pass != NULL;
    group->pass = keys->pass == NULL                   ? 0
                  : strcmp(keys->pass, "keys") == 0    ? ATTN_CP_PASS_KEYS
                  : strcmp(keys->pass, "queries") == 0 ? ATTN_CP_PASS_QUERIES
                  : strcmp(keys->pass, "heads") == 0   ? ATTN_CP_PASS_HEADS
                                                       : ATTN_CP_PASS_CHEAPER;
    group->bench->text.batch = (nccl ? sizeof "8x1/4096, 8 ranks, nccl, peer memory, queries passed"
                                     : sizeof "8x1/4096, 1024 ranks, local, queries passed") +
                               8;
    group->bench->text.listed = true;
    const int32_t status =
        strcmp(group->transport, "mpi") == 0 ? run_process(group, &err) : run_threads(group, &err);
    return status == ATTN_OK ? EXIT_YES : EXIT_NO;
}

int cp_mode(struct bench *bench)
{
    struct cp_group group = {.bench = bench,
                             .transport = bench->keys.transport != NULL ? bench->keys.transport : "local",
                             .size = bench->keys.ranks != 0 ? bench->keys.ranks : 2};
    struct bench_case list[CASES_MOST];
    struct attn_error err;
    unsigned count = 0;

    ATTN_INIT(&err);
    int code = cases_make(bench, list, &count);
    if (code == EXIT_YES && attn_context_create(NULL, &group.context, &err) != ATTN_OK) {
        complain("%s", err.message);
        code = EXIT_NO;
    }
    for (unsigned i = 0; code == EXIT_YES && i < count; i++) {
        group.whole = &list[i];
        code = run_case(&group);
    }
    for (unsigned i = 0; i < count; i++)
        free(list[i].sequence);
    attn_context_destroy(group.context);
    return code;
}
