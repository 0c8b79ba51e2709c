/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The family of matrix kernels: which of them a plan launches, how large their blocks are, and what their
 * schedules share out. */
#include "tile.h"

#include <stdbool.h>
#include <stdio.h>

#include "families.h"
#include "tile-tuning.h"

/* Columns that kernels are made for, and the modules with caches of 16 and 8 bits. */
static const struct {
    uint32_t dk, dv;
    enum gpu_module modules[2];
} sizes[] = {{64, 64, {GPU_MODULE_tile_64, GPU_MODULE_tile_64_kv8}},
             {128, 128, {GPU_MODULE_tile_128, GPU_MODULE_tile_128_kv8}},
             {192, 128, {GPU_MODULE_tile_192, GPU_MODULE_tile_192_kv8}},
             {256, 256, {GPU_MODULE_tile_256, GPU_MODULE_tile_256_kv8}}};

enum { ROWS_BLOCK = 16, ROWS_MOST = 64 };

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

    return HIP_TILE_SHARED(rows, sizes[i].dk, sizes[i].dv);
}

/* Rows of a CTA: one block where all sequences fit it. With det=1 maxima decide nothing. */
static uint32_t rows_of(const struct attn_problem *problem, uint32_t phase)
{
    const uint64_t most = (uint64_t)problem->max_q * (problem->heads / problem->kv_heads);

    return phase == GPU_FEW_ROWS && problem->det == 0 && most <= ROWS_BLOCK ? ROWS_BLOCK : ROWS_MOST;
}

static uint32_t shared_of(const struct attn_problem *problem, uint32_t phases)
{
    return shared_bytes(problem, rows_of(problem, phases == GPU_MANY_ROWS ? GPU_MANY_ROWS : GPU_FEW_ROWS));
}

static int32_t create(const struct attn_plan_impl *plan, struct gpu_part *part, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const uint32_t i = size_of(p), element = attn__dtype_size(p->k_dtype), rows = rows_of(p, part->phase);
    const uint32_t dk = sizes[i].dk, dv = sizes[i].dv, arch = plan->backend->context->record->arch;
    const uint32_t wave = HIP_TILE_WAVE(arch);
    char name[64];

    part->threads = HIP_TILE_THREADS(dv, wave);
    part->shared_bytes = shared_bytes(p, rows);
    part->ctas = plan->units * HIP_TILE_CTAS(dv, wave, HIP_TILE_LATE(arch));
    part->cuts = gpu_cuts_of(p, part->phase, ROWS_MOST);
    snprintf(name, sizeof name, "tile_%u%s_r%u_%s", dk, element == 1 ? "_kv8" : "", rows,
             p->q_dtype == ATTN_BF16 ? "bf16" : "f16");
    gpu_pieces_reserve(plan, part, rows, dv);
    return gpu_module_function(plan->backend->context, sizes[i].modules[element == 1], name,
                               part->shared_bytes, &part->attention, err);
}

/* Whether keys and values lie in pieces that the kernels take whole (HIP_TILE_PIECES). */
static bool lies_in_pieces(const struct gpu_run *run)
{
    const struct gpu_cache *k = &run->k, *v = &run->v;
    const uint64_t most = 1 << 24;
    const uint64_t keys = k->base | (uint64_t)k->page_stride | (uint64_t)k->head_stride |
                          (uint64_t)k->piece_stride | k->dim * k->size;
    const uint64_t values = v->base | (uint64_t)v->page_stride | (uint64_t)v->head_stride |
                            (uint64_t)v->piece_stride | run->batch.block * v->size;

    return run->batch.addressing != ATTN_DENSE && run->k_new.base == 0 && k->piece == 16 &&
           k->token_stride == 16 && v->piece == v->size && v->token_stride == v->size && keys % 16 == 0 &&
           values % (4 * v->size) == 0 && v->dim % 8 == 0 && (uint64_t)k->piece_stride <= most &&
           (uint64_t)v->piece_stride <= most;
}

static int32_t launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                      const struct gpu_run *run, void *stream, struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    struct gpu_run own = *run;

    if (lies_in_pieces(run))
        own.whole = HIP_TILE_PIECES;
    return gpu_pieces_launch(plan, part, &own, rows_of(p, part->phase), sizes[size_of(p)].dv, stream, err);
}

const struct gpu_family hip_tile = {.shared_of = shared_of, .create = create, .launch = launch};
