/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A graph is a list of calls with copies of their arguments. While one is captured, each function of the
 * plugin passes its checked arguments to cpu_record and returns.
 */
#ifndef ATTN_CPU_GRAPH_H
#define ATTN_CPU_GRAPH_H

#include "cpu.h"

enum cpu_entry {
    CPU_CALL_PREPARE,
    CPU_CALL_RUN,
    CPU_CALL_WRITE,
    CPU_CALL_SLOT_MAPPING,
    CPU_CALL_COPY_SLOTS,
    CPU_CALL_COPY_BLOCKS,
    CPU_CALL_SWAP_BLOCKS,
    CPU_CALL_GATHER,
    CPU_CALL_CONVERT,
    CPU_CALL_ADVANCE_STEP,
    CPU_CALL_MERGE,
    CPU_CALL_RESCALE,
    CPU_CALL_COPY,
    CPU_CALL_HOST,
};

/* Arguments of those functions that take no struct. */
struct cpu_run_args {
    struct attn_tensors tensors;
    struct attn_span schedule;
    struct attn_scratch scratch;
};
struct cpu_copy_args {
    struct attn_buffer to, from;
    uint64_t size;
    uint32_t kind;
};
struct cpu_host_args {
    attn_host_fn fn;
    void *arg;
};

/* A call. What it points to is copied by cpu_record. All members but the first two may be left out. */
struct cpu_call {
    enum cpu_entry entry;
    const void *args; /* the argument struct of the call; prepare: the schedule */
    uint64_t args_size;
    const struct attn_plan_impl *plan; /* referenced by the graph */
    const struct attn_batch *batch;
    const struct attn_kv_ref *caches;
    uint32_t cache_count;
    const void *list; /* a host array that the arguments point to */
    uint64_t list_size;
    struct cpu_call *next;
};

struct cpu_chunk;

struct attn_graph_impl {
    struct attn_backend_impl *backend;
    struct attn_cpu_executor *executor; /* that is captured; NULL after the capture */
    struct cpu_call *first;
    struct cpu_call **end;    /* where the next call goes */
    struct cpu_chunk *chunks; /* calls and what they point to */
    int32_t status;           /* of the first call that could not be recorded */
};

/* ---------------------------------------------------------------- graph.c */

/* Memory that lives as long as the graph, aligned to 16 bytes; NULL if there is none: the graph has failed.
 */
void *cpu_graph_take(struct attn_graph_impl *graph, uint64_t size);

/* ---------------------------------------------------------------- graph-call.c */

int32_t cpu_record(struct attn_graph_impl *graph, const struct cpu_call *call, struct attn_error *err);
/* Makes a recorded call, on the stream of the launch. */
int32_t cpu_call_again(struct attn_backend_impl *backend, const struct cpu_call *call, void *stream,
                       struct attn_error *err);

#endif
