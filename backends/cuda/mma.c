/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The family of matrix kernels: which of them a plan launches, how large their blocks are, and what
 * their schedules share out. */
#include <stdio.h>

#include "families.h"
#include "mma.h"

/* Columns that kernels are made for, rows of a tile of many, and the modules with caches of 16 and 8 bits. */
static const struct {
    uint32_t dk, dv;
    uint32_t many;
    enum gpu_module modules[2];
} sizes[] = {{64, 64, 128, {GPU_MODULE_mma_64, GPU_MODULE_mma_64_kv8}},
             {128, 128, 128, {GPU_MODULE_mma_128, GPU_MODULE_mma_128_kv8}},
             {192, 128, 64, {GPU_MODULE_mma_192, GPU_MODULE_mma_192_kv8}},
             {256, 256, 64, {GPU_MODULE_mma_256, GPU_MODULE_mma_256_kv8}}};

enum { ROWS_LEAST = 8, ROWS_BLOCK = 16, ROWS_FEW = 64, THREADS = 128 };

static uint32_t size_of(const struct attn_problem *problem)
{
    uint32_t i = 0;

    while (problem->head_dim > sizes[i].dk || problem->head_dim_vo > sizes[i].dv)
        i++;
    return i;
}

static uint32_t shared_bytes(const struct attn_problem *problem, uint32_t rows)
{
    const uint32_t i = size_of(problem);

    return GPU_MMA_SHARED(rows, sizes[i].dk, sizes[i].dv, attn__dtype_size(problem->k_dtype));
}

/* Rows of a CTA for few: one block where all sequences fit it. With det=1 maxima decide nothing. */
static uint32_t few_of(const struct attn_problem *problem)
{
    const uint64_t most = (uint64_t)problem->max_q * (problem->heads / problem->kv_heads);

    if (problem->det != 0)
        return ROWS_FEW;
    return most <= ROWS_LEAST ? ROWS_LEAST : most <= ROWS_BLOCK ? ROWS_BLOCK : ROWS_FEW;
}

/* For many, where the device has the shared memory. */
static uint32_t many_of(const struct attn_plan_impl *plan)
{
    const uint32_t many = sizes[size_of(&plan->problem)].many;
    const uint32_t limit = gpu_vendor_shared(plan->backend->context->record->arch);

    return shared_bytes(&plan->problem, many) <= limit ? many : ROWS_FEW;
}

static uint32_t rows_of(const struct attn_plan_impl *plan, uint32_t phase)
{
    return phase == GPU_MANY_ROWS ? many_of(plan) : few_of(&plan->problem);
}

static uint32_t shared_of(const struct attn_problem *problem, uint32_t phases)
{
    return shared_bytes(problem, phases == GPU_MANY_ROWS ? ROWS_FEW : few_of(problem));
}

static int32_t create(const struct attn_plan_impl *plan, struct gpu_part *part, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const uint32_t i = size_of(p), element = attn__dtype_size(p->k_dtype), rows = rows_of(plan, part->phase);
    const uint32_t dk = sizes[i].dk, dv = sizes[i].dv;
    struct gpu_context *context = plan->backend->context;
    char name[64];

    part->threads = THREADS;
    part->shared_bytes = shared_bytes(p, rows);
    part->ctas = plan->units * GPU_MMA_CTAS(rows, dk, dv, element);
    part->cuts = gpu_cuts_of(p, part->phase, many_of(plan));
    snprintf(name, sizeof name, "mma_%u%s_r%u_%s", dk, element == 1 ? "_kv8" : "", rows,
             p->q_dtype == ATTN_BF16 ? "bf16" : "f16");
    gpu_pieces_reserve(plan, part, rows, dv);
    return gpu_module_function(context, sizes[i].modules[element == 1], name, part->shared_bytes,
                               &part->attention, err);
}

static int32_t launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                      const struct gpu_run *run, void *stream, struct attn_error *err)
{
    return gpu_pieces_launch(plan, part, run, rows_of(plan, part->phase), sizes[size_of(&plan->problem)].dv,
                             stream, err);
}

const struct gpu_family cuda_mma = {.shared_of = shared_of, .create = create, .launch = launch};
