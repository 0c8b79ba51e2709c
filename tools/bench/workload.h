/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step of attention in a backend's memory: caches of several layers, batch, tensors, plan, schedule. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <stdbool.h>

#include "attn/attn.h"
#include "attn/device.h"

/* One sequence of a step. */
struct bench_sequence {
    uint32_t ctx;   /* keys, those of the step included */
    uint32_t q_len; /* query tokens */
};

/* What is measured. */
struct bench_case {
    const char *name;
    const char *mode;
    struct attn_problem problem; /* resolved, without maxima */
    uint32_t seqs;
    struct bench_sequence *sequence;
    uint32_t layers; /* 0: as many as a cold cache takes */
    uint32_t threads;
    uint32_t reps;   /* 0: default */
    bool ordered;    /* pages of a sequence follow each other */
    uint32_t prefix; /* keys that all sequences have in common, as far as they fill pages */
};

/* Sums and maxima over the sequences; 64 bits, so that they can be judged before they are used. */
struct case_sizes {
    uint64_t rows, pages, keys;
    uint32_t max_q, max_kv;
    uint64_t width; /* pages of the longest sequence */
};

enum { WORKLOAD_BUFFERS = 20 };

struct workload {
    const struct bench_case *the_case;
    struct attn_backend *backend;
    struct attn_problem problem; /* with maxima */
    void *stream;
    struct attn_plan *plan;

    uint32_t layers;
    struct attn_kv_shape shape;
    struct attn_buffer *cache; /* of each layer */
    struct attn_buffer *scale; /* of each layer's keys and values, those of 8 bits */
    struct attn_kv **kv;
    struct attn_kv_desc desc; /* of layer 0 */

    struct case_sizes sizes;
    int32_t *q_offsets; /* host copies */
    int32_t *kv_lens;
    int32_t *kv_global_lens;
    int32_t *table;        /* table rows, or i32 CSR indices */
    int64_t *wide_indices; /* i64 CSR indices */
    int32_t *indptr;
    struct attn_batch_host host;
    struct attn_batch batch;
    struct attn_tensors tensors;
    uint64_t mask_bytes;
    struct attn_buffer copies[2]; /* of workload_copy, which allocates them */

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
/* GB/s that a copy on the device reads and writes, of a layer's cache or so; NaN where there is no room. */
int32_t workload_copy(struct workload *workload, double *out_rate, struct attn_error *err);

/* A buffer of the backend that workload_finish frees; nothing if size is 0. */
int32_t workload_alloc(struct workload *workload, uint64_t size, struct attn_buffer *out,
                       struct attn_error *err);
/* A buffer of the backend with a copy of host memory. */
int32_t workload_upload(struct workload *workload, const void *from, uint64_t size, struct attn_buffer *out,
                        struct attn_error *err);
/* Copies device memory to the host and waits. */
int32_t workload_download(struct workload *workload, const struct attn_buffer *from, void *to, uint64_t size,
                          struct attn_error *err);

/* ---------------------------------------------------------------- case-sizes.c */

/* cp=1: keys are sharded over so many ranks in runs of a page, and this is the first of them. */
enum { CASE_RANKS = 2 };
/* Keys of a sequence on all ranks, when so many are on this one. */
uint32_t case_all_keys(const struct attn_problem *problem, uint32_t here);
void case_measure(const struct bench_case *the_case, struct case_sizes *out_sizes);
/* Operations: two per multiply-add of every visible pair of query and key. */
double case_flops(const struct bench_case *the_case);
/* Bytes of the keys and values that any query sees, each once. */
double case_key_bytes(const struct bench_case *the_case);
/* The same, and but for decode queries and results too. */
double case_bytes(const struct bench_case *the_case);
/* First and last key, in the numbering of all ranks, that causality and windows let query token i see. */
void case_reach(const struct attn_problem *problem, const struct bench_sequence *sequence, uint32_t i,
                int64_t *out_low, int64_t *out_high);
/* Runs of like sequences, "COUNTxQUERIES/KEYS" each; cut with "..." where they do not fit. */
void case_describe(const struct bench_case *the_case, char *text, size_t size);

/* ---------------------------------------------------------------- workload-batch.c */

/* Fills host arrays, their device copies and the batch. Pages of the sequences are scattered. */
int32_t batch_init(struct workload *workload, struct attn_error *err);
void batch_finish(struct workload *workload);

/* ---------------------------------------------------------------- workload-scales.c */

/* Allocates and fills the scales of a layer's cache, those of q and out. */
int32_t cache_scales_init(struct workload *workload, uint32_t layer, struct attn_kv_desc *desc,
                          struct attn_error *err);
int32_t tensor_scales_init(struct workload *workload, struct attn_error *err);
/* Bytes of such a scale. */
uint64_t cache_scale_size(const struct workload *workload, uint32_t granularity);
uint64_t tensor_scale_size(const struct workload *workload, uint32_t granularity);

/* ---------------------------------------------------------------- workload-mask.c */

/* Allocates and fills the mask, if the problem has one. */
int32_t mask_init(struct workload *workload, struct attn_error *err);
/* Bytes of a row of a sequence's mask; 0 without one. */
uint64_t case_mask_row(const struct attn_problem *problem, const struct bench_sequence *sequence);

/* ---------------------------------------------------------------- judge.c */

/* Relative rms of the results of layer 0 on sampled query tokens; NAN if they could not be had. */
double judge(struct workload *workload);

#endif
