/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Memory, streams, events and graphs of a backend, for tools and small programs that have no runtime of their
 * own. An engine that already manages device memory needs nothing of this header. On the CPU it still needs
 * graphs: there is no other runtime that could record calls.
 */
#ifndef ATTN_DEVICE_H
#define ATTN_DEVICE_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Allocates `size` bytes (> 0) of the backend's memory, aligned to 64 bytes at least; contents undefined. The
 * caller frees it with attn_memory_free before it destroys the backend.
 * Returns ATTN_E_MEMORY if there is not enough, ATTN_E_INVALID for size 0.
 */
ATTN_API int32_t attn_memory_alloc(struct attn_backend *backend, uint64_t size, struct attn_buffer *out,
                                   struct attn_error *err);

/* Frees what attn_memory_alloc gave. A buffer with data NULL is ignored. */
ATTN_API void attn_memory_free(struct attn_backend *backend, const struct attn_buffer *buffer);

/*
 * Copies `size` bytes in stream order (`kind`: enum attn_copy_kind). Host memory must stay
 * until the stream has passed; ranges must not overlap.
 */
ATTN_API int32_t attn_memory_copy(struct attn_backend *backend, const struct attn_buffer *to,
                                  const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                                  struct attn_error *err);

/* `size` bytes of pinned host memory, for staging. ATTN_E_UNSUPPORTED if the backend has none. */
ATTN_API int32_t attn_memory_alloc_pinned(struct attn_backend *backend, uint64_t size, void **out,
                                          struct attn_error *err);
/* Frees `memory` that attn_memory_alloc_pinned gave. NULL is ignored. */
ATTN_API void attn_memory_free_pinned(struct attn_backend *backend, void *memory);

/*
 * A stream of the backend. ATTN_E_UNSUPPORTED if it has no streams of its own; NULL is always a legal stream.
 */
ATTN_API int32_t attn_stream_create(struct attn_backend *backend, void **out, struct attn_error *err);
/* Gives back a `stream` that attn_stream_create made. NULL is ignored. */
ATTN_API void attn_stream_destroy(struct attn_backend *backend, void *stream);

/* Waits until everything on the stream is done. On a backend without streams it returns at once. */
ATTN_API int32_t attn_stream_synchronize(struct attn_backend *backend, void *stream, struct attn_error *err);

/*
 * A mark in a stream. A new event counts as reached. ATTN_E_UNSUPPORTED if the backend has no events.
 */
ATTN_API int32_t attn_event_create(struct attn_backend *backend, void **out, struct attn_error *err);
/* Gives back an `event` that attn_event_create made. NULL is ignored. */
ATTN_API void attn_event_destroy(struct attn_backend *backend, void *event);
/* Puts the mark `event` behind everything on the stream. ATTN_E_STATE on a stream that is captured. */
ATTN_API int32_t attn_event_record(struct attn_backend *backend, void *event, void *stream,
                                   struct attn_error *err);
/* ATTN_OK if the mark `event` is reached, ATTN_E_BUSY if not; never waits. */
ATTN_API int32_t attn_event_query(struct attn_backend *backend, void *event, struct attn_error *err);
/* Waits until the mark `event` is reached. */
ATTN_API int32_t attn_event_synchronize(struct attn_backend *backend, void *event, struct attn_error *err);

/*
 * A graph: work of a stream that was captured once and is launched as a whole.
 *
 * Between attn_graph_begin and attn_graph_end, calls of this backend on the stream are kept instead of done:
 * attn_plan_run, all calls on caches, attn_merge, attn_rescale, attn_memory_copy, and attn_plan_prepare of a
 * batch without host copies. Their arguments are copied, host scales and host arrays of pairs included.
 * Memory that they point to is not: each launch reads and writes it as it is then. The number of sequences
 * and rows, all addresses and strides, and the maxima are thus fixed; contents of arrays are not. Plans and
 * caches may be destroyed before the graph; memory must outlive its last launch.
 *
 * A graph belongs to one thread at a time, a capture to the thread that began it. Destroy in any order; of a
 * graph that is not ended, destroying ends the capture and drops the graph.
 */
struct attn_graph;

/*
 * Begins a capture. ATTN_E_STATE if `stream` is NULL (attn_stream_create makes another) or is captured
 * already; ATTN_E_UNSUPPORTED if the backend has no graphs, or on a team of threads.
 */
ATTN_API int32_t attn_graph_begin(struct attn_backend *backend, void *stream, struct attn_graph **out,
                                  struct attn_error *err);
/*
 * Puts the program's own work at this place of a graph that is captured: fn(arg) is called by every launch,
 * once, after the calls before it and before those behind it. It must not call this library on a device.
 */
ATTN_API int32_t attn_graph_add_host(struct attn_graph *graph, attn_host_fn fn, void *arg,
                                     struct attn_error *err);
/*
 * Ends the capture; the graph can be launched. If a call could not be kept, it fails with the status of that
 * call, and the graph can only be destroyed.
 */
ATTN_API int32_t attn_graph_end(struct attn_graph *graph, struct attn_error *err);
/*
 * Does everything in order, on any stream that is not captured; NULL too. Plans and allocates nothing. On the
 * CPU it has completed when it returns; in a team all threads launch together. The first failure ends it.
 */
ATTN_API int32_t attn_graph_launch(struct attn_graph *graph, void *stream, struct attn_error *err);
/* Gives a graph back. NULL is ignored. */
ATTN_API void attn_graph_destroy(struct attn_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
