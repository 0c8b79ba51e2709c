/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A small step on an open backend: cache, plan, write, prepare, run, merge; all memory through its table. */
#include <stdio.h>
#include <stdlib.h>

#include "life.h"
#include "need.h"

enum { SEQS = 4, ROWS = 7, WIDTH = 4, PAGES = 12, MOST_KEYS = 64, BLOCKS = 32, FILL = 0x3c };

static const int32_t q_offsets[SEQS + 1] = {0, 1, 4, 5, 7};
static const int32_t kv_lens[SEQS] = {40, 33, 17, 64};
static const int32_t table[SEQS][WIDTH] = {{0, 1, 2, -1}, {3, 4, 5, -1}, {6, 7, -1, -1}, {8, 9, 10, 11}};
static const int64_t slots[ROWS] = {39, 78, 79, 80, 112, 190, 191};

/* What a step allocates. */
struct work {
    struct life_backend *backend;
    struct attn_buffer blocks[BLOCKS];
    uint32_t count;
    void *staging;
    bool pinned;
    struct attn_kv_desc desc;
    struct attn_kv_impl *kv;
    struct attn_plan_impl *plan;
    struct attn_plan_sizes sizes;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_span schedule;
    struct attn_scratch scratch;
};

bool life_choose(struct life *life, const struct attn_backend_table *backend,
                 const struct attn_device *device, struct attn_problem *out)
{
    static const char *const problems[] = {
        "heads=8 kv_heads=4 head_dim=64 q=f32 block=16",   "heads=8 kv_heads=4 head_dim=64 q=bf16 block=16",
        "heads=8 kv_heads=4 head_dim=64 q=f16 block=16",   "heads=8 kv_heads=4 head_dim=128 q=bf16 block=16",
        "heads=8 kv_heads=4 head_dim=128 q=f16 block=16",  "heads=8 kv_heads=8 head_dim=128 q=f16 block=16",
        "heads=8 kv_heads=8 head_dim=128 q=bf16 block=16",
    };
    struct attn_reason reasons[2];
    struct attn_kernel_info kernels[2];
    struct attn_query query;
    struct attn_error err;

    ATTN_INIT(&err);
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        if (attn_problem_parse(problems[i], out, &err) != ATTN_OK) {
            snprintf(life->why, sizeof life->why, "the checker's own problem: %s", err.message);
            return false;
        }
        out->max_seqs = SEQS;
        out->max_q = 4;
        out->max_kv = MOST_KEYS;
        out->max_rows = ROWS;
        ATTN_INIT(&query);
        query.reasons = reasons;
        query.kernels = kernels;
        query.reason_capacity = query.kernel_capacity = 2;
        life_enter(life, device != NULL ? "query" : "query without a device");
        if (!life_leave(life, backend->query(life->instance, device, out, &query), NULL))
            return false;
        if (query.accepted != 0)
            return true;
    }
    out->heads = 0;
    return true;
}

/* ---------------------------------------------------------------- memory */

static bool place(struct work *work, const void *bytes, uint64_t size, struct attn_buffer *out)
{
    const struct life_backend *backend = work->backend;
    struct attn_buffer from = {NULL, 0};
    struct attn_error *err = life_error(backend->life);

    if (work->count == BLOCKS)
        return false;
    life_enter(backend->life, "memory alloc");
    if (!life_leave(backend->life, backend->table->memory->alloc(backend->impl, size, out, err), err))
        return false;
    work->blocks[work->count++] = *out;
    unsigned char *filled = need(malloc(size));
    memset(filled, FILL, size);
    if (bytes != NULL)
        memcpy(filled, bytes, size);
    from.data = filled;
    life_enter(backend->life, "memory copy");
    int32_t status = backend->table->memory->copy(backend->impl, out, &from, size, ATTN_COPY_TO_DEVICE,
                                                  backend->stream, err);
    if (status == ATTN_OK && backend->stream != NULL)
        status = backend->table->memory->stream_synchronize(backend->impl, backend->stream, err);
    bool good = life_leave(backend->life, status, err);
    free(filled);
    return good;
}

/* [rows, heads, dim], packed. */
static bool place_tensor(struct work *work, uint32_t heads, uint32_t dim, uint32_t dtype,
                         struct attn_tensor *out)
{
    memset(out, 0, sizeof *out);
    out->head_stride = (int64_t)dim * attn_dtype_size(dtype);
    out->token_stride = out->head_stride * heads;
    return place(work, NULL, (uint64_t)out->token_stride * ROWS, &out->buffer);
}

static bool place_span(struct work *work, uint64_t size, bool zeros, struct attn_span *out)
{
    void *bytes = zeros && size > 0 ? need(calloc(1, size)) : NULL;

    out->size = size;
    bool good = size == 0 || place(work, bytes, size, &out->buffer);
    free(bytes);
    return good;
}

