/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the recording plugin keeps: the calls into its plan tables, with copies of the batch's arrays. */
#ifndef GOLDEN_RECORDER_H
#define GOLDEN_RECORDER_H

#include "attn/types.h"

enum recorded_kind { RECORDED_CREATE = 1, RECORDED_PREPARE = 2, RECORDED_RUN = 3 };

struct recorded_call {
    uint32_t kind; /* enum recorded_kind */
    const void *plan;
    struct attn_problem problem; /* of the plan */
    /* PREPARE and RUN */
    uint32_t seqs;
    uint32_t rows;
    int32_t *q_offsets;      /* [seqs + 1] or NULL; so are the others */
    int32_t *kv_lens;        /* [seqs] */
    int32_t *csr_indptr;     /* [seqs + 1] */
    int32_t *csr_indices;    /* [csr_indptr[seqs]] */
    int32_t *last_page_lens; /* [seqs] */
};

/* Found by name in the loaded plugin: every call since the last clear, and forgetting them. */
typedef const struct recorded_call *(*recorder_calls_fn)(uint32_t *out_count);
typedef void (*recorder_clear_fn)(void);

#define RECORDER_CALLS "golden_recorder_calls"
#define RECORDER_CLEAR "golden_recorder_clear"

#endif
