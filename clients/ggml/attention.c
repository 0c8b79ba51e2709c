/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Computes nodes: opens the backend, keeps a plan for each problem, and prepares a step when its lengths
 * change. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory of the backend. */
struct block {
    struct attn_buffer buffer;
    uint64_t size;
};

struct plan {
    struct attn_problem problem; /* with maxima */
    struct attn_plan *plan;
    struct attn_plan_sizes sizes;
    struct block schedule;
    void *staging;           /* pinned */
    struct block arrays;     /* a copy of `lengths` */
    int32_t *lengths;        /* q_offsets [seqs + 1], kv_lens [seqs], query tokens [seqs] */
    struct attn_batch batch; /* the step that is prepared; no seqs: none */
    struct attn_batch_host host;
    struct attn_batch queries; /* the same where queries are the keys, for their conversion */
    uint32_t tokens, keys;     /* of each of its sequences */
    struct plan *next;
};

struct attention {
    struct device *device;
    struct attn_backend *backend;
    struct team team;
    void *stream; /* the team, or of a GPU NULL: its default stream, as for its memory */
    struct plan *plans;
    struct block scratch, counters, queries, slopes;
    float *slope_values; /* that `slopes` has, of these heads and bias */
    uint32_t slope_heads;
    float slope_bias;
    uint32_t threads;        /* what ggml wants */
    uint32_t opened_threads; /* what the backend has */
};

static int32_t no_memory(struct attn_error *err)
{
    err->status = ATTN_E_MEMORY;
    snprintf(err->message, sizeof err->message, "no memory for a plan");
    return ATTN_E_MEMORY;
}

int32_t attention_wait(struct attention *attention, struct attn_error *err)
{
    return attention->backend != NULL && attention->device->gpu
               ? attn_stream_synchronize(attention->backend, attention->stream, err)
               : ATTN_OK;
}

static void release(struct attention *attention, struct block *block)
{
    attn_memory_free(attention->backend, &block->buffer);
    *block = (struct block){{NULL, 0}, 0};
}

static int32_t grow(struct attention *attention, struct block *block, uint64_t size, struct attn_error *err)
{
    if (size <= block->size)
        return ATTN_OK;
    int32_t status = attention_wait(attention, err); /* for runs that still use it */
    release(attention, block);
    if (status == ATTN_OK)
        status = attn_memory_alloc(attention->backend, size, &block->buffer, err);
    block->size = status == ATTN_OK ? size : 0;
    return status;
}

static struct attn_buffer at(const struct block *block, uint64_t offset)
{
    return (struct attn_buffer){block->buffer.data, block->buffer.byte_offset + offset};
}

static struct attn_span span_of(const struct block *block)
{
    return (struct attn_span){block->buffer, block->size};
}

/* Copies to the front of a block; `data` must stay until the stream has passed. */
static int32_t upload(struct attention *attention, struct block *block, const void *data, uint64_t size,
                      struct attn_error *err)
{
    const struct attn_buffer from = {(void *)(uintptr_t)data, 0};
    return attn_memory_copy(attention->backend, &block->buffer, &from, size, ATTN_COPY_TO_DEVICE,
                            attention->stream, err);
}

/* Counters are zero where no run is under way. */
static int32_t grow_counters(struct attention *attention, uint64_t size, struct attn_error *err)
{
    if (size <= attention->counters.size)
        return ATTN_OK;
    void *zeros = calloc(1, size);
    if (zeros == NULL)
        return no_memory(err);
    int32_t status = grow(attention, &attention->counters, size, err);
    if (status == ATTN_OK)
        status = upload(attention, &attention->counters, zeros, size, err);
    if (status == ATTN_OK)
        status = attention_wait(attention, err);
    free(zeros);
    return status;
}

static void destroy_plan(struct attention *attention, struct plan *plan)
{
    attn_plan_destroy(plan->plan);
    attn_memory_free_pinned(attention->backend, plan->staging);
    release(attention, &plan->schedule);
    release(attention, &plan->arrays);
    free(plan->lengths);
    free(plan);
}

