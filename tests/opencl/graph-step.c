/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step of a model that a graph keeps: copies, a cache write and two runs of one plan. */
#include <string.h>

#include "world.h"

enum { SEQS = 2, ROWS = 3, HEADS = 4, KV_HEADS = 2, DIM = 16, BLOCK = 4, PAGES = 4 };

#define PROBLEM                                                                                              \
    "heads=4 kv_heads=2 head_dim=16 q=int8 kv=f32 out=f32 q_scale=head block=4 graph=always max_seqs=2 "     \
    "max_q=2 max_kv=8 max_rows=3"

struct inputs {
    int32_t q_offsets[SEQS + 1], kv_lens[SEQS], table[SEQS][2];
    int64_t slots[ROWS];
    int8_t q[2][ROWS][HEADS][DIM];
    float k_new[ROWS][KV_HEADS][DIM], v_new[ROWS][KV_HEADS][DIM];
};

struct outputs {
    float out[3][ROWS][HEADS][DIM];
};

/* A step: its inputs on the device, two runs of one plan, and a copy of the second's output. */
struct step {
    struct inputs in;
    struct outputs result;
    float scales[HEADS];
    struct attn_buffer inputs, outputs, cache;
    struct attn_kv *kv;
    struct attn_plan *plan;
    struct attn_batch batch;
    struct attn_tensors tensors[2];
    struct attn_span schedule;
    struct attn_scratch scratch;
};

static struct attn_buffer member(struct attn_buffer block, size_t offset)
{
    return (struct attn_buffer){block.data, offset};
}

static struct attn_tensor tensor(struct attn_buffer buffer, uint32_t heads, uint32_t element)
{
    return (struct attn_tensor){.buffer = buffer,
                                .token_stride = (int64_t)heads * DIM * element,
                                .head_stride = (int64_t)DIM * element};
}

static void describe_run(struct step *step, uint32_t run)
{
    struct attn_tensors *t = &step->tensors[run];

    ATTN_INIT(t);
    t->softmax_scale = 0.25F;
    t->kv = step->kv;
    t->q = tensor(member(step->inputs, offsetof(struct inputs, q) + run * sizeof step->in.q[0]), HEADS, 1);
    t->out = tensor(member(step->outputs, run * sizeof step->result.out[0]), HEADS, 4);
    t->q_scale = (struct attn_scale){.kind = ATTN_SCALE_HOST, .granularity = ATTN_SCALES_HEAD};
    t->q_scale.buffer = at(step->scales);
    t->q_scale.head_stride = sizeof(float);
}

static struct attn_span allocate_span(uint64_t size)
{
    return (struct attn_span){allocate(size > 0 ? size : 1), size};
}

static void make_plan(struct step *step, const struct attn_problem *problem)
{
    struct attn_plan_sizes sizes;

    ATTN_INIT(&sizes);
    must(attn_plan_create(backend, problem, &step->plan, &err));
    must(attn_plan_get_sizes(step->plan, &sizes, &err));
    step->schedule = allocate_span(sizes.schedule);
    ATTN_INIT(&step->scratch);
    step->scratch.scratch = allocate_span(sizes.scratch);
    step->scratch.counters = allocate_span(sizes.counters);
    step->scratch.counters_dirty = 1; /* each launch clears them */
}

static const char zeros[2 * PAGES * BLOCK * KV_HEADS * DIM * sizeof(float)];

static void step_init(struct step *step)
{
    struct attn_kv_shape shape;
    struct attn_problem problem;

    memset(step, 0, sizeof *step);
    must(attn_problem_parse(PROBLEM, &problem, &err));
    make_plan(step, &problem);
    ATTN_INIT(&shape);
    must(attn_kv_get_shape(backend, &problem, PAGES, &shape, &err));
    step->cache = shape.desc.k = allocate(shape.bytes);
    shape.desc.v = member(step->cache, shape.v_offset);
    must(attn_kv_create(backend, &shape.desc, &step->kv, &err));
    copy(step->cache, at(zeros), shape.bytes, ATTN_COPY_TO_DEVICE, NULL);
    step->inputs = allocate(sizeof step->in);
    step->outputs = allocate(sizeof step->result);
    for (int h = 0; h < HEADS; h++)
        step->scales[h] = 0.01F * (float)(h + 1);
    describe_run(step, 0);
    describe_run(step, 1);
    ATTN_INIT(&step->batch);
    step->batch.seqs = SEQS;
    step->batch.num_tokens = ROWS;
    step->batch.max_q = 2;
    step->batch.max_kv = 8;
    step->batch.pages = PAGES;
    step->batch.q_offsets = member(step->inputs, offsetof(struct inputs, q_offsets));
    step->batch.kv_lens = member(step->inputs, offsetof(struct inputs, kv_lens));
    step->batch.table = member(step->inputs, offsetof(struct inputs, table));
    step->batch.table_stride = sizeof step->in.table[0];
    step->batch.table_width = 2;
}

