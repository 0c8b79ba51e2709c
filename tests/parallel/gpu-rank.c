/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Ranks of NCCL, each a thread with a GPU of its own: results of attn_cp_run, by runs and by a graph, are
 * those of attn_plan_run over all keys, and have the same bits on all ranks. One rank has the bits of no
 * ranks.
 *
 * usage: gpu-rank RANKS, with ATTN_BACKEND, ATTN_PLUGIN_PATH and, unless the loader finds NCCL,
 * ATTN_NCCL_LIBRARY; TAP
 */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu-open.h"
#include "transport.h"

enum { SEQS = 5, BLOCK = 16, WIDTH = 40, PAGES = SEQS * WIDTH, MOST_RANKS = 8, CASES = 6, BLOCK_CALLS = 400 };
#define LIMIT_NS UINT64_C(20000000000)

/* Keys end within pages of different ranks, and one sequence leaves all ranks but one without keys. */
static const int32_t lens[SEQS] = {1, 16, 100, 333, 640};

static const struct a_case {
    const char *problem;
    int32_t queries[SEQS];
} cases[CASES] = {
    {"heads=8 kv_heads=2 head_dim=128 q=bf16", {1, 1, 1, 1, 1}},
    {"heads=32 kv_heads=8 head_dim=64 q=f16 window=100 sinks=1", {1, 1, 1, 1, 1}},
    {"heads=8 kv_heads=8 head_dim=128 q=bf16 kv=e4m3 scales=unit", {1, 1, 1, 1, 1}},
    {"heads=16 kv_heads=1 head_dim=576/512 mla=1 q=bf16", {1, 1, 1, 1, 1}},
    {"heads=8 kv_heads=2 head_dim=128 q=bf16 softcap=30", {1, 16, 70, 333, 300}},
    {"heads=8 kv_heads=2 head_dim=128 q=bf16", {1, 2, 1, 3, 512}},
};

/* P is rounded to 16 bits, for other keys at once; a key of the wrong rank gives 0.1 and more. */
static const double BOUND = 5e-3;

/* Keys, queries and heads passed, beside what runs of attn_cp_run give. */
enum { PASSES = 3 };

/* One rank, and what it found. */
struct rank {
    uint32_t number, size;
    bool shared;
    struct attn_collectives meeting; /* of ranks that share a GPU */
    const struct transport_id *id;
    struct attn_context *context;
    pthread_t thread;
    struct attn_backend *backend;
    struct transport *transport;
    struct attn_collectives net;
    void *stream;
    struct attn_error err;
    uint32_t wrong;              /* collectives alone */
    float *results[CASES][2][2]; /* of all heads and own ones, by a run and by a graph */
    uint64_t counts[CASES];
    double prefill[CASES][PASSES]; /* relative rms of own query tokens */
    double error[CASES][2][2];     /* their relative rms beside a run without ranks */
};

/* A step in device memory. */
struct step {
    struct rank *rank;
    struct attn_problem problem;
    uint32_t tokens;
    struct attn_buffer q, out;
    uint64_t out_count; /* elements, f32 */
    struct attn_kv *kv;
    struct attn_plan *plan;
    struct attn_span schedule;
    struct attn_scratch scratch;
    struct attn_batch batch;
    struct attn_tensors tensors;
    int32_t table[SEQS][WIDTH];
};

/* ---------------------------------------------------------------- making a step */

static struct attn_buffer upload(struct rank *rank, const void *from, uint64_t size)
{
    const struct attn_buffer host = {(void *)(uintptr_t)from, 0};
    struct attn_buffer device;

    TRY(attn_memory_alloc(rank->backend, size, &device, &rank->err));
    TRY(attn_memory_copy(rank->backend, &device, &host, size, ATTN_COPY_TO_DEVICE, rank->stream, &rank->err));
    TRY(attn_stream_synchronize(rank->backend, rank->stream, &rank->err));
    return device;
}

/* Numbers of either sign, from 0.5 to 1 in bf16 and e4m3, from 0.25 to 0.5 in f16. */
static struct attn_buffer make_numbers(struct rank *rank, uint32_t dtype, uint64_t bytes, uint32_t seed)
{
    uint8_t *numbers = malloc(bytes);

