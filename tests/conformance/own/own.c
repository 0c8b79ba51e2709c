/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A problem's plan, cache and blocks in the backend's memory. */
#include "own.h"

#include <stdio.h>
#include <stdlib.h>

#include "need.h"

#define PLACE 256u /* alignment of everything */

const char *const own_problems[] = {
    "heads=8 kv_heads=2 head_dim=128 q=bf16 block=16 det=1 lse=1",
    "heads=4 kv_heads=4 head_dim=64 q=f16 kv=e4m3 scales=unit block=16 window=70 det=1 lse=1",
    "heads=8 kv_heads=4 head_dim=32 q=f32 block=16 det=1 lse=1",
};
const uint32_t own_problem_count = sizeof own_problems / sizeof own_problems[0];

/* Numbers about 1 of any type: exponents in the middle, all else at random. */
static void fill(unsigned char *to, uint64_t size, uint32_t dtype, struct rng *rng)
{
    const uint32_t element = oracle_size(dtype);

    for (uint64_t i = 0; i + element <= size; i += element) {
        const uint64_t bits = rng_next(rng);
        const uint32_t sign = (uint32_t)(bits >> 63), small = (uint32_t)(bits >> 32 & 3);
        uint32_t code = (uint32_t)bits & 0x7fffff;
        if (dtype == ATTN_F32)
            code |= sign << 31 | (124 + small) << 23;
        else if (dtype == ATTN_BF16)
            code = sign << 15 | (124 + small) << 7 | (code & 0x7f);
        else if (dtype == ATTN_F16)
            code = sign << 15 | (12 + small) << 10 | (code & 0x3ff);
        else
            code = sign << 7 | (4 + small) << 3 | (code & 7); /* e4m3 */
        memcpy(to + i, &code, element);
    }
}

static void place(struct own *own, enum own_place what, uint64_t bytes)
{
    own->at[what + 1] = (own->at[what] + bytes + PLACE - 1) / PLACE * PLACE;
}

static struct attn_buffer at(const struct own *own, enum own_place what)
{
    return (struct attn_buffer){own->memory.data, own->memory.byte_offset + own->at[what]};
}

static int32_t put(struct own *own, enum own_place what, const void *from, uint64_t size,
                   struct attn_error *err)
{
    const struct attn_buffer to = at(own, what), source = {(void *)(uintptr_t)from, 0};

    return attn_memory_copy(own->backend, &to, &source, size, ATTN_COPY_TO_DEVICE, own->stream, err);
}

static int32_t make_plan(struct own *own, const struct own *lender, struct attn_plan_sizes *sizes,
                         struct attn_error *err)
{
    int32_t status = ATTN_OK;

    own->plan_lent = lender != NULL;
    if (lender != NULL)
        own->plan = lender->plan;
    else
        status = attn_plan_create(own->backend, &own->problem, &own->plan, err);
    ATTN_INIT(sizes);
    return status == ATTN_OK ? attn_plan_get_sizes(own->plan, sizes, err) : status;
}

/* Staging is pinned where the backend has such memory. */
static int32_t make_staging(struct own *own, uint64_t size, struct attn_error *err)
{
    own->staging.size = size;
    if (size == 0)
        return ATTN_OK;
    int32_t status = attn_memory_alloc_pinned(own->backend, size, &own->staging.buffer.data, err);
    own->staging_pinned = status == ATTN_OK;
    if (status != ATTN_E_UNSUPPORTED)
        return status;
    own->staging.buffer.data = need(malloc(size));
    return ATTN_OK;
}

