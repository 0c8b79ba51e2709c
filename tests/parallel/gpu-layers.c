/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Builder, state and layers over ranks of NCCL, each a thread with a GPU of its own: prompts, then decodes by
 * a graph that was captured once, give what one rank with all keys gives.
 *
 * usage: gpu-layers RANKS, with ATTN_BACKEND, ATTN_PLUGIN_PATH and, unless the loader finds NCCL,
 * ATTN_NCCL_LIBRARY; TAP
 */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/layer.h"
#include "gpu-open.h"
#include "transport.h"

enum {
    HEADS = 16,
    KV_HEADS = 2,
    DIM = 128,
    SEQS = 3,
    GRAPH_SEQS = 4,
    BLOCK = 16,
    WIDTH = 16,
    PAGES = GRAPH_SEQS * WIDTH,
    ROWS = 160, /* query tokens of a step */
    STEPS = 20, /* the prompts, and decodes */
    MOST_RANKS = 8
};
#define LIMIT_NS UINT64_C(20000000000)

/* One sequence has fewer keys than a rank takes at once. */
static const uint32_t prompts[SEQS] = {40, 77, 5};

/* P is rounded to 16 bits, for other keys at once; a key of the wrong rank gives 0.1 and more. */
static const double BOUND = 5e-3;

struct rank {
    uint32_t number, size;
    const struct transport_id *id;
    struct attn_context *context;
    pthread_t thread;
    struct attn_backend *backend;
    struct transport *transport;
    struct attn_collectives net;
    void *stream;
    struct attn_error err;
    double error[2][STEPS]; /* of all heads, and of own ones */
};

/* What a model with one layer is on a rank; `ranks` 0: it has all keys. */
struct model {
    struct rank *rank;
    uint32_t ranks, heads, first_head;
    struct attn_problem problem;
    struct attn_builder_group group;
    struct attn_layer_class layer_class;
    struct attn_builder *builder;
    struct attn_state *state, *clone;
    struct attn_layer *layer;
    struct attn_kv *kv;
    struct attn_layer_tensors tensors;
    struct attn_graph *graph;
};

/* ---------------------------------------------------------------- a model */

static struct attn_tensor make_rows(struct rank *rank, uint32_t heads, uint64_t element)
{
    struct attn_tensor rows = {.token_stride = (int64_t)(heads * element), .head_stride = (int64_t)element};

    TRY(attn_memory_alloc(rank->backend, ROWS * heads * element, &rows.buffer, &rank->err));
    return rows;
}

static void make_cache(struct model *m)
{
    struct rank *rank = m->rank;
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    struct attn_buffer memory;

    ATTN_INIT(&shape);
    TRY(attn_kv_get_shape(rank->backend, &m->problem, PAGES, &shape, &rank->err));
    TRY(attn_memory_alloc(rank->backend, shape.bytes, &memory, &rank->err));
    attn_kv_desc_init(&desc, &shape, &memory);
    TRY(attn_kv_create(rank->backend, &desc, &m->kv, &rank->err));
}

static void make_objects(struct model *m, uint32_t queries)
{
    struct rank *rank = m->rank;
    struct attn_builder_params builder;
    struct attn_state_params state;
    struct attn_layer_desc layer;

    ATTN_INIT(&builder);
    ATTN_INIT(&state);
    ATTN_INIT(&layer);
    builder.group = state.group = &m->group;
    builder.chunked = 1;
    builder.max_seqs = GRAPH_SEQS;
    builder.max_tokens = ROWS;
    if (m->ranks > 0) {
        builder.cp_rank = rank->number;
        builder.cp_world = rank->size;
        builder.cp_interleave = state.cp_interleave = BLOCK;
        state.collectives = &rank->net;
        state.cp_heads = queries;
    }
    layer.layer_class = &m->layer_class;
    layer.softmax_scale = 1 / sqrtf(DIM);
    TRY(attn_builder_create(rank->backend, &builder, &m->builder, &rank->err));
    TRY(attn_state_create(rank->backend, &m->layer_class, 1, &state, &m->state, &rank->err));
    TRY(attn_layer_create(rank->backend, &layer, &m->layer, &rank->err));
}