    for (uint64_t i = 0; i < bytes; i++) {
        seed = seed * 1664525 + 1013904223;
        const bool high = dtype == ATTN_E4M3 || i % 2 == 1;
        const uint8_t exponent = dtype == ATTN_E4M3 ? 0x30 : dtype == ATTN_F16 ? 0x34 : 0x3f;
        const uint8_t mantissa = dtype == ATTN_E4M3 ? 0x87 : dtype == ATTN_F16 ? 0x83 : 0x80;
        numbers[i] = (uint8_t)(high ? exponent | (seed >> 16 & mantissa) : seed >> 16);
    }
    const struct attn_buffer device = upload(rank, numbers, bytes);
    free(numbers);
    return device;
}

/* The caches of all ranks are the same: their tables say which pages they read. */
static void make_tensors(struct step *step)
{
    struct rank *rank = step->rank;
    const struct attn_problem *p = &step->problem;
    const float sinks[32] = {0.5f, 1.0f, -1.0f};
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;

    ATTN_INIT(&shape);
    ATTN_INIT(&step->tensors);
    step->out_count = (uint64_t)step->tokens * p->heads * p->head_dim_vo;
    step->q = make_numbers(rank, p->q_dtype, (uint64_t)step->tokens * p->heads * p->head_dim * 2, 1);
    TRY(attn_memory_alloc(rank->backend, step->out_count * sizeof(float), &step->out, &rank->err));
    TRY(attn_kv_get_shape(rank->backend, p, PAGES, &shape, &rank->err));
    const struct attn_buffer cache = make_numbers(rank, p->k_dtype, shape.bytes, 2);
    attn_kv_desc_init(&desc, &shape, &cache);
    if (p->k_scale == ATTN_SCALES_UNIT)
        desc.k_scale.kind = desc.v_scale.kind = ATTN_SCALE_UNIT;
    TRY(attn_kv_create(rank->backend, &desc, &step->kv, &rank->err));
    step->tensors.softmax_scale = 1 / sqrtf((float)p->head_dim);
    step->tensors.kv = step->kv;
    if (p->sinks) {
        step->tensors.sinks = upload(rank, sinks, sizeof sinks);
        step->tensors.sinks_dtype = ATTN_F32;
    }
}

static void make_batch(struct step *step, const struct a_case *the_case)
{
    struct rank *rank = step->rank;
    const bool cp = step->problem.cp != 0;
    int32_t q_offsets[SEQS + 1] = {0}, kv_lens[SEQS], (*table)[WIDTH] = step->table;

    ATTN_INIT(&step->batch);
    for (int i = 0; i < SEQS; i++) {
        q_offsets[i + 1] = q_offsets[i] + the_case->queries[i];
        kv_lens[i] = cp ? (int32_t)attn_cp_count(rank->number, rank->size, BLOCK, lens[i]) : lens[i];
        for (int j = 0; j < WIDTH; j++) {
            const int page = cp ? j * (int)rank->size + (int)rank->number : j;
            table[i][j] = page < WIDTH ? (i * WIDTH + page) * 37 % PAGES : -1;
        }
        if (the_case->queries[i] > (int32_t)step->batch.max_q)
            step->batch.max_q = (uint32_t)the_case->queries[i];
    }
    step->batch.seqs = SEQS;
    step->batch.num_tokens = step->tokens;
    step->batch.max_kv = 640;
    step->batch.q_offsets = upload(rank, q_offsets, sizeof q_offsets);
    step->batch.kv_lens = upload(rank, kv_lens, sizeof kv_lens);
    step->batch.table = upload(rank, table, sizeof step->table);
    step->batch.table_width = WIDTH;
    step->batch.table_stride = sizeof table[0];
    if (cp) {
        step->batch.kv_global_lens = upload(rank, lens, sizeof lens);
        step->batch.cp_rank = rank->number;
        step->batch.cp_world = rank->size;
        step->batch.cp_interleave = BLOCK;
    }
}

