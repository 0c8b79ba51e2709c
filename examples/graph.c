/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A graph (CUDA graph, HIP graph, or kept calls on a CPU): a decode step, captured once, launched for each
 * token. */
#include <attn/attn.h>
#include <attn/device.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQS = 2, HEADS = 8, KV_HEADS = 2, DIM = 64, BLOCK = 16, PAGES = 4, STEPS = 20 };

static struct attn_error err;
static struct attn_backend *backend;
static void *stream;

static void check(int32_t status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "graph: %s\n", err.message);
    exit(1);
}

static struct attn_buffer allocate(uint64_t size)
{
    struct attn_buffer buffer = {NULL, 0};
    if (size > 0)
        check(attn_memory_alloc(backend, size, &buffer, &err));
    return buffer;
}

/* Copies to the device, or back, and waits: host memory is free again. */
static void copy(const struct attn_buffer *device, const void *host, uint64_t size, uint32_t kind)
{
    const struct attn_buffer here = {(void *)host, 0};
    const int out = kind == ATTN_COPY_TO_HOST;
    check(attn_memory_copy(backend, out ? &here : device, out ? device : &here, size, kind, stream, &err));
    check(attn_stream_synchronize(backend, stream, &err));
}

/* What a graph keeps: addresses and counts. What is behind the addresses may change between launches. */
static struct attn_graph *capture(const struct attn_plan *plan, const struct attn_batch *batch,
                                  const struct attn_kv_write_args *write, const struct attn_tensors *tensors,
                                  const struct attn_span *schedule, const struct attn_scratch *scratch)
{
    struct attn_graph *graph;
    check(attn_graph_begin(backend, stream, &graph, &err));
    check(attn_plan_prepare(plan, batch, schedule, NULL, stream, &err)); /* the device plans, from kv_lens */
    check(attn_kv_write(backend, write, stream, &err));
    check(attn_plan_run(plan, batch, tensors, schedule, scratch, stream, &err));
    check(attn_graph_end(graph, &err));
    return graph;
}

static int differs(float value, float wanted)
{
    return !(value - wanted < 1e-4F && wanted - value < 1e-4F);
}