/* Memory stays until the program ends. */
static void make_model(struct model *m, struct rank *rank, uint32_t ranks, uint32_t queries)
{
    const bool split = ranks > 0 && queries == ATTN_CP_HEADS_SPLIT;
    char text[256];

    *m = (struct model){.rank = rank, .ranks = ranks, .heads = split ? HEADS / ranks : HEADS};
    m->first_head = split ? rank->number * m->heads : 0;
    m->group = (struct attn_builder_group){.block = BLOCK, .max_blocks = WIDTH, .graph_blocks = WIDTH};
    m->layer_class.problem = &m->problem;
    snprintf(text, sizeof text,
             "heads=%d kv_heads=%d head_dim=%d q=bf16 out=f32 lse=1 cp=%d block=%d graph=uniform max_seqs=%d "
             "max_q=%d "
             "max_kv=%d max_rows=%d",
             HEADS, KV_HEADS, DIM, ranks > 0, BLOCK, GRAPH_SEQS, ROWS, WIDTH * BLOCK, ROWS);
    TRY(attn_problem_parse(text, &m->problem, &rank->err));
    make_objects(m, queries);
    make_cache(m);
    ATTN_INIT(&m->tensors);
    m->tensors.q = make_rows(rank, m->heads, DIM * 2);
    m->tensors.k_new = make_rows(rank, KV_HEADS, DIM * 2);
    m->tensors.v_new = make_rows(rank, KV_HEADS, DIM * 2);
    m->tensors.out = make_rows(rank, m->heads, DIM * 4);
    m->tensors.lse = make_rows(rank, m->heads, 4);
}

/* Captures decodes of GRAPH_SEQS sequences. */
static void capture(struct model *m)
{
    struct rank *rank = m->rank;
    struct attn_state_capture_args args;
    struct attn_metadata *metadata;

    ATTN_INIT(&args);
    args.batch = GRAPH_SEQS;
    TRY(attn_state_begin_capture(m->state, GRAPH_SEQS, rank->stream, &rank->err));
    TRY(attn_state_get_capture_metadata(m->state, &args, rank->stream, &metadata, &rank->err));
    TRY(attn_state_clone(m->state, GRAPH_SEQS, &m->clone, &rank->err));
    for (int captured = 0; captured < 2; captured++) { /* first a warm-up */
        if (captured)
            TRY(attn_graph_begin(rank->backend, rank->stream, &m->graph, &rank->err));
        TRY(attn_state_begin_forward(m->clone, metadata, rank->stream, &rank->err));
        TRY(attn_layer_forward(m->layer, m->clone, metadata, m->kv, &m->tensors, rank->stream, &rank->err));
        if (captured)
            TRY(attn_graph_end(m->graph, &rank->err));
        else
            TRY(attn_state_wait(m->clone, rank->stream, &rank->err));
    }
    TRY(attn_state_end_capture(m->state, &rank->err));
}

/* ---------------------------------------------------------------- a step */

/* bf16 of either sign, from 0.5 to 1, the same on all ranks. */
static uint16_t number_of(uint32_t kind, uint32_t sequence, uint32_t position, uint32_t column)
{
    uint64_t x =
        (((UINT64_C(7) * kind + sequence) * 1024 + position) * 4096 + column) * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return (uint16_t)(0x3f00 | (x >> 40 & 0x807f));
}

