/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the files of the CPU plugin share: the objects behind the handles, and the calls from one file to
 * another. The vector kernels see kernels.h only.
 */
#ifndef ATTN_CPU_H
#define ATTN_CPU_H

#include <stdatomic.h>

#include "check.h"
#include "kernels.h"
#include "kv-handle.h"
#include "planner.h"

/* Alignment of the four blocks of a plan, and of everything inside of them. */
#define CPU_ALIGNMENT 64u
/* Largest number of threads of a pool. */
#define CPU_THREADS_MAX 1024u

struct cpu_pool;

struct attn_instance {
    struct attn_host host; /* in this plugin's size; members that the host does not have are 0 */
    uint32_t flags;        /* features that may be used (cpuflags.c) */
    uint32_t threads;      /* ATTN_THREADS; 0: not set */
    bool far;              /* cpu_prefetches_far */
};

struct attn_backend_impl {
    struct attn_instance *instance;
    uint32_t threads; /* tasks that run at once */
    struct cpu_pool *pool;
};

struct attn_plan_impl {
    _Atomic uint32_t refs; /* one of the handle, and one of each call in a graph */
    struct attn_backend_impl *backend;
    struct attn_problem problem;
    const struct cpu_kernel *kernels[2]; /* decode, prefill */
    struct attn_planner_bounds bounds;
    struct attn_plan_sizes sizes;
    uint64_t partial_lse_offset; /* in scratch, behind the partial outputs, which begin at 0 */
    uint64_t workers_offset;
    uint64_t worker_bytes;
    uint32_t hash; /* of the problem; run accepts only schedules with the same hash */
};

/* ---------------------------------------------------------------- device.c */

void cpu_log(const struct attn_instance *instance, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* ATTN_THREADS; 0 if it is not set or not a number. */
uint32_t cpu_threads_option(const struct attn_instance *instance);
int32_t cpu_get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                        uint32_t *out_count, struct attn_error *err);

/* ---------------------------------------------------------------- processors.c */

/*
 * Cores that this process may use, at least 1: of its affinity mask, within cpu_quota. The files of the
 * system are read below `root`, "" but for tests.
 */
uint32_t cpu_available(const char *root);
/* CPUs' worth of time that control groups allow, rounded down, at least 1; UINT32_MAX without a limit. */
uint32_t cpu_quota(const char *root);

/* ---------------------------------------------------------------- cpuflags.c */

/* The features of the machine, masked by ATTN_CPU_FLAGS. */
uint32_t cpu_flags_detect(const struct attn_instance *instance);
/* The features that a level (enum cpu_level) needs. */
uint32_t cpu_level_flags(uint32_t level);
/* Writes the names of features; "" for none. */
void cpu_flags_text(uint32_t flags, char *out, size_t size);
/* Whether decode prefetches into the L2 cache, several steps ahead, on this machine. */
bool cpu_prefetches_far(void);

/* ---------------------------------------------------------------- caps.c, axes.c */

/* The row that serves a phase (enum attn__phase) of a problem that a query accepted. */
const struct cpu_kernel *cpu_dispatch(const struct attn_instance *instance,
                                      const struct attn_problem *problem, uint32_t phase);
int32_t cpu_query(struct attn_instance *instance, const struct attn_device *device,
                  const struct attn_problem *problem, uint32_t cost_rank, struct attn_query *out);
/* The planner's parameters for this plugin's kernels; of its prefill items, the smaller size. */
struct attn_planner cpu_planner(const struct attn_problem *problem, uint32_t units);
int32_t cpu_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count);

/* ---------------------------------------------------------------- pool.c */

/* `worker` is below the number of workers, and no two tasks of a worker run at once. */
typedef void (*cpu_worker_fn)(void *arg, uint32_t worker);

/* A pool of threads - 1 workers, which start at the first run. NULL on lack of memory. */
struct cpu_pool *cpu_pool_create(uint32_t threads);
/* Joins the workers. */
void cpu_pool_destroy(struct cpu_pool *pool);
/*
 * Calls fn(arg, 0) on this thread and, as far as threads of the pool are free, fn(arg, 1) ... fn(arg,
 * workers - 1) on those; returns when all calls that began have returned. While another thread uses the pool,
 * this thread works alone.
 */
void cpu_pool_run(struct cpu_pool *pool, uint32_t workers, cpu_worker_fn fn, void *arg);

/* ---------------------------------------------------------------- executor.c */

typedef void (*cpu_task_fn)(void *arg, uint32_t task, uint32_t worker);

/* Whose threads a call runs on. */
struct cpu_executor {
    const struct attn_backend_impl *backend;
    const struct attn_cpu_executor *team; /* or NULL */
    attn_parallel_for_fn parallel_for;    /* or NULL: the pool */
    void *parallel_for_arg;
    uint32_t threads;                  /* most that work at once, the caller's included; not for a team */
    struct attn_graph_impl *recording; /* the graph that records the calls, or NULL */
};

/* Sets up an executor from the caller's stream. */
int32_t cpu_executor_init(struct cpu_executor *executor, const struct attn_backend_impl *backend,
                          void *stream, struct attn_error *err);
/*
 * Calls fn(arg, task, worker) for all tasks and returns when all are done. `tickets` are two counters, zero
 * before and after, by which a team shares the tasks; without them each member takes every nth task.
 */
int32_t cpu_execute(const struct cpu_executor *executor, _Atomic uint32_t *tickets, uint32_t tasks,
                    cpu_task_fn fn, void *arg, struct attn_error *err);
/* True for one member of a team, which does what is done once while the others wait in cpu_join. */
static inline bool cpu_is_first(const struct cpu_executor *executor)
{
    return executor->team == NULL || executor->team->ith == 0;
}
/* The barrier of a team. */
void cpu_join(const struct cpu_executor *executor);

