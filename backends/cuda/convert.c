/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Keys and values of 8 bits or in blocks that are converted to 16 bits for prefill, or put in the order of
 * products of e4m3: which problems have that, the workspace, and the run on it (convert.h). */
#include "families.h"

/* The type of 16 bits that keys and values become: that of the queries, or the one that 8-bit ones become. */
static uint32_t converted_dtype(const struct attn_problem *p)
{
    return p->q_dtype == ATTN_F16 ? ATTN_F16 : ATTN_BF16;
}

/* Whether keys and values are in blocks, perhaps not the same. */
static bool has_blocks(const struct attn_problem *p)
{
    return attn_block_bytes(p->k_dtype) != 0 && attn_block_bytes(p->v_dtype) != 0;
}

/* Whether keys or values have scales of their own, which they are multiplied by, or their scores. e4m3: a
 * work tile has one of each. */
static bool scales_each(const struct attn_problem *p, bool e4m3)
{
    return !e4m3 && (p->k_scale > ATTN_SCALES_TENSOR || p->v_scale > ATTN_SCALES_TENSOR);
}

bool cuda_is_e4m3(const struct gpu_kernel *kernel)
{
    return kernel->family == &cuda_mma_e4m3;
}

struct attn_problem cuda_converted_problem(const struct attn_problem *problem, bool e4m3)
{
    struct attn_problem p = *problem;

    if (!e4m3)
        p.k_dtype = p.v_dtype = converted_dtype(problem);
    p.k_scale = scales_each(problem, e4m3) ? ATTN_SCALES_TOKEN_HEAD : ATTN_SCALES_NONE;
    p.v_scale = ATTN_SCALES_NONE;
    p.kv_source = ATTN_KV_CACHE;
    p.addressing = ATTN_CSR;
    p.index_dtype = ATTN_INT32;
    return p;
}

/* Values times scales of their own need the range of bf16, and keys with such have a kernel without rules. A
 * page of the workspace has either cached or new tokens. One scale of all queries becomes part of those of
 * keys. Blocks become f16, for queries of f16. */
static bool has_kernels(const struct attn_problem *p, bool plain, bool e4m3)
{
    const bool codes = attn__dtype_size(p->k_dtype) == 1 && attn__dtype_size(p->v_dtype) == 1;

    return attn__dtype_size(p->q_dtype) <= 2 && (e4m3 || p->q_scale <= ATTN_SCALES_TENSOR) &&
           (codes || (has_blocks(p) && p->q_dtype == ATTN_F16)) && attn__dtype_size(p->out_dtype) > 1 &&
           (!scales_each(p, e4m3) || (converted_dtype(p) == ATTN_BF16 && plain)) &&
           p->kv_source != ATTN_KV_CACHE_NEW && p->head_dim % GPU_CONVERTED_COLUMNS == 0 &&
           p->head_dim_vo % GPU_CONVERTED_COLUMNS == 0 &&
           (uint64_t)p->max_q * (p->heads / p->kv_heads) >= GPU_CONVERTED_MIN_ROWS;
}

static bool has_pages(const struct attn_problem *p)
{
    return p->kv_source == ATTN_KV_CACHE && p->addressing != ATTN_DENSE;
}

/* Tokens of a page of the workspace. */
static uint32_t converted_block(const struct attn_problem *p, bool e4m3)
{
    if (e4m3)
        return gpu_e4m3_block(gpu_e4m3_columns(p->head_dim));
    return has_pages(p) ? p->block : GPU_CONVERTED_BLOCK;
}

/* Columns of keys, or values: of e4m3 those of the kernel. */
static uint32_t converted_dim(const struct attn_problem *p, uint32_t dim, bool e4m3)
{
    return e4m3 ? gpu_e4m3_columns(p->head_dim) : dim;
}

/* Keys, or values, of one token for all heads. */
static uint64_t converted_row(const struct attn_problem *p, uint32_t dim, bool e4m3)
{
    return (uint64_t)p->kv_heads * converted_dim(p, dim, e4m3) * (e4m3 ? 1 : sizeof(uint16_t));
}

/* e4m3: which values of a page are NaN. */
static uint64_t converted_bits(const struct attn_problem *p)
{
    return converted_row(p, p->head_dim_vo, true) * converted_block(p, true) / 8;
}

/* A page of the workspace: keys, values, scales of keys, and its entry in the list; e4m3: and marks. */
static uint64_t converted_page(const struct attn_problem *p, bool e4m3)
{
    const uint64_t scales = scales_each(p, e4m3) ? p->kv_heads * sizeof(float) : 0;
    const uint64_t marks = e4m3 ? p->kv_heads * sizeof(struct gpu_marks) + converted_bits(p) : 0;
    const uint64_t token =
        converted_row(p, p->head_dim, e4m3) + converted_row(p, p->head_dim_vo, e4m3) + scales;

    return token * converted_block(p, e4m3) + marks + sizeof(int32_t);
}

