/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Pages that all sequences of a step begin with, found on the host or on the device, and the arrays of the
 * two batches that the step becomes. The prefix is one sequence, whose queries are those of all and whose
 * keys are those of the shared pages; the suffix has every sequence's other keys. Both are attended to for
 * themselves, and their results are merged by log-sum-exp.
 *
 * Both have the addressing CSR over the entries that the step has: of a table, row i of which begins at entry
 * i * stride / 4, as well as of a list.
 */
#ifndef ATTN_GPU_CASCADE_JOB_H
#define ATTN_GPU_CASCADE_JOB_H

#include "address.h"
#include "run.h"
#include "visible.h"

/* Where the arrays lie, in words: of the prefix q_offsets [2], kv_lens [1] and indptr [2]; of the suffix
 * kv_lens [max_seqs], and behind it indptr [max_seqs + 1]. */
enum { GPU_CASCADE_QUERIES = 0, GPU_CASCADE_KEYS = 2, GPU_CASCADE_FIRST = 3, GPU_CASCADE_SUFFIX = 5 };

struct gpu_cascade_job {
    uint64_t arrays;  /* written */
    uint64_t entries; /* i32, or i64 if `wide`; addresses are of the side that searches */
    uint64_t indptr;  /* i32 [seqs + 1]: first entries of sequences, or 0: they are `step` apart */
    uint64_t q_offsets;
    uint64_t kv_lens;
    uint32_t step;
    uint32_t wide;
    uint32_t seqs;
    uint32_t max_seqs;
    uint32_t block; /* tokens of a page */
    uint32_t reserved;
};

static inline uint64_t gpu_cascade_bytes(uint32_t max_seqs)
{
    return (GPU_CASCADE_SUFFIX + 2 * (uint64_t)max_seqs + 1) * sizeof(int32_t);
}

/* Queries of a sequence, and the pages whose keys all of them see. */
struct gpu_cascade_sequence {
    uint32_t q_len;
    uint32_t pages;
};

static inline ATTN__DEVICE struct gpu_cascade_sequence gpu_cascade_at(const struct gpu_cascade_job *job,
                                                                      uint32_t i)
{
    const int32_t *q = GPU_GLOBAL(const int32_t, job->q_offsets);
    const uint32_t keys = (uint32_t)GPU_GLOBAL(const int32_t, job->kv_lens)[i];
    struct gpu_cascade_sequence own;

    own.q_len = (uint32_t)q[i + 1] - (uint32_t)q[i];
    own.pages = keys > own.q_len ? (keys - own.q_len) / job->block : 0;
    return own;
}

/* The first entry of a sequence. */
static inline ATTN__DEVICE uint64_t gpu_cascade_first(const struct gpu_cascade_job *job, uint32_t i)
{
    if (job->indptr == 0)
        return (uint64_t)i * job->step;
    return (uint32_t)GPU_GLOBAL(const int32_t, job->indptr)[i];
}

static inline ATTN__DEVICE int64_t gpu_cascade_page(const struct gpu_cascade_job *job, uint64_t at)
{
    return job->wide != 0 ? GPU_GLOBAL(const int64_t, job->entries)[at]
                          : (int64_t)GPU_GLOBAL(const int32_t, job->entries)[at];
}

/* Whether page `page` is the same in sequences whose entries begin at a and b, and valid. */
static inline ATTN__DEVICE bool gpu_cascade_is_same(const struct gpu_cascade_job *job, uint64_t a, uint64_t b,
                                                    uint32_t page)
{
    const int64_t one = gpu_cascade_page(job, a + page);

    return one >= 0 && one == gpu_cascade_page(job, b + page);
}

/* Pages that the sequences of a step begin with, and one of those that have queries. */
struct gpu_cascade_prefix {
    uint32_t pages;
    uint32_t sequence;
};

/* Writes the arrays of the prefix. */
static inline ATTN__DEVICE void gpu_cascade_write_prefix(const struct gpu_cascade_job *job,
                                                         struct gpu_cascade_prefix prefix)
{
    const uint64_t first = prefix.pages > 0 ? gpu_cascade_first(job, prefix.sequence) : 0;
    int32_t *arrays = GPU_GLOBAL(int32_t, job->arrays);

    arrays[GPU_CASCADE_QUERIES] = 0;
    arrays[GPU_CASCADE_QUERIES + 1] = GPU_GLOBAL(const int32_t, job->q_offsets)[job->seqs];
    arrays[GPU_CASCADE_KEYS] = (int32_t)(prefix.pages * job->block);
    arrays[GPU_CASCADE_FIRST] = (int32_t)first;
    arrays[GPU_CASCADE_FIRST + 1] = (int32_t)(first + prefix.pages);
}

/* Writes what those of the suffix have of sequence i. */
static inline ATTN__DEVICE void gpu_cascade_write_suffix(const struct gpu_cascade_job *job,
                                                         struct gpu_cascade_prefix prefix, uint32_t i)
{
    int32_t *arrays = GPU_GLOBAL(int32_t, job->arrays) + GPU_CASCADE_SUFFIX;
    const struct gpu_cascade_sequence own = gpu_cascade_at(job, i);
    const uint32_t skipped = own.q_len > 0 ? prefix.pages : 0;

    arrays[i] = GPU_GLOBAL(const int32_t, job->kv_lens)[i] - (int32_t)(skipped * job->block);
    arrays[job->max_seqs + i] = (int32_t)(gpu_cascade_first(job, i) + skipped);
}

#endif
