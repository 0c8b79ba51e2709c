/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests what attn_cp refuses, and that a rank that fails leaves nobody waiting. Results: attn-check --kind
 * cp. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cpu/shape-fixture.h"
#include "ranks.h"

enum { HEADS = 4, DIM = 16, BLOCK = 4, PAGES = 8, KEYS = 24 };

static struct shape_fixture cpu;

static void open_cpu(void)
{
    fixture_open(&cpu, NULL);
}

static void close_cpu(void)
{
    fixture_close(&cpu);
}

TestSuite(cp, .init = open_cpu, .fini = close_cpu);

/* One decode over KEYS keys, as one rank sees it. */
struct decode {
    float q[HEADS][DIM], out[HEADS][DIM], k[PAGES][BLOCK][DIM];
    int32_t q_offsets[2], kv_lens[1], all_lens[1], table[PAGES];
    struct attn_problem problem;
    struct attn_kv_desc kv;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_plan *plan;
    struct attn_span schedule;
    struct attn_scratch scratch;
    struct attn_cp_params params;
    struct attn_cp_run_args args;
};

static struct attn_span make_span(uint64_t size)
{
    void *memory = aligned_alloc(64, (size / 64 + 1) * 64);

    cr_assert_not_null(memory);
    memset(memory, 0, (size / 64 + 1) * 64);
    return (struct attn_span){{memory, 0}, size};
}

