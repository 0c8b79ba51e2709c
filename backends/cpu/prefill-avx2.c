/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Attention of many query rows (prefill, chunks, long drafts) with AVX2, FMA and F16C. */
#include "vec-avx2.h"

#include "prefill-vec.h"

uint64_t cpu_prefill_avx2_scratch(const struct attn_problem *problem)
{
    return prefill_scratch(problem);
}

void cpu_prefill_avx2(const struct cpu_run *run, const struct attn_work *work, void *scratch)
{
    prefill_work(run, work, scratch);
}