static void upload(struct model *m, const struct attn_tensor *to, uint32_t kind, uint32_t heads,
                   uint32_t first, const uint32_t *lens, const uint32_t *counts)
{
    struct rank *rank = m->rank;
    const uint64_t columns = (uint64_t)heads * DIM;
    uint16_t *numbers = calloc(ROWS * columns, sizeof *numbers), *at = numbers;
    const struct attn_buffer host = {numbers, 0};

    for (uint32_t s = 0; s < SEQS; s++)
        for (uint32_t i = 0; i < counts[s]; i++)
            for (uint32_t c = 0; c < columns; c++)
                *at++ = number_of(kind, s, lens[s] + i, first * DIM + c);
    TRY(attn_memory_copy(rank->backend, &to->buffer, &host, ROWS * columns * sizeof *numbers,
                         ATTN_COPY_TO_DEVICE, rank->stream, &rank->err));
    TRY(attn_stream_synchronize(rank->backend, rank->stream, &rank->err));
    free(numbers);
}

static struct attn_metadata *build(struct model *m, const uint32_t *lens, const uint32_t *counts, bool graph)
{
    struct rank *rank = m->rank;
    struct attn_builder_build_args args;
    struct attn_metadata *metadata;
    int64_t pages[SEQS][WIDTH];

    ATTN_INIT(&args);
    TRY(attn_builder_reset(m->builder, &rank->err));
    for (uint32_t s = 0; s < SEQS; s++) {
        const uint32_t all = lens[s] + counts[s];
        const int64_t own = m->ranks > 0 ? attn_cp_count(rank->number, rank->size, BLOCK, all) : all;
        struct attn_blocks blocks = {.kind = ATTN_BLOCKS_LIST, .blocks = pages[s]};
        struct attn_builder_add_args add;
        ATTN_INIT(&add);
        for (uint32_t i = 0; i < WIDTH; i++)
            pages[s][i] = (s * WIDTH + i) * 7 % PAGES;
        blocks.count = (uint32_t)((own + BLOCK - 1) / BLOCK);
        add.prompt = lens[s] == 0;
        add.context_len = lens[s];
        add.query_len = counts[s];
        add.blocks = &blocks;
        TRY(attn_builder_add(m->builder, &add, &rank->err));
    }
    args.graph = graph;
    args.pad = graph ? GRAPH_SEQS - SEQS : 0;
    TRY(attn_builder_build(m->builder, &args, rank->stream, &metadata, &rank->err));
    return metadata;
}

/* The results of a step, by the graph if there is one and it is of decodes. */
static float *run(struct model *m, const uint32_t *lens, const uint32_t *counts)
{
    struct rank *rank = m->rank;
    const bool graph = m->graph != NULL && lens[0] > 0;
    const uint64_t bytes = ROWS * (uint64_t)m->heads * DIM * sizeof(float);
    struct attn_metadata *metadata = build(m, lens, counts, graph);
    float *out = malloc(bytes);
    const struct attn_buffer host = {out, 0};

    upload(m, &m->tensors.q, 0, m->heads, m->first_head, lens, counts);
    upload(m, &m->tensors.k_new, 1, KV_HEADS, 0, lens, counts);
    upload(m, &m->tensors.v_new, 2, KV_HEADS, 0, lens, counts);
    if (graph) {
        TRY(attn_state_prepare(m->state, metadata, rank->stream, &rank->err));
        TRY(attn_graph_launch(m->graph, rank->stream, &rank->err));
    } else {
        TRY(attn_state_begin_forward(m->state, metadata, rank->stream, &rank->err));
        TRY(attn_layer_forward(m->layer, m->state, metadata, m->kv, &m->tensors, rank->stream, &rank->err));
    }
    if (m->ranks > 0)
        TRY(attn_state_wait(m->state, rank->stream, &rank->err));
    TRY(attn_memory_copy(rank->backend, &host, &m->tensors.out.buffer, bytes, ATTN_COPY_TO_HOST, rank->stream,
                         &rank->err));
    TRY(attn_stream_synchronize(rank->backend, rank->stream, &rank->err));
    return out;
}

