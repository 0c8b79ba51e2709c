/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Computes nodes: opens the backend, keeps a plan for each problem, and prepares a step when its lengths
 * change. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory with the alignment that a plan wants; zeroed when it grows. */
struct block {
    void *data;
    uint64_t size;
};

struct plan {
    struct attn_problem problem; /* with maxima */
    struct attn_plan *plan;
    struct attn_plan_sizes sizes;
    struct block schedule;
    struct block arrays;     /* q_offsets [seqs + 1], then kv_lens [seqs] */
    struct attn_batch batch; /* the step that is prepared; no seqs: none */
    uint32_t tokens, keys;   /* of each of its sequences */
    struct plan *next;
};

struct attention {
    struct attn_backend *backend;
    struct team team;
    struct plan *plans;
    struct block scratch, counters, slopes;
    uint32_t threads;        /* what ggml wants */
    uint32_t opened_threads; /* what the backend has */
};

static int32_t no_memory(struct attn_error *err)
{
    err->status = ATTN_E_MEMORY;
    snprintf(err->message, sizeof err->message, "no memory for a plan");
    return ATTN_E_MEMORY;
}

static int32_t grow(struct block *block, uint64_t size, uint64_t alignment, struct attn_error *err)
{
    if (size <= block->size)
        return ATTN_OK;
    const uint64_t rounded = (size + alignment - 1) / alignment * alignment;
    void *data = aligned_alloc(alignment, rounded);
    if (data == NULL)
        return no_memory(err);
    free(block->data);
    *block = (struct block){memset(data, 0, rounded), rounded};
    return ATTN_OK;
}

static struct attn_span span_of(const struct block *block)
{
    return (struct attn_span){{block->data, 0}, block->size};
}

static void destroy_plan(struct plan *plan)
{
    attn_plan_destroy(plan->plan);
    free(plan->schedule.data);
    free(plan->arrays.data);
    free(plan);
}

static void close_backend(struct attention *attention)
{
    while (attention->plans != NULL) {
        struct plan *plan = attention->plans;
        attention->plans = plan->next;
        destroy_plan(plan);
    }
    attn_backend_destroy(attention->backend);
    attention->backend = NULL;
}

/* Opens the backend, anew if it has fewer threads than ggml wants. */
static int32_t open_backend(struct attention *attention, struct attn_error *err)
{
    const struct library *library = library_get();
    struct attn_open_config config;
    if (attention->backend != NULL && attention->threads <= attention->opened_threads)
        return ATTN_OK;
    close_backend(attention);
    ATTN_INIT(&config);
    config.threads = attention->threads;
    attention->opened_threads = attention->threads;
    return attn_backend_open(library->context, library->decision, &config, &attention->backend, err);
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
    plan->problem = *problem;
    ATTN_INIT(&plan->sizes);
    int32_t status = attn_plan_create(attention->backend, problem, &plan->plan, err);
    if (status == ATTN_OK)
        status = attn_plan_get_sizes(plan->plan, &plan->sizes, err);
    const struct attn_plan_sizes *sizes = &plan->sizes;
    if (status == ATTN_OK)
        status = grow(&plan->schedule, sizes->schedule, sizes->alignment, err);
    if (status == ATTN_OK)
        status = grow(&attention->scratch, sizes->scratch, sizes->alignment, err);
    if (status == ATTN_OK)
        status = grow(&attention->counters, sizes->counters, sizes->alignment, err);
    if (status == ATTN_OK)
        status =
            grow(&plan->arrays, (2 * (uint64_t)problem->max_seqs + 1) * sizeof(int32_t), sizeof(void *), err);
    return status;
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
        destroy_plan(plan);
        return status;
    }
    plan->next = attention->plans;
    attention->plans = plan;
    *out = plan;
    return ATTN_OK;
}

/* All layers of a graph have the same lengths: the first one prepares. */
static int32_t prepare(struct attention *attention, struct plan *plan, const struct node *node,
                       struct attn_error *err)
{
    const uint32_t seqs = node->seqs / node->runs;
    struct attn_batch *batch = &plan->batch;
    if (batch->seqs == seqs && plan->tokens == node->tokens && plan->keys == node->keys)
        return ATTN_OK;
    int32_t *q_offsets = plan->arrays.data, *kv_lens = q_offsets + seqs + 1;
    for (uint32_t i = 0; i < seqs; i++) {
        q_offsets[i + 1] = (int32_t)((i + 1) * node->tokens);
        kv_lens[i] = (int32_t)node->keys;
    }
    ATTN_INIT(batch);
    batch->seqs = seqs;
    batch->num_tokens = seqs * node->tokens;
    batch->max_q = node->tokens;
    batch->max_kv = node->keys;
    batch->pages = seqs;
    batch->q_offsets.data = q_offsets;
    batch->kv_lens.data = kv_lens;
    plan->tokens = node->tokens;
    plan->keys = node->keys;
    const struct attn_span schedule = span_of(&plan->schedule);
    const int32_t status =
        attn_plan_prepare(plan->plan, batch, &schedule, NULL, &attention->team.executor, err);
    if (status != ATTN_OK)
        batch->seqs = 0;
    return status;
}

int32_t attention_compute(struct attention *attention, const struct ggml_tensor *op, struct attn_error *err)
{
    char text[128];
    struct node node;
    struct plan *plan;
    const char *refusal = node_read(op, &node, text, sizeof text);
    if (refusal != NULL) {
        err->status = ATTN_E_UNSUPPORTED;
        snprintf(err->message, sizeof err->message, "ggml gives a node that was refused: %s", refusal);
        return ATTN_E_UNSUPPORTED;
    }
    int32_t status = open_backend(attention, err);
    if (status == ATTN_OK)
        status = find_plan(attention, &node, &plan, err);
    if (status == ATTN_OK)
        status = grow(&attention->slopes, node.problem.heads * sizeof(float), sizeof(void *), err);
    if (status == ATTN_OK)
        status = prepare(attention, plan, &node, err);
    for (uint32_t run = 0; status == ATTN_OK && run < node.runs; run++) {
        struct attn_kv_desc kv;
        struct attn_tensors tensors;
        struct attn_scratch scratch;
        const struct attn_span schedule = span_of(&plan->schedule);
        node_kv(&node, run, &kv);
        node_tensors(&node, run, attention->slopes.data, &tensors);
        tensors.kv_desc = &kv;
        ATTN_INIT(&scratch);
        scratch.scratch = span_of(&attention->scratch);
        scratch.counters = span_of(&attention->counters);
        status = attn_plan_run(plan->plan, &plan->batch, &tensors, &schedule, &scratch,
                               &attention->team.executor, err);
    }
    return status;
}

struct attention *attention_create(void)
{
    struct attention *attention = calloc(1, sizeof *attention);
    if (attention == NULL)
        return NULL;
    team_init(&attention->team);
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
    free(attention->scratch.data);
    free(attention->counters.data);
    free(attention->slopes.data);
    free(attention);
}
