/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * attn-bench cp: a decode over keys of several ranks, next to the same decode over all keys on one, and to
 * what a rank computes of it. Ranks are threads, or the processes that were started with this one.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "attn/parallel.h"
#include "bench-cases.h"
#include "bench.h"
#include "machine.h"
#include "transport.h"
#include "workload.h"

enum { DEFAULT_REPS = 50, WARM_UPS = 3, LAYERS_MOST = 64 };

/* Longer than anything that is measured here. */
#define LIMIT_NS UINT64_C(120000000000)

struct group {
    struct bench *bench;
    struct attn_context *context;
    const struct bench_case *whole;
    const char *transport;
    uint32_t size, threads, reps, layers;
};

/* One rank; its times are of rank 0 alone. */
struct rank {
    struct group *group;
    struct attn_collectives net;
    pthread_t thread;
    struct attn_backend *backend;
    struct bench_case part; /* its keys */
    struct workload workload;
    struct attn_cp *cp;
    struct attn_cp_run_args args;
    struct attn_tensors tensors;
    double *part_seconds, *cp_seconds;
    int32_t status;
    struct attn_error err;
};

/* ---------------------------------------------------------------- one rank */

static int32_t open_backend(struct group *group, const struct attn_problem *problem,
                            struct attn_backend **out, struct attn_error *err)
{
    struct attn_decision *decision = NULL;
    struct attn_open_config config;

    ATTN_INIT(&config);
    config.threads = group->threads;
    int32_t status = attn_select(group->context, problem, 1, NULL, &decision, err);
    if (status == ATTN_OK)
        status = attn_backend_open(group->context, decision, &config, out, err);
    attn_decision_destroy(decision);
    return status;
}

/* The keys of this rank; pages keep their order. */
static void part_init(struct rank *rank)
{
    const struct bench_case *whole = rank->group->whole;

    rank->part = *whole;
    rank->part.problem.cp = rank->part.problem.lse = 1;
    rank->part.layers = rank->group->layers;
    rank->part.sequence = need_memory(NULL, whole->seqs, sizeof *rank->part.sequence);
    for (uint32_t i = 0; i < whole->seqs; i++)
        rank->part.sequence[i] = (struct bench_sequence){
            .ctx = (uint32_t)attn_cp_count(rank->net.rank, rank->net.size, whole->problem.block,
                                           whole->sequence[i].ctx),
            .q_len = whole->sequence[i].q_len};
}

/* The batch of a workload says that it is the first of two ranks: here it is this one. */
static int32_t place_rank(struct rank *rank, struct attn_error *err)
{
    struct workload *w = &rank->workload;
    const struct bench_case *whole = rank->group->whole;

    w->batch.cp_rank = rank->net.rank;
    w->batch.cp_world = rank->net.size;
    for (uint32_t i = 0; i < whole->seqs; i++)
        w->kv_global_lens[i] = (int32_t)whole->sequence[i].ctx;
    int32_t status = workload_upload(w, w->kv_global_lens, (uint64_t)whole->seqs * sizeof *w->kv_global_lens,
                                     &w->batch.kv_global_lens, err);
    return status == ATTN_OK ? attn_plan_prepare(w->plan, &w->batch, &w->schedule,
                                                 w->staging.size != 0 ? &w->staging : NULL, w->stream, err)
                             : status;
}

static int32_t make_cp(struct rank *rank, struct attn_error *err)
{
    struct workload *w = &rank->workload;
    const bool split = w->problem.heads % rank->net.size == 0;
    const int64_t first = split ? rank->net.rank * (w->problem.heads / rank->net.size) : 0;
    struct attn_cp_params params;

    ATTN_INIT(&params);
    params.heads = split ? ATTN_CP_HEADS_SPLIT : ATTN_CP_HEADS_ALL;
    params.problem = &w->problem;
    params.collectives = &rank->net;
    rank->tensors = w->tensors;
    rank->tensors.q.buffer.byte_offset += (uint64_t)(first * w->tensors.q.head_stride);
    rank->tensors.out.buffer.byte_offset += (uint64_t)(first * w->tensors.out.head_stride);
    rank->tensors.lse.buffer.byte_offset += (uint64_t)(first * w->tensors.lse.head_stride);
    ATTN_INIT(&rank->args);
    rank->args.plan = w->plan;
    rank->args.batch = &w->batch;
    rank->args.tensors = &rank->tensors;
    rank->args.schedule = &w->schedule;
    rank->args.scratch = &w->scratch;
    return attn_cp_create(rank->backend, &params, &rank->cp, err);
}