static int32_t make_memory(struct own *own, const struct attn_plan_sizes *sizes, struct attn_error *err)
{
    const struct attn_problem *p = &own->problem;
    struct attn_kv_shape shape;

    ATTN_INIT(&shape);
    int32_t status = attn_kv_get_shape(own->backend, p, OWN_PAGES, &shape, err);
    if (status != ATTN_OK)
        return status;
    const uint64_t out = (uint64_t)OWN_ROWS * p->heads * p->head_dim_vo * oracle_size(p->out_dtype);
    place(own, OWN_OFFSETS, sizeof(int32_t[OWN_SEQS + 1]));
    place(own, OWN_LENS, sizeof(int32_t[OWN_SEQS]));
    place(own, OWN_TABLE, sizeof(int32_t[OWN_SEQS * OWN_WIDTH]));
    place(own, OWN_Q, (uint64_t)OWN_ROWS * p->heads * p->head_dim * oracle_size(p->q_dtype));
    place(own, OWN_OUT, out);
    place(own, OWN_LSE, (uint64_t)OWN_ROWS * p->heads * sizeof(float));
    place(own, OWN_CACHE, shape.bytes);
    place(own, OWN_SCHEDULE, sizes->schedule);
    place(own, OWN_SCRATCH, sizes->scratch);
    place(own, OWN_COUNTERS, sizes->counters);
    own->result_bytes = own->at[OWN_CACHE] - own->at[OWN_OUT];
    own->result = need(malloc(own->result_bytes));
    status = attn_memory_alloc(own->backend, own->at[OWN_END], &own->memory, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_buffer cache = at(own, OWN_CACHE);
    attn_kv_desc_init(&own->kv, &shape, &cache);
    if (p->k_scale == ATTN_SCALES_UNIT) {
        own->kv.k_scale.kind = own->kv.v_scale.kind = ATTN_SCALE_UNIT;
        own->kv.k_scale.granularity = own->kv.v_scale.granularity = ATTN_SCALES_UNIT;
    }
    return make_staging(own, sizes->staging, err);
}

/* The cache is full of numbers; counters are zero. */
static int32_t fill_memory(struct own *own, struct attn_error *err)
{
    struct rng rng = {mix(own->problem.head_dim, 91)};
    const uint64_t cache = own->at[OWN_SCHEDULE] - own->at[OWN_CACHE];
    const uint64_t counters = own->at[OWN_END] - own->at[OWN_COUNTERS];
    unsigned char *bytes = need(calloc(1, cache + counters));

    fill(bytes, cache, own->problem.k_dtype, &rng);
    int32_t status = put(own, OWN_CACHE, bytes, cache, err);
    if (status == ATTN_OK && counters > 0)
        status = put(own, OWN_COUNTERS, bytes + cache, counters, err);
    const int32_t waited = attn_stream_synchronize(own->backend, own->stream, err);
    free(bytes);
    return status != ATTN_OK ? status : waited;
}

int own_init(struct own *own, const struct target *target, const char *problem, uint32_t graph,
             const struct own *lender, char *why, size_t size)
{
    struct attn_plan_sizes sizes;
    struct attn_error err;

    memset(own, 0, sizeof *own);
    ATTN_INIT(&err);
    own->backend = target->backend;
    own->seqs = OWN_SEQS;
    own->rows = OWN_ROWS;
    if (attn_problem_parse(problem, &own->problem, &err) != ATTN_OK) {
        snprintf(why, size, "%s", err.message);
        return -1;
    }
    own->problem.max_seqs = OWN_SEQS;
    own->problem.max_q = own->problem.max_rows = OWN_ROWS;
    own->problem.max_kv = OWN_KEYS;
    own->problem.graph = graph;
    if (!target_accepts(target, &own->problem, NULL, why, size))
        return 0;
    int32_t status = attn_stream_create(own->backend, &own->stream, &err);
    if (status == ATTN_E_UNSUPPORTED)
        status = ATTN_OK;
    if (status == ATTN_OK)
        status = make_plan(own, lender, &sizes, &err);
    if (status == ATTN_OK)
        status = make_memory(own, &sizes, &err);
    if (status == ATTN_OK)
        status = fill_memory(own, &err);
    if (status != ATTN_OK)
        snprintf(why, size, "%s: %s", attn_status_name(status), err.message);
    return status == ATTN_OK ? 1 : -1;
}

void own_finish(struct own *own)
{
    if (own->staging_pinned)
        attn_memory_free_pinned(own->backend, own->staging.buffer.data);
    else
        free(own->staging.buffer.data);
    attn_memory_free(own->backend, &own->memory);
    if (!own->plan_lent)
        attn_plan_destroy(own->plan);
    if (own->stream != NULL)
        attn_stream_destroy(own->backend, own->stream);
    free(own->result);
    memset(own, 0, sizeof *own);
}

/* ---------------------------------------------------------------- steps */

void own_step_init(const struct own *own, struct own_step *step, struct rng *rng, uint32_t seqs,
                   uint32_t rows)
{
    const uint64_t q_bytes = own->at[OWN_OUT] - own->at[OWN_Q];
    uint32_t q_lens[OWN_SEQS] = {0}, left = rows;

    memset(step, 0, sizeof *step);
    for (uint32_t i = 0; i < seqs; i++) { /* decodes, prompts, and padding without a row */
        const uint32_t wanted = rng_chance(rng, 60) ? 1 : rng_below(rng, 12);
        q_lens[i] = wanted < left ? wanted : left;
        left -= q_lens[i];
    }
    q_lens[rng_below(rng, seqs)] += left;
    for (uint32_t i = 0; i < seqs; i++) {
        step->q_offsets[i + 1] = step->q_offsets[i] + (int32_t)q_lens[i];
        const uint32_t more = rng_below(rng, OWN_KEYS + 1 - q_lens[i]);
        step->kv_lens[i] = q_lens[i] == 0 ? 0 : (int32_t)(q_lens[i] + more);
    }
    for (uint32_t i = 0; i < OWN_SEQS * OWN_WIDTH; i++)
        step->table[i] = (int32_t)rng_below(rng, OWN_PAGES);
    step->q = need(malloc(q_bytes));
    step->expected = need(malloc(own->result_bytes));
    fill(step->q, q_bytes, own->problem.q_dtype, rng);
}

void own_step_finish(struct own_step *step)
{
    free(step->q);
    free(step->expected);
    memset(step, 0, sizeof *step);
}

int32_t own_send(struct own *own, const struct own_step *step, struct attn_error *err)
{
    memset(own->result, 0xa7, own->result_bytes);
    int32_t status = put(own, OWN_OFFSETS, step->q_offsets, sizeof step->q_offsets, err);
    if (status == ATTN_OK)
        status = put(own, OWN_LENS, step->kv_lens, sizeof step->kv_lens, err);
    if (status == ATTN_OK)
        status = put(own, OWN_TABLE, step->table, sizeof step->table, err);
    if (status == ATTN_OK)
        status = put(own, OWN_Q, step->q, own->at[OWN_OUT] - own->at[OWN_Q], err);
    if (status == ATTN_OK)
        status = put(own, OWN_OUT, own->result, own->result_bytes, err);
    return status;
}

static void describe(const struct own *own, struct attn_batch *batch, struct attn_tensors *tensors)
{
    const struct attn_problem *p = &own->problem;

    ATTN_INIT(batch);
    batch->seqs = own->seqs;
    batch->num_tokens = own->rows;
    batch->max_q = OWN_ROWS;
    batch->max_kv = OWN_KEYS;
    batch->q_offsets = at(own, OWN_OFFSETS);
    batch->kv_lens = at(own, OWN_LENS);
    batch->table = at(own, OWN_TABLE);
    batch->table_stride = OWN_WIDTH * sizeof(int32_t);
    batch->table_width = OWN_WIDTH;
    ATTN_INIT(tensors);
    tensors->softmax_scale = 0.125F;
    tensors->kv_desc = &own->kv;
    tensors->q.buffer = at(own, OWN_Q);
    tensors->q.head_stride = (int64_t)p->head_dim * oracle_size(p->q_dtype);
    tensors->q.token_stride = tensors->q.head_stride * p->heads;
    tensors->out.buffer = at(own, OWN_OUT);
    tensors->out.head_stride = (int64_t)p->head_dim_vo * oracle_size(p->out_dtype);
    tensors->out.token_stride = tensors->out.head_stride * p->heads;
    tensors->lse.buffer = at(own, OWN_LSE);
    tensors->lse.head_stride = sizeof(float);
    tensors->lse.token_stride = (int64_t)sizeof(float) * p->heads;
}

static struct attn_span span(const struct own *own, enum own_place what)
{
    return (struct attn_span){at(own, what), own->at[what + 1] - own->at[what]};
}

int32_t own_run(struct own *own, struct attn_error *err)
{
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_scratch scratch;
    const struct attn_span schedule = span(own, OWN_SCHEDULE);

    describe(own, &batch, &tensors);
    ATTN_INIT(&scratch);
    scratch.scratch = span(own, OWN_SCRATCH);
    scratch.counters = span(own, OWN_COUNTERS);
    int32_t status = attn_plan_prepare(own->plan, &batch, &schedule,
                                       own->staging.size > 0 ? &own->staging : NULL, own->stream, err);
    if (status == ATTN_OK)
        status = attn_plan_run(own->plan, &batch, &tensors, &schedule, &scratch, own->stream, err);
    return status;
}

int32_t own_take(struct own *own, struct attn_error *err)
{
    const struct attn_buffer from = at(own, OWN_OUT), to = {own->result, 0};
    int32_t status =
        attn_memory_copy(own->backend, &to, &from, own->result_bytes, ATTN_COPY_TO_HOST, own->stream, err);

    return status == ATTN_OK ? attn_stream_synchronize(own->backend, own->stream, err) : status;
}

int32_t own_expect(struct own *own, struct own_step *step, struct attn_error *err)
{
    int32_t status = own_send(own, step, err);

    if (status == ATTN_OK)
        status = own_run(own, err);
    if (status == ATTN_OK)
        status = own_take(own, err);
    memcpy(step->expected, own->result, own->result_bytes);
    return status;
}

int32_t own_capture(struct own *own, struct attn_graph **out, struct attn_error *err)
{
    int32_t status = attn_graph_begin(own->backend, own->stream, out, err);

    if (status == ATTN_OK)
        status = own_run(own, err);
    return status == ATTN_OK ? attn_graph_end(*out, err) : status;
}

bool own_is_right(const struct own *own, const struct own_step *step, uint64_t *out_at)
{
    for (*out_at = 0; *out_at < own->result_bytes; ++*out_at)
        if (own->result[*out_at] != step->expected[*out_at])
            return false;
    return true;
}