static void close_backend(struct attention *attention)
{
    if (attention->backend == NULL)
        return;
    attention_wait(attention, NULL);
    while (attention->plans != NULL) {
        struct plan *plan = attention->plans;
        attention->plans = plan->next;
        destroy_plan(attention, plan);
    }
    release(attention, &attention->scratch);
    release(attention, &attention->counters);
    release(attention, &attention->queries);
    release(attention, &attention->slopes);
    attention->slope_heads = 0;
    attn_backend_destroy(attention->backend);
    attention->backend = NULL;
}

/* Opens the backend, anew if it has fewer threads than ggml wants. */
static int32_t open_backend(struct attention *attention, struct attn_error *err)
{
    struct attn_open_config config;
    if (attention->backend != NULL &&
        (attention->device->gpu || attention->threads <= attention->opened_threads))
        return ATTN_OK;
    close_backend(attention);
    ATTN_INIT(&config);
    config.threads = attention->threads;
    attention->opened_threads = attention->threads;
    return attn_backend_open(library_get()->context, attention->device->decision, &config,
                             &attention->backend, err);
}

/* A power of two, so that a few plans serve all lengths. */
static uint32_t rounded_up(uint32_t number)
{
    uint32_t power = 1;
    while (power < number && power < UINT32_C(1) << 31)
        power *= 2;
    return power;
}

static int32_t make_plan(struct attention *attention, const struct attn_problem *problem, struct plan *plan,
                         struct attn_error *err)
{
    const size_t lengths = (3 * (size_t)problem->max_seqs + 1) * sizeof *plan->lengths;
    plan->problem = *problem;
    plan->lengths = calloc(1, lengths);
    if (plan->lengths == NULL)
        return no_memory(err);
    ATTN_INIT(&plan->sizes);
    int32_t status = attn_plan_create(attention->backend, problem, &plan->plan, err);
    if (status == ATTN_OK)
        status = attn_plan_get_sizes(plan->plan, &plan->sizes, err);
    if (status == ATTN_OK)
        status = grow(attention, &plan->schedule, plan->sizes.schedule, err);
    if (status == ATTN_OK && plan->sizes.staging > 0)
        status = attn_memory_alloc_pinned(attention->backend, plan->sizes.staging, &plan->staging, err);
    if (status == ATTN_OK)
        status = grow(attention, &attention->scratch, plan->sizes.scratch, err);
    if (status == ATTN_OK)
        status = grow_counters(attention, plan->sizes.counters, err);
    return status == ATTN_OK ? grow(attention, &plan->arrays, lengths, err) : status;
}

static int32_t find_plan(struct attention *attention, const struct node *node, struct plan **out,
                         struct attn_error *err)
{
    struct attn_problem problem = node->problem;
    problem.max_seqs = node->seqs / node->runs;
    problem.max_q = rounded_up(node->tokens);
    problem.max_kv = rounded_up(node->keys);
    problem.max_rows = problem.max_seqs * problem.max_q;
    for (struct plan *plan = attention->plans; plan != NULL; plan = plan->next)
        if (memcmp(&plan->problem, &problem, sizeof problem) == 0) {
            *out = plan;
            return ATTN_OK;
        }
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return no_memory(err);
    const int32_t status = make_plan(attention, &problem, plan, err);
    if (status != ATTN_OK) {
        destroy_plan(attention, plan);
        return status;
    }
    plan->next = attention->plans;
    attention->plans = plan;
    *out = plan;
    return ATTN_OK;
}

