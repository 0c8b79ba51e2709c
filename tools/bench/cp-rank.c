/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One rank of attn-bench cp: measures attention over its own keys, then over those of all ranks. On a GPU all
 * layers are one graph, so that what is measured is work of the device; on the host each run is.
 */
#include "cp-rank.h"

#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "output.h"
#include "transport.h"

enum { WARM_UPS = 3, COLLECTIVES = 64 /* in a graph that has nothing else */ };

static int32_t open_backend(const struct cp_group *group, const struct attn_problem *problem,
                            const char *device, struct attn_backend **out, struct attn_error *err)
{
    struct attn_decision *decision = NULL;
    struct attn_select_options options;
    struct attn_open_config config;

    ATTN_INIT(&config);
    ATTN_INIT(&options);
    config.threads = group->threads;
    options.device = device;
    int32_t status = attn_select(group->context, problem, 1, &options, &decision, err);
    if (status == ATTN_OK)
        status = attn_backend_open(group->context, decision, &config, out, err);
    attn_decision_destroy(decision);
    return status;
}

/* ---------------------------------------------------------------- a layer */

/* From a rank's first blocks to those behind them. */
static int32_t put_collective(struct cp_rank *rank, enum cp_work work, struct attn_error *err)
{
    const uint64_t bytes = rank->bytes[work];
    struct attn_buffer receive = rank->blocks;

    receive.byte_offset += rank->net.size * bytes;
    return work == CP_GATHER ? rank->net.all_gather(rank->net.arg, &rank->blocks, &receive, bytes,
                                                    rank->workload.stream, err)
                             : rank->net.all_to_all(rank->net.arg, &rank->blocks, &receive, bytes,
                                                    rank->workload.stream, err);
}

/* A layer of this rank's keys, or of all; or a collective of one. */
static int32_t put_layer(struct cp_rank *rank, uint32_t layer, enum cp_work work, struct attn_error *err)
{
    struct workload *w = &rank->workload;
    int32_t status;

    if (work == CP_GATHER || work == CP_EXCHANGE)
        return put_collective(rank, work, err);

    w->tensors.kv = rank->tensors.kv = w->kv[layer % w->layers];
    if (work == CP_PART)
        status = attn_plan_run(w->plan, &w->batch, &w->tensors, &w->schedule, &w->scratch, w->stream, err);
    else if (rank->group->tokens)
        status = attn_cp_prefill_run(rank->cp, &rank->tensors, w->stream, err);
    else
        status = attn_cp_run(rank->cp, &rank->args, w->stream, err);
    w->scratch.counters_dirty = 0;
    return status;
}

/* Layers or collectives of a graph. */
static uint32_t count_of(const struct cp_rank *rank, enum cp_work work)
{
    return work == CP_GATHER || work == CP_EXCHANGE ? COLLECTIVES : rank->workload.layers;
}

static int32_t capture(struct cp_rank *rank, enum cp_work work, struct attn_error *err)
{
    struct workload *w = &rank->workload;

    attn_graph_destroy(rank->graph);
    rank->graph = NULL;
    int32_t status = attn_graph_begin(rank->backend, w->stream, &rank->graph, err);
    rank->args.graph = rank->graph;
    for (uint32_t i = 0; i < count_of(rank, work) && status == ATTN_OK; i++)
        status = put_layer(rank, i, work, err);
    return status == ATTN_OK ? attn_graph_end(rank->graph, err) : status;
}

static bool is_on_host(const struct cp_rank *rank)
{
    return strncmp(attn_backend_get_device(rank->backend), "cpu", 3) == 0;
}

static int32_t run_once(struct cp_rank *rank, uint32_t round, enum cp_work work, struct attn_error *err)
{
    struct workload *w = &rank->workload;
    int32_t status = rank->graph != NULL ? attn_graph_launch(rank->graph, w->stream, err)
                                         : put_layer(rank, round, work, err);

    if (status == ATTN_OK && work != CP_PART)
        status = attn_cp_wait(rank->cp, w->stream, err);
    return status == ATTN_OK ? attn_stream_synchronize(rank->backend, w->stream, err) : status;
}

/* ---------------------------------------------------------------- measuring */

/* All ranks begin together. */
static int32_t meet(struct cp_rank *rank, struct attn_error *err)
{
    uint32_t own = rank->meeting.rank, all[1024];
    const struct attn_buffer send = {&own, 0}, receive = {all, 0};

    return rank->meeting.all_gather(rank->meeting.arg, &send, &receive, sizeof own, NULL, err);
}