static void make_plan(struct step *step)
{
    struct rank *rank = step->rank;
    struct attn_plan_sizes sizes;

    ATTN_INIT(&sizes);
    ATTN_INIT(&step->scratch);
    TRY(attn_plan_create(rank->backend, &step->problem, &step->plan, &rank->err));
    TRY(attn_plan_get_sizes(step->plan, &sizes, &rank->err));
    void *zeros = calloc(1, sizes.schedule + sizes.scratch + sizes.counters + 1);
    struct attn_span staging = {{NULL, 0}, sizes.staging};
    step->schedule = (struct attn_span){upload(rank, zeros, sizes.schedule + 1), sizes.schedule};
    step->scratch.scratch = (struct attn_span){upload(rank, zeros, sizes.scratch + 1), sizes.scratch};
    step->scratch.counters = (struct attn_span){upload(rank, zeros, sizes.counters + 1), sizes.counters};
    free(zeros);
    if (sizes.staging > 0)
        TRY(attn_memory_alloc_pinned(rank->backend, sizes.staging, &staging.buffer.data, &rank->err));
    TRY(attn_plan_prepare(step->plan, &step->batch, &step->schedule, &staging, rank->stream, &rank->err));
    TRY(attn_stream_synchronize(rank->backend, rank->stream, &rank->err));
    attn_memory_free_pinned(rank->backend, staging.buffer.data);
}

/* Memory stays until the program ends. */
static void make_step(struct step *step, struct rank *rank, const struct a_case *the_case, bool cp)
{
    char text[512];

    *step = (struct step){.rank = rank};
    for (int i = 0; i < SEQS; i++)
        step->tokens += (uint32_t)the_case->queries[i];
    snprintf(text, sizeof text,
             "%s out=f32 block=16 graph=always max_seqs=%d max_q=640 max_kv=640 max_rows=%u cp=%d lse=%d",
             the_case->problem, SEQS, step->tokens, cp, cp);
    TRY(attn_problem_parse(text, &step->problem, &rank->err));
    TRY(attn_problem_resolve(&step->problem, &step->problem, &rank->err));
    make_tensors(step);
    make_batch(step, the_case);
    make_plan(step);
}

/* q and out are those of heads from `first` on. */
static void place_heads(struct step *step, uint32_t first)
{
    const struct attn_problem *p = &step->problem;
    struct attn_tensors *tensors = &step->tensors;

    tensors->q = (struct attn_tensor){.buffer = step->q,
                                      .token_stride = (int64_t)(p->heads * p->head_dim * 2),
                                      .head_stride = (int64_t)p->head_dim * 2};
    tensors->out = (struct attn_tensor){.buffer = step->out,
                                        .token_stride = (int64_t)(p->heads * p->head_dim_vo * 4),
                                        .head_stride = (int64_t)p->head_dim_vo * 4};
    tensors->q.buffer.byte_offset += first * (uint64_t)tensors->q.head_stride;
    tensors->out.buffer.byte_offset += first * (uint64_t)tensors->out.head_stride;
}

/* ---------------------------------------------------------------- results */

static void clear_result(struct step *step)
{
    struct rank *rank = step->rank;
    float *zeros = calloc(step->out_count, sizeof *zeros);
    const struct attn_buffer host = {zeros, 0};

    TRY(attn_memory_copy(rank->backend, &step->out, &host, step->out_count * sizeof *zeros,
                         ATTN_COPY_TO_DEVICE, rank->stream, &rank->err));
    TRY(attn_stream_synchronize(rank->backend, rank->stream, &rank->err));
    free(zeros);
}

static float *take_result(struct step *step)
{
    struct rank *rank = step->rank;
    float *result = malloc(step->out_count * sizeof *result);
    const struct attn_buffer host = {result, 0};

    TRY(attn_memory_copy(rank->backend, &host, &step->out, step->out_count * sizeof *result,
                         ATTN_COPY_TO_HOST, rank->stream, &rank->err));
    TRY(attn_stream_synchronize(rank->backend, rank->stream, &rank->err));
    clear_result(step);
    return result;
}