static void step_finish(struct step *step)
{
    attn_plan_destroy(step->plan);
    attn_kv_destroy(step->kv);
    attn_memory_free(backend, &step->cache);
    attn_memory_free(backend, &step->inputs);
    attn_memory_free(backend, &step->outputs);
    attn_memory_free(backend, &step->schedule.buffer);
    attn_memory_free(backend, &step->scratch.scratch.buffer);
    attn_memory_free(backend, &step->scratch.counters.buffer);
}

/* Other numbers, lengths and places; the same for the same seed. */
static void step_change(struct step *step, uint32_t seed)
{
    struct inputs *in = &step->in;
    uint32_t number = seed * 2654435761U + 1;

    for (size_t i = 0; i < sizeof in->q; i++)
        (&in->q[0][0][0][0])[i] = (int8_t)((number = number * 1664525U + 1013904223U) >> 24);
    for (size_t i = 0; i < sizeof in->k_new / sizeof(float); i++) {
        (&in->k_new[0][0][0])[i] = (float)((number = number * 1664525U + 1013904223U) >> 24) / 256;
        (&in->v_new[0][0][0])[i] = (float)((number = number * 1664525U + 1013904223U) >> 24) / 256;
    }
    in->q_offsets[1] = seed % 2 == 0 ? 1 : 2;
    in->q_offsets[2] = ROWS;
    for (uint32_t s = 0; s < SEQS; s++) {
        in->kv_lens[s] = (int32_t)(2 + (seed + s) % 7);
        in->table[s][0] = (int32_t)((seed + 2 * s) % PAGES);
        in->table[s][1] = (int32_t)((seed + 2 * s + 1) % PAGES);
    }
    for (uint32_t row = 0; row < ROWS; row++) {
        const int32_t s = row >= (uint32_t)in->q_offsets[1];
        const int32_t key = in->kv_lens[s] - in->q_offsets[s + 1] + (int32_t)row;
        in->slots[row] = (int64_t)in->table[s][key / BLOCK] * BLOCK + key % BLOCK;
    }
}

static void step_run(struct step *step, void *stream)
{
    const size_t size = sizeof step->result.out[0];
    struct attn_kv_write_args write;

    ATTN_INIT(&write);
    write.k_dtype = write.v_dtype = ATTN_F32;
    write.num_tokens = ROWS;
    write.kv = step->kv;
    write.k_new = tensor(member(step->inputs, offsetof(struct inputs, k_new)), KV_HEADS, 4);
    write.v_new = tensor(member(step->inputs, offsetof(struct inputs, v_new)), KV_HEADS, 4);
    write.slot_mapping = member(step->inputs, offsetof(struct inputs, slots));
    copy(step->inputs, at(&step->in), sizeof step->in, ATTN_COPY_TO_DEVICE, stream);
    must(attn_plan_prepare(step->plan, &step->batch, &step->schedule, NULL, stream, &err));
    must(attn_kv_write(backend, &write, stream, &err));
    for (int run = 0; run < 2; run++)
        must(attn_plan_run(step->plan, &step->batch, &step->tensors[run], &step->schedule, &step->scratch,
                           stream, &err));
    copy(member(step->outputs, 2 * size), member(step->outputs, size), size, ATTN_COPY_ON_DEVICE, stream);
    copy(at(&step->result), step->outputs, sizeof step->result, ATTN_COPY_TO_HOST, stream);
}

/* Host values are read at the capture; plan, cache and stream go before the first launch. */
void test_step(void)
{
    static struct step replayed, eager;
    struct attn_graph *graph = NULL;
    void *stream = NULL;
    bool same = true;

    step_init(&replayed);
    step_init(&eager);
    must(attn_stream_create(backend, &stream, &err));
    must(attn_graph_begin(backend, stream, &graph, &err));
    step_run(&replayed, stream);
    must(attn_graph_end(graph, &err));
    memset(replayed.scales, 0xff, sizeof replayed.scales);
    attn_stream_destroy(backend, stream);
    attn_plan_destroy(replayed.plan);
    attn_kv_destroy(replayed.kv);
    replayed.plan = NULL;
    replayed.kv = NULL;
    must(attn_stream_create(backend, &stream, &err));
    for (uint32_t i = 0; i < LAUNCHES && same; i++) {
        step_change(&replayed, i);
        step_change(&eager, i);
        step_run(&eager, NULL);
        must(attn_stream_synchronize(backend, NULL, &err));
        must(attn_graph_launch(graph, i % 2 == 0 ? stream : NULL, &err));
        must(attn_stream_synchronize(backend, i % 2 == 0 ? stream : NULL, &err));
        must(attn_stream_synchronize(backend, NULL, &err));
        same = memcmp(&replayed.result, &eager.result, sizeof eager.result) == 0 &&
               memcmp(eager.result.out[0], eager.result.out[1], sizeof eager.result.out[0]) != 0;
    }
    check(same, "launches equal calls at once, after plan, cache and stream went", "");
    attn_graph_destroy(graph);
    attn_stream_destroy(backend, stream);
    step_finish(&replayed);
    step_finish(&eager);
}
