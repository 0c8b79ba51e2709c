/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the CUDA plugin share: the objects behind the handles, and the calls between files. */
#ifndef ATTN_CUDA_H
#define ATTN_CUDA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "attn/plugin.h"
#include "driver.h"
#include "kv.h"
#include "resolve.h"

/* Alignment of the four blocks of a plan, and of everything inside of them. */
#define CUDA_ALIGNMENT 256u
/* Devices from this compute capability on are served. */
#define CUDA_ARCH_LEAST 80

/* One device, as the driver described it when it was opened. */
struct cuda_device_record {
    struct attn_device_info info;
    cuda_device device;
    uint32_t arch; /* 10 * major + minor */
};

struct attn_instance {
    struct attn_host host; /* this plugin's size, zeroed beyond what the host gave */
    pthread_mutex_t lock;  /* of all that follows */
    bool opened;           /* the driver was tried; the outcome stands */
    int32_t open_status;
    struct attn_error open_error;
    struct cuda_driver driver;
    struct cuda_device_record *devices;
    uint32_t device_count;
    struct cuda_context *contexts;
};

struct attn_backend_impl {
    struct attn_instance *instance;
    struct cuda_context *context;
    struct cuda_kv_functions kv;      /* kernels on caches */
    pthread_mutex_t lock;             /* of captures */
    struct attn_graph_impl *captures; /* graphs whose stream is captured */
};

struct attn_kv_impl {
    struct attn_kv_desc desc;
};

/* ---------------------------------------------------------------- error.c */

/* Fills err (may be NULL) and returns status. */
int32_t cuda_fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ---------------------------------------------------------------- device.c */

/* Opens the driver if it is not, and reads the devices; the same answer every time. */
int32_t cuda_instance_open(struct attn_instance *instance, struct attn_error *err);
int32_t cuda_get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                         uint32_t *out_count, struct attn_error *err);
/* The record of a device, or NULL. The instance is open. */
const struct cuda_device_record *cuda_device_find(const struct attn_instance *instance,
                                                  const struct attn_device *device);

#include "context.h"
#include "kernels.h"

/* ---------------------------------------------------------------- caps.c, axes.c */

int32_t cuda_query(struct attn_instance *instance, const struct attn_device *device,
                   const struct attn_problem *problem, uint32_t cost_rank, struct attn_query *out);
int32_t cuda_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count);

/* ---------------------------------------------------------------- memory.c, stream.c, graph.c */

extern const struct attn_memory_table cuda_memory_table;

int32_t cuda_stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t cuda_stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err);
void cuda_stream_destroy(struct attn_backend_impl *backend, void *stream);
int32_t cuda_event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t cuda_event_record(struct attn_backend_impl *backend, void *event, void *stream,
                          struct attn_error *err);
int32_t cuda_event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err);
int32_t cuda_event_synchronize(struct attn_backend_impl *backend, void *event, struct attn_error *err);
void cuda_event_destroy(struct attn_backend_impl *backend, void *event);
/* Whether calls on the stream are kept for a graph. The context is current. */
int32_t cuda_stream_is_captured(struct cuda_context *context, void *stream, bool *out,
                                struct attn_error *err);

int32_t cuda_graph_begin(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                         struct attn_error *err);
int32_t cuda_graph_add_host(struct attn_graph_impl *graph, attn_host_fn fn, void *arg,
                            struct attn_error *err);
int32_t cuda_graph_end(struct attn_graph_impl *graph, struct attn_error *err);
int32_t cuda_graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err);
void cuda_graph_destroy(struct attn_graph_impl *graph);
/* The stream goes: a capture on it ends, and the end of its graph will say so. The context is current. */
void cuda_graph_forget_stream(struct attn_backend_impl *backend, void *stream);

/* ---------------------------------------------------------------- plan.c, prepare.c, run.c, kv.c */

int32_t cuda_plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                         struct attn_plan_impl **out, struct attn_error *err);
int32_t cuda_plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out);
void cuda_plan_destroy(struct attn_plan_impl *plan);
int32_t cuda_plan_describe(const struct attn_plan_impl *plan, struct attn_plan_info *out);
int32_t cuda_plan_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                          const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                          struct attn_error *err);
int32_t cuda_plan_prepare_many(const struct attn_plan_impl *const *plans,
                               const struct attn_batch *const *batches, const struct attn_span *schedules,
                               uint32_t n, const struct attn_span *staging, void *stream,
                               struct attn_error *err);
int32_t cuda_plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                      const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                      const struct attn_kv_desc *desc, const struct attn_span *schedule,
                      const struct attn_scratch *scratch, void *stream, struct attn_error *err);

#endif