/* Of heads [first, first + count). */
static double distance(const struct step *step, const float *a, const float *b, uint32_t first,
                       uint32_t count)
{
    const uint64_t dim = step->problem.head_dim_vo, row = step->problem.heads * dim;
    double difference = 0, size = 0;

    for (uint64_t i = 0; i < step->out_count; i++) {
        const uint64_t head = i % row / dim;
        if (head < first || head >= first + count)
            continue;
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / size);
}

/* ---------------------------------------------------------------- a rank */

/* By a run, then by a graph that is launched several times. */
static void run_heads(struct step *step, const float *whole, uint32_t number, bool split)
{
    struct rank *rank = step->rank;
    const uint32_t count = split ? step->problem.heads / rank->size : step->problem.heads;
    const uint32_t first = split ? rank->number * count : 0;
    struct attn_cp_run_args args;
    struct attn_cp_params params;
    struct attn_graph *graph;
    struct attn_cp *cp;

    ATTN_INIT(&params);
    ATTN_INIT(&args);
    params.queries = split ? ATTN_CP_HEADS_SPLIT : ATTN_CP_HEADS_ALL;
    params.problem = &step->problem;
    params.collectives = &rank->net;
    TRY(attn_cp_create(rank->backend, &params, &cp, &rank->err));
    place_heads(step, first);
    args.plan = step->plan;
    args.batch = &step->batch;
    args.tensors = &step->tensors;
    args.schedule = &step->schedule;
    args.scratch = &step->scratch;
    TRY(attn_cp_run(cp, &args, rank->stream, &rank->err));
    TRY(attn_cp_wait(cp, rank->stream, &rank->err));
    rank->results[number][split][0] = take_result(step);
    if (rank->shared) {
        rank->error[number][split][0] = distance(step, rank->results[number][split][0], whole, first, count);
        attn_cp_destroy(cp);
        return;
    }
    TRY(attn_graph_begin(rank->backend, rank->stream, &graph, &rank->err));
    args.graph = graph;
    TRY(attn_cp_run(cp, &args, rank->stream, &rank->err));
    TRY(attn_graph_end(graph, &rank->err));
    for (int i = 0; i < 3; i++)
        TRY(attn_graph_launch(graph, rank->stream, &rank->err));
    TRY(attn_cp_wait(cp, rank->stream, &rank->err));
    rank->results[number][split][1] = take_result(step);
    for (int i = 0; i < 2; i++)
        rank->error[number][split][i] = distance(step, rank->results[number][split][i], whole, first, count);
    attn_graph_destroy(graph);
    attn_cp_destroy(cp);
}

/* Rows of q and out that are this rank's, one behind the other. */
static uint32_t find_rows(const struct rank *rank, const struct a_case *the_case, uint32_t *rows)
{
    uint32_t count = 0, first = 0;

    for (int i = 0; i < SEQS; i++) {
        int32_t positions[WIDTH * BLOCK];
        const int64_t own = attn_cp_tokens(rank->number, rank->size, BLOCK, the_case->queries[i], lens[i],
                                           positions, WIDTH * BLOCK);
        for (int64_t j = 0; j < own; j++)
            rows[count++] = first + (uint32_t)(positions[j] - (lens[i] - the_case->queries[i]));
        first += (uint32_t)the_case->queries[i];
    }
    return count;
}

static void copy_row(struct step *step, const struct attn_buffer *from, uint32_t from_row,
                     const struct attn_buffer *to, uint32_t to_row, uint64_t bytes)
{
    struct rank *rank = step->rank;
    const struct attn_buffer source = {from->data, from->byte_offset + from_row * bytes},
                             target = {to->data, to->byte_offset + to_row * bytes};

    TRY(attn_memory_copy(rank->backend, &target, &source, bytes, ATTN_COPY_ON_DEVICE, rank->stream,
                         &rank->err));
}

