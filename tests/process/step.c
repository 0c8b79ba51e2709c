/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One attention step on the CPU plugin. All queries are zero, so that every key weighs the same and the
 * result is the mean of the values, which is known without computing attention.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "process.h"

enum {
    SEQS = 8,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 32,
    BLOCK = 16,
    WIDTH = 8,
    KEYS = BLOCK * WIDTH,
    PAGES = SEQS * WIDTH
};

const struct library linked_library = {.name = "linked",
#define TAKE(name) .name = name,
                                       LIBRARY_FUNCTIONS(TAKE)
#undef TAKE
};

static void *take_memory(size_t size)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, size + 64) != 0)
        exit(99);
    memset(memory, 0, size + 64);
    return memory;
}

static float value_at(int key, int head, int d)
{
    return (float)key + 3 * (float)head + (float)d / DIM;
}

static void fill(struct step *step, const struct attn_kv_shape *shape)
{
    char *values = (char *)step->cache + shape->v_offset;
    for (int page = 0; page < PAGES; page++)
        for (int token = 0; token < BLOCK; token++)
            for (int head = 0; head < KV_HEADS; head++) {
                float *row = (float *)(values + page * step->desc.v_page_stride +
                                       token * step->desc.v_token_stride + head * step->desc.v_head_stride);
                for (int d = 0; d < DIM; d++)
                    row[d] = value_at(page % WIDTH * BLOCK + token, head, d);
            }
    for (int i = 0; i <= SEQS; i++)
        step->q_offsets[i] = i;
    for (int i = 0; i < SEQS; i++)
        step->kv_lens[i] = KEYS;
    for (int i = 0; i < PAGES; i++)
        step->table[i] = i;
}

static void describe(struct step *step)
{
    ATTN_INIT(&step->batch);
    step->batch.seqs = step->batch.num_tokens = SEQS;
    step->batch.max_q = 1;
    step->batch.max_kv = KEYS;
    step->batch.q_offsets.data = step->q_offsets;
    step->batch.kv_lens.data = step->kv_lens;
    step->batch.table.data = step->table;
    step->batch.table_width = WIDTH;
    step->batch.table_stride = WIDTH * sizeof(int32_t);
    ATTN_INIT(&step->tensors);
    step->tensors.softmax_scale = 0.125f;
    step->tensors.q.buffer.data = step->q;
    step->tensors.out.buffer.data = step->out;
    step->tensors.q.token_stride = step->tensors.out.token_stride = HEADS * DIM * sizeof(float);
    step->tensors.q.head_stride = step->tensors.out.head_stride = DIM * sizeof(float);
    step->tensors.kv = step->kv;
    ATTN_INIT(&step->scratch);
}

static void take_blocks(struct step *step)
{
    struct attn_span *spans[] = {&step->schedule, &step->scratch.scratch, &step->scratch.counters};
    const uint64_t sizes[] = {step->sizes.schedule, step->sizes.scratch, step->sizes.counters};
    for (int i = 0; i < 3; i++) {
        spans[i]->size = sizes[i];
        spans[i]->buffer.data = take_memory((size_t)sizes[i]);
    }
}

static int32_t open_handles(struct step *step, const char *threads)
{
    const struct library *lib = step->library;
    char variable[64];
    const char *const variables[] = {"ATTN_BACKEND=cpu", variable};
    struct attn_context_options options;
    ATTN_INIT(&options);
    snprintf(variable, sizeof variable, "ATTN_THREADS=%s", threads);
    options.variables = variables;
    options.variable_count = 2;
    int32_t status = lib->attn_context_create(&options, &step->context, &step->err);
    if (status == ATTN_OK)
        status = lib->attn_problem_parse("heads=4 kv_heads=2 head_dim=32 q=f32 block=16 max_seqs=8 max_q=1 "
                                         "max_kv=128 max_rows=8",
                                         &step->problem, &step->err);
    if (status == ATTN_OK)
        status = lib->attn_select(step->context, &step->problem, 1, NULL, &step->decision, &step->err);
    if (status == ATTN_OK)
        status = lib->attn_backend_open(step->context, step->decision, NULL, &step->backend, &step->err);
    if (status == ATTN_OK)
        status = lib->attn_plan_create(step->backend, &step->problem, &step->plan, &step->err);
    return status;
}

