/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the recording plugin keeps: the calls into its tables, with copies of their arrays. */
#ifndef GOLDEN_RECORDER_H
#define GOLDEN_RECORDER_H

#include <stdbool.h>

#include "attn/types.h"

enum recorded_kind { RECORDED_CREATE = 1, RECORDED_PREPARE, RECORDED_RUN, RECORDED_WRITE };

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
    /* RUN */
    int32_t *kv_offsets; /* [seqs + 1] */
    int32_t *table;      /* [seqs][table_width] */
    uint32_t table_width;
    uint32_t max_q;
    uint32_t max_kv;
    float softmax_scale;
    float *slopes; /* [heads] */
    /* RUN and WRITE */
    bool cached; /* a cache is read or written: */
    struct attn_kv_desc cache;
    /* WRITE, with rows */
    uint32_t new_dtype;
    int64_t *slots; /* [rows] */
};

/* Found by name in the loaded plugin: every call since the last clear, and forgetting them. */
typedef const struct recorded_call *(*recorder_calls_fn)(uint32_t *out_count);
typedef void (*recorder_clear_fn)(void);

#define RECORDER_CALLS "golden_recorder_calls"
#define RECORDER_CLEAR "golden_recorder_clear"

#endif