static void run_prefill(struct step *step, const struct a_case *the_case, const float *whole, uint32_t number,
                        uint32_t pass)
{
    struct rank *rank = step->rank;
    const uint64_t row = (uint64_t)step->problem.heads * step->problem.head_dim_vo;
    struct attn_problem problem = step->problem;
    struct attn_cp_params params;
    struct attn_cp_step args;
    struct attn_buffer q;
    struct attn_cp *cp;
    uint32_t rows[SEQS * WIDTH * BLOCK];
    const uint32_t count = find_rows(rank, the_case, rows);

    ATTN_INIT(&params);
    ATTN_INIT(&args);
    problem.positions = 1;
    problem.graph = ATTN_GRAPH_NEVER;
    params.queries = ATTN_CP_TOKENS;
    params.problem = &problem;
    params.collectives = &rank->net;
    params.interleave = BLOCK;
    params.pass = pass;
    TRY(attn_cp_create(rank->backend, &params, &cp, &rank->err));
    TRY(attn_memory_alloc(rank->backend, (uint64_t)step->tokens * problem.heads * problem.head_dim * 2, &q,
                          &rank->err));
    place_heads(step, 0);
    for (uint32_t i = 0; i < count; i++)
        copy_row(step, &step->q, rows[i], &q, i, (uint64_t)problem.heads * problem.head_dim * 2);
    step->tensors.q.buffer = q;
    args.seqs = SEQS;
    args.q_lens = the_case->queries;
    args.kv_lens = lens;
    args.table = step->table[0];
    args.table_width = WIDTH;
    for (int i = 0; i < 2; i++) {
        TRY(attn_cp_prefill_begin(cp, &args, rank->stream, &rank->err));
        TRY(attn_cp_prefill_run(cp, &step->tensors, rank->stream, &rank->err));
    }
    TRY(attn_cp_wait(cp, rank->stream, &rank->err));
    float *own = take_result(step);
    double difference = 0, size = 1e-30;
    for (uint64_t i = 0; i < count * row; i++) {
        const double want = (double)whole[rows[i / row] * row + i % row], error = (double)own[i] - want;
        difference += error * error;
        size += want * want;
    }
    rank->prefill[number][pass - 1] = sqrt(difference / size);
    free(own);
    attn_cp_destroy(cp);
}

static void run_case(struct rank *rank, uint32_t number)
{
    struct step alone, step;

    make_step(&alone, rank, &cases[number], false);
    place_heads(&alone, 0);
    TRY(attn_plan_run(alone.plan, &alone.batch, &alone.tensors, &alone.schedule, &alone.scratch, rank->stream,
                      &rank->err));
    float *whole = take_result(&alone);
    make_step(&step, rank, &cases[number], true);
    clear_result(&step);
    run_heads(&step, whole, number, false);
    run_heads(&step, whole, number, true);
    rank->counts[number] = step.out_count;
    run_prefill(&step, &cases[number], whole, number, ATTN_CP_PASS_KEYS);
    run_prefill(&step, &cases[number], whole, number, ATTN_CP_PASS_QUERIES);
    if (rank->size > 1 && step.problem.kv_heads % rank->size == 0)
        run_prefill(&step, &cases[number], whole, number, ATTN_CP_PASS_HEADS);
    free(whole);
}

/* ---------------------------------------------------------------- collectives alone */

static uint8_t byte_of(uint32_t call, uint32_t from, uint32_t to, uint64_t i)
{
    const uint32_t x = (call * 64 + from * 8 + to + 1) * UINT32_C(2654435761) + (uint32_t)(i / 5) * 40503u;

    return (uint8_t)(x >> 13 ^ (uint32_t)i);
}

/* Bytes of a block: of all sizes, at last some about the most that goes over peer memory. */
static uint64_t bytes_of(const struct rank *rank, uint32_t call)
{
    const uint64_t most = (UINT64_C(1) << 20) / rank->size;
    const uint32_t random = (call + 1) * UINT32_C(2246822519);

    if (call >= BLOCK_CALLS - 4)
        return most + 1 - (call & 3) / 2;
    return call % 25 == 3  ? 1 + (random >> 8) % most
           : call % 3 == 0 ? 1 + (random >> 8) % 5000
                           : 16 + call * 8;
}

