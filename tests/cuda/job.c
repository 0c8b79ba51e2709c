/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A small attention problem: two sequences of one and three query rows over four keys each. All keys are
 * alike, so that every row of out is the mean of its values, which are alike too but for the sequence.
 * Queries are e4m3 and the rest f32, which only the reference kernel takes: a run is one launch and has no
 * schedule.
 */
#include <math.h>

#include "world.h"

enum { SEQS = 2, ROWS = 4, HEADS = 2, DIM = 8, BLOCK = 4, KEYS = 4 };

static const int32_t q_offsets[] = {0, 1, ROWS}, kv_lens[] = {KEYS, KEYS}, pages[] = {1, 0};

/* Places in the block. */
enum {
    Q_BYTES = ROWS * HEADS * DIM,
    OUT_BYTES = ROWS * HEADS * DIM * 4,
    KEY_BYTES = 2 * KEYS * HEADS * DIM * 4,
    AT_OFFSETS = 0,
    AT_LENS = 64,
    AT_TABLE = 128,
    AT_Q = 256,
    AT_K = AT_Q + Q_BYTES,
    AT_V = AT_K + KEY_BYTES,
    AT_OUT = AT_V + KEY_BYTES,
    AT_END = AT_OUT + OUT_BYTES
};

static struct attn_buffer at(const struct job *job, uint64_t offset)
{
    return (struct attn_buffer){job->block.data, offset};
}

static struct attn_tensor rows_at(const struct job *job, uint64_t offset, uint32_t size)
{
    return (struct attn_tensor){
        .buffer = at(job, offset), .token_stride = HEADS * DIM * size, .head_stride = DIM * size};
}

static int32_t put(struct job *job, struct world *world, uint64_t offset, const void *from, size_t size)
{
    const struct attn_buffer to = at(job, offset), source = {(void *)(uintptr_t)from, 0};

    return world->table->memory->copy(job->backend, &to, &source, size, ATTN_COPY_TO_DEVICE, job->stream,
                                      &world->err);
}

static void describe(struct job *job)
{
    struct attn_problem *p = &job->problem;

    *p = world_problem(ATTN_F32, HEADS, HEADS, DIM);
    p->q_dtype = ATTN_E4M3;
    p->q_scale = ATTN_SCALES_UNIT;
    p->block = BLOCK;
    p->max_seqs = SEQS;
    p->max_q = 3;
    p->max_kv = KEYS;
    p->max_rows = ROWS;
}

static int32_t fill(struct job *job, struct world *world)
{
    uint8_t q[ROWS * HEADS * DIM];
    float keys[2 * KEYS * HEADS * DIM], values[2 * KEYS * HEADS * DIM];
    int32_t status = put(job, world, AT_OFFSETS, q_offsets, sizeof q_offsets);

    for (int i = 0; i < ROWS * HEADS * DIM; i++)
        q[i] = (uint8_t)(0x20 + i % 5 * 8); /* 1/8 to 2 */
    for (int i = 0; i < 2 * KEYS * HEADS * DIM; i++) {
        keys[i] = 0.5f;
        values[i] = i < KEYS * HEADS * DIM ? 2.0f : 3.0f; /* of page 0, of page 1 */
    }
    if (status == ATTN_OK)
        status = put(job, world, AT_LENS, kv_lens, sizeof kv_lens);
    if (status == ATTN_OK)
        status = put(job, world, AT_TABLE, pages, sizeof pages);
    if (status == ATTN_OK)
        status = put(job, world, AT_Q, q, sizeof q);
    if (status == ATTN_OK)
        status = put(job, world, AT_K, keys, sizeof keys);
    if (status == ATTN_OK)
        status = put(job, world, AT_V, values, sizeof values);
    /* The arrays are copied by then. */
    const int32_t waited = world->table->memory->stream_synchronize(job->backend, job->stream, &world->err);
    return status == ATTN_OK ? waited : status;
}

static int32_t make_cache(struct job *job, struct world *world)
{
    struct attn_kv_desc desc;

    ATTN_INIT(&desc);
    desc.k_dtype = desc.v_dtype = ATTN_F32;
    desc.pages = 2;
    desc.block = BLOCK;
    desc.kv_heads = HEADS;
    desc.head_dim = DIM;
    desc.k = at(job, AT_K);
    desc.v = at(job, AT_V);
    desc.k_page_stride = desc.v_page_stride = BLOCK * HEADS * DIM * 4;
    desc.k_token_stride = desc.v_token_stride = HEADS * DIM * 4;
    desc.k_head_stride = desc.v_head_stride = DIM * 4;
    return world->table->kv->create(job->backend, &desc, &job->kv, &world->err);
}

