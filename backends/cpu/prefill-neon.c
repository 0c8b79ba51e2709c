/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Attention of many query rows (prefill, chunks, long drafts) with NEON. */
#include "vec-neon.h"

#include "prefill-vec.h"

uint64_t cpu_prefill_neon_scratch(const struct attn_problem *problem)
{
    return prefill_scratch(problem);
}

void cpu_prefill_neon(const struct cpu_run *run, const struct attn_work *work, void *scratch)
{
    prefill_work(run, work, scratch);
}