/* Bytes that are not those that were sent, of an all-gather or an all-to-all from and to such addresses. */
static uint64_t count_wrong(struct rank *rank, uint32_t call, uint8_t *host, const struct attn_buffer *from,
                            const struct attn_buffer *into)
{
    const bool to_all = call / 2 % 2 == 1;
    const uint64_t bytes = bytes_of(rank, call);
    const struct attn_buffer memory = {host, 0};
    uint64_t wrong = 0;

    for (uint32_t to = 0; to < (to_all ? rank->size : 1); to++)
        for (uint64_t i = 0; i < bytes; i++)
            host[to * bytes + i] = byte_of(call, rank->number, to, i);
    TRY(attn_memory_copy(rank->backend, from, &memory, bytes * (to_all ? rank->size : 1), ATTN_COPY_TO_DEVICE,
                         rank->stream, &rank->err));
    if (to_all)
        TRY(rank->net.all_to_all(rank->net.arg, from, into, bytes, rank->stream, &rank->err));
    else
        TRY(rank->net.all_gather(rank->net.arg, from, into, bytes, rank->stream, &rank->err));
    TRY(attn_memory_copy(rank->backend, &memory, into, bytes * rank->size, ATTN_COPY_TO_HOST, rank->stream,
                         &rank->err));
    TRY(attn_stream_synchronize(rank->backend, rank->stream, &rank->err));
    TRY(rank->net.check(rank->net.arg, &rank->err));
    for (uint32_t i = 0; i < rank->size; i++)
        for (uint64_t j = 0; j < bytes; j++)
            wrong += host[i * bytes + j] != byte_of(call, i, to_all ? rank->number : 0, j);
    return wrong;
}

/* More calls than it takes for the numbers of those over peer memory to pass 0. */
static void run_collectives(struct rank *rank)
{
    const uint64_t room = (UINT64_C(1) << 20) + 4096;
    uint8_t *host = malloc(room);
    struct attn_buffer from, into;

    TRY(attn_memory_alloc(rank->backend, room, &from, &rank->err));
    TRY(attn_memory_alloc(rank->backend, room, &into, &rank->err));
    for (uint32_t call = 0; call < BLOCK_CALLS; call++) {
        from.byte_offset += call % 3 == 0 ? 1 + rank->number : 0; /* not the same alignment on all ranks */
        const uint64_t wrong = count_wrong(rank, call, host, &from, &into);
        from.byte_offset -= call % 3 == 0 ? 1 + rank->number : 0;
        rank->wrong += wrong > 0;
        if (wrong > 0)
            printf("# rank %u, call %u of %llu bytes: %llu are wrong\n", rank->number, call,
                   (unsigned long long)bytes_of(rank, call), (unsigned long long)wrong);
    }
    attn_memory_free(rank->backend, &from);
    attn_memory_free(rank->backend, &into);
    free(host);
}

static void *rank_thread(void *arg)
{
    struct rank *rank = arg;

    ATTN_INIT(&rank->err);
    ATTN_INIT(&rank->net);
    TRY(gpu_open(rank->context, cases[0].problem, rank->shared ? 0 : rank->number, &rank->backend,
                 &rank->stream, &rank->err));
    if (rank->shared)
        TRY(transport_share_device(rank->backend, &rank->meeting, &rank->transport, &rank->net, &rank->err));
    else
        TRY(transport_open_nccl(rank->id, rank->number, rank->size, rank->number, LIMIT_NS, &rank->transport,
                                &rank->net, &rank->err));
    if (!rank->shared)
        run_collectives(rank);
    for (uint32_t i = 0; i < CASES; i++)
        run_case(rank, i);
    return NULL;
}

/* ---------------------------------------------------------------- all ranks */

static int count, failed;

static void report(bool good, uint32_t number, const char *what, double value)
{
    failed += !good;
    printf("%sok %d - %s: %s (%.2g)\n", good ? "" : "not ", ++count, cases[number].problem, what, value);
}

static double worst(const struct rank *ranks, uint32_t size, uint32_t number, bool split, int graph)
{
    double most = 0;

    for (uint32_t r = 0; r < size; r++)
        most = fmax(most, isnan(ranks[r].error[number][split][graph]) ? INFINITY
                                                                      : ranks[r].error[number][split][graph]);
    return most;
}

