/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of a GPU's plugin share: the objects behind the handles, and the calls between files. */
#ifndef ATTN_GPU_HOST_H
#define ATTN_GPU_HOST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "attn/plugin.h"
#include "attn/serving.h"
#include "driver.h"
#include "kv.h"
#include "resolve.h"
#include "vendor.h"

/* Alignment of the four blocks of a plan, and of everything inside of them. */
#define GPU_ALIGNMENT 256u

/* One device, as the driver described it when it was opened. */
struct gpu_device_record {
    struct attn_device_info info;
    gpu_ordinal device;
    uint32_t arch; /* architecture, by the vendor's number */
};

struct attn_instance {
    struct attn_host host; /* in this plugin's size; members that the host does not have are 0 */
    pthread_mutex_t lock;  /* of all members below */
    bool opened;           /* gpu_instance_open was called; its result is kept */
    int32_t open_status;
    struct attn_error open_error;
    struct gpu_driver driver;
    struct gpu_device_record *devices;
    uint32_t device_count;
    struct gpu_context *contexts;
};

struct attn_backend_impl {
    struct attn_instance *instance;
    struct gpu_context *context;
    uint32_t tensor_cores;            /* enum gpu_tensor_cores */
    struct gpu_kv_functions kv;       /* kernels on caches */
    pthread_mutex_t lock;             /* of `captures` */
    struct attn_graph_impl *captures; /* graphs whose capture has not ended */
};

/* ---------------------------------------------------------------- device.c */

/* Opens the driver and reads the devices, once; later calls return the same result. */
int32_t gpu_instance_open(struct attn_instance *instance, struct attn_error *err);
int32_t gpu_get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                        uint32_t *out_count, struct attn_error *err);
/* The record of a device, or NULL. The instance is open. */
const struct gpu_device_record *gpu_device_find(const struct attn_instance *instance,
                                                const struct attn_device *device);

#include "context.h"
#include "kernels.h"

/* ---------------------------------------------------------------- what a vendor brings */

/* File names of the driver, in the order in which they are tried; NULL ends them. */
extern const char *const gpu_vendor_libraries[];
/* A function of the open library, or NULL. */
void *gpu_vendor_find(const struct gpu_driver *driver, const char *call, const char *symbol);
/* Starts the driver and counts its devices; it succeeds without any. */
int32_t gpu_vendor_start(struct gpu_driver *driver, const char *library, int *out_devices,
                         struct attn_error *err);
/* The driver's name and description of a result. */
void gpu_vendor_describe(const struct gpu_driver *driver, gpu_result result, char *out, size_t size);
/* Fills the record's device, arch, and of info name, arch, memory_bytes, units. */
gpu_result gpu_vendor_read_device(const struct gpu_driver *driver, int ordinal,
                                  struct gpu_device_record *out);
/* Whether there are kernels for a device; *out_served names the architectures that have them. */
bool gpu_vendor_serves(const struct gpu_device_record *record, const char **out_served);
/* Bytes of shared memory that a CTA can have on an architecture. */
uint32_t gpu_vendor_shared(uint32_t arch);
/* The code of a module for a device that is served. */
const unsigned char *gpu_vendor_image(const struct gpu_device_record *record, enum gpu_module module);
/* Sets up a context whose `primary`, or else `handle`, is set; finish releases it. */
int32_t gpu_vendor_context_init(struct gpu_context *context, struct attn_error *err);
void gpu_vendor_context_finish(struct gpu_context *context);
/* Enter makes a context current, leave what was current before. Calls do not nest. */
gpu_result gpu_vendor_enter(const struct gpu_context *context);
gpu_result gpu_vendor_leave(const struct gpu_context *context);
/* Loads a kernel that is loaded lazily, and allows it `shared_bytes` of dynamic shared memory. */
int32_t gpu_vendor_function_init(struct gpu_context *context, gpu_handle function, uint32_t shared_bytes,
                                 struct attn_error *err);
/* The vendor's flavours. */
extern const struct attn_backend_table *const gpu_vendor_backends[];
extern const uint32_t gpu_vendor_backend_count;

