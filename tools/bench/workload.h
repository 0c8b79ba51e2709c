/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step of attention in a backend's memory: caches of several layers, batch, tensors, plan, schedule. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include "attn/attn.h"
#include "attn/device.h"

/* What is measured. All sequences are alike. */
struct bench_case {
    const char *name;
    const char *mode;
    struct attn_problem problem; /* resolved, without maxima */
    uint32_t seqs;
    uint32_t ctx;    /* keys of a sequence */
    uint32_t q_len;  /* query tokens of a sequence */
    uint32_t layers; /* 0: as many as a cold cache takes */
    uint32_t threads;
    uint32_t reps; /* 0: default */
};

enum { WORKLOAD_BUFFERS = 16 };

struct workload {
    const struct bench_case *the_case;
    struct attn_backend *backend;
    struct attn_problem problem; /* with maxima */
    void *stream;
    struct attn_plan *plan;

    uint32_t layers;
    struct attn_kv_shape shape;
    struct attn_buffer *cache; /* of each layer */
    struct attn_kv **kv;

    uint32_t pages;     /* of a sequence */
    int32_t *q_offsets; /* host copies */
    int32_t *kv_lens;
    int32_t *table;        /* table rows, or i32 CSR indices */
    int64_t *wide_indices; /* i64 CSR indices */
    int32_t *indptr;
    struct attn_batch_host host;
    struct attn_batch batch;
    struct attn_tensors tensors;

    struct attn_span schedule;
    struct attn_span staging; /* host */
    struct attn_scratch scratch;
    struct attn_buffer buffers[WORKLOAD_BUFFERS]; /* what was allocated, beside the caches */
    uint32_t buffer_count;
};

/* Fills *workload so that workload_finish may follow whatever is returned. */
int32_t workload_init(struct workload *workload, const struct bench_case *the_case,
                      struct attn_backend *backend, struct attn_error *err);
void workload_finish(struct workload *workload);
/* One layer, waited for. */
int32_t workload_run(struct workload *workload, uint32_t layer, struct attn_error *err);

/* Query-key pairs that are visible, of all sequences and one head; keys that any row sees, of all sequences.
 */
void case_count(const struct bench_case *the_case, double *out_pairs, double *out_keys);
double case_flops(const struct bench_case *the_case);
/* Keys and values that are seen, once; in prefill queries and results too. */
double case_bytes(const struct bench_case *the_case);

/* A buffer of the backend with a copy of host memory. */
int32_t workload_upload(struct workload *workload, const void *from, uint64_t size, struct attn_buffer *out,
                        struct attn_error *err);
/* Copies device memory to the host and waits. */
int32_t workload_download(struct workload *workload, const struct attn_buffer *from, void *to, uint64_t size,
                          struct attn_error *err);

/* ---------------------------------------------------------------- workload-batch.c */

/* Fills host arrays, their device copies and the batch. Pages of the sequences are scattered. */
int32_t batch_init(struct workload *workload, struct attn_error *err);
void batch_finish(struct workload *workload);

/* ---------------------------------------------------------------- judge.c */

/* Relative rms of the results of layer 0 on sampled rows; NAN if the oracle does not cover the problem. */
double judge(struct workload *workload);

#endif
