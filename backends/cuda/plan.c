/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A plan: the kernels that were dispatched, their functions, and the sizes that follow from the maxima. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

static uint64_t round_block(uint64_t size)
{
    return (size + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
}

/* The first reason of a query, as an error. */
static int32_t fail_unserved(const struct attn_backend_impl *backend, const struct attn_problem *problem,
                             struct attn_error *err)
{
    struct attn_reason reason = {0};
    struct attn_query query = {.struct_size = sizeof query, .reasons = &reason, .reason_capacity = 1};

    cuda_query(backend->instance, &backend->context->record->info.device, problem, 0, &query);
    return cuda_fail(err, ATTN_E_UNSUPPORTED, reason.code, reason.field, "%s", reason.text);
}

static int32_t check_maxima(const struct attn_problem *problem, struct attn_error *err)
{
    const struct {
        const char *name;
        uint32_t value;
    } wanted[] = {{"max_seqs", problem->max_seqs}, {"max_q", problem->max_q},
                  {"max_kv", problem->max_kv},     {"max_rows", problem->max_rows},
                  {"heads", problem->heads},       {"kv_heads", problem->kv_heads},
                  {"head_dim", problem->head_dim}, {"head_dim_vo", problem->head_dim_vo},
                  {"block", problem->block}};

    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (wanted[i].value == 0)
            return cuda_fail(err, ATTN_E_INVALID, 0, wanted[i].name, "a plan needs %s, it is 0",
                             wanted[i].name);
    }
    if (problem->heads % problem->kv_heads != 0)
        return cuda_fail(err, ATTN_E_INVALID, 0, "heads", "heads is %u, no multiple of kv_heads %u",
                         problem->heads, problem->kv_heads);
    return ATTN_OK;
}

/* One kernel alone takes all rows, two share them. */
static int32_t dispatch(struct attn_plan_impl *plan, struct attn_error *err)
{
    const uint32_t arch = plan->backend->context->record->arch;
    const struct cuda_kernel *few = cuda_dispatch(&plan->problem, GPU_FEW_ROWS, arch);
    const struct cuda_kernel *many = cuda_dispatch(&plan->problem, GPU_MANY_ROWS, arch);

    if (few == NULL || many == NULL)
        return fail_unserved(plan->backend, &plan->problem, err);
    plan->part_count = few == many ? 1 : 2;
    plan->parts[0].kernel = few;
    plan->parts[0].phase = few == many ? GPU_ALL_ROWS : GPU_FEW_ROWS;
    plan->parts[1].kernel = many;
    plan->parts[1].phase = GPU_MANY_ROWS;
    return ATTN_OK;
}

static bool add_block(uint64_t *total, uint64_t *offset, uint64_t bytes)
{
    *offset = *total;
    return bytes <= INT64_MAX && !__builtin_add_overflow(*total, round_block(bytes), total);
}

/* Lays the parts' blocks out one behind the other. */
static int32_t find_sizes(struct attn_plan_impl *plan, struct attn_error *err)
{
    struct attn_plan_sizes *sizes = &plan->sizes;

    ATTN_INIT(sizes);
    sizes->alignment = CUDA_ALIGNMENT;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        struct cuda_part *part = &plan->parts[i];
        if (!add_block(&sizes->schedule, &part->schedule_offset, part->schedule_bytes) ||
            !add_block(&sizes->scratch, &part->scratch_offset, part->scratch_bytes) ||
            !add_block(&sizes->counters, &part->counters_offset, part->counters_bytes))
            return cuda_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_MEMORY, "max_rows",
                             "the maxima need blocks beyond 64-bit sizes");
    }
    sizes->staging = sizes->schedule;
    return ATTN_OK;
}

