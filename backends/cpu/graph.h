/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A graph is a list of calls with copies of their arguments. While one is recorded, each entry of the plugin
 * hands its checked arguments to a cpu_record_ function instead of going on.
 */
#ifndef ATTN_CPU_GRAPH_H
#define ATTN_CPU_GRAPH_H

#include "cpu.h"

/* Makes a call again, on the launch's stream. */
typedef int32_t (*cpu_call_fn)(struct attn_backend_impl *backend, const void *args, void *stream,
                               struct attn_error *err);

struct cpu_call;
struct cpu_chunk;

struct attn_graph_impl {
    struct attn_backend_impl *backend;
    struct attn_cpu_executor *executor; /* that is recorded; NULL when the capture has ended */
    struct cpu_call *first;
    struct cpu_call *last;
    struct cpu_chunk *chunks; /* calls and arguments lie here */
    int32_t status;           /* of the first call that could not be kept */
};

/* ---------------------------------------------------------------- graph.c */

/* Memory that lives as long as the graph, aligned to 16 bytes; NULL if there is none: the graph has failed.
 */
void *cpu_graph_take(struct attn_graph_impl *graph, uint64_t size);
/* Appends a call. `args` came from cpu_graph_take and may be NULL: then it fails. `plan` is held, or NULL. */
int32_t cpu_graph_add(struct attn_graph_impl *graph, cpu_call_fn fn, const void *args,
                      struct attn_plan_impl *plan, struct attn_error *err);

/* ---------------------------------------------------------------- record-plan.c */

/* Copies that the graph owns; NULL if there is no memory. */
const struct attn_batch *cpu_keep_batch(struct attn_graph_impl *graph, const struct attn_batch *batch);
const struct attn_kv_impl *cpu_keep_kv(struct attn_graph_impl *graph, const struct attn_kv_desc *desc);

int32_t cpu_record_prepare(struct attn_graph_impl *graph, const struct attn_plan_impl *plan,
                           const struct attn_batch *batch, const struct attn_span *schedule,
                           struct attn_error *err);
/* `desc` is the cache's, NULL if none is read. */
int32_t cpu_record_run(struct attn_graph_impl *graph, const struct attn_plan_impl *plan,
                       const struct attn_batch *batch, const struct attn_tensors *tensors,
                       const struct attn_kv_desc *desc, const struct attn_span *schedule,
                       const struct attn_scratch *scratch, struct attn_error *err);

/* ---------------------------------------------------------------- record-kv.c */

int32_t cpu_record_write(struct attn_graph_impl *graph, const struct attn_kv_write_args *args,
                         const struct attn_kv_desc *desc, struct attn_error *err);
int32_t cpu_record_slot_mapping(struct attn_graph_impl *graph, const struct attn_kv_slot_mapping_args *args,
                                struct attn_error *err);
int32_t cpu_record_copy_slots(struct attn_graph_impl *graph, const struct attn_kv_copy_slots_args *args,
                              const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                              struct attn_error *err);
int32_t cpu_record_copy_blocks(struct attn_graph_impl *graph, const struct attn_kv_copy_blocks_args *args,
                               const struct attn_kv_ref *caches, struct attn_error *err);
int32_t cpu_record_swap_blocks(struct attn_graph_impl *graph, const struct attn_kv_swap_blocks_args *args,
                               const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                               struct attn_error *err);
int32_t cpu_record_gather(struct attn_graph_impl *graph, const struct attn_kv_gather_args *args,
                          const struct attn_kv_desc *desc, struct attn_error *err);
int32_t cpu_record_convert(struct attn_graph_impl *graph, const struct attn_kv_convert_args *args,
                           const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                           struct attn_error *err);
int32_t cpu_record_advance_step(struct attn_graph_impl *graph, const struct attn_kv_advance_step_args *args,
                                struct attn_error *err);

/* ---------------------------------------------------------------- record-other.c */

int32_t cpu_record_merge(struct attn_graph_impl *graph, const struct attn_merge_args *args,
                         struct attn_error *err);
int32_t cpu_record_rescale(struct attn_graph_impl *graph, const struct attn_rescale_args *args,
                           struct attn_error *err);
int32_t cpu_record_copy(struct attn_graph_impl *graph, const struct attn_buffer *to,
                        const struct attn_buffer *from, uint64_t size, uint32_t kind, struct attn_error *err);

#endif
