/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A plugin for tests: the CPU plugin behind a memory that the host cannot reach. */
#ifndef DEVICE_MEMORY_H
#define DEVICE_MEMORY_H

#include <stdbool.h>

#include "attn/plugin.h"

/* Faults that are planted, one a plugin: fault.c, the one file that differs. */
enum device_memory_fault {
    FAULT_NONE,
    FAULT_BEYOND, /* a run writes one byte behind the last row of out */
    FAULT_INPUT,  /* a run changes a byte of q */
    FAULT_COPY,   /* copies to the device leave the last 320 bytes out */
    FAULT_STREAM, /* a stream is called done while copies wait */
};
extern const enum device_memory_fault device_memory_fault;

struct attn_kv_impl {
    const struct attn_kv_table *table;
    struct attn_kv_impl *impl;
};

struct attn_backend_impl {
    const struct attn_backend_table *table; /* of the CPU plugin */
    struct attn_backend_impl *impl;
};

/* ---------------------------------------------------------------- memory.c */

extern const struct attn_memory_table device_memory_memory;

/*
 * Addresses of the device are those of the host with one bit more, so that the host faults on them. False if
 * the address is none of the device's.
 */
bool device_memory_reach(struct attn_buffer *buffer);
/*
 * Does what waits on the stream, as the device would before the next kernel. Returns the CPU's stream for the
 * call: NULL, or while a graph is captured the one that keeps it.
 */
void *device_memory_catch_up(void *stream);
/* The CPU's memory, where calls of a stream that is captured end. */
const struct attn_memory_table *device_memory_near_memory(const struct attn_backend_impl *backend);
/* From now on the stream keeps calls for a graph; NULL ends that. */
void device_memory_stream_keep(void *stream, void *cpu_stream);

/* ---------------------------------------------------------------- stream.c: streams and events */

struct device_memory_copy {
    void *to;
    const void *from;
    uint64_t size;
};

/* Puts a copy on a stream, which may be NULL. */
void device_memory_stream_copy(void *stream, const struct device_memory_copy *copy);
/* The stream of the CPU that keeps calls for a graph, or NULL. */
void *device_memory_stream_keeps(void *stream);
int32_t device_memory_stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t device_memory_stream_synchronize(struct attn_backend_impl *backend, void *stream,
                                         struct attn_error *err);
void device_memory_stream_destroy(struct attn_backend_impl *backend, void *stream);
int32_t device_memory_event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t device_memory_event_record(struct attn_backend_impl *backend, void *event, void *stream,
                                   struct attn_error *err);
int32_t device_memory_event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err);
int32_t device_memory_event_synchronize(struct attn_backend_impl *backend, void *event,
                                        struct attn_error *err);
void device_memory_event_destroy(struct attn_backend_impl *backend, void *event);

/* ---------------------------------------------------------------- graph.c: the CPU's graphs */

int32_t device_memory_graph_begin(struct attn_backend_impl *backend, void *stream,
                                  struct attn_graph_impl **out, struct attn_error *err);
int32_t device_memory_graph_add_host(struct attn_graph_impl *graph, attn_host_fn fn, void *arg,
                                     struct attn_error *err);
int32_t device_memory_graph_end(struct attn_graph_impl *graph, struct attn_error *err);
int32_t device_memory_graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err);
void device_memory_graph_destroy(struct attn_graph_impl *graph);

/* ---------------------------------------------------------------- reach.c: all addresses of an argument */

/* The error of an address that is the host's. */
int32_t far_away(struct attn_error *err, const char *field);
bool reach_scale(struct attn_scale *scale);
bool reach_batch(struct attn_batch *batch);
bool reach_cache(struct attn_kv_desc *desc);

/* ---------------------------------------------------------------- caches.c, calls.c */

extern const struct attn_kv_table device_memory_kv;
extern const struct attn_plan_table device_memory_plan;
extern const struct attn_merge_table device_memory_merge;

#endif