static void judge(const struct rank *ranks, uint32_t size, uint32_t number)
{
    static const char *const names[2][2] = {{"all heads, a run", "all heads, a graph"},
                                            {"heads split, a run", "heads split, a graph"}};
    static const char *const passed[PASSES] = {"prefill, keys passed", "prefill, queries passed",
                                               "prefill, heads passed, where they divide"};
    bool same = true;

    const int ways = ranks[0].shared ? 1 : 2;
    for (int split = 0; split < 2; split++)
        for (int graph = 0; graph < ways; graph++) {
            const double error = worst(ranks, size, number, split, graph);
            report(error <= BOUND, number, names[split][graph], error);
        }
    for (uint32_t r = 0; r < size; r++)
        for (int graph = 0; graph < ways; graph++)
            same = same && memcmp(ranks[r].results[number][0][graph], ranks[0].results[number][0][0],
                                  ranks[0].counts[number] * sizeof(float)) == 0;
    report(same, number, "the same bits on all ranks, by runs and graphs", 0);
    for (int pass = 0; pass < PASSES; pass++) {
        double most = 0;
        for (uint32_t r = 0; r < size; r++)
            most =
                fmax(most, isnan(ranks[r].prefill[number][pass]) ? INFINITY : ranks[r].prefill[number][pass]);
        report(most <= BOUND, number, passed[pass], most);
    }
}

static void judge_collectives(const struct rank *ranks, uint32_t size)
{
    const char *why;
    const bool peer = transport_has_peer(ranks[0].transport, &why);
    uint32_t wrong = 0;

    for (uint32_t r = 0; r < size; r++)
        wrong += ranks[r].wrong;
    printf("# small calls go %s%s\n", peer ? "over peer memory" : "by NCCL: ", peer ? "" : why);
    failed += wrong > 0;
    printf("%sok %d - %d collectives of all sizes\n", wrong > 0 ? "not " : "", ++count, BLOCK_CALLS);
}

static void start(struct rank *rank, int number, int size, const struct transport_id *id,
                  struct attn_context *context, struct attn_local_ranks *meeting)
{
    struct attn_error err;

    ATTN_INIT(&err);
    *rank = (struct rank){.number = (uint32_t)number, .size = (uint32_t)size, .id = id, .context = context};
    ATTN_INIT(&rank->meeting);
    rank->shared = meeting != NULL;
    if (meeting != NULL && attn_local_ranks_get(meeting, (uint32_t)number, &rank->meeting, &err) != ATTN_OK)
        exit(1);
    if (pthread_create(&rank->thread, NULL, rank_thread, rank) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    static struct rank ranks[MOST_RANKS];
    const bool shared = argc == 3 && strcmp(argv[2], "shared") == 0;
    const int size = argc == 2 || shared ? atoi(argv[1]) : 0;
    struct attn_local_ranks *meeting = NULL;
    struct attn_context *context;
    struct transport_id id;
    struct attn_error err;

    ATTN_INIT(&err);
    if (size < 1 || size > MOST_RANKS) {
        fprintf(stderr, "usage: gpu-rank RANKS (1 to %d) [shared]\n", MOST_RANKS);
        return 2;
    }
    if ((shared ? attn_local_ranks_create((uint32_t)size, LIMIT_NS, &meeting, &err)
                : transport_make_id(&id, &err)) != ATTN_OK ||
        attn_context_create(NULL, &context, &err) != ATTN_OK) {
        printf("Bail out! %s\n", err.message);
        return 1;
    }
    for (int r = 0; r < size; r++)
        start(&ranks[r], r, size, &id, context, meeting);
    for (int r = 0; r < size; r++)
        pthread_join(ranks[r].thread, NULL);
    if (!shared)
        judge_collectives(ranks, (uint32_t)size);
    for (uint32_t i = 0; i < CASES; i++)
        judge(ranks, (uint32_t)size, i);
    printf("1..%d\n", count);
    return failed != 0;
}