/* Everything lazy happens here, while no capture is under way. */
static int32_t find_functions(struct attn_plan_impl *plan, struct attn_error *err)
{
    struct cuda_context *context = plan->backend->context;
    int32_t status = cuda_enter(context, err);

    if (status != ATTN_OK)
        return status;
    status = cuda_module_function(context, CUDA_MODULE_put, "gpu_put", 0, &plan->put, err);
    for (uint32_t i = 0; i < plan->part_count && status == ATTN_OK; i++)
        status = plan->parts[i].kernel->family->create(plan, &plan->parts[i], err);
    for (uint32_t i = 0; i < plan->part_count && status == ATTN_OK; i++)
        if (plan->parts[i].schedule_bytes > 0 && plan->planner == NULL)
            status = cuda_module_function(context, CUDA_MODULE_plan, "gpu_plan", 0, &plan->planner, err);
    return cuda_leave(context, status);
}

int32_t cuda_plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                         struct attn_plan_impl **out, struct attn_error *err)
{
    int32_t status = check_maxima(problem, err);

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    struct attn_plan_impl *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return cuda_fail(err, ATTN_E_MEMORY, 0, "plan", "no memory for the plan");
    plan->backend = backend;
    plan->problem = *problem;
    plan->units = backend->context->record->info.units;
    status = dispatch(plan, err);
    if (status == ATTN_OK)
        status = find_functions(plan, err);
    if (status == ATTN_OK)
        status = find_sizes(plan, err);
    if (status != ATTN_OK) {
        free(plan);
        return status;
    }
    *out = plan;
    return ATTN_OK;
}

void cuda_plan_destroy(struct attn_plan_impl *plan)
{
    free(plan);
}

int32_t cuda_plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    *out = plan->sizes;
    return ATTN_OK;
}

/* a + b * c * d * e, or the largest number if that is too much. */
static uint64_t add_product(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    uint64_t product;

    if (__builtin_mul_overflow(b, c, &product) || __builtin_mul_overflow(product, d, &product) ||
        __builtin_mul_overflow(product, e, &product) || __builtin_add_overflow(a, product, &product))
        return UINT64_MAX;
    return product;
}

int32_t cuda_plan_describe(const struct attn_plan_impl *plan, struct attn_plan_info *out)
{
    const struct attn_problem *p = &plan->problem;
    const uint32_t sizes[] = {attn__dtype_size(p->q_dtype), attn__dtype_size(p->k_dtype),
                              attn__dtype_size(p->v_dtype), attn__dtype_size(p->out_dtype)};
    uint64_t bytes = 0;

    ATTN_INIT(out);
    out->graph_level = ATTN_GRAPH_ALWAYS;
    out->splits = 1;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct cuda_part *part = &plan->parts[i];
        const size_t length = strlen(out->kernels);
        snprintf(out->kernels + length, sizeof out->kernels - length, "%s%s", i > 0 ? "," : "",
                 part->kernel->name);
        if (part->kernel->graph_level < out->graph_level)
            out->graph_level = part->kernel->graph_level;
        out->splits = part->splits > out->splits ? part->splits : out->splits;
        out->split_keys = part->split_keys > out->split_keys ? part->split_keys : out->split_keys;
    }
    for (uint32_t i = 0; i < 4; i++)
        out->alignment = sizes[i] > out->alignment ? sizes[i] : out->alignment;
    out->stride_multiple = out->alignment;
    bytes = add_product(bytes, (uint64_t)p->max_seqs * p->max_kv, p->kv_heads, p->head_dim, sizes[1]);
    bytes = add_product(bytes, (uint64_t)p->max_seqs * p->max_kv, p->kv_heads, p->head_dim_vo, sizes[2]);
    bytes = add_product(bytes, p->max_rows, p->heads, p->head_dim, sizes[0]);
    bytes = add_product(bytes, p->max_rows, p->heads, p->head_dim_vo, sizes[3]);
    out->bytes_per_run = add_product(bytes, p->max_rows, p->heads, p->lse, sizeof(float));
    return ATTN_OK;
}