static void decode_init(struct decode *d, const struct rank *rank, const char *text)
{
    struct attn_plan_sizes sizes;
    struct attn_error err;

    ATTN_INIT(&sizes);
    ATTN_INIT(&err);
    memset(d, 0, sizeof *d);
    fixture_problem(text, &d->problem);
    for (uint32_t i = 0; i < PAGES; i++)
        d->table[i] = (int32_t)i;
    d->q_offsets[1] = 1;
    d->all_lens[0] = KEYS;
    d->kv_lens[0] = (int32_t)attn_cp_count(rank->number, rank->size, 2, KEYS);
    ATTN_INIT(&d->kv);
    d->kv.k_dtype = d->kv.v_dtype = ATTN_F32;
    d->kv.pages = PAGES;
    d->kv.block = BLOCK;
    d->kv.kv_heads = 1;
    d->kv.head_dim = DIM;
    d->kv.k.data = d->kv.v.data = d->k;
    d->kv.k_page_stride = d->kv.v_page_stride = sizeof d->k[0];
    d->kv.k_token_stride = d->kv.v_token_stride = sizeof d->k[0][0];
    d->kv.k_head_stride = d->kv.v_head_stride = sizeof d->k[0][0];
    ATTN_INIT(&d->batch);
    d->batch.seqs = d->batch.num_tokens = d->batch.max_q = 1;
    d->batch.max_kv = KEYS;
    d->batch.q_offsets.data = d->q_offsets;
    d->batch.kv_lens.data = d->kv_lens;
    d->batch.kv_global_lens.data = d->all_lens;
    d->batch.table.data = d->table;
    d->batch.table_width = PAGES;
    d->batch.table_stride = sizeof d->table;
    d->batch.cp_rank = rank->number;
    d->batch.cp_world = rank->size;
    d->batch.cp_interleave = 2;
    ATTN_INIT(&d->tensors);
    d->tensors.softmax_scale = 1;
    d->tensors.q = fixture_tensor(d->q, sizeof d->q, sizeof d->q[0]);
    d->tensors.out = fixture_tensor(d->out, sizeof d->out, sizeof d->out[0]);
    d->tensors.kv_desc = &d->kv;
    cr_assert_eq(attn_plan_create(cpu.backend, &d->problem, &d->plan, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_plan_get_sizes(d->plan, &sizes, &err), ATTN_OK);
    ATTN_INIT(&d->scratch);
    d->schedule = make_span(sizes.schedule);
    d->scratch.scratch = make_span(sizes.scratch);
    d->scratch.counters = make_span(sizes.counters);
    cr_assert_eq(attn_plan_prepare(d->plan, &d->batch, &d->schedule, NULL, NULL, &err), ATTN_OK, "%s",
                 err.message);
    ATTN_INIT(&d->params);
    d->params.queries = ATTN_CP_HEADS_SPLIT;
    d->params.problem = &d->problem;
    d->params.collectives = &rank->net;
    ATTN_INIT(&d->args);
    d->args.plan = d->plan;
    d->args.batch = &d->batch;
    d->args.tensors = &d->tensors;
    d->args.schedule = &d->schedule;
    d->args.scratch = &d->scratch;
}

static void decode_finish(struct decode *d)
{
    attn_plan_destroy(d->plan);
    free(d->schedule.buffer.data);
    free(d->scratch.scratch.buffer.data);
    free(d->scratch.counters.buffer.data);
}

#define PROBLEM "heads=4 kv_heads=1 head_dim=16 q=f32 block=4 cp=1 lse=1"

/* ---------------------------------------------------------------- creating */

static void check_params(struct decode *d, int32_t status, const char *field, const char *message)
{
    struct attn_cp *cp = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    cr_assert_eq(attn_cp_create(cpu.backend, &d->params, &cp, &err), status, "%s: %s", field, err.message);
    cr_assert_null(cp);
    cr_assert_str_eq(err.field, field);
    cr_assert_str_eq(err.message, message);
}

static void create_wrong(struct rank *rank)
{
    struct attn_collectives net = rank->net;
    struct attn_problem problem;
    struct decode d;

    decode_init(&d, rank, PROBLEM);
    problem = d.problem;
    d.params.problem = &problem;
    d.params.collectives = &net;
    d.params.queries = 4;
    check_params(&d, ATTN_E_INVALID, "queries",
                 "queries is 4; accepted: ATTN_CP_HEADS_SPLIT, ATTN_CP_HEADS_ALL or ATTN_CP_TOKENS");
    d.params.queries = ATTN_CP_HEADS_SPLIT;
    net.rank = net.size;
    check_params(&d, ATTN_E_INVALID, "collectives.rank", "rank is 1 of 1; accepted: below size");
    net = rank->net;
    net.timeout_ns = 0;
    check_params(&d, ATTN_E_INVALID, "collectives.timeout_ns",
                 "timeout_ns is 0; accepted: nanoseconds, 1 at least");
    net = rank->net;
    net.all_to_all = NULL;
    check_params(&d, ATTN_E_INVALID, "collectives", "all_to_all is NULL; a function is accepted");
    net = rank->net;
    net.size = 3;
    check_params(&d, ATTN_E_INVALID, "heads",
                 "heads is 4 for 3 ranks; accepted: a multiple, or ATTN_CP_HEADS_ALL");
    net = rank->net;
    problem.lse = 0;
    check_params(&d, ATTN_E_INVALID, "lse",
                 "lse of the problem is 0; accepted: 1, as parts of ranks are merged by their LSE");
    problem.lse = 1;
    problem.cp = 0;
    check_params(&d, ATTN_E_INVALID, "cp",
                 "cp of the problem is 0; accepted: 1, as parts of ranks are merged by their LSE");
    problem.cp = 1;
    problem.max_rows = 0;
    check_params(&d, ATTN_E_INVALID, "max_rows",
                 "max_rows of the problem is not given; accepted: query tokens of the largest step");
    problem.max_rows = 1;
    problem.out_dtype = ATTN_E4M3;
    problem.out_scale = ATTN_SCALES_UNIT;
    check_params(&d, ATTN_E_UNSUPPORTED, "out", "out is e4m3; parts are merged in f32, f16 or bf16");
    fixture_problem(
        "heads=4 kv_heads=1 head_dim=24 q=e4m3 kv=e4m3 out=f32 q_scale=unit scales=unit cp=1 lse=1",
        &problem);
    check_params(
        &d, ATTN_E_UNSUPPORTED, "head_dim",
        "head_dim is 24 with q=e4m3, which is not copied; accepted of heads that are split: multiples "
        "of 16, or ATTN_CP_HEADS_ALL");
    decode_finish(&d);
}

Test(cp, wrong_parameters_are_named)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 1, 30, create_wrong, NULL);
}

/* ---------------------------------------------------------------- running */

static struct attn_cp *make(struct decode *d, struct attn_error *err)
{
    struct attn_cp *cp = NULL;

    cr_assert_eq(attn_cp_create(cpu.backend, &d->params, &cp, err), ATTN_OK, "%s", err->message);
    return cp;
}

