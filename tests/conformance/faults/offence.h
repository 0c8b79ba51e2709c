/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls with one thing wrong, and who has to refuse it. */
#ifndef OFFENCE_H
#define OFFENCE_H

#include "faults.h"

enum offence_call { CALL_PREPARE, CALL_RUN, CALL_WRITE, CALL_MERGE, CALL_RESCALE, CALL_PLAN, CALL_KV };

/* Who refuses: the library, whatever the plugin is like, or a plugin that looks at addresses and arrays. */
enum { BY_LIBRARY = 1, BY_PLUGIN = 2, BY_BOTH = 3 };

/* The problem that an offence makes sense for. */
enum {
    ANY_PROBLEM,
    TABLE_PROBLEM,
    CSR_PROBLEM,
    LSE_PROBLEM,
    WIDE_PROBLEM,  /* elements of several bytes */
    SCHEDULE_PLAN, /* a plan that has a schedule */
    SCRATCH_PLAN,  /* a plan that asks for scratch */
    COUNTERS_PLAN
};

enum { OFFENCE_ENTRIES = 4096 };

/* Right arguments of every call, to be spoiled. */
struct arguments {
    struct bench *bench;
    struct attn_problem problem;
    const struct attn_problem *problem_given;
    struct attn_batch batch;
    const struct attn_batch *batch_given;
    struct attn_batch_host host;
    struct attn_tensors tensors;
    const struct attn_tensors *tensors_given;
    struct attn_kv_desc kv;
    bool with_handle; /* run and write: a handle of `kv` instead of kv itself */
    bool without_kv;
    struct attn_span schedule;
    const struct attn_span *schedule_given;
    struct attn_scratch scratch;
    const struct attn_scratch *scratch_given;
    struct attn_kv_write_args write;
    struct attn_merge_args merge;
    struct attn_rescale_args rescale;
    struct attn_merge_part parts[2];
    struct attn_tensor lses[2];
    struct attn_batch write_batch;
    /* Arrays of the batch; the host copies are the same memory. */
    int32_t q_offsets[STEP_SEQS + 1];
    int32_t kv_lens[STEP_SEQS];
    int32_t table[OFFENCE_ENTRIES]; /* rows without gaps, or csr_indptr */
    int64_t indices[OFFENCE_ENTRIES];
    int64_t slots[4];
};

struct offence {
    const char *name;
    const char *field; /* part of what the error names */
    enum offence_call call;
    int by;
    int needs;
    void (*spoil)(struct arguments *arguments);
};

/* Each list ends with one without a name. */
extern const struct offence run_offences[];   /* offence-run.c */
extern const struct offence batch_offences[]; /* offence-batch.c */
extern const struct offence other_offences[]; /* offence-other.c */

#endif