int main(void)
{
    static float zeros[PAGES * BLOCK * KV_HEADS * DIM], v[SEQS * KV_HEADS * DIM], out[SEQS * HEADS * DIM];
    const int32_t q_offsets[SEQS + 1] = {0, 1, 2}, table[SEQS][2] = {{3, 0}, {1, 2}};
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_problem problem;
    struct attn_plan *plan;
    struct attn_plan_sizes sizes;
    struct attn_kv_desc cache;
    struct attn_batch batch;
    struct attn_kv_write_args write;
    struct attn_tensors tensors;
    struct attn_scratch scratch;
    int wrong = 0;

    ATTN_INIT(&err);
    check(attn_context_create(NULL, &context, &err));
    check(attn_problem_parse("heads=8 kv_heads=2 head_dim=64 q=f32 graph=single "
                             "max_seqs=2 max_q=1 max_kv=32 max_rows=2",
                             &problem, &err));
    check(attn_select(context, &problem, 1, NULL, &decision, &err));
    check(attn_backend_open(context, decision, NULL, &backend, &err));
    check(attn_stream_create(backend, &stream, &err));

    /* All keys weigh the same where q is 0, and a value is its position: `out` is the mean of them. */
    ATTN_INIT(&cache);
    cache.k_dtype = cache.v_dtype = ATTN_F32;
    cache.pages = PAGES;
    cache.block = BLOCK;
    cache.kv_heads = KV_HEADS;
    cache.head_dim = DIM;
    cache.k_head_stride = cache.v_head_stride = DIM * 4;
    cache.k_token_stride = cache.v_token_stride = KV_HEADS * DIM * 4;
    cache.k_page_stride = cache.v_page_stride = BLOCK * KV_HEADS * DIM * 4;
    cache.k = allocate(sizeof zeros);
    cache.v = allocate(sizeof zeros);
    copy(&cache.k, zeros, sizeof zeros, ATTN_COPY_TO_DEVICE);
    copy(&cache.v, zeros, sizeof zeros, ATTN_COPY_TO_DEVICE);

    ATTN_INIT(&batch);
    batch.seqs = batch.num_tokens = SEQS;
    batch.max_q = 1;
    batch.max_kv = 32; /* for all launches */
    batch.q_offsets = allocate(sizeof q_offsets);
    batch.kv_lens = allocate(SEQS * sizeof(int32_t));
    batch.table = allocate(sizeof table);
    batch.table_stride = sizeof table[0];
    batch.table_width = 2;
    batch.pages = PAGES;
    copy(&batch.q_offsets, q_offsets, sizeof q_offsets, ATTN_COPY_TO_DEVICE);
    copy(&batch.table, table, sizeof table, ATTN_COPY_TO_DEVICE);

    ATTN_INIT(&tensors);
    tensors.softmax_scale = 0.125F;
    tensors.q = attn_tensor_of(allocate(sizeof out).data, ATTN_F32, HEADS, DIM);
    tensors.out = attn_tensor_of(allocate(sizeof out).data, ATTN_F32, HEADS, DIM);
    tensors.kv_desc = &cache;
    copy(&tensors.q.buffer, zeros, sizeof out, ATTN_COPY_TO_DEVICE);
    ATTN_INIT(&write);
    write.k_dtype = write.v_dtype = ATTN_F32;
    write.num_tokens = SEQS;
    write.k_new = attn_tensor_of(allocate(sizeof v).data, ATTN_F32, KV_HEADS, DIM);
    write.v_new = attn_tensor_of(allocate(sizeof v).data, ATTN_F32, KV_HEADS, DIM);
    write.kv_desc = &cache;
    write.addressing = ATTN_TABLE;
    write.batch = &batch;
    copy(&write.k_new.buffer, zeros, sizeof v, ATTN_COPY_TO_DEVICE);

    ATTN_INIT(&sizes);
    check(attn_plan_create(backend, &problem, &plan, &err));
    check(attn_plan_get_sizes(plan, &sizes, &err));
    ATTN_INIT(&scratch);
    const struct attn_span schedule = {allocate(sizes.schedule), sizes.schedule};
    scratch.scratch.buffer = allocate(scratch.scratch.size = sizes.scratch);
    scratch.counters.buffer = allocate(scratch.counters.size = sizes.counters);
    scratch.counters_dirty = 1; /* each launch clears them */
    struct attn_graph *graph = capture(plan, &batch, &write, &tensors, &schedule, &scratch);

    for (int32_t step = 0; step < STEPS; step++) {
        const int32_t lens[SEQS] = {step + 1, step + 1};
        for (int c = 0; c < SEQS * KV_HEADS * DIM; c++)
            v[c] = (float)step;
        copy(&batch.kv_lens, lens, sizeof lens, ATTN_COPY_TO_DEVICE);
        copy(&write.v_new.buffer, v, sizeof v, ATTN_COPY_TO_DEVICE);
        check(attn_graph_launch(graph, stream, &err));
        copy(&tensors.out.buffer, out, sizeof out, ATTN_COPY_TO_HOST);
        for (int c = 0; c < SEQS * HEADS * DIM; c++)
            wrong += differs(out[c], (float)step / 2);
    }
    printf("%s: %d launches of one graph; %d numbers wrong\n", attn_backend_get_name(backend), STEPS, wrong);

    attn_graph_destroy(graph);
    const struct attn_buffer *const blocks[] = {&cache.k,
                                                &cache.v,
                                                &batch.q_offsets,
                                                &batch.kv_lens,
                                                &batch.table,
                                                &tensors.q.buffer,
                                                &tensors.out.buffer,
                                                &write.k_new.buffer,
                                                &write.v_new.buffer,
                                                &schedule.buffer,
                                                &scratch.scratch.buffer,
                                                &scratch.counters.buffer};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        attn_memory_free(backend, blocks[i]);
    attn_plan_destroy(plan);
    attn_stream_destroy(backend, stream);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    attn_context_destroy(context);
    return wrong != 0;
}