static int32_t run_cp(struct rank *rank, uint32_t layer, struct attn_error *err)
{
    struct workload *w = &rank->workload;

    rank->tensors.kv = w->kv[layer];
    int32_t status = attn_cp_run(rank->cp, &rank->args, w->stream, err);
    w->scratch.counters_dirty = 0;
    if (status == ATTN_OK)
        status = attn_cp_wait(rank->cp, w->stream, err);
    return status == ATTN_OK ? attn_stream_synchronize(rank->backend, w->stream, err) : status;
}

/* All ranks begin together. */
static int32_t meet(struct rank *rank, struct attn_error *err)
{
    uint32_t own = rank->net.rank, all[1024];
    const struct attn_buffer send = {&own, 0}, receive = {all, 0};

    return rank->net.all_gather(rank->net.arg, &send, &receive, sizeof own, NULL, err);
}

static int32_t measure(struct rank *rank, double *seconds, bool parts, struct attn_error *err)
{
    const uint32_t reps = rank->group->reps, layers = rank->workload.layers;
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < reps + WARM_UPS && status == ATTN_OK; i++) {
        status = meet(rank, err);
        const double began = machine_now();
        if (status == ATTN_OK)
            status = parts ? workload_run(&rank->workload, i % layers, err) : run_cp(rank, i % layers, err);
        if (i >= WARM_UPS)
            seconds[i - WARM_UPS] = machine_now() - began;
    }
    return status;
}

static int32_t run_rank(struct rank *rank, struct attn_error *err)
{
    part_init(rank);
    int32_t status = open_backend(rank->group, &rank->part.problem, &rank->backend, err);
    if (status == ATTN_OK)
        status = workload_init(&rank->workload, &rank->part, rank->backend, err);
    if (status == ATTN_OK)
        status = place_rank(rank, err);
    if (status == ATTN_OK)
        status = make_cp(rank, err);
    if (status == ATTN_OK)
        status = measure(rank, rank->part_seconds, true, err);
    return status == ATTN_OK ? measure(rank, rank->cp_seconds, false, err) : status;
}

static void *rank_thread(void *arg)
{
    struct rank *rank = arg;

    rank->part_seconds = need_memory(NULL, rank->group->reps, sizeof(double));
    rank->cp_seconds = need_memory(NULL, rank->group->reps, sizeof(double));
    ATTN_INIT(&rank->err);
    rank->status = run_rank(rank, &rank->err);
    if (rank->status != ATTN_OK)
        rank->net.abort(rank->net.arg, rank->err.message);
    return NULL;
}

static void rank_finish(struct rank *rank)
{
    attn_cp_destroy(rank->cp);
    if (rank->workload.backend != NULL)
        workload_finish(&rank->workload);
    attn_backend_destroy(rank->backend);
    free(rank->part.sequence);
    free(rank->part_seconds);
    free(rank->cp_seconds);
}

/* ---------------------------------------------------------------- results */

static void emit(struct group *group, const char *name, const struct rank *rank,
                 const struct bench_case *measured, double *seconds)
{
    struct row row;
    char batch[128];

    row_init(&row, name, "cp");
    case_describe(measured, batch, sizeof batch);
    snprintf(row.batch, sizeof row.batch, "%s", batch);
    if (rank != NULL)
        snprintf(row.batch, sizeof row.batch, "%s, %u ranks, %s", batch, group->size, group->transport);
    attn_problem_format(&measured->problem, row.problem, sizeof row.problem, NULL, NULL);
    row.threads = group->threads;
    row_set_times(&row, seconds, group->reps);
    bench_emit(group->bench, &row);
}

/* One rank with all keys, on as many threads as each of the others has. */
static int32_t measure_alone(struct group *group, struct attn_error *err)
{
    double *seconds = need_memory(NULL, group->reps, sizeof *seconds);
    struct bench_case whole = *group->whole;
    struct attn_backend *backend = NULL;
    struct workload workload = {0};

    whole.layers = group->layers;
    int32_t status = open_backend(group, &whole.problem, &backend, err);
    if (status == ATTN_OK)
        status = workload_init(&workload, &whole, backend, err);
    for (uint32_t i = 0; i < group->reps + WARM_UPS && status == ATTN_OK; i++) {
        const double began = machine_now();
        status = workload_run(&workload, i % workload.layers, err);
        if (i >= WARM_UPS)
            seconds[i - WARM_UPS] = machine_now() - began;
    }
    if (status == ATTN_OK)
        emit(group, "cp_alone", NULL, &whole, seconds);
    if (workload.backend != NULL)
        workload_finish(&workload);
    attn_backend_destroy(backend);
    free(seconds);
    return status;
}