static int32_t measure(struct cp_rank *rank, double *seconds, enum cp_work work, struct attn_error *err)
{
    /* Of what is exchanged, only NCCL's calls can be captured, and no prefill. */
    const bool captured = work == CP_PART || (rank->group->id != NULL && !rank->group->tokens);
    const bool graph = !is_on_host(rank) && captured;
    int32_t status = graph ? capture(rank, work, err) : ATTN_OK;

    if (!graph) {
        attn_graph_destroy(rank->graph);
        rank->graph = NULL;
    }
    for (uint32_t i = 0; i < rank->group->reps + WARM_UPS && status == ATTN_OK; i++) {
        if (rank->meeting.all_gather != NULL)
            status = meet(rank, err);
        const double began = machine_now();
        if (status == ATTN_OK)
            status = run_once(rank, i, work, err);
        if (i >= WARM_UPS)
            seconds[i - WARM_UPS] = (machine_now() - began) / (graph ? count_of(rank, work) : 1);
    }
    return status;
}

int32_t cp_measure_alone(struct cp_group *group, double *seconds, struct attn_error *err)
{
    struct cp_rank rank = {.group = group};

    rank.part = *group->whole;
    rank.part.layers = group->layers;
    int32_t status = open_backend(group, &rank.part.problem, NULL, &rank.backend, err);
    if (status == ATTN_OK)
        status = workload_init(&rank.workload, &rank.part, rank.backend, err);
    if (status == ATTN_OK)
        status = measure(&rank, seconds, CP_PART, err);
    rank.part.sequence = NULL; /* of the whole */
    cp_rank_finish(&rank);
    return status;
}

/* ---------------------------------------------------------------- a rank among others */

/* The keys of this rank; pages keep their order. */
static void part_init(struct cp_rank *rank)
{
    const struct bench_case *whole = rank->group->whole;

    rank->part = *whole;
    rank->part.problem.cp = rank->part.problem.lse = 1;
    rank->part.layers = rank->group->layers;
    rank->part.sequence = need_memory(NULL, whole->seqs, sizeof *rank->part.sequence);
    for (uint32_t i = 0; i < whole->seqs; i++)
        rank->part.sequence[i] = (struct bench_sequence){
            .ctx = (uint32_t)attn_cp_count(rank->meeting.rank, rank->meeting.size, whole->problem.block,
                                           whole->sequence[i].ctx),
            .q_len = whole->sequence[i].q_len};
}

/* The batch of a workload says that it is the first of two ranks: here it is this one. */
static int32_t place_rank(struct cp_rank *rank, struct attn_error *err)
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

/* By NCCL each thread has the GPU of its number. Without, they share the device that is chosen: a GPU by its
 * memory, the host by what they meet by. */
static int32_t connect(struct cp_rank *rank, struct attn_error *err)
{
    const struct cp_group *group = rank->group;
    char device[32];

    rank->net = rank->meeting;
    snprintf(device, sizeof device, "cuda:%u", rank->meeting.rank);
    int32_t status =
        open_backend(group, &rank->part.problem, group->id != NULL ? device : NULL, &rank->backend, err);
    if (group->id == NULL)
        return status != ATTN_OK || is_on_host(rank)
                   ? status
                   : transport_share_device(rank->backend, &rank->meeting, &rank->transport, &rank->net, err);
    return status == ATTN_OK
               ? transport_open_nccl(group->id, rank->meeting.rank, group->size, rank->meeting.rank, LIMIT_NS,
                                     &rank->transport, &rank->net, err)
               : status;
}

/* Heads of this rank; all of them where query tokens are spread. */
static void place_tensors(struct cp_rank *rank, bool split)
{
    struct workload *w = &rank->workload;
    const int64_t first = split ? rank->net.rank * (w->problem.heads / rank->net.size) : 0;

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
}

static int32_t begin_step(struct cp_rank *rank, struct attn_error *err)
{
    const struct bench_case *whole = rank->group->whole;
    int32_t *q_lens = need_memory(NULL, whole->seqs, sizeof *q_lens);
    struct attn_cp_prefill_info info;
    struct attn_cp_step step;

    ATTN_INIT(&step);
    ATTN_INIT(&info);
    for (uint32_t i = 0; i < whole->seqs; i++)
        q_lens[i] = (int32_t)whole->sequence[i].q_len;
    step.seqs = whole->seqs;
    step.q_lens = q_lens;
    step.kv_lens = rank->workload.kv_global_lens;
    step.table = rank->workload.table;
    step.table_width = rank->workload.batch.table_width;
    int32_t status = attn_cp_prefill_begin(rank->cp, &step, rank->workload.stream, err);
    if (status == ATTN_OK)
        status = attn_cp_prefill_get_info(rank->cp, &info, err);
    rank->pass = info.pass;
    free(q_lens);
    return status;
}