/* Pages of the most keys that a step can have, of sequences with rows enough. */
static uint64_t most_pages(const struct attn_problem *p, bool e4m3)
{
    const uint64_t rows = (uint64_t)p->max_rows * (p->heads / p->kv_heads) / GPU_CONVERTED_MIN_ROWS;
    const uint32_t block = converted_block(p, e4m3);
    const uint64_t pages = ((uint64_t)p->max_kv + block - 1) / block;

    return (rows < p->max_seqs ? rows : p->max_seqs) * pages;
}

/* Pages of the workspace, whose bytes a share of the device's memory bounds. */
static uint32_t converted_pages(const struct attn_plan_impl *plan, bool e4m3)
{
    const struct attn_problem *p = &plan->problem;
    const uint64_t share = plan->backend->context->record->info.memory_bytes / GPU_CONVERTED_SHARE;
    const uint64_t bytes = share > GPU_CONVERTED_BYTES ? share : GPU_CONVERTED_BYTES;
    const uint64_t fit = bytes / converted_page(p, e4m3), most = most_pages(p, e4m3);

    return (uint32_t)(most < fit ? most : fit);
}

/* With det=1 companions must not decide about it. */
bool cuda_may_convert(const struct attn_plan_impl *plan, bool plain, bool e4m3)
{
    const struct attn_problem *p = &plan->problem;

    return has_kernels(p, plain, e4m3) && converted_pages(plan, e4m3) > 0 &&
           (p->det == 0 || most_pages(p, e4m3) <= converted_pages(plan, e4m3));
}

static const char *convert_name(const struct attn_problem *p, bool e4m3)
{
    if (!e4m3)
        return has_blocks(p) ? "gpu_convert_blocks" : "gpu_convert";
    return gpu_e4m3_columns(p->head_dim) == 128 ? "gpu_convert_e4m3_128" : "gpu_convert_e4m3_256";
}

/* Places the workspace behind what the part has in scratch, the first pages behind its schedule. */
int32_t cuda_convert_reserve(const struct attn_plan_impl *plan, struct gpu_part *part, uint64_t aside_bytes,
                             struct attn_error *err)
{
    const struct attn_problem *p = &plan->problem;
    const bool e4m3 = cuda_is_e4m3(part->kernel);

    part->converted_block = converted_block(p, e4m3);
    part->converted_pages = converted_pages(plan, e4m3);
    if (part->conversion != GPU_CONVERTED)
        return ATTN_OK;
    const uint64_t pages = part->converted_pages, partials = part->scratch_bytes, sums = part->schedule_bytes;
    uint64_t first;
    part->scratch_bytes = part->schedule_bytes = 0;
    if (!gpu_plan_add_block(&part->scratch_bytes, &first, partials) ||
        !gpu_plan_add_block(&part->scratch_bytes, &part->workspace_offset,
                            GPU_ALIGNMENT + pages * converted_page(p, e4m3)) ||
        !gpu_plan_add_block(&part->scratch_bytes, &part->aside_offset, aside_bytes) ||
        !gpu_plan_add_block(&part->schedule_bytes, &first, sums) ||
        !gpu_plan_add_block(&part->schedule_bytes, &part->first_pages_offset,
                            (p->max_seqs + UINT64_C(1)) * sizeof(int32_t)))
        return gpu_plan_too_large(err);
    return gpu_module_function(plan->backend->context, GPU_MODULE_convert, convert_name(p, e4m3), 0,
                               &part->convert, err);
}

/* Converted keys, or values, at an address of the workspace. */
static struct gpu_cache converted_cache(const struct attn_problem *p, uint64_t at, uint32_t dim,
                                        uint32_t block)
{
    const uint32_t size = attn__dtype_size(p->k_dtype);
    const int64_t head = (int64_t)dim * size, token = head * p->kv_heads;

    return (struct gpu_cache){.base = at,
                              .page_stride = token * block,
                              .token_stride = token,
                              .head_stride = head,
                              .x_bytes = (uint32_t)head,
                              .size = size,
                              .dim = dim,
                              .dtype = p->k_dtype,
                              .scale.value = 1};
}

/* e4m3: the scale of the keys, or values, of each sequence, by its number. */
static struct gpu_scale scale_of_sequences(const struct gpu_run *run, uint32_t granularity,
                                           struct gpu_scale scale)
{
    /* Of a cache it is that of a page: all lie in page 0, or each has its own. */
    if (granularity <= ATTN_SCALES_TENSOR ||
        (run->problem.kv_source != ATTN_KV_NEW && run->batch.kv_starts != 0))
        scale.outer_stride = 0;
    return scale;
}

/* The workspace of a part: a scale of all keys, keys, values, and the page list; behind values scales of each
 * key, or of e4m3 the marks. */