static int32_t write_lengths(struct attention *attention, struct plan *plan, const struct node *node,
                             struct attn_error *err)
{
    const uint32_t seqs = node->seqs / node->runs;
    int32_t *q_offsets = plan->lengths, *kv_lens = q_offsets + seqs + 1, *q_lens = kv_lens + seqs;
    const int32_t status = attention_wait(attention, err); /* for the last copy */
    if (status != ATTN_OK)
        return status;
    for (uint32_t i = 0; i < seqs; i++) {
        q_offsets[i + 1] = (int32_t)((i + 1) * node->tokens);
        kv_lens[i] = (int32_t)node->keys;
        q_lens[i] = (int32_t)node->tokens;
    }
    return upload(attention, &plan->arrays, plan->lengths, (3 * (uint64_t)seqs + 1) * sizeof *plan->lengths,
                  err);
}

/* All layers of a graph have the same lengths: the first one prepares. */
static int32_t prepare(struct attention *attention, struct plan *plan, const struct node *node,
                       struct attn_error *err)
{
    const uint32_t seqs = node->seqs / node->runs;
    struct attn_batch *batch = &plan->batch;
    if (batch->seqs == seqs && plan->tokens == node->tokens && plan->keys == node->keys)
        return ATTN_OK;
    ATTN_INIT(batch);
    int32_t status = write_lengths(attention, plan, node, err);
    if (status != ATTN_OK)
        return status;
    batch->seqs = seqs;
    batch->num_tokens = seqs * node->tokens;
    batch->max_q = node->tokens;
    batch->max_kv = node->keys;
    batch->pages = seqs;
    batch->q_offsets = at(&plan->arrays, 0);
    batch->kv_lens = at(&plan->arrays, (seqs + 1) * sizeof(int32_t));
    plan->queries = *batch;
    plan->queries.max_kv = node->tokens;
    plan->queries.kv_lens = at(&plan->arrays, (2 * seqs + 1) * sizeof(int32_t));
    plan->tokens = node->tokens;
    plan->keys = node->keys;
    ATTN_INIT(&plan->host);
    plan->host.q_offsets = plan->lengths;
    plan->host.kv_lens = plan->lengths + seqs + 1;
    batch->given = ATTN_GIVEN_HOST_COPIES;
    batch->host = &plan->host;
    const struct attn_span schedule = span_of(&plan->schedule),
                           staging = {{plan->staging, 0}, plan->sizes.staging};
    status = attn_plan_prepare(plan->plan, batch, &schedule, &staging, attention->stream, err);
    if (status != ATTN_OK)
        batch->seqs = 0;
    return status;
}

/* ALiBi's slopes, which all layers have in common. */
static int32_t set_slopes(struct attention *attention, const struct node *node, struct attn_error *err)
{
    const uint32_t heads = (uint32_t)node->q->ne[2];
    if (node->problem.alibi != ATTN_ALIBI_MASK ||
        (attention->slope_heads == heads && attention->slope_bias == node->max_bias))
        return ATTN_OK;
    attention->slope_heads = 0;
    int32_t status = attention_wait(attention, err);
    if (status == ATTN_OK)
        status = grow(attention, &attention->slopes, heads * sizeof(float), err);
    float *values = status == ATTN_OK ? realloc(attention->slope_values, heads * sizeof *values) : NULL;
    if (values == NULL)
        return status == ATTN_OK ? no_memory(err) : status;
    attention->slope_values = values;
    node_slopes(node, values);
    status = upload(attention, &attention->slopes, values, heads * sizeof *values, err);
    if (status == ATTN_OK)
        attention->slope_heads = heads;
    attention->slope_bias = node->max_bias;
    return status;
}

/* Queries of all runs in the type of the problem, contiguous. */
static int32_t convert_queries(struct attention *attention, const struct plan *plan, const struct node *node,
                               struct attn_error *err)
{
    struct attn_kv_desc from;
    struct attn_kv_gather_args args;
    node_queries(node, &from);
    ATTN_INIT(&args);
    args.tokens = plan->queries.num_tokens;
    args.k_dtype = args.v_dtype = node->problem.q_dtype;
    args.addressing = ATTN_DENSE;
    args.kv_desc = &from;
    args.batch = &plan->queries;
    args.offsets = plan->queries.q_offsets;
    args.k = attn_tensor_of(NULL, node->problem.q_dtype, from.kv_heads, from.head_dim);
    const int32_t status =
        grow(attention, &attention->queries, args.tokens * (uint64_t)args.k.token_stride, err);
    args.k.buffer = attention->queries.buffer;
    return status == ATTN_OK ? attn_kv_gather(attention->backend, &args, attention->stream, err) : status;
}

