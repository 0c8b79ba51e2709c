/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The attention kernels of one level of vector instructions. Compiled once for each row of levels.def, with
 * the row's compiler arguments, its name in CPU_LEVEL_NAME, and the path of its operations in CPU_LEVEL_SIMD.
 */
#include CPU_LEVEL_SIMD

#ifndef VEC_BF16_ALONE
#include "decode.h"
#endif
#ifndef VEC_INT8_ALONE
#include "prefill.h"
#endif

#define JOIN3(kind, level, what) cpu_##kind##_##level##what
#define JOIN2(kind, level, what) JOIN3(kind, level, what)
#define NAME(kind, what)         JOIN2(kind, CPU_LEVEL_NAME, what)

void NAME(store, )(uint32_t dtype, void *to, const float *from, uint32_t count)
{
    row_store(dtype, to, from, count);
}

#ifdef VEC_INT8_ALONE
uint64_t NAME(decode, _scratch)(const struct attn_problem *problem)
{
    return decode_scratch(problem);
}

void NAME(decode, _run)(const struct cpu_run *run, const struct attn_work_item *work, void *scratch)
{
    const uint32_t before = flush_begin();
    decode_work(run, work, scratch);
    flush_end(before);
}
#else
uint64_t NAME(prefill, _scratch)(const struct attn_problem *problem)
{
    return prefill_scratch(problem);
}

#if defined(VEC_TILES) || defined(VEC_BF16_ALONE)
void NAME(prefill, _rounded_run)(const struct cpu_run *run, const struct attn_work_item *work, void *scratch)
{
    const uint32_t before = flush_begin();
    prefill_work(run, work, scratch, true);
    flush_end(before);
}
#endif
#endif

#if !defined(VEC_INT8_ALONE) && !defined(VEC_BF16_ALONE)
void NAME(prefill, _run)(const struct cpu_run *run, const struct attn_work_item *work, void *scratch)
{
    const uint32_t before = flush_begin();
    prefill_work(run, work, scratch, false);
    flush_end(before);
}

/* Vectors that are shorter than one of the machine, or in pieces, cannot be read in place; prefill stages
 * them. */
static bool decode_needs_staging(const struct attn_problem *problem)
{
    return problem->head_dim < VEC_LANES || problem->head_dim_vo < VEC_LANES ||
           (problem->layout == ATTN_PAGED_X && problem->kv_source != ATTN_KV_NEW);
}

uint64_t NAME(decode, _scratch)(const struct attn_problem *problem)
{
    return decode_needs_staging(problem) ? prefill_scratch(problem) : decode_scratch(problem);
}

void NAME(decode, _run)(const struct cpu_run *run, const struct attn_work_item *work, void *scratch)
{
    const uint32_t before = flush_begin();
    if (decode_needs_staging(run->problem))
        prefill_work(run, work, scratch, false);
    else
        decode_work(run, work, scratch);
    flush_end(before);
}
#endif