/* ---------------------------------------------------------------- all ranks */

/* The failure that came first is the one that says most: others end with ATTN_E_PEER. */
static int32_t report(struct group *group, const struct rank *ranks, uint32_t count)
{
    const struct rank *failed = NULL;

    for (uint32_t r = 0; r < count; r++)
        if (ranks[r].status != ATTN_OK && (failed == NULL || failed->status == ATTN_E_PEER))
            failed = &ranks[r];
    if (failed != NULL) {
        bench_complain(group->bench, "cp", failed->err.message);
        return failed->status;
    }
    if (ranks[0].net.rank == 0) {
        emit(group, "cp_part", &ranks[0], &ranks[0].part, ranks[0].part_seconds);
        emit(group, "cp_ranks", &ranks[0], group->whole, ranks[0].cp_seconds);
    }
    return ATTN_OK;
}

static int32_t run_threads(struct group *group, struct attn_error *err)
{
    struct attn_local_ranks *connection = NULL;
    struct rank *ranks = need_memory(NULL, group->size, sizeof *ranks);
    int32_t status = measure_alone(group, err);

    memset(ranks, 0, group->size * sizeof *ranks);
    if (status == ATTN_OK)
        status = attn_local_ranks_create(group->size, LIMIT_NS, &connection, err);
    if (status != ATTN_OK)
        bench_complain(group->bench, "cp", err->message);
    for (uint32_t r = 0; r < group->size && status == ATTN_OK; r++) {
        ranks[r].group = group;
        ATTN_INIT(&ranks[r].net);
        attn_local_ranks_get(connection, r, &ranks[r].net, err);
        if (pthread_create(&ranks[r].thread, NULL, rank_thread, &ranks[r]) != 0) {
            complain("a thread cannot be made");
            exit(EXIT_NO);
        }
    }
    for (uint32_t r = 0; r < group->size && status == ATTN_OK; r++)
        pthread_join(ranks[r].thread, NULL);
    if (status == ATTN_OK)
        status = report(group, ranks, group->size);
    for (uint32_t r = 0; r < group->size; r++)
        rank_finish(&ranks[r]);
    attn_local_ranks_destroy(connection);
    free(ranks);
    return status;
}

/* Rank 0 measures one rank alone while the others wait for it. */
static int32_t run_process(struct group *group, struct attn_error *err)
{
    struct transport *transport = NULL;
    struct rank rank = {.group = group};
    int32_t status;

    ATTN_INIT(&rank.net);
    status = transport_open(group->transport, LIMIT_NS, &transport, &rank.net, err);
    if (status == ATTN_OK && group->size != rank.net.size)
        status = ATTN_E_INVALID;
    if (status == ATTN_E_INVALID && transport != NULL)
        snprintf(err->message, sizeof err->message,
                 "ranks=%u, but %u processes were started together; accepted: %u", group->size, rank.net.size,
                 rank.net.size);
    if (status == ATTN_OK && rank.net.rank == 0)
        status = measure_alone(group, err);
    if (status != ATTN_OK) {
        bench_complain(group->bench, "cp", err->message);
        if (transport != NULL)
            rank.net.abort(rank.net.arg, err->message);
    } else {
        rank_thread(&rank);
        status = report(group, &rank, 1);
    }
    rank_finish(&rank);
    transport_close(transport);
    return status;
}

static int run_case(struct group *group)
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
    group->bench->text.name = sizeof "alone" - 1;
    group->bench->text.batch = sizeof "8x1/4096, 1024 ranks, local" + 8;
    group->bench->text.listed = true;
    const int32_t status =
        strcmp(group->transport, "local") == 0 ? run_threads(group, &err) : run_process(group, &err);
    return status == ATTN_OK ? EXIT_YES : EXIT_NO;
}

int cp_mode(struct bench *bench)
{
    struct group group = {.bench = bench,
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