static struct gpu_convert workspace_of(const struct attn_plan_impl *plan, const struct gpu_part *part,
                                       const struct gpu_run *run)
{
    const struct attn_problem *p = &plan->problem;
    const bool e4m3 = cuda_is_e4m3(part->kernel);
    const uint64_t pages = part->converted_pages, tokens = pages * part->converted_block;
    const uint64_t begin = run->scratch + part->workspace_offset, keys = begin + GPU_ALIGNMENT;
    const uint64_t values = keys + tokens * converted_row(p, p->head_dim, e4m3),
                   behind = values + tokens * converted_row(p, p->head_dim_vo, e4m3);
    const uint64_t scales_of_head = scales_each(p, e4m3) ? tokens * sizeof(float) : 0;
    const uint64_t bits = behind + (e4m3 ? pages * p->kv_heads * sizeof(struct gpu_marks) : 0);
    const uint64_t entries = e4m3 ? bits + pages * converted_bits(p) : behind + scales_of_head * p->kv_heads;
    struct gpu_convert out = {.run = *run,
                              .k = keys,
                              .v = values,
                              .entries = entries,
                              .k_scale = scales_of_head > 0 ? behind : begin,
                              .k_scale_stride = (int64_t)scales_of_head,
                              .bf16 = converted_dtype(p) == ATTN_BF16,
                              .marks = behind,
                              .bits = bits};

    out.run.schedule += part->first_pages_offset;
    if (e4m3) { /* whose pages are not those of the cache */
        out.run.k.scale = scale_of_sequences(run, p->k_scale, run->k.scale);
        out.run.v.scale = scale_of_sequences(run, p->v_scale, run->v.scale);
    } else {
        out.run.batch.block = part->converted_block;
    }
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t units = (i == 0 ? p->head_dim : p->head_dim_vo) / GPU_CONVERTED_COLUMNS;
        out.vector[i] = gpu_divisor_of(units);
        out.row[i] = gpu_divisor_of(units * p->kv_heads);
    }
    return out;
}

/* Makes of a run one on the workspace. */
static void use_workspace(const struct attn_problem *p, const struct gpu_convert *workspace, bool e4m3,
                          uint32_t block, struct gpu_run *run)
{
    const bool scaled = workspace->k_scale_stride > 0;
    const int64_t of_token = scaled ? (int64_t)sizeof(float) : 0;

    run->problem = *p;
    run->batch.addressing = ATTN_CSR;
    run->batch.index_dtype = ATTN_INT32;
    run->batch.block = block;
    run->batch.block_shift = (block & (block - 1)) == 0 ? (uint32_t)__builtin_ctz(block) : 32;
    run->batch.indptr = workspace->run.schedule;
    run->batch.indices = workspace->entries;
    run->k = converted_cache(p, workspace->k, converted_dim(p, p->head_dim, e4m3), block);
    run->k.scale = e4m3 ? workspace->run.k.scale
                        : (struct gpu_scale){.base = workspace->k_scale,
                                             .outer_stride = of_token * block,
                                             .token_stride = of_token,
                                             .head_stride = workspace->k_scale_stride,
                                             .value = 1};
    run->v = converted_cache(p, workspace->v, converted_dim(p, p->head_dim_vo, e4m3), block);
    if (!scaled) /* otherwise values are multiplied by theirs, and partial results are not again */
        run->v.scale = workspace->run.v.scale;
    run->kv_aligned = 1;
    run->marks = workspace->marks;
}

int32_t cuda_convert(const struct attn_plan_impl *plan, const struct gpu_part *part,
                     const struct attn_problem *converted, struct gpu_run *run, void *stream,
                     struct attn_error *err)
{
    const bool e4m3 = cuda_is_e4m3(part->kernel);
    const struct gpu_convert workspace = workspace_of(plan, part, run);
    const uint32_t grid[] = {plan->units * GPU_CONVERT_CTAS, 1, 1};

    run->aside = run->scratch + part->aside_offset;
    use_workspace(converted, &workspace, e4m3, part->converted_block, run);
    return gpu_launch(plan->backend->context, part->convert, grid,
                      e4m3 ? GPU_E4M3_THREADS : GPU_CONVERT_THREADS, e4m3 ? GPU_E4M3_SHARED : 0, &workspace,
                      convert_name(&plan->problem, e4m3), stream, err);
}

bool cuda_converts_all(const struct attn_plan_impl *plan, const struct gpu_part *part,
                       const struct gpu_run *run)
{
    const struct gpu_batch *batch = &run->batch;

    if (part->conversion != GPU_NOT_CONVERTED || !gpu_all_have_max_q(plan, batch) ||
        (uint64_t)batch->max_q * run->group < GPU_CONVERTED_MIN_ROWS)
        return false;
    const uint64_t pages = ((uint64_t)batch->max_kv + part->converted_block - 1) / part->converted_block;
    return batch->seqs * pages <= part->converted_pages;
}
