/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A graph (CUDA graph, HIP graph, or kept calls on a CPU): a decode step, captured once, launched for each
 * token. */
#include <attn/attn.h>
#include <attn/device.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQS = 2, HEADS = 8, KV_HEADS = 2, DIM = 64, BLOCK = 16, PAGES = 4, STEPS = 20 };

#define PROBLEM                                                                                              \
    "heads=8 kv_heads=2 head_dim=64 q=f32 block=16 graph=single max_seqs=2 max_q=1 max_kv=32 max_rows=2"

static float zeros[PAGES * BLOCK * KV_HEADS * DIM];
static struct attn_error err;
static struct attn_backend *backend;
static void *stream;
static struct attn_buffer blocks[16]; /* all that was allocated */
static int block_count;

static void check(int32_t status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "graph: %s\n", err.message);
    exit(1);
}

/* Copies to the device, or back, and waits: host memory is free again. */
static void copy(const struct attn_buffer *device, const void *host, uint64_t size, uint32_t kind)
{
    const struct attn_buffer here = {(void *)host, 0};
    const int out = kind == ATTN_COPY_TO_HOST;
    check(attn_memory_copy(backend, out ? &here : device, out ? device : &here, size, kind, stream, &err));
    check(attn_stream_synchronize(backend, stream, &err));
}

/* Memory of the device, with what `from` holds. */
static struct attn_buffer allocate(const void *from, uint64_t size)
{
    struct attn_buffer *buffer = &blocks[block_count++];
    check(attn_memory_alloc(backend, size > 0 ? size : 1, buffer, &err));
    if (from != NULL)
        copy(buffer, from, size, ATTN_COPY_TO_DEVICE);
    return *buffer;
}

static struct attn_tensor allocate_tensor(uint32_t heads)
{
    struct attn_tensor tensor = attn_tensor_of(NULL, ATTN_F32, heads, DIM);
    tensor.buffer = allocate(zeros, (uint64_t)(SEQS * tensor.token_stride));
    return tensor;
}

static void describe_cache(struct attn_kv_desc *cache)
{
    ATTN_INIT(cache);
    cache->k_dtype = cache->v_dtype = ATTN_F32;
    cache->pages = PAGES;
    cache->block = BLOCK;
    cache->kv_heads = KV_HEADS;
    cache->head_dim = DIM;
    cache->k_head_stride = cache->v_head_stride = DIM * 4;
    cache->k_token_stride = cache->v_token_stride = KV_HEADS * DIM * 4;
    cache->k_page_stride = cache->v_page_stride = BLOCK * KV_HEADS * DIM * 4;
    cache->k = allocate(zeros, sizeof zeros);
    cache->v = allocate(zeros, sizeof zeros);
}

static void describe_batch(struct attn_batch *batch)
{
    const int32_t q_offsets[SEQS + 1] = {0, 1, 2}, table[SEQS][2] = {{3, 0}, {1, 2}};
    ATTN_INIT(batch);
    batch->seqs = batch->num_tokens = SEQS;
    batch->max_q = 1;
    batch->max_kv = 32; /* for all launches */
    batch->q_offsets = allocate(q_offsets, sizeof q_offsets);
    batch->kv_lens = allocate(NULL, SEQS * sizeof(int32_t));
    batch->table = allocate(table, sizeof table);
    batch->table_stride = sizeof table[0];
    batch->table_width = 2;
    batch->pages = PAGES;
}