static bool place_batch(struct work *work)
{
    struct attn_batch *batch = &work->batch;

    ATTN_INIT(batch);
    batch->seqs = SEQS;
    batch->num_tokens = ROWS;
    batch->max_q = 3;
    batch->max_kv = MOST_KEYS;
    batch->table_width = WIDTH;
    batch->table_stride = sizeof table[0];
    batch->pages = PAGES;
    return place(work, q_offsets, sizeof q_offsets, &batch->q_offsets) &&
           place(work, kv_lens, sizeof kv_lens, &batch->kv_lens) &&
           place(work, table, sizeof table, &batch->table);
}

/* ---------------------------------------------------------------- the stages */

static bool make_cache(struct work *work)
{
    struct life_backend *backend = work->backend;
    struct attn_buffer memory;
    struct attn_kv_shape shape;
    struct attn_error *err = life_error(backend->life);

    ATTN_INIT(&shape);
    life_enter(backend->life, "kv shape");
    if (!life_leave(backend->life,
                    backend->table->kv->shape(backend->impl, &backend->problem, PAGES, &shape, err), err) ||
        !place(work, NULL, shape.bytes, &memory))
        return false;
    attn_kv_desc_init(&work->desc, &shape, &memory);
    life_enter(backend->life, "kv create");
    return life_leave(backend->life, backend->table->kv->create(backend->impl, &work->desc, &work->kv, err),
                      err);
}

static bool write_cache(struct work *work)
{
    struct life_backend *backend = work->backend;
    const struct attn_problem *problem = &backend->problem;
    struct attn_kv_write_args args;
    struct attn_error *err = life_error(backend->life);

    ATTN_INIT(&args);
    args.k_dtype = problem->k_dtype;
    args.v_dtype = problem->v_dtype;
    args.num_tokens = ROWS;
    if (!place_tensor(work, problem->kv_heads, problem->head_dim, problem->k_dtype, &args.k_new) ||
        !place_tensor(work, problem->kv_heads, problem->head_dim_vo, problem->v_dtype, &args.v_new) ||
        !place(work, slots, sizeof slots, &args.slot_mapping))
        return false;
    life_enter(backend->life, "kv write");
    return life_leave(backend->life,
                      backend->table->kv->write(backend->impl, &args, work->kv, NULL, backend->stream, err),
                      err);
}

static bool make_plan(struct work *work)
{
    struct life_backend *backend = work->backend;
    const struct attn_plan_table *plan = backend->table->plan;
    struct attn_plan_info info;
    struct attn_error *err = life_error(backend->life);

    ATTN_INIT(&work->sizes);
    ATTN_INIT(&info);
    life_enter(backend->life, "plan create");
    if (!life_leave(backend->life, plan->create(backend->impl, &backend->problem, &work->plan, err), err))
        return false;
    life_enter(backend->life, "plan sizes");
    if (!life_leave(backend->life, plan->sizes(work->plan, &work->sizes), NULL))
        return false;
    if (plan->describe == NULL)
        return true;
    life_enter(backend->life, "plan describe");
    return life_leave(backend->life, plan->describe(work->plan, &info), NULL);
}

static bool prepare(struct work *work)
{
    struct life_backend *backend = work->backend;
    const struct attn_memory_table *memory = backend->table->memory;
    struct attn_span staging = {{NULL, 0}, work->sizes.staging};
    struct attn_error *err = life_error(backend->life);

    ATTN_INIT(&work->scratch);
    if (!place_batch(work) || !place_span(work, work->sizes.schedule, false, &work->schedule) ||
        !place_span(work, work->sizes.scratch, false, &work->scratch.scratch) ||
        !place_span(work, work->sizes.counters, true, &work->scratch.counters))
        return false;
    if (staging.size > 0 && memory->alloc_pinned != NULL) {
        life_enter(backend->life, "memory alloc_pinned");
        if (!life_leave(backend->life, memory->alloc_pinned(backend->impl, staging.size, &work->staging, err),
                        err))
            return false;
        work->pinned = true;
    } else if (staging.size > 0) {
        work->staging = need(malloc(staging.size));
    }
    staging.buffer.data = work->staging;
    life_enter(backend->life, "plan prepare");
    return life_leave(backend->life,
                      backend->table->plan->prepare(work->plan, &work->batch, &work->schedule, &staging,
                                                    backend->stream, err),
                      err);
}

static bool run_on(struct work *work, const char *stage, void *stream)
{
    struct life_backend *backend = work->backend;
    struct attn_error *err = life_error(backend->life);

    life_enter(backend->life, stage);
    int32_t status = backend->table->plan->run(work->plan, &work->batch, &work->tensors, work->kv, NULL,
                                               &work->schedule, &work->scratch, stream, err);
    if (status == ATTN_OK && backend->stream != NULL)
        status = backend->table->memory->stream_synchronize(backend->impl, backend->stream, err);
    return life_leave(backend->life, status, err);
}