/* ---------------------------------------------------------------- caps.c, axes.c */

int32_t gpu_query(struct attn_instance *instance, const struct attn_device *device,
                  const struct attn_problem *problem, uint32_t cost_rank, enum gpu_tensor_cores choice,
                  struct attn_query *out);
int32_t gpu_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count);

/* ---------------------------------------------------------------- memory.c, stream.c, graph.c */

extern const struct attn_memory_table gpu_memory_table;

int32_t gpu_stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t gpu_stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err);
void gpu_stream_destroy(struct attn_backend_impl *backend, void *stream);
int32_t gpu_event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t gpu_event_record(struct attn_backend_impl *backend, void *event, void *stream,
                         struct attn_error *err);
int32_t gpu_event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err);
int32_t gpu_event_synchronize(struct attn_backend_impl *backend, void *event, struct attn_error *err);
void gpu_event_destroy(struct attn_backend_impl *backend, void *event);
/* Whether the stream is captured. The context is current. */
int32_t gpu_stream_is_captured(struct gpu_context *context, void *stream, bool *out, struct attn_error *err);

int32_t gpu_graph_begin(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                        struct attn_error *err);
int32_t gpu_graph_add_host(struct attn_graph_impl *graph, attn_host_fn fn, void *arg, struct attn_error *err);
int32_t gpu_graph_end(struct attn_graph_impl *graph, struct attn_error *err);
int32_t gpu_graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err);
void gpu_graph_destroy(struct attn_graph_impl *graph);
/* Called before a stream is destroyed: ends its capture, whose graph then fails. The context is current.
 */
void gpu_graph_forget_stream(struct attn_backend_impl *backend, void *stream);

/* ---------------------------------------------------------------- plan.c, prepare.c, run.c, kv.c */

int32_t gpu_plan_create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                        struct attn_plan_impl **out, struct attn_error *err);
int32_t gpu_plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out);
void gpu_plan_destroy(struct attn_plan_impl *plan);
int32_t gpu_plan_describe(const struct attn_plan_impl *plan, struct attn_plan_info *out);
int32_t gpu_plan_prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                         const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                         struct attn_error *err);
int32_t gpu_plan_prepare_many(const struct attn_plan_impl *const *plans,
                              const struct attn_batch *const *batches, const struct attn_span *schedules,
                              uint32_t n, const struct attn_span *staging, void *stream,
                              struct attn_error *err);
int32_t gpu_plan_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                     const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                     const struct attn_kv_desc *desc, const struct attn_span *schedule,
                     const struct attn_scratch *scratch, void *stream, struct attn_error *err);

/* ---------------------------------------------------------------- backend.c */

int32_t gpu_backend_open(struct attn_instance *instance, const struct attn_device *device,
                         const struct attn_open_config *config, struct attn_backend_impl **out,
                         struct attn_error *err);
void gpu_backend_close(struct attn_backend_impl *backend);
extern const struct attn_plan_table gpu_plan_table;

/* The plugin's version, which is libattn's, as text. */
#define GPU_TEXT2(x) #x
#define GPU_TEXT(x)  GPU_TEXT2(x)
#define GPU_PLUGIN_VERSION                                                                                   \
    GPU_TEXT(LIBATTN_VERSION_MAJOR) "." GPU_TEXT(LIBATTN_VERSION_MINOR) "." GPU_TEXT(LIBATTN_VERSION_PATCH)

/* The table of a flavour: its name, table of caches and query. */
#define GPU_BACKEND_TABLE(name_, kv_, query_, open_)                                                         \
    {                                                                                                        \
        .struct_size = sizeof(struct attn_backend_table), .device_class = ATTN_CLASS_ACCELERATOR,            \
        .name = (name_), .plan = &gpu_plan_table, .kv = (kv_), .merge = &gpu_merge_table,                    \
        .memory = &gpu_memory_table, .query = (query_), .axes = gpu_axes, .open = (open_),                   \
        .close = gpu_backend_close, .builder = &attn_serving_builder, .state = &attn_serving_state,          \
        .layer = &attn_serving_layer                                                                         \
    }

#endif