/* Every wrong run is refused before anything is sent, so that a right one follows. */
static void run_wrong(struct rank *rank)
{
    struct decode d;

    decode_init(&d, rank, PROBLEM);
    struct attn_cp *cp = make(&d, &rank->err);
    cr_assert_eq(attn_cp_run(NULL, &d.args, NULL, &rank->err), ATTN_E_INVALID);
    d.args.plan = NULL;
    cr_assert_eq(attn_cp_run(cp, &d.args, NULL, &rank->err), ATTN_E_INVALID);
    cr_assert_str_eq(rank->err.field, "plan");
    d.args.plan = d.plan;
    d.batch.cp_rank = 1 - rank->number;
    cr_assert_eq(attn_cp_run(cp, &d.args, NULL, &rank->err), ATTN_E_INVALID);
    cr_assert_str_eq(rank->err.field, "cp_rank");
    d.batch.cp_rank = rank->number;
    d.batch.num_tokens = 257;
    cr_assert_eq(attn_cp_run(cp, &d.args, NULL, &rank->err), ATTN_E_SIZE);
    cr_assert_str_eq(rank->err.message, "num_tokens is 257; this rank was made for max_rows=256");
    d.batch.num_tokens = 1;
    d.tensors.out.buffer.data = NULL;
    cr_assert_eq(attn_cp_run(cp, &d.args, NULL, &rank->err), ATTN_E_INVALID);
    cr_assert_str_eq(rank->err.field, "out");
    d.tensors.out.buffer.data = d.out;
    rank->status = attn_cp_run(cp, &d.args, NULL, &rank->err);
    if (rank->status == ATTN_OK)
        rank->status = attn_cp_wait(cp, NULL, &rank->err);
    attn_cp_destroy(cp);
    decode_finish(&d);
}

Test(cp, wrong_runs_leave_the_connection_as_it_was)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 2, 30, run_wrong, NULL);
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(ranks[r].status, ATTN_OK, "%s", ranks[r].err.message);
}

/* A plan of another problem is refused. */
static void run_foreign(struct rank *rank)
{
    struct decode d, other;

    decode_init(&d, rank, PROBLEM);
    decode_init(&other, rank, "heads=8 kv_heads=1 head_dim=16 q=f32 block=4 cp=1 lse=1");
    struct attn_cp *cp = make(&d, &rank->err);
    rank->status = attn_cp_run(cp, &other.args, NULL, &rank->err);
    attn_cp_destroy(cp);
    decode_finish(&d);
    decode_finish(&other);
}

Test(cp, a_plan_of_another_problem_is_refused)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 1, 30, run_foreign, NULL);
    cr_assert_eq(ranks[0].status, ATTN_E_INVALID);
    cr_assert_str_eq(
        ranks[0].err.message,
        "the plan is of another problem than this rank was made for: heads, head_dim, q, out, cp and "
        "lse must be the same");
}

/* Rank 1 has no memory for its run, which the plan finds after queries were gathered. */
static void fail_late(struct rank *rank)
{
    struct decode d;

    decode_init(&d, rank, PROBLEM);
    struct attn_cp *cp = make(&d, &rank->err);
    if (rank->number == 1)
        d.tensors.softmax_scale = 0;
    rank->status = attn_cp_run(cp, &d.args, NULL, &rank->err);
    d.tensors.softmax_scale = 1;
    struct attn_error again;
    ATTN_INIT(&again);
    cr_assert_eq(attn_cp_run(cp, &d.args, NULL, &again), ATTN_E_PEER);
    attn_cp_destroy(cp);
    decode_finish(&d);
}

Test(cp, a_rank_that_fails_ends_the_others_at_once)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 3 - 1, 300, fail_late, NULL);
    cr_assert_eq(ranks[1].status, ATTN_E_INVALID);
    cr_assert_str_eq(ranks[1].err.field, "softmax_scale");
    cr_assert_eq(ranks[0].status, ATTN_E_PEER);
    cr_assert_str_eq(ranks[0].err.message,
                     "rank 1 of 2 ended the connection: tensors.softmax_scale is 0; accepted: "
                     "finite and > 0; there is no default");
    cr_assert_lt(ranks[0].seconds, 100.0);
}