static void make_step(struct job *job)
{
    ATTN_INIT(&job->host);
    job->host.q_offsets = q_offsets;
    job->host.kv_lens = kv_lens;
    job->host.table = pages;
    ATTN_INIT(&job->batch);
    job->batch.given = ATTN_GIVEN_HOST_COPIES;
    job->batch.host = &job->host;
    job->batch.seqs = SEQS;
    job->batch.num_tokens = ROWS;
    job->batch.max_q = 3;
    job->batch.max_kv = KEYS;
    job->batch.q_offsets = at(job, AT_OFFSETS);
    job->batch.kv_lens = at(job, AT_LENS);
    job->batch.table = at(job, AT_TABLE);
    job->batch.table_stride = 4;
    job->batch.table_width = 1;
    ATTN_INIT(&job->tensors);
    job->tensors.softmax_scale = 0.5f;
    job->tensors.q = rows_at(job, AT_Q, 1);
    job->tensors.q_scale.kind = ATTN_SCALE_UNIT;
    job->tensors.out = rows_at(job, AT_OUT, 4);
    ATTN_INIT(&job->scratch);
}

/* Stream, memory and cache. */
static int32_t make_rest(struct job *job, struct world *world)
{
    const struct attn_memory_table *memory = world->table->memory;
    int32_t status = memory->stream_create(job->backend, &job->stream, &world->err);

    if (status == ATTN_OK)
        status = memory->alloc(job->backend, AT_END, &job->block, &world->err);
    if (status == ATTN_OK)
        status = fill(job, world);
    return status == ATTN_OK ? make_cache(job, world) : status;
}

int32_t job_init(struct job *job, struct world *world, int32_t ordinal, void *native_context)
{
    const struct attn_device device = device_of(world, ordinal);
    struct attn_open_config config;

    memset(job, 0, sizeof *job);
    describe(job);
    ATTN_INIT(&config);
    config.native_context = native_context;
    int32_t status = world->table->open(world->instance, &device, &config, &job->backend, &world->err);
    if (status == ATTN_OK)
        status = make_rest(job, world);
    if (status == ATTN_OK)
        status = world->table->plan->create(job->backend, &job->problem, &job->plan, &world->err);
    make_step(job);
    return status;
}

int32_t job_init_beside(struct job *job, struct world *world, const struct job *other)
{
    memset(job, 0, sizeof *job);
    describe(job);
    job->beside = true;
    job->backend = other->backend;
    job->plan = other->plan;
    int32_t status = make_rest(job, world);
    make_step(job);
    return status;
}

int32_t job_run(struct job *job, struct world *world)
{
    const struct attn_plan_table *plan = world->table->plan;
    int32_t status =
        plan->prepare(job->plan, &job->batch, &job->schedule, &job->schedule, job->stream, &world->err);

    if (status == ATTN_OK)
        status = plan->run(job->plan, &job->batch, &job->tensors, job->kv, NULL, &job->schedule,
                           &job->scratch, job->stream, &world->err);
    return status;
}

int32_t job_spoil(struct job *job, struct world *world)
{
    static const float rubbish[ROWS * HEADS * DIM];

    return put(job, world, AT_OUT, rubbish, sizeof rubbish);
}

int32_t job_judge(struct job *job, struct world *world)
{
    float out[ROWS * HEADS * DIM];
    const struct attn_buffer from = at(job, AT_OUT), to = {out, 0};
    int32_t status = world->table->memory->copy(job->backend, &to, &from, sizeof out, ATTN_COPY_TO_HOST,
                                                job->stream, &world->err);

    if (status == ATTN_OK)
        status = world->table->memory->stream_synchronize(job->backend, job->stream, &world->err);
    for (int i = 0; i < ROWS * HEADS * DIM && status == ATTN_OK; i++)
        job->wrong = job->wrong || !(fabsf(out[i] - (i < HEADS * DIM ? 3.0f : 2.0f)) < 1e-5f);
    return status;
}

void job_finish(struct job *job, struct world *world)
{
    const struct attn_memory_table *memory = world->table->memory;

    if (job->backend == NULL)
        return;
    if (job->plan != NULL && !job->beside)
        world->table->plan->destroy(job->plan);
    if (job->kv != NULL)
        world->table->kv->destroy(job->kv);
    memory->free(job->backend, &job->block);
    memory->stream_destroy(job->backend, job->stream);
    if (!job->beside)
        world->table->close(job->backend);
}
