/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Attention of few query rows (decode, short drafts) with NEON. */
#include "vec-neon.h"

#include "decode-vec.h"

uint64_t cpu_decode_neon_scratch(const struct attn_problem *problem)
{
    return decode_too_short(problem) ? cpu_prefill_neon_scratch(problem) : decode_scratch(problem);
}

void cpu_decode_neon(const struct cpu_run *run, const struct attn_work *work, void *scratch)
{
    if (decode_too_short(run->problem))
        cpu_prefill_neon(run, work, scratch);
    else
        decode_work(run, work, scratch);
}