/* A graph whose launch meets nobody says so in attn_cp_wait, and then does nothing any more. */
static void launch_alone(struct rank *rank)
{
    struct attn_graph *graph = NULL;
    void *stream = NULL;
    struct decode d;

    decode_init(&d, rank, PROBLEM " graph=always");
    struct attn_cp *cp = make(&d, &rank->err);
    cr_assert_eq(attn_stream_create(cpu.backend, &stream, &rank->err), ATTN_OK);
    cr_assert_eq(attn_graph_begin(cpu.backend, stream, &graph, &rank->err), ATTN_OK);
    d.args.graph = graph;
    cr_assert_eq(attn_cp_run(cp, &d.args, stream, &rank->err), ATTN_OK, "%s", rank->err.message);
    cr_assert_eq(attn_graph_end(graph, &rank->err), ATTN_OK);
    for (uint32_t i = 0; i < (rank->number == 0 ? 3u : 1u); i++)
        cr_assert_eq(attn_graph_launch(graph, NULL, &rank->err), ATTN_OK);
    rank->status = attn_cp_wait(cp, NULL, &rank->err);
    attn_graph_destroy(graph);
    attn_stream_destroy(cpu.backend, stream);
    attn_cp_destroy(cp);
    decode_finish(&d);
}

Test(cp, a_launch_that_meets_nobody_is_told)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 2, 0.2, launch_alone, NULL);
    cr_assert_eq(ranks[1].status, ATTN_OK, "%s", ranks[1].err.message);
    cr_assert_eq(ranks[0].status, ATTN_E_PEER);
    cr_assert_str_eq(ranks[0].err.message, "rank 1 of 2 did not come to all_gather within 0.2 s");
}

/* ---------------------------------------------------------------- collectives of a device */

static uint32_t ends;
static int32_t network = ATTN_OK;

static int32_t check_network(void *arg, struct attn_error *err)
{
    (void)arg;
    if (network != ATTN_OK)
        snprintf(err->message, sizeof err->message, "the network is gone");
    return network;
}

static void count_end(void *arg, const char *why)
{
    (void)arg;
    ends += strcmp(why, "the network is gone") == 0;
}

/* Failures of work on a stream are known in attn_cp_wait, which ends the connection once. */
static void wait_in_vain(struct rank *rank)
{
    struct attn_collectives net = rank->net;
    struct attn_error again;
    struct decode d;

    net.device = 1;
    net.check = check_network;
    net.abort = count_end;
    decode_init(&d, rank, PROBLEM);
    d.params.collectives = &net;
    struct attn_cp *cp = make(&d, &rank->err);
    cr_assert_eq(attn_cp_run(cp, &d.args, NULL, &rank->err), ATTN_OK, "%s", rank->err.message);
    cr_assert_eq(attn_cp_wait(cp, NULL, &rank->err), ATTN_OK, "%s", rank->err.message);
    network = ATTN_E_PEER;
    rank->status = attn_cp_wait(cp, NULL, &rank->err);
    ATTN_INIT(&again);
    cr_assert_eq(attn_cp_wait(cp, NULL, &again), ATTN_E_PEER);
    cr_assert_eq(attn_cp_run(cp, &d.args, NULL, &again), ATTN_E_PEER);
    cr_assert_str_eq(again.message, "the network is gone");
    attn_cp_destroy(cp);
    decode_finish(&d);
}

Test(cp, failures_of_a_stream_are_told)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 1, 30, wait_in_vain, NULL);
    cr_assert_eq(ranks[0].status, ATTN_E_PEER);
    cr_assert_str_eq(ranks[0].err.message, "the network is gone");
    cr_assert_eq(ends, 1u);
}

/* ---------------------------------------------------------------- counting */

Test(cp, keys_of_a_rank_are_counted)
{
    for (uint32_t size = 1; size < 6; size++) {
        for (uint32_t share = 1; share < 5; share++) {
            int64_t counts[6] = {0};
            for (int64_t keys = 0; keys < 60; keys++) {
                for (uint32_t r = 0; r < size; r++)
                    cr_assert_eq(attn_cp_count(r, size, share, keys), counts[r]);
                counts[keys / share % size]++;
            }
        }
    }
    cr_assert_eq(attn_cp_count(2, 2, 1, 1), -1);
    cr_assert_eq(attn_cp_count(0, 2, 0, 1), -1);
    cr_assert_eq(attn_cp_count(0, 2, 1, -1), -1);
}
