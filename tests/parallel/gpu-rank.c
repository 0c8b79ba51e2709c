/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One rank of NCCL on a GPU: decodes through attn_cp_run, by runs and by a graph, have the bits of
 * attn_plan_run.
 *
 * usage: gpu-rank LIBNCCL, with ATTN_BACKEND and ATTN_PLUGIN_PATH; TAP. More ranks want more GPUs.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/nccl.h"

enum { SEQS = 5, HEADS = 8, KV_HEADS = 2, DIM = 128, BLOCK = 16, PAGES = 64, WIDTH = 40 };
enum { Q_BYTES = SEQS * HEADS * DIM * 2, CACHE_BYTES = PAGES * BLOCK * KV_HEADS * DIM * 2 };

static const char plain[] =
    "heads=8 kv_heads=2 head_dim=128 q=bf16 block=16 lse=1 graph=always max_seqs=5 max_q=1 "
    "max_kv=600 max_rows=5";

static struct attn_error err;
static int count, failed;

static void report(int good, const char *what)
{
    failed += !good;
    printf("%sok %d - %s\n", good ? "" : "not ", ++count, what);
}

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        if ((call) != ATTN_OK) {                                                                             \
            printf("Bail out! %s: %s\n", #call, err.message);                                                \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* Everything of a step in device memory. */
struct step {
    struct attn_backend *backend;
    void *stream;
    struct attn_buffer q, k, v, out, lse, q_offsets, kv_lens, table;
    struct attn_plan *plan;
    struct attn_span schedule;
    struct attn_scratch scratch;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    unsigned char result[Q_BYTES + SEQS * HEADS * 4];
};

static struct attn_buffer upload(const struct step *step, const void *from, uint64_t size)
{
    const struct attn_buffer host = {(void *)(uintptr_t)from, 0};
    struct attn_buffer device;

    TRY(attn_memory_alloc(step->backend, size, &device, &err));
    TRY(attn_memory_copy(step->backend, &device, &host, size, ATTN_COPY_TO_DEVICE, step->stream, &err));
    TRY(attn_stream_synchronize(step->backend, step->stream, &err));
    return device;
}

static struct attn_buffer make_numbers(const struct step *step, uint64_t size, uint32_t seed)
{
    uint16_t *numbers = malloc(size);

    for (uint64_t i = 0; numbers != NULL && i < size / 2; i++) {
        seed = seed * 1664525 + 1013904223;
        numbers[i] = (uint16_t)(0x3f00 | (seed >> 8 & 0x807f)); /* bf16 from 0.5 to 1, either sign */
    }
    const struct attn_buffer device = upload(step, numbers, size);
    free(numbers);
    return device;
}

static void make_plan(struct step *step, const struct attn_problem *problem)
{
    struct attn_plan_sizes sizes;
    const void *zeros;

    ATTN_INIT(&sizes);
    ATTN_INIT(&step->scratch);
    TRY(attn_plan_create(step->backend, problem, &step->plan, &err));
    TRY(attn_plan_get_sizes(step->plan, &sizes, &err));
    zeros = calloc(1, sizes.schedule + sizes.scratch + sizes.counters + 1);
    step->schedule = (struct attn_span){upload(step, zeros, sizes.schedule + 1), sizes.schedule};
    step->scratch.scratch = (struct attn_span){upload(step, zeros, sizes.scratch + 1), sizes.scratch};
    step->scratch.counters = (struct attn_span){upload(step, zeros, sizes.counters + 1), sizes.counters};
    struct attn_span staging = {{NULL, 0}, sizes.staging};
    if (sizes.staging > 0)
        TRY(attn_memory_alloc_pinned(step->backend, sizes.staging, &staging.buffer.data, &err));
    TRY(attn_plan_prepare(step->plan, &step->batch, &step->schedule, &staging, step->stream, &err));
    TRY(attn_stream_synchronize(step->backend, step->stream, &err));
    attn_memory_free_pinned(step->backend, staging.buffer.data);
    free((void *)(uintptr_t)zeros);
}

static void make_step(struct step *step)
{
    int32_t q_offsets[SEQS + 1], kv_lens[SEQS] = {1, 16, 100, 333, 600}, table[SEQS][WIDTH];

    for (int i = 0; i <= SEQS; i++)
        q_offsets[i] = i;
    for (int i = 0; i < SEQS * WIDTH; i++)
        table[i / WIDTH][i % WIDTH] = i * 37 % PAGES;
    step->q = make_numbers(step, Q_BYTES, 1);
    step->k = make_numbers(step, CACHE_BYTES, 2);
    step->v = make_numbers(step, CACHE_BYTES, 3);
    step->out = make_numbers(step, Q_BYTES, 4);
    step->lse = make_numbers(step, SEQS * HEADS * 4, 5);
    step->q_offsets = upload(step, q_offsets, sizeof q_offsets);
    step->kv_lens = upload(step, kv_lens, sizeof kv_lens);
    step->table = upload(step, table, sizeof table);
    ATTN_INIT(&step->batch);
    step->batch.seqs = step->batch.num_tokens = SEQS;
    step->batch.max_q = 1;
    step->batch.max_kv = 600;
    step->batch.q_offsets = step->q_offsets;
    step->batch.kv_lens = step->kv_lens;
    step->batch.table = step->table;
    step->batch.table_width = WIDTH;
    step->batch.table_stride = sizeof table[0];
    ATTN_INIT(&step->kv);
    step->kv.k_dtype = step->kv.v_dtype = ATTN_BF16;
    step->kv.pages = PAGES;
    step->kv.block = BLOCK;
    step->kv.kv_heads = KV_HEADS;
    step->kv.head_dim = DIM;
    step->kv.k = step->k;
    step->kv.v = step->v;
    step->kv.k_head_stride = step->kv.v_head_stride = DIM * 2;
    step->kv.k_token_stride = step->kv.v_token_stride = KV_HEADS * DIM * 2;
    step->kv.k_page_stride = step->kv.v_page_stride = BLOCK * KV_HEADS * DIM * 2;
    ATTN_INIT(&step->tensors);
    step->tensors.softmax_scale = 0.1f;
    step->tensors.q =
        (struct attn_tensor){.buffer = step->q, .token_stride = HEADS * DIM * 2, .head_stride = DIM * 2};
    step->tensors.out = step->tensors.q;
    step->tensors.out.buffer = step->out;
    step->tensors.lse =
        (struct attn_tensor){.buffer = step->lse, .token_stride = HEADS * 4, .head_stride = 4};
    step->tensors.kv_desc = &step->kv;
}

/* Takes out and lse to the host, and leaves rubbish in their place. */
static void take_result(struct step *step, unsigned char *to)
{
    const struct attn_buffer out = {to, 0}, lse = {to, Q_BYTES};

    TRY(attn_memory_copy(step->backend, &out, &step->out, Q_BYTES, ATTN_COPY_TO_HOST, step->stream, &err));
    TRY(attn_memory_copy(step->backend, &lse, &step->lse, SEQS * HEADS * 4, ATTN_COPY_TO_HOST, step->stream,
                         &err));
    TRY(attn_memory_copy(step->backend, &step->out, &step->k, Q_BYTES, ATTN_COPY_ON_DEVICE, step->stream,
                         &err));
    TRY(attn_memory_copy(step->backend, &step->lse, &step->k, SEQS * HEADS * 4, ATTN_COPY_ON_DEVICE,
                         step->stream, &err));
    TRY(attn_stream_synchronize(step->backend, step->stream, &err));
}

/* ---------------------------------------------------------------- NCCL */

struct unique_id {
    char bytes[128];
};

static void *connect_alone(const char *path, void **out_library)
{
    int (*get_id)(struct unique_id *);
    int (*init)(void **, int, struct unique_id, int);
    struct unique_id id;
    void *comm = NULL, *library = dlopen(path, RTLD_NOW), *found;

    *out_library = library;
    if (library == NULL) {
        printf("1..0 # SKIP no NCCL: %s\n", dlerror());
        exit(77);
    }
    found = dlsym(library, "ncclGetUniqueId");
    memcpy(&get_id, &found, sizeof found);
    found = dlsym(library, "ncclCommInitRank");
    memcpy(&init, &found, sizeof found);
    if (get_id(&id) != 0 || init(&comm, 1, id, 0) != 0) {
        printf("Bail out! NCCL makes no communicator\n");
        exit(1);
    }
    return comm;
}

/* ---------------------------------------------------------------- */

static void check_runs(struct step *step, const struct attn_problem *problem,
                       const struct attn_collectives *net, uint32_t heads, const char *what)
{
    unsigned char result[sizeof step->result];
    struct attn_cp_params params;
    struct attn_cp_run_args args;
    struct attn_graph *graph;
    struct attn_cp *cp;
    char text[128];

    ATTN_INIT(&params);
    params.heads = heads;
    params.problem = problem;
    params.collectives = net;
    TRY(attn_cp_create(step->backend, &params, &cp, &err));
    ATTN_INIT(&args);
    args.plan = step->plan;
    args.batch = &step->batch;
    args.tensors = &step->tensors;
    args.schedule = &step->schedule;
    args.scratch = &step->scratch;
    TRY(attn_cp_run(cp, &args, step->stream, &err));
    TRY(attn_cp_wait(cp, step->stream, &err));
    take_result(step, result);
    snprintf(text, sizeof text, "a run, %s", what);
    report(memcmp(result, step->result, sizeof result) == 0, text);
    TRY(attn_graph_begin(step->backend, step->stream, &graph, &err));
    args.graph = graph;
    TRY(attn_cp_run(cp, &args, step->stream, &err));
    TRY(attn_graph_end(graph, &err));
    for (int i = 0; i < 3; i++)
        TRY(attn_graph_launch(graph, step->stream, &err));
    TRY(attn_cp_wait(cp, step->stream, &err));
    take_result(step, result);
    snprintf(text, sizeof text, "a graph, %s", what);
    report(memcmp(result, step->result, sizeof result) == 0, text);
    attn_graph_destroy(graph);
    attn_cp_destroy(cp);
}

int main(int argc, char **argv)
{
    static struct step step;
    struct attn_problem problem;
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_nccl_ranks *ranks;
    struct attn_collectives net;
    void *library;

    ATTN_INIT(&err);
    ATTN_INIT(&net);
    if (argc != 2)
        return 2;
    TRY(attn_problem_parse(plain, &problem, &err));
    TRY(attn_context_create(NULL, &context, &err));
    TRY(attn_select(context, &problem, 1, NULL, &decision, &err));
    TRY(attn_backend_open(context, decision, NULL, &step.backend, &err));
    printf("# %s on %s\n", attn_backend_get_name(step.backend), attn_backend_get_device(step.backend));
    TRY(attn_stream_create(step.backend, &step.stream, &err));
    make_step(&step);
    make_plan(&step, &problem);
    TRY(attn_plan_run(step.plan, &step.batch, &step.tensors, &step.schedule, &step.scratch, step.stream,
                      &err));
    take_result(&step, step.result);

    void *comm = connect_alone(argv[1], &library);
    TRY(attn_nccl_ranks_create(argv[1], comm, UINT64_C(20000000000), &ranks, &err));
    TRY(attn_nccl_ranks_get(ranks, &net, &err));
    problem.cp = 1;
    step.batch.kv_global_lens = step.batch.kv_lens;
    step.batch.cp_world = 1;
    step.batch.cp_interleave = BLOCK;
    make_plan(&step, &problem);
    check_runs(&step, &problem, &net, ATTN_CP_HEADS_SPLIT, "heads split");
    check_runs(&step, &problem, &net, ATTN_CP_HEADS_ALL, "all heads");
    net.abort(net.arg, "the end of the test");
    report(net.check(net.arg, &err) == ATTN_E_PEER, "nothing follows an end");
    attn_nccl_ranks_destroy(ranks);
    printf("1..%d\n", count);
    return failed != 0;
}