/* ---------------------------------------------------------------- plan.c, prepare.c, run.c */

int32_t cpu_plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                        struct attn_plan_impl **out, struct attn_error *err);
int32_t cpu_plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out);
void cpu_plan_destroy(struct attn_plan_impl *plan);
int32_t cpu_plan_describe(const struct attn_plan_impl *plan, struct attn_plan_info *out);
int32_t cpu_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                    const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                    struct attn_error *err);
int32_t cpu_run_layer(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                      const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                      const struct attn_kv_desc *desc, const struct attn_span *schedule,
                      const struct attn_scratch *scratch, void *stream, struct attn_error *err);

/* ---------------------------------------------------------------- epilogue.c */

/* Combines the splits of a work item in order and writes its rows. Called by the task that finished last. */
void cpu_combine_splits(const struct cpu_run *run, const struct attn_work_item *work);
/* Converts contiguous vectors, of whole blocks where there are blocks, to f32; cpu_store is in kernels.h. */
void cpu_load(uint32_t dtype, float *to, const void *from, uint32_t count);

/* ---------------------------------------------------------------- walk.c */

/* Page of a key, and its token in that page; false in an invalid block. */
bool cpu_locate(const struct cpu_run *run, uint32_t seq, uint32_t key, int64_t *page, int64_t *token);
/* The keys, or the values, of a cache, in either layout. */
struct cpu_cache cpu_cache_of(const struct attn_kv_desc *desc, bool values);
/* Resolves a scale; base is NULL if it is 1. */
struct cpu_scale cpu_scale_of(const struct attn_scale *scale);
/* Fills the addressing part of a run. */
void cpu_walk_init(struct cpu_run *run, const struct attn_problem *problem, const struct attn_batch *batch,
                   const struct attn_kv_desc *desc);
/* The same for a run that reads k_new and v_new, alone or beside a cache. */
void cpu_walk_new(struct cpu_run *run, const struct attn_problem *problem, const struct attn_batch *batch,
                  const struct attn_tensors *tensors);

/* ---------------------------------------------------------------- batch.c */

/* Checks the contents of all arrays of a batch. */
int32_t cpu_batch_check(const struct attn_problem *problem, const struct attn_batch *batch,
                        struct attn_extent *out, struct attn_error *err);
/* The same without those of queries. */
int32_t cpu_batch_check_keys(const struct attn_problem *problem, const struct attn_batch *batch,
                             struct attn_extent *out, struct attn_error *err);
/* The same for a batch whose last keys are new: no sequence may have more new tokens than keys. */
int32_t cpu_batch_check_new(const struct attn_problem *problem, const struct attn_batch *batch,
                            struct attn_extent *out, struct attn_error *err);
/* The last of `seqs` sequences that begins at or before a row; `offsets` is where each begins. */
uint32_t cpu_sequence_of(const int32_t *offsets, uint32_t seqs, uint32_t row);
/* ATTN_E_INVALID if pages or tokens up to `extent` are outside of a cache. */
int32_t cpu_extent_check(const struct attn_problem *problem, const struct attn_batch *batch,
                         const struct attn_extent *extent, const struct attn_kv_desc *desc,
                         struct attn_error *err);

/* ---------------------------------------------------------------- write.c */

int32_t cpu_kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                     const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                     struct attn_error *err);

/* ---------------------------------------------------------------- kv-move.c, kv-convert.c, kv-gather.c,
 * kv-slots.c */

int32_t cpu_kv_slot_mapping(struct attn_backend_impl *backend, const struct attn_kv_slot_mapping_args *args,
                            void *stream, struct attn_error *err);
int32_t cpu_kv_copy_slots(struct attn_backend_impl *backend, const struct attn_kv_copy_slots_args *args,
                          const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                          struct attn_error *err);
int32_t cpu_kv_copy_blocks(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                           const struct attn_kv_ref *caches, void *stream, struct attn_error *err);
int32_t cpu_kv_swap_blocks(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                           const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                           struct attn_error *err);
int32_t cpu_kv_gather(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                      const struct attn_kv_ref *cache, void *stream, struct attn_error *err);
int32_t cpu_kv_convert(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                       const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                       struct attn_error *err);
int32_t cpu_kv_advance_step(struct attn_backend_impl *backend, const struct attn_kv_advance_step_args *args,
                            void *stream, struct attn_error *err);

/* ---------------------------------------------------------------- merge.c, memory.c */

int32_t cpu_merge(struct attn_backend_impl *backend, const struct attn_merge_args *args, void *stream,
                  struct attn_error *err);
int32_t cpu_rescale(struct attn_backend_impl *backend, const struct attn_rescale_args *args, void *stream,
                    struct attn_error *err);
extern const struct attn_memory_table cpu_memory_table;

/* ---------------------------------------------------------------- stream.c, graph.c */

int32_t cpu_stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t cpu_stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err);
void cpu_stream_destroy(struct attn_backend_impl *backend, void *stream);
int32_t cpu_event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t cpu_event_record(struct attn_backend_impl *backend, void *event, void *stream,
                         struct attn_error *err);
/* Both query and synchronize. */
int32_t cpu_event_done(struct attn_backend_impl *backend, void *event, struct attn_error *err);
void cpu_event_destroy(struct attn_backend_impl *backend, void *event);
int32_t cpu_graph_begin(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                        struct attn_error *err);
int32_t cpu_graph_add_host(struct attn_graph_impl *graph, attn_host_fn fn, void *arg, struct attn_error *err);
int32_t cpu_graph_end(struct attn_graph_impl *graph, struct attn_error *err);
int32_t cpu_graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err);
void cpu_graph_destroy(struct attn_graph_impl *graph);

#endif
