/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Outputs of attention against the oracle, whatever made them: a step of attn-check, or a record. */
#ifndef OUTPUTS_H
#define OUTPUTS_H

#include "oracle.h"

/* What was computed, all of it in host memory. */
struct outputs {
    const struct attn_problem *problem;
    const struct attn_batch *batch;
    const struct attn_tensors *tensors;
    const struct attn_kv_desc *kv;
    const int32_t *q_offsets;
    uint32_t rows;     /* query tokens to judge */
    uint32_t numerics; /* enum attn_numerics of the kernels */
    bool lenient;      /* what is not finite in the reference may be anything */
    bool injected;     /* some inputs are not finite: pairs that were not chosen may be neither */
    uint64_t seed;     /* of the sample */
};

/* What the oracle says of them. */
struct reference {
    struct oracle_result result;
    uint32_t pairs;
};

/* Computes at most about `budget` products; false on lack of memory. */
bool reference_init(struct reference *reference, const struct outputs *outputs, double budget);
/* Of one (row, head). */
bool reference_init_pair(struct reference *reference, const struct outputs *outputs, uint32_t row,
                         uint32_t head);
void reference_finish(struct reference *reference);

/* True if the outputs are right. */
bool outputs_judge(const struct outputs *outputs, const struct reference *reference, char *why, size_t size);

#endif
