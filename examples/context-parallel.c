/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One decode over keys of several ranks, here threads: each holds every third run of 16 keys, and all get the
 * same result. With processes of MPI, attn/mpi.h fills the collectives; the rest stays.
 *
 *   cc context-parallel.c $(pkg-config --cflags --libs libattn) -lpthread -o context-parallel
 */
#ifndef ATTN_EXPERIMENTAL
#define ATTN_EXPERIMENTAL
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <attn/parallel.h>

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        if ((call) != ATTN_OK) {                                                                             \
            fprintf(stderr, "%s\n", err.message);                                                            \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

enum {
    RANKS = 3,
    HEADS = 8,
    KV_HEADS = 2,
    DIM = 64,
    BLOCK = 16,
    KEYS = 1000,
    PAGES = (KEYS + BLOCK - 1) / BLOCK
};

/* What a rank has. */
struct rank {
    struct attn_collectives net;
    float k[PAGES][BLOCK][KV_HEADS][DIM], v[PAGES][BLOCK][KV_HEADS][DIM];
    float out[HEADS][DIM];
    pthread_t thread;
};

static float number(uint32_t seed)
{
    seed = (seed ^ 61) * 2654435761u;
    return (float)((seed ^ seed >> 15) & 0xffff) / 32768 - 1;
}

/* Element d of key or value `key`, as an engine's model would have computed it. */
static float element(uint32_t key, uint32_t head, uint32_t d, uint32_t what)
{
    return number(((key * KV_HEADS + head) * DIM + d) * 2 + what);
}

/* Keys of this rank, one behind the other: its page p holds what is page p * ranks + rank of the sequence. */
static void fill(struct rank *rank)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        const uint32_t page = key / BLOCK;
        for (uint32_t i = 0; i < KV_HEADS * DIM && page % rank->net.size == rank->net.rank; i++) {
            rank->k[page / rank->net.size][key % BLOCK][i / DIM][i % DIM] = element(key, i / DIM, i % DIM, 0);
            rank->v[page / rank->net.size][key % BLOCK][i / DIM][i % DIM] = element(key, i / DIM, i % DIM, 1);
        }
    }
}

static struct attn_span make_span(uint64_t size)
{
    struct attn_span span = {{NULL, 0}, size};

    if (size > 0)
        span.buffer.data = aligned_alloc(64, (size + 63) / 64 * 64);
    return span;
}