bool step_open(struct step *step, const struct library *library, const char *threads)
{
    struct attn_kv_shape shape;
    memset(step, 0, sizeof *step);
    step->library = library;
    ATTN_INIT(&step->err);
    ATTN_INIT(&step->sizes);
    ATTN_INIT(&shape);
    int32_t status = open_handles(step, threads);
    if (status == ATTN_OK)
        status = library->attn_plan_get_sizes(step->plan, &step->sizes, &step->err);
    if (status == ATTN_OK)
        status = library->attn_kv_get_shape(step->backend, &step->problem, PAGES, &shape, &step->err);
    if (status != ATTN_OK)
        return false;
    step->q_offsets = take_memory((SEQS + 1) * sizeof *step->q_offsets);
    step->kv_lens = take_memory(SEQS * sizeof *step->kv_lens);
    step->table = take_memory(PAGES * sizeof *step->table);
    step->cache = take_memory((size_t)shape.bytes);
    step->q = take_memory((size_t)SEQS * HEADS * DIM * sizeof *step->q);
    step->out = take_memory((size_t)SEQS * HEADS * DIM * sizeof *step->out);
    const struct attn_buffer memory = {step->cache, 0};
    library->attn_kv_desc_init(&step->desc, &shape, &memory);
    fill(step, &shape);
    if (library->attn_kv_create(step->backend, &step->desc, &step->kv, &step->err) != ATTN_OK)
        return false;
    describe(step);
    take_blocks(step);
    return true;
}

int32_t step_run(struct step *step)
{
    const struct library *lib = step->library;
    memset(step->out, 0, (size_t)SEQS * HEADS * DIM * sizeof *step->out);
    int32_t status =
        lib->attn_plan_prepare(step->plan, &step->batch, &step->schedule, NULL, NULL, &step->err);
    if (status == ATTN_OK)
        status = lib->attn_plan_run(step->plan, &step->batch, &step->tensors, &step->schedule, &step->scratch,
                                    NULL, &step->err);
    return status;
}

bool step_is_right(const struct step *step)
{
    for (int row = 0; row < SEQS; row++)
        for (int head = 0; head < HEADS; head++)
            for (int d = 0; d < DIM; d++) {
                float mean = value_at(0, head / (HEADS / KV_HEADS), d) + (float)(KEYS - 1) / 2;
                if (!(fabsf(step->out[(row * HEADS + head) * DIM + d] - mean) < 1e-3f))
                    return false;
            }
    return true;
}

static void destroy(struct step *step, unsigned which)
{
    const struct library *lib = step->library;
    switch (which) {
    case 0:
        lib->attn_context_destroy(step->context);
        break;
    case 1:
        lib->attn_decision_destroy(step->decision);
        break;
    case 2:
        lib->attn_backend_destroy(step->backend);
        break;
    case 3:
        lib->attn_plan_destroy(step->plan);
        break;
    default:
        lib->attn_kv_destroy(step->kv);
        break;
    }
}

void step_close(struct step *step, unsigned order)
{
    unsigned left[] = {0, 1, 2, 3, 4};
    for (unsigned n = 5; n > 0; n--) {
        unsigned at = order % n;
        order /= n;
        destroy(step, left[at]);
        left[at] = left[n - 1];
    }
    void *const memory[] = {step->q_offsets,
                            step->kv_lens,
                            step->table,
                            step->cache,
                            step->q,
                            step->out,
                            step->schedule.buffer.data,
                            step->scratch.scratch.buffer.data,
                            step->scratch.counters.buffer.data};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        free(memory[i]);
}

bool step_works(const struct library *library, const char *threads)
{
    struct step step;
    bool works = step_open(&step, library, threads) && step_run(&step) == ATTN_OK && step_is_right(&step);
    step_close(&step, 0);
    return works;
}