/* What a graph keeps: addresses and counts. What is behind the addresses may change between launches. */
static struct attn_graph *capture(const struct attn_batch *batch, const struct attn_kv_write_args *write,
                                  const struct attn_tensors *tensors)
{
    struct attn_problem problem;
    struct attn_plan *plan;
    struct attn_plan_sizes sizes;
    struct attn_scratch scratch;
    struct attn_graph *graph;

    check(attn_problem_parse(PROBLEM, &problem, &err));
    check(attn_plan_create(backend, &problem, &plan, &err));
    ATTN_INIT(&sizes);
    check(attn_plan_get_sizes(plan, &sizes, &err));
    const struct attn_span schedule = {allocate(NULL, sizes.schedule), sizes.schedule};
    const struct attn_span staging = {{malloc(sizes.staging), 0}, sizes.staging};
    ATTN_INIT(&scratch);
    scratch.scratch.buffer = allocate(NULL, scratch.scratch.size = sizes.scratch);
    scratch.counters.buffer = allocate(NULL, scratch.counters.size = sizes.counters);
    scratch.counters_dirty = 1; /* each launch clears them */

    check(attn_graph_begin(backend, stream, &graph, &err));
    check(attn_plan_prepare(plan, batch, &schedule, &staging, stream, &err)); /* the device plans */
    check(attn_kv_write(backend, write, stream, &err));
    check(attn_plan_run(plan, batch, tensors, &schedule, &scratch, stream, &err));
    check(attn_graph_end(graph, &err));
    attn_plan_destroy(plan); /* the graph has what it needs */
    free(staging.buffer.data);
    return graph;
}

static int differs(float value, float wanted)
{
    return !(value - wanted < 1e-4F && wanted - value < 1e-4F);
}

/* All keys weigh the same where q is 0, and a value is its position: `out` is the mean of them. */
static int launch(struct attn_graph *graph, int32_t step, const struct attn_buffer *kv_lens,
                  const struct attn_buffer *v_new, const struct attn_buffer *result)
{
    static float v[SEQS * KV_HEADS * DIM], out[SEQS * HEADS * DIM];
    const int32_t lens[SEQS] = {step + 1, step + 1};
    int wrong = 0;

    for (int c = 0; c < SEQS * KV_HEADS * DIM; c++)
        v[c] = (float)step;
    copy(kv_lens, lens, sizeof lens, ATTN_COPY_TO_DEVICE);
    copy(v_new, v, sizeof v, ATTN_COPY_TO_DEVICE);
    check(attn_graph_launch(graph, stream, &err));
    copy(result, out, sizeof out, ATTN_COPY_TO_HOST);
    for (int c = 0; c < SEQS * HEADS * DIM; c++)
        wrong += differs(out[c], (float)step / 2);
    return wrong;
}

int main(void)
{
    struct attn_session *session; /* for its backend alone */
    struct attn_kv_desc cache;
    struct attn_batch batch;
    struct attn_kv_write_args write;
    struct attn_tensors tensors;
    int wrong = 0;

    ATTN_INIT(&err);
    check(attn_open(PROBLEM, NULL, &session, &err));
    backend = attn_session_get_backend(session);
    check(attn_stream_create(backend, &stream, &err));
    describe_cache(&cache);
    describe_batch(&batch);
    ATTN_INIT(&tensors);
    tensors.softmax_scale = 0.125F;
    tensors.q = allocate_tensor(HEADS);
    tensors.out = allocate_tensor(HEADS);
    tensors.kv_desc = &cache;
    ATTN_INIT(&write);
    write.k_dtype = write.v_dtype = ATTN_F32;
    write.num_tokens = SEQS;
    write.k_new = allocate_tensor(KV_HEADS);
    write.v_new = allocate_tensor(KV_HEADS);
    write.kv_desc = &cache;
    write.addressing = ATTN_TABLE;
    write.batch = &batch;

    struct attn_graph *graph = capture(&batch, &write, &tensors);
    for (int32_t step = 0; step < STEPS; step++)
        wrong += launch(graph, step, &batch.kv_lens, &write.v_new.buffer, &tensors.out.buffer);
    printf("%s: %d launches of one graph; %d numbers wrong\n", attn_backend_get_name(backend), STEPS, wrong);

    attn_graph_destroy(graph);
    while (block_count > 0)
        attn_memory_free(backend, &blocks[--block_count]);
    attn_stream_destroy(backend, stream);
    attn_close(session);
    return wrong != 0;
}