/* Relative rms of this rank's heads. */
static double distance(const struct model *m, const float *out, const float *whole, uint32_t rows)
{
    double difference = 0, size = 0;

    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t c = 0; c < m->heads * DIM; c++) {
            const double want = (double)whole[row * HEADS * DIM + m->first_head * DIM + c];
            const double error = (double)out[row * m->heads * DIM + c] - want;
            difference += error * error;
            size += want * want;
        }
    return sqrt(difference / size);
}

static void compare(struct rank *rank, bool split)
{
    uint32_t lens[SEQS] = {0}, counts[SEQS], rows = 0;
    struct model alone, model;

    make_model(&alone, rank, 0, 0);
    make_model(&model, rank, rank->size, split ? ATTN_CP_HEADS_SPLIT : ATTN_CP_HEADS_ALL);
    capture(&model);
    for (uint32_t step = 0; step < STEPS; step++) {
        rows = 0;
        for (uint32_t s = 0; s < SEQS; s++) {
            counts[s] = step == 0 ? prompts[s] : 1;
            rows += counts[s];
        }
        float *whole = run(&alone, lens, counts), *out = run(&model, lens, counts);
        rank->error[split][step] = distance(&model, out, whole, rows);
        for (uint32_t s = 0; s < SEQS; s++)
            lens[s] += counts[s];
        free(whole);
        free(out);
    }
}

static void *rank_thread(void *arg)
{
    struct rank *rank = arg;

    ATTN_INIT(&rank->err);
    ATTN_INIT(&rank->net);
    TRY(gpu_open(rank->context, "heads=16 kv_heads=2 head_dim=128 q=bf16", rank->number, &rank->backend,
                 &rank->stream, &rank->err));
    TRY(transport_open_nccl(rank->id, rank->number, rank->size, rank->number, LIMIT_NS, &rank->transport,
                            &rank->net, &rank->err));
    compare(rank, false);
    compare(rank, true);
    return NULL;
}

/* ---------------------------------------------------------------- all ranks */

static double worst(const struct rank *ranks, uint32_t size, bool split, uint32_t first, uint32_t end)
{
    double most = 0;

    for (uint32_t r = 0; r < size; r++)
        for (uint32_t step = first; step < end; step++)
            most = fmax(most, isnan(ranks[r].error[split][step]) ? INFINITY : ranks[r].error[split][step]);
    return most;
}

int main(int argc, char **argv)
{
    static struct rank ranks[MOST_RANKS];
    const int size = argc == 2 ? atoi(argv[1]) : 0;
    struct attn_context *context;
    struct transport_id id;
    struct attn_error err;
    int failed = 0;

    ATTN_INIT(&err);
    if (size < 1 || size > MOST_RANKS) {
        fprintf(stderr, "usage: gpu-layers RANKS (1 to %d)\n", MOST_RANKS);
        return 2;
    }
    if (transport_make_id(&id, &err) != ATTN_OK || attn_context_create(NULL, &context, &err) != ATTN_OK) {
        printf("Bail out! %s\n", err.message);
        return 1;
    }
    for (int r = 0; r < size; r++) {
        ranks[r] =
            (struct rank){.number = (uint32_t)r, .size = (uint32_t)size, .id = &id, .context = context};
        if (pthread_create(&ranks[r].thread, NULL, rank_thread, &ranks[r]) != 0)
            return 1;
    }
    for (int r = 0; r < size; r++)
        pthread_join(ranks[r].thread, NULL);
    for (int split = 0; split < 2; split++)
        for (int decodes = 0; decodes < 2; decodes++) {
            const double error = worst(ranks, (uint32_t)size, split, decodes ? 1 : 0, decodes ? STEPS : 1);
            failed += !(error <= BOUND);
            printf("%sok %d - heads %s, %s (%.2g)\n", error <= BOUND ? "" : "not ", split * 2 + decodes + 1,
                   split ? "split" : "all", decodes ? "decodes by a graph" : "prompts", error);
        }
    printf("1..4\n");
    return failed != 0;
}