static void *run(void *arg)
{
    struct rank *rank = (struct rank *)arg;
    struct attn_error err;
    struct attn_problem problem;
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_backend *backend;
    struct attn_plan *plan;
    struct attn_plan_sizes sizes;
    float q[HEADS][DIM];
    int32_t q_offsets[2] = {0, 1}, table[PAGES], all[1] = {KEYS};
    int32_t own[1] = {(int32_t)attn_cp_count(rank->net.rank, rank->net.size, BLOCK, KEYS)};

    for (uint32_t i = 0; i < HEADS * DIM; i++)
        q[i / DIM][i % DIM] = number(i);
    for (int32_t i = 0; i < PAGES; i++)
        table[i] = i;
    fill(rank);

    /* A backend and a plan, as always; cp and lse of the problem make parts that can be merged. */
    ATTN_INIT(&err);
    ATTN_INIT(&sizes);
    TRY(attn_problem_parse("heads=8 kv_heads=2 head_dim=64 q=f32 block=16 cp=1 lse=1 "
                           "max_seqs=1 max_q=1 max_kv=1000 max_rows=1",
                           &problem, &err));
    TRY(attn_context_create(NULL, &context, &err));
    TRY(attn_select(context, &problem, 1, NULL, &decision, &err));
    TRY(attn_backend_open(context, decision, NULL, &backend, &err));
    TRY(attn_plan_create(backend, &problem, &plan, &err));
    TRY(attn_plan_get_sizes(plan, &sizes, &err));

    /* Once: what this rank exchanges parts with. Here every rank has all queries and gets all heads. */
    struct attn_cp *cp;
    struct attn_cp_params params;
    ATTN_INIT(&params);
    params.queries = ATTN_CP_HEADS_ALL;
    params.problem = &problem;
    params.collectives = &rank->net;
    TRY(attn_cp_create(backend, &params, &cp, &err));

    /* Each step: lengths here and in all, and which rank this is. */
    struct attn_batch batch;
    struct attn_span schedule = make_span(sizes.schedule), staging = make_span(sizes.staging);
    ATTN_INIT(&batch);
    batch.seqs = batch.num_tokens = batch.max_q = 1;
    batch.max_kv = KEYS;
    batch.q_offsets.data = q_offsets;
    batch.kv_lens.data = own;
    batch.kv_global_lens.data = all;
    batch.table.data = table;
    batch.table_width = PAGES;
    batch.table_stride = sizeof table;
    batch.cp_rank = rank->net.rank;
    batch.cp_world = rank->net.size;
    batch.cp_interleave = BLOCK;
    TRY(attn_plan_prepare(plan, &batch, &schedule, &staging, NULL, &err));

    /* Each layer: attn_cp_run in place of attn_plan_run. */
    struct attn_kv_desc kv;
    struct attn_tensors tensors;
    struct attn_scratch scratch;
    struct attn_cp_run_args args;
    ATTN_INIT(&kv);
    kv.k_dtype = kv.v_dtype = ATTN_F32;
    kv.pages = PAGES;
    kv.block = BLOCK;
    kv.kv_heads = KV_HEADS;
    kv.head_dim = DIM;
    kv.k.data = rank->k;
    kv.v.data = rank->v;
    kv.k_page_stride = kv.v_page_stride = sizeof rank->k[0];
    kv.k_token_stride = kv.v_token_stride = sizeof rank->k[0][0];
    kv.k_head_stride = kv.v_head_stride = sizeof rank->k[0][0][0];
    ATTN_INIT(&tensors);
    tensors.softmax_scale = 0.125f;
    tensors.q = attn_tensor_of(q, ATTN_F32, HEADS, DIM);
    tensors.out = attn_tensor_of(rank->out, ATTN_F32, HEADS, DIM);
    tensors.kv_desc = &kv;
    ATTN_INIT(&scratch);
    scratch.scratch = make_span(sizes.scratch);
    scratch.counters = make_span(sizes.counters);
    scratch.counters_dirty = 1;
    ATTN_INIT(&args);
    args.plan = plan;
    args.batch = &batch;
    args.tensors = &tensors;
    args.schedule = &schedule;
    args.scratch = &scratch;
    TRY(attn_cp_run(cp, &args, NULL, &err));
    TRY(attn_cp_wait(cp, NULL, &err));

    attn_cp_destroy(cp);
    attn_plan_destroy(plan);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    attn_context_destroy(context);
    free(schedule.buffer.data);
    free(staging.buffer.data);
    free(scratch.scratch.buffer.data);
    free(scratch.counters.buffer.data);
    return NULL;
}

/* Runs `size` ranks; what they get is the first one's out. */
static struct rank *run_ranks(uint32_t size)
{
    struct rank *ranks = (struct rank *)calloc(size, sizeof *ranks);
    struct attn_local_ranks *connection;
    struct attn_error err;

    ATTN_INIT(&err);
    if (ranks == NULL)
        exit(1);
    TRY(attn_local_ranks_create(size, UINT64_C(10000000000), &connection, &err)); /* at most 10 s */
    for (uint32_t r = 0; r < size; r++) {
        ATTN_INIT(&ranks[r].net);
        TRY(attn_local_ranks_get(connection, r, &ranks[r].net, &err));
        if (pthread_create(&ranks[r].thread, NULL, run, &ranks[r]) != 0)
            exit(1);
    }
    for (uint32_t r = 0; r < size; r++)
        pthread_join(ranks[r].thread, NULL);
    attn_local_ranks_destroy(connection);
    return ranks;
}

int main(void)
{
    struct rank *alone = run_ranks(1), *ranks = run_ranks(RANKS);
    float most = 0;

    for (uint32_t i = 0; i < HEADS * DIM; i++) {
        const float difference = ranks[0].out[i / DIM][i % DIM] - alone->out[i / DIM][i % DIM];
        most = difference > most ? difference : -difference > most ? -difference : most;
    }
    printf("%d keys on %d ranks: rank 0 holds %lld; largest difference from one rank: %.1e\n", KEYS, RANKS,
           (long long)attn_cp_count(0, RANKS, BLOCK, KEYS), (double)most);
    free(alone);
    free(ranks);
    return most < 1e-5f ? 0 : 1;
}