static int32_t run(struct attention *attention, const struct plan *plan, const struct node *node,
                   uint32_t number, struct attn_error *err)
{
    struct attn_kv_desc kv;
    struct attn_tensors tensors;
    struct attn_scratch scratch;
    const struct attn_span schedule = span_of(&plan->schedule);
    const struct attn_problem *problem = &node->problem;
    const uint32_t head = number % node->head_runs * problem->heads;
    node_kv(node, number, &kv);
    node_tensors(node, number, &tensors);
    tensors.kv_desc = &kv;
    if (problem->alibi == ATTN_ALIBI_MASK)
        tensors.alibi_slopes = at(&attention->slopes, head * sizeof(float));
    if (problem->q_dtype != ATTN_F32) {
        tensors.q =
            attn_tensor_of(NULL, problem->q_dtype, problem->heads * node->head_runs, problem->head_dim);
        tensors.q.buffer = at(&attention->queries, head * (uint64_t)tensors.q.head_stride);
    }
    ATTN_INIT(&scratch);
    scratch.scratch = span_of(&attention->scratch);
    scratch.counters = span_of(&attention->counters);
    return attn_plan_run(plan->plan, &plan->batch, &tensors, &schedule, &scratch, attention->stream, err);
}

/* A node in the form that the device serves. Its kernels on the CPU serve all that ggml was told. */
static int32_t read_node(const struct attention *attention, const struct ggml_tensor *op, struct node *out,
                         struct attn_error *err)
{
    char text[128];
    const char *refusal = node_read(op, out, text, sizeof text);
    if (refusal == NULL && attention->device->gpu && !device_adapt(attention->device, out))
        refusal = "no optimised kernel serves it";
    if (refusal == NULL)
        return ATTN_OK;
    err->status = ATTN_E_UNSUPPORTED;
    snprintf(err->message, sizeof err->message, "ggml gives a node that was refused: %s", refusal);
    return ATTN_E_UNSUPPORTED;
}

int32_t attention_compute(struct attention *attention, const struct ggml_tensor *op, struct attn_error *err)
{
    struct node node;
    struct plan *plan;
    int32_t status = read_node(attention, op, &node, err);
    if (status == ATTN_OK)
        status = open_backend(attention, err);
    if (status == ATTN_OK)
        status = find_plan(attention, &node, &plan, err);
    if (status == ATTN_OK)
        status = set_slopes(attention, &node, err);
    if (status == ATTN_OK)
        status = prepare(attention, plan, &node, err);
    if (status == ATTN_OK && node.problem.q_dtype != ATTN_F32)
        status = convert_queries(attention, plan, &node, err);
    for (uint32_t number = 0; status == ATTN_OK && number < node.runs * node.head_runs; number++)
        status = run(attention, plan, &node, number, err);
    return status;
}

struct attention *attention_create(struct device *device)
{
    struct attention *attention = calloc(1, sizeof *attention);
    if (attention == NULL)
        return NULL;
    attention->device = device;
    if (!device->gpu) {
        team_init(&attention->team);
        attention->stream = &attention->team.executor;
    }
    attention_set_threads(attention, GGML_DEFAULT_N_THREADS);
    return attention;
}

void attention_set_threads(struct attention *attention, uint32_t threads)
{
    attention->threads = threads;
    attention->team.executor.threads = threads;
}

void attention_destroy(struct attention *attention)
{
    close_backend(attention);
    free(attention->slope_values);
    free(attention);
}