/* The caller's threads, looked at before and after every task. */
static int32_t watched_for(void *arg, attn_task_fn fn, void *task_arg, uint32_t n)
{
    struct life *life = arg;

    for (uint32_t i = 0; i < n; i++) {
        if (life->watch != NULL && i == 0)
            life->watch(life, "within a run", true);
        fn(task_arg, i);
    }
    return ATTN_OK;
}

static void no_barrier(void *arg)
{
    (void)arg;
}

static bool run_all(struct work *work)
{
    struct life_backend *backend = work->backend;
    const struct attn_problem *problem = &backend->problem;
    struct attn_cpu_executor tasks, team;

    ATTN_INIT(&work->tensors);
    ATTN_INIT(&tasks);
    ATTN_INIT(&team);
    work->tensors.softmax_scale = 0.125F;
    if (!place_tensor(work, problem->heads, problem->head_dim, problem->q_dtype, &work->tensors.q) ||
        !place_tensor(work, problem->heads, problem->head_dim_vo, problem->out_dtype, &work->tensors.out) ||
        !run_on(work, "plan run", backend->stream))
        return false;
    backend->life->ran = true;
    if (backend->life->devices[0].device.type != ATTN_DEVICE_CPU)
        return true;
    tasks.kind = ATTN_EXECUTOR_PARALLEL_FOR;
    tasks.arg = backend->life;
    tasks.parallel_for = watched_for;
    tasks.threads = 2;
    team.kind = ATTN_EXECUTOR_TEAM;
    team.nth = 1;
    team.barrier = no_barrier;
    return run_on(work, "plan run with parallel_for", &tasks) && run_on(work, "plan run with a team", &team);
}

static bool merge(struct work *work)
{
    struct life_backend *backend = work->backend;
    const struct attn_problem *problem = &backend->problem;
    const struct attn_merge_table *merges = backend->table->merge;
    struct attn_merge_part parts[2];
    struct attn_tensor all[2];
    struct attn_merge_args args;
    struct attn_rescale_args rescale;
    struct attn_error *err = life_error(backend->life);

    ATTN_INIT(&args);
    ATTN_INIT(&rescale);
    if (merges == NULL)
        return true;
    args.dtype = rescale.dtype = ATTN_F32;
    args.lse_base = rescale.lse_base = ATTN_LSE_NATURAL;
    args.num_tokens = rescale.num_tokens = ROWS;
    args.heads = rescale.heads = problem->heads;
    args.head_dim = rescale.head_dim = problem->head_dim_vo;
    for (int i = 0; i < 2; i++) {
        if (!place_tensor(work, args.heads, args.head_dim, ATTN_F32, &parts[i].out) ||
            !place_tensor(work, args.heads, 1, ATTN_F32, &parts[i].lse))
            return false;
        all[i] = parts[i].lse;
    }
    args.parts = parts;
    args.out = rescale.out = parts[0].out;
    args.count = rescale.count = 2;
    rescale.own = parts[0].lse;
    rescale.all = all;
    life_enter(backend->life, "merge");
    if (merges->merge != NULL &&
        !life_leave(backend->life, merges->merge(backend->impl, &args, backend->stream, err), err))
        return false;
    life_enter(backend->life, "rescale");
    return merges->rescale == NULL ||
           life_leave(backend->life, merges->rescale(backend->impl, &rescale, backend->stream, err), err);
}

static void give_back(struct work *work)
{
    struct life_backend *backend = work->backend;
    const struct attn_memory_table *memory = backend->table->memory;

    if (work->plan != NULL) {
        life_enter(backend->life, "plan destroy");
        backend->table->plan->destroy(work->plan);
        life_leave(backend->life, ATTN_OK, NULL);
    }
    if (work->kv != NULL) {
        life_enter(backend->life, "kv destroy");
        backend->table->kv->destroy(work->kv);
        life_leave(backend->life, ATTN_OK, NULL);
    }
    life_enter(backend->life, "memory free");
    if (work->pinned)
        memory->free_pinned(backend->impl, work->staging);
    else
        free(work->staging);
    for (uint32_t i = 0; i < work->count; i++)
        memory->free(backend->impl, &work->blocks[i]);
    if (backend->stream != NULL)
        memory->stream_destroy(backend->impl, backend->stream);
    life_leave(backend->life, ATTN_OK, NULL);
}

bool life_work(struct life_backend *backend)
{
    const struct attn_memory_table *memory = backend->table->memory;
    struct work *work = need(calloc(1, sizeof *work));
    struct attn_error *err = life_error(backend->life);
    bool good = true;

    work->backend = backend;
    if (memory->struct_size >= sizeof *memory && memory->stream_create != NULL) {
        life_enter(backend->life, "memory stream_create");
        good = life_leave(backend->life, memory->stream_create(backend->impl, &backend->stream, err), err);
    }
    good = good && make_cache(work) && write_cache(work) && make_plan(work) && prepare(work) &&
           run_all(work) && merge(work);
    give_back(work);
    free(work);
    return good;
}
