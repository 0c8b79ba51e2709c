/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Judges the outputs of a step, and compares everything around them with what was there before. */
#include <stdio.h>

#include "conform.h"

static struct outputs outputs_of(const struct step *step)
{
    return (struct outputs){.problem = &step->problem,
                            .batch = &step->batch,
                            .tensors = &step->tensors,
                            .kv = &step->kv,
                            .q_offsets = step->host.q_offsets,
                            .rows = step->batch.num_tokens,
                            .numerics = step->numerics,
                            .lenient = step->the_case->infinite,
                            .injected = step->the_case->injection_count > 0,
                            .seed = step->layout.seed};
}

bool step_reference(struct reference *reference, const struct step *step, double budget)
{
    const struct outputs outputs = outputs_of(step);

    return reference_init(reference, &outputs, budget);
}

bool step_judge(const struct step *step, const struct reference *reference, char *why, size_t size)
{
    const struct outputs outputs = outputs_of(step);
    const bool good = outputs_judge(&outputs, reference, why, size);

    return step_check_outside(step, good ? why : NULL, size) && good;
}

bool step_check_outside(const struct step *step, char *why, size_t size)
{
    const struct attn_problem *problem = &step->problem;
    size_t width = (size_t)problem->head_dim_vo * oracle_size(problem->out_dtype);

    for (uint32_t row = 0; row < step->batch.num_tokens; row++) {
        for (uint32_t head = 0; head < problem->heads; head++) {
            pattern_restore(step->out_memory, tensor_at(&step->tensors.out, row, head), width);
            if (step->lse_memory != NULL)
                pattern_restore(step->lse_memory, tensor_at(&step->tensors.lse, row, head), 4);
        }
    }
    int64_t in_out = pattern_check(step->out_memory);
    int64_t in_lse = step->lse_memory != NULL ? pattern_check(step->lse_memory) : -1;
    if (in_out < 0 && in_lse < 0)
        return true;
    if (why != NULL)
        snprintf(why, size, "byte %lld of %s was written, but belongs to no row of the step",
                 (long long)(in_out >= 0 ? in_out : in_lse), in_out >= 0 ? "out" : "lse");
    pattern_fill(step->out_memory);
    if (step->lse_memory != NULL)
        pattern_fill(step->lse_memory);
    return false;
}
