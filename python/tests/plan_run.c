/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What test_torch.py --bench holds a call of Python against: the same plan, prepared once and run from C. */
#include <attn/attn.h>
#include <attn/device.h>
#include <time.h>

#define MOST_DIM 256

/* One query token, one key and one head. The process ends soon: nothing is freed. */
static struct {
    struct attn_plan *plan;
    struct attn_batch batch;
    struct attn_batch_host host;
    struct attn_kv_desc desc;
    struct attn_tensors tensors;
    struct attn_span schedule;
    struct attn_scratch scratch;
    int32_t q_offsets[2], kv_lens[1];
    float q[MOST_DIM], k[MOST_DIM], v[MOST_DIM], out[MOST_DIM];
} one = {.q_offsets = {0, 1}, .kv_lens = {1}};

static int32_t open_backend(const struct attn_problem *problem, struct attn_backend **backend)
{
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_select_options options;
    struct attn_open_config config;
    ATTN_INIT(&options);
    ATTN_INIT(&config);
    options.device = "cpu";
    int32_t status = attn_context_create(NULL, &context, NULL);
    if (status == ATTN_OK)
        status = attn_select(context, problem, 1, &options, &decision, NULL);
    return status == ATTN_OK ? attn_backend_open(context, decision, &config, backend, NULL) : status;
}

static int32_t allocate(struct attn_backend *backend, struct attn_span *span, uint64_t size)
{
    span->size = size;
    return size > 0 ? attn_memory_alloc(backend, size, &span->buffer, NULL) : ATTN_OK;
}

static void describe(const struct attn_problem *problem)
{
    const int64_t row = (int64_t)(problem->head_dim * sizeof(float));
    ATTN_INIT(&one.batch);
    ATTN_INIT(&one.host);
    ATTN_INIT(&one.desc);
    ATTN_INIT(&one.tensors);
    one.host.q_offsets = one.q_offsets;
    one.host.kv_lens = one.kv_lens;
    one.batch.given = ATTN_GIVEN_HOST_COPIES;
    one.batch.host = &one.host;
    one.batch.seqs = one.batch.num_tokens = one.batch.max_q = one.batch.max_kv = one.batch.pages = 1;
    one.batch.q_offsets.data = one.q_offsets;
    one.batch.kv_lens.data = one.kv_lens;
    one.desc.k_dtype = one.desc.v_dtype = ATTN_F32;
    one.desc.pages = one.desc.block = one.desc.kv_heads = 1;
    one.desc.head_dim = one.desc.head_dim_vo = problem->head_dim;
    one.desc.k.data = one.k;
    one.desc.v.data = one.v;
    one.desc.k_token_stride = one.desc.k_head_stride = one.desc.k_page_stride = row;
    one.desc.v_token_stride = one.desc.v_head_stride = one.desc.v_page_stride = row;
    one.tensors.softmax_scale = 0.125F;
    one.tensors.q = attn_tensor_of(one.q, ATTN_F32, 1, problem->head_dim);
    one.tensors.out = attn_tensor_of(one.out, ATTN_F32, 1, problem->head_dim);
    one.tensors.kv_desc = &one.desc;
}

/* Makes the plan of a problem of one head; the problem is that of a call of libattn.attention. */
int32_t plan_open(const char *text)
{
    struct attn_problem problem;
    struct attn_backend *backend;
    struct attn_plan_sizes sizes;
    struct attn_span staging = {{NULL, 0}, 0};
    ATTN_INIT(&sizes);
    ATTN_INIT(&one.scratch);
    int32_t status = attn_problem_parse(text, &problem, NULL);
    if (status == ATTN_OK && problem.head_dim > MOST_DIM)
        status = ATTN_E_SIZE;
    if (status == ATTN_OK)
        status = open_backend(&problem, &backend);
    if (status == ATTN_OK)
        status = attn_plan_create(backend, &problem, &one.plan, NULL);
    if (status == ATTN_OK)
        status = attn_plan_get_sizes(one.plan, &sizes, NULL);
    if (status == ATTN_OK)
        status = allocate(backend, &one.schedule, sizes.schedule);
    if (status == ATTN_OK)
        status = allocate(backend, &one.scratch.scratch, sizes.scratch);
    if (status == ATTN_OK)
        status = allocate(backend, &one.scratch.counters, sizes.counters);
    if (status == ATTN_OK)
        status = allocate(backend, &staging, sizes.staging);
    if (status != ATTN_OK)
        return status;
    describe(&problem);
    one.scratch.counters_dirty = 1;
    return attn_plan_prepare(one.plan, &one.batch, &one.schedule, &staging, NULL, NULL);
}

/* Microseconds of a run, the mean of many; negative if one fails. */
double plan_run(uint32_t runs)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint32_t i = 0; i < runs; i++) {
        if (attn_plan_run(one.plan, &one.batch, &one.tensors, &one.schedule, &one.scratch, NULL, NULL) !=
            ATTN_OK)
            return -1;
        one.scratch.counters_dirty = 0;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (1e6 * (double)(end.tv_sec - begin.tv_sec) + 1e-3 * (double)(end.tv_nsec - begin.tv_nsec)) / runs;
}
