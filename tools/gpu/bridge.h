/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What tools/gpu-bench calls through ctypes: flat functions over libattn, so that the program knows the
 * layout of no struct. Functions that can fail return 0, NULL or a status; gpu_bench_error says why.
 */
#ifndef GPU_BRIDGE_H
#define GPU_BRIDGE_H

#include "attn/attn.h"
#include "attn/device.h"

#define GPU_BENCH_API __attribute__((visibility("default")))

struct gpu_bench; /* an open backend */
struct gpu_case;  /* one problem on one batch, with all that it needs in device memory */

GPU_BENCH_API const char *gpu_bench_error(void);

/*
 * Opens `backend` on `device` ("cuda:0") with plugins from the directories of `plugins`, NULL for libattn's
 * own search. No other backend takes its place.
 */
GPU_BENCH_API struct gpu_bench *gpu_bench_open(const char *plugins, const char *backend, const char *device);
GPU_BENCH_API void gpu_bench_close(struct gpu_bench *bench);
/* "version", "backend", "device"; NULL for other names. */
GPU_BENCH_API const char *gpu_bench_text(const struct gpu_bench *bench, const char *name);

GPU_BENCH_API void *gpu_bench_stream_create(struct gpu_bench *bench);
GPU_BENCH_API void gpu_bench_stream_destroy(struct gpu_bench *bench, void *stream);
GPU_BENCH_API int32_t gpu_bench_synchronize(struct gpu_bench *bench, void *stream);

/* Kept calls: everything on the stream between begin and end. */
GPU_BENCH_API struct attn_graph *gpu_bench_graph_begin(struct gpu_bench *bench, void *stream);
GPU_BENCH_API int32_t gpu_bench_graph_end(struct attn_graph *graph);
GPU_BENCH_API int32_t gpu_bench_graph_launch(struct attn_graph *graph, void *stream);
GPU_BENCH_API void gpu_bench_graph_destroy(struct attn_graph *graph);

/*
 * A case: `lengths` has query tokens and keys of each of `seqs` sequences, `sets` is how many caches there
 * are, all of the same batch. `ordered`: pages of a sequence follow each other, else they are scattered.
 * `prefix`: keys that all sequences begin with, as far as they fill pages. The schedule is there when this
 * returns.
 */
GPU_BENCH_API struct gpu_case *gpu_case_create(struct gpu_bench *bench, const char *problem,
                                               const uint32_t *lengths, uint32_t seqs, uint32_t sets,
                                               uint32_t ordered, uint32_t prefix);
GPU_BENCH_API void gpu_case_destroy(struct gpu_case *the_case);
/* One run over the cache of a set; waits for nothing. */
GPU_BENCH_API int32_t gpu_case_run(struct gpu_case *the_case, uint32_t set, void *stream);
/* The step's schedule once more, as a step without host copies makes it (`host` 0) or with them. */
GPU_BENCH_API int32_t gpu_case_prepare(struct gpu_case *the_case, uint32_t host, void *stream);
/* The canonical problem, or the names of the plan's kernels: "problem", "kernels". */
GPU_BENCH_API const char *gpu_case_text(struct gpu_case *the_case, const char *name);
/*
 * A number of the case: "heads", "kv_heads", "head_dim", "head_dim_vo", "block", "rows", "pages", "seqs",
 * "table_width", "k_bytes", "v_bytes" of an element, strides "k_page_stride" and so on; addresses of device
 * memory "q", "out", "table" and, of a set, "k" and "v". -1 and an error for other names.
 */
GPU_BENCH_API int64_t gpu_case_number(struct gpu_case *the_case, const char *name, uint32_t set);
/* Operations of a run, and bytes of the keys and values that it reads. */
GPU_BENCH_API double gpu_case_flops(const struct gpu_case *the_case);
GPU_BENCH_API double gpu_case_key_bytes(const struct gpu_case *the_case);
/* Runs set 0 and returns its distance to the double-precision oracle on sampled rows; NaN if it failed. */
GPU_BENCH_API double gpu_case_judge(struct gpu_case *the_case);

/*
 * Operations on the cache of set 0: "write" and "gather" of all keys of the batch, "copy pages" of one half
 * over the other, "swap out" and "swap in" of some pages; and "plain copy", "plain to host", "plain to
 * device", which are what the memory and the bus give at best.
 */
GPU_BENCH_API int32_t gpu_case_kv_init(struct gpu_case *the_case);
GPU_BENCH_API int32_t gpu_case_kv_run(struct gpu_case *the_case, const char *name, void *stream);
/* Runs it and compares every byte; for the first five. */
GPU_BENCH_API int32_t gpu_case_kv_check(struct gpu_case *the_case, const char *name);
/* Bytes read and written; those over the bus alone where it is used. */
GPU_BENCH_API double gpu_case_kv_bytes(const struct gpu_case *the_case, const char *name);

#endif