static int32_t make_cp(struct cp_rank *rank, struct attn_error *err)
{
    const struct cp_group *group = rank->group;
    struct workload *w = &rank->workload;
    const bool split = !group->tokens && w->problem.heads % rank->net.size == 0;
    struct attn_problem problem = w->problem;
    struct attn_cp_params params;

    ATTN_INIT(&params);
    place_tensors(rank, split);
    params.queries = group->tokens ? ATTN_CP_TOKENS : split ? ATTN_CP_HEADS_SPLIT : ATTN_CP_HEADS_ALL;
    params.problem = &problem;
    params.collectives = &rank->net;
    if (group->tokens) {
        struct case_sizes sizes;
        case_measure(group->whole, &sizes);
        problem.positions = 1;
        problem.max_kv = sizes.max_kv;
        params.interleave = problem.block;
        params.pass = group->pass;
        params.max_keys = sizes.keys;
    }
    const int32_t status = attn_cp_create(rank->backend, &params, &rank->cp, err);
    return status == ATTN_OK && group->tokens ? begin_step(rank, err) : status;
}

/* Blocks of a decode step of 16-bit queries and results, as attn_cp_run has them: for NCCL alone, whose calls
 * take as long as small steps. */
static int32_t make_blocks(struct cp_rank *rank, struct attn_error *err)
{
    const struct attn_problem *p = &rank->workload.problem;
    const bool split = p->heads % rank->net.size == 0;
    const uint64_t tokens = rank->workload.batch.num_tokens,
                   heads = split ? p->heads / rank->net.size : p->heads;
    const uint64_t query = p->head_dim * 2u, part = p->head_dim_vo * 2u + sizeof(float);

    if (rank->group->id == NULL || rank->group->tokens)
        return ATTN_OK;
    rank->bytes[CP_GATHER] = split ? tokens * heads * query : 0;
    rank->bytes[CP_EXCHANGE] = (tokens * heads * part + 15) / 16 * 16;
    const uint64_t most =
        rank->bytes[CP_GATHER] > rank->bytes[CP_EXCHANGE] ? rank->bytes[CP_GATHER] : rank->bytes[CP_EXCHANGE];
    return attn_memory_alloc(rank->backend, 2 * rank->net.size * most, &rank->blocks, err);
}

static int32_t run_rank(struct cp_rank *rank, struct attn_error *err)
{
    part_init(rank);
    int32_t status = connect(rank, err);
    if (status == ATTN_OK)
        status = workload_init(&rank->workload, &rank->part, rank->backend, err);
    if (status == ATTN_OK)
        status = place_rank(rank, err);
    if (status == ATTN_OK)
        status = make_cp(rank, err);
    if (status == ATTN_OK)
        status = make_blocks(rank, err);
    for (uint32_t work = CP_PART; work < CP_WORKS && status == ATTN_OK; work++)
        if (work == CP_PART || work == CP_RANKS || rank->bytes[work] != 0)
            status = measure(rank, rank->seconds[work], (enum cp_work)work, err);
    return status;
}

void *cp_rank_thread(void *arg)
{
    struct cp_rank *rank = arg;

    for (uint32_t work = 0; work < CP_WORKS; work++)
        rank->seconds[work] = need_memory(NULL, rank->group->reps, sizeof(double));
    ATTN_INIT(&rank->err);
    ATTN_INIT(&rank->net);
    rank->status = run_rank(rank, &rank->err);
    if (rank->status != ATTN_OK)
        rank->meeting.abort(rank->meeting.arg, rank->err.message);
    return NULL;
}

void cp_rank_finish(struct cp_rank *rank)
{
    attn_graph_destroy(rank->graph);
    attn_cp_destroy(rank->cp);
    if (rank->blocks.data != NULL)
        attn_memory_free(rank->backend, &rank->blocks);
    if (rank->workload.backend != NULL)
        workload_finish(&rank->workload);
    transport_close(rank->transport);
    attn_backend_destroy(rank->backend);
    free(rank->part.sequence);
    for (uint32_t work = 0; work < CP_WORKS; work++)
        free(rank->seconds[work]);
}
