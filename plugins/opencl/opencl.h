/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the plugin share: the objects behind the handles, and the calls between files. */
#ifndef ATTN_OPENCL_H
#define ATTN_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <pthread.h>
#include <stdbool.h>

#include <attn/plugin-util.h>

#include "operations.h"

/* ---------------------------------------------------------------- the loader (loader.c) */

/* Functions of the ICD loader, which is opened by name: it may be absent. */
struct opencl_functions {
#define OPENCL_FUNCTION(name) __typeof__(&name) name;
#include "functions.def"
#undef OPENCL_FUNCTION
};

/* Fails with ATTN_E_DEVICE and reason NO_DRIVER where there is no loader. */
int32_t opencl_loader_open(void **out_library, struct opencl_functions *out, struct attn_error *err);

/* ---------------------------------------------------------------- objects */

#define OPENCL_OPTIONS_SIZE 384

/* A program that was built for a device, kept until the instance ends. */
struct opencl_program {
    struct opencl_program *next;
    cl_program program;
    cl_context context;
    const struct opencl_device *device;
    char options[OPENCL_OPTIONS_SIZE + 64];
};

struct opencl_device {
    struct attn_device_info info;
    cl_platform_id platform;
    cl_device_id device;
    const char *wanted; /* of devices the kernels need one that has what this one lacks; NULL: it has all */
    cl_device_type type;
    size_t max_items; /* of a work-group */
    char vendor[64];
    cl_context context; /* the plugin's own; NULL until a backend needs it */
};

struct attn_instance {
    struct attn_host host; /* in this plugin's size; members that the host does not have are 0 */
    pthread_mutex_t lock;  /* of all members below, and of setting a kernel's arguments */
    bool opened;           /* devices were asked for; the result is kept */
    int32_t open_status;
    struct attn_error open_error;
    void *library;
    struct opencl_functions cl;
    struct opencl_device *devices;
    uint32_t device_count;
    struct opencl_program *programs;
};

/* Pinned memory of the host: a mapped buffer. */
struct opencl_pinned {
    struct opencl_pinned *next;
    cl_mem buffer;
    void *memory;
};

/* Kernels of operations on caches, of merges and of decode steps, compiled when a backend is opened. */
#define OPENCL_FOR_KERNELS(X)                                                                                \
    X(write)                                                                                                 \
    X(slots)                                                                                                 \
    X(move)                                                                                                  \
    X(gather)                                                                                                \
    X(convert)                                                                                               \
    X(merge)                                                                                                 \
    X(rescale)                                                                                               \
    X(step_lengths)                                                                                          \
    X(step_rows)

enum opencl_kernel {
#define OPENCL_KERNEL(name) OPENCL_KERNEL_##name,
    OPENCL_FOR_KERNELS(OPENCL_KERNEL)
#undef OPENCL_KERNEL
        OPENCL_KERNELS
};

struct attn_backend_impl {
    struct attn_instance *instance;
    const struct opencl_functions *cl;
    struct opencl_device *device;
    cl_context context;     /* the caller's, or the device's */
    cl_command_queue queue; /* of stream NULL */
    cl_kernel kernels[OPENCL_KERNELS];
    bool in_pairs;        /* a cache is [pages, 2, ...], the flashinfer flavour's shape */
    pthread_mutex_t lock; /* of `pinned` and `captures` */
    struct opencl_pinned *pinned;
    struct attn_graph_impl *captures;
};

/* ---------------------------------------------------------------- errors (error.c) */

/* Fills err, which may be NULL, and returns status. */
__attribute__((format(printf, 5, 6))) int32_t opencl_fail(struct attn_error *err, int32_t status,
                                                          uint32_t reason, const char *field,
                                                          const char *format, ...);
/* The name of a result as OpenCL's header has it, or "OpenCL error". */
const char *opencl_error_name(cl_int result);
/* The status of a result of OpenCL; `call` is the function that gave it. */
int32_t opencl_check(cl_int result, const char *field, const char *call, struct attn_error *err);

/* ---------------------------------------------------------------- devices (device.c) */

/* Opens the loader and reads the devices of all platforms, once; later calls return the same result. */
int32_t opencl_instance_open(struct attn_instance *instance, struct attn_error *err);
void opencl_instance_close(struct attn_instance *instance);
int32_t opencl_get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *out_count, struct attn_error *err);
/* The device, or NULL. The instance is open. */
struct opencl_device *opencl_device_find(const struct attn_instance *instance,
                                         const struct attn_device *device);

/* ---------------------------------------------------------------- programs (program.c, cache.c) */

/* A kernel of the program that the options make, which is built if it is not yet. */
int32_t opencl_kernel_create(struct attn_backend_impl *backend, const char *options, const char *name,
                             cl_kernel *out, struct attn_error *err);
/* The lines of all files of kernels, in the order in which they are compiled; generated by the build. */
extern const char *const opencl_sources[];
extern const uint32_t opencl_source_count;

/* The name of the file that holds a device's program; false where nothing is cached. */
bool opencl_cache_name(const struct attn_instance *instance, const struct opencl_device *device,
                       const char *options, char *out, size_t size);
/* A program from the file, not yet built, or NULL. */
cl_program opencl_cache_load(const struct attn_backend_impl *backend, const char *name);
void opencl_cache_store(const struct attn_backend_impl *backend, const char *name, cl_program program);

/* ---------------------------------------------------------------- configurations (config.c) */

#define OPENCL_MAX_SPLITS 128u

/* The kernels of a problem on a device. */
struct opencl_config {
    const char *generic; /* what the kernels for decode and prefill want, where only the generic one serves;
                            or NULL */
    bool exact;          /* sums of a prefill keep what they lose */
    bool decode_exact;   /* those of a decode do */
    uint32_t decode_items, decode_rows, decode_lanes;
    uint32_t decode_tokens;
    uint32_t busy_groups; /* work-groups that keep the device busy */
    uint32_t prefill_mr, prefill_slice;
    const char *definitions; /* options of the compiler */
};

/* What is wanted of a field where only the generic kernel serves, with the reason's code; or NULL. */
const char *opencl_config_generic(const struct opencl_device *device, const struct attn_problem *p,
                                  uint32_t *out_code, const char **out_field);
void opencl_config_find(const struct opencl_device *device, const struct attn_problem *p,
                        struct opencl_config *out);
/* Sequences with more query tokens are prefilled. */
uint32_t opencl_config_decode_tokens(const struct attn_problem *p);
/* Rows of a work-group of a prefill. */
uint32_t opencl_config_prefill_rows(const struct opencl_config *config);
/* Options that the attention kernels are compiled with. */
void opencl_config_options(const struct opencl_config *config, const struct attn_problem *p, char *out,
                           size_t size);

/* ---------------------------------------------------------------- memory.c, stream.c */

extern const struct attn_memory_table opencl_memory_table;
/* A buffer with a copy of host memory, for kernels to read. */
int32_t opencl_copy_of(struct attn_backend_impl *backend, const void *from, size_t size, const char *name,
                       cl_mem *out, struct attn_error *err);
/* A copy of `kind`, which tells which of the two buffers is host memory. */
struct opencl_copy {
    struct attn_buffer to, from;
    uint64_t size;
    uint32_t kind;
};
/* Enqueues a copy; while the stream is captured, its graph keeps it. */
int32_t opencl_copy_enqueue(struct attn_backend_impl *backend, const struct opencl_copy *copy, void *stream,
                            struct attn_error *err);
int32_t opencl_copy_start(const struct opencl_functions *cl, const struct opencl_copy *copy,
                          cl_command_queue queue, struct attn_error *err);

int32_t opencl_stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t opencl_stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err);
void opencl_stream_destroy(struct attn_backend_impl *backend, void *stream);
int32_t opencl_event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t opencl_event_record(struct attn_backend_impl *backend, void *event, void *stream,
                            struct attn_error *err);
int32_t opencl_event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err);
int32_t opencl_event_synchronize(struct attn_backend_impl *backend, void *event, struct attn_error *err);
void opencl_event_destroy(struct attn_backend_impl *backend, void *event);

static inline cl_command_queue opencl_queue(const struct attn_backend_impl *backend, void *stream)
{
    return stream != NULL ? (cl_command_queue)stream : backend->queue;
}

/* ---------------------------------------------------------------- launches (launch.c, resolve.c) */

/* A launch: buffers and the argument block of its kernel. */
struct opencl_launch {
    cl_mem buffers[OPENCL_BUFFERS];
    cl_mem owned[OPENCL_SCALES]; /* made for this launch */
    cl_uint buffer_count;        /* 0: OPENCL_BUFFERS */
    uint32_t size;               /* of the argument block; 0: of `arguments` */
    union {
        struct opencl_arguments arguments;
        struct opencl_move move;
        struct opencl_convert convert;
        struct opencl_merge merge;
        struct opencl_step step;
    };
};

/* Sets buffer number `which` and its offset, which is a multiple of `size`, or the call fails; -1 if it is
 * not given. */
int32_t opencl_launch_place(struct opencl_launch *launch, uint32_t which, const struct attn_buffer *buffer,
                            uint32_t size, const char *name, opencl_i64 *out_at, struct attn_error *err);
/* Adds a buffer if it is given; its offset is a multiple of `size`, or the call fails. */
int32_t opencl_launch_add(struct opencl_launch *launch, enum opencl_buffer which,
                          const struct attn_buffer *buffer, uint32_t size, const char *name,
                          struct attn_error *err);
/* Whether all rows and strides are multiples of 16 bytes, or of 8 elements of 8 bits. */
bool opencl_launch_is_aligned(const struct opencl_launch *launch);
/* Work-groups of a launch, and the work-items of each. */
struct opencl_grid {
    size_t groups[3];
    size_t items;
};
/* Nothing is launched if there are no groups. While the stream is captured, its graph keeps the launch. */
int32_t opencl_launch_enqueue(struct attn_backend_impl *backend, cl_kernel kernel,
                              const struct opencl_launch *launch, const struct opencl_grid *grid,
                              void *stream, struct attn_error *err);

/* The two steps of it: a kernel is the caller's alone from the first to the second. */
cl_int opencl_launch_set(const struct opencl_functions *cl, cl_kernel kernel,
                         const struct opencl_launch *launch);
int32_t opencl_launch_start(const struct opencl_functions *cl, cl_kernel kernel,
                            const struct opencl_grid *grid, cl_command_queue queue, struct attn_error *err);

/* Adds a scale; a host array has counts[] values for outer, token and head, where it has a stride. */
int32_t opencl_scale_add(struct attn_backend_impl *backend, struct opencl_launch *launch,
                         enum opencl_buffer which, const struct attn_scale *from, const uint64_t counts[3],
                         const char *name, struct attn_error *err);
/* A scale as kernels read it: a buffer, or `scale.value` where that is NULL. */
struct opencl_scale_source {
    struct opencl_scale scale;
    cl_mem buffer;
    cl_mem owned; /* the buffer, if it was made here */
    opencl_i64 at;
};
int32_t opencl_scale_resolve(struct attn_backend_impl *backend, const struct attn_scale *from,
                             const uint64_t counts[3], const char *name, struct opencl_scale_source *out,
                             struct attn_error *err);
/* Frees what a launch owns, whether it was enqueued or not. */
void opencl_launch_release(struct attn_backend_impl *backend, struct opencl_launch *launch);

/* A buffer of a call. */
struct opencl_place {
    enum opencl_buffer which;
    const struct attn_buffer *buffer;
    uint32_t size; /* of an element */
    const char *name;
};
/* Adds those that are given. */
int32_t opencl_resolve_places(struct opencl_launch *launch, const struct opencl_place *places, size_t count,
                              struct attn_error *err);
/* The arrays of a batch, and where its keys are. */
int32_t opencl_resolve_batch(struct opencl_launch *launch, const struct attn_batch *batch,
                             uint32_t addressing, uint32_t index_dtype, struct attn_error *err);
int32_t opencl_resolve_cache(struct attn_backend_impl *backend, struct opencl_launch *launch,
                             const struct attn_kv_desc *desc, struct attn_error *err);
struct opencl_rows opencl_rows_of(const struct attn_tensor *tensor);
int32_t opencl_resolve_run(struct attn_backend_impl *backend, struct opencl_launch *launch,
                           const struct attn_problem *problem, const struct attn_batch *batch,
                           const struct attn_tensors *tensors, const struct attn_kv_desc *desc,
                           struct attn_error *err);

/* ---------------------------------------------------------------- graphs (graph.c) */

int32_t opencl_graph_begin(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                           struct attn_error *err);
int32_t opencl_graph_add_host(struct attn_graph_impl *graph, attn_host_fn fn, void *arg,
                              struct attn_error *err);
int32_t opencl_graph_end(struct attn_graph_impl *graph, struct attn_error *err);
int32_t opencl_graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err);
void opencl_graph_destroy(struct attn_graph_impl *graph);

/* The graph that captures a stream, or NULL. */
struct attn_graph_impl *opencl_graph_find(struct attn_backend_impl *backend, void *stream);
/* ATTN_E_STATE with the text if the stream is captured. */
int32_t opencl_graph_refuse(struct attn_backend_impl *backend, void *stream, const char *text,
                            struct attn_error *err);
/* The stream ends; a capture of it fails. */
void opencl_graph_forget(struct attn_backend_impl *backend, void *stream);
/* Keep a command as it is now, with its arguments and buffers. */
int32_t opencl_graph_add_launch(struct attn_graph_impl *graph, cl_kernel kernel,
                                const struct opencl_launch *launch, const struct opencl_grid *grid,
                                struct attn_error *err);
int32_t opencl_graph_add_copy(struct attn_graph_impl *graph, const struct opencl_copy *copy,
                              struct attn_error *err);

/* ---------------------------------------------------------------- caches (kv.c, kv-move.c, kv-gather.c,
 * kv-convert.c, step.c) */

/* Keys or values of a cache, without their scale. */
struct opencl_side opencl_side_of(const struct attn_kv_desc *desc, bool values);
/* Keys alone with MLA. */
static inline uint32_t opencl_sides(const struct attn_kv_desc *desc)
{
    return desc->v.data != NULL ? 2 : 1;
}
/* Whether vectors have scales of their own, which are written with them. */
bool opencl_has_own_scales(const struct attn_scale *scale, uint32_t dtype);
/* Refuses scales of single vectors in host memory, which no kernel writes. */
int32_t opencl_own_scales_check(const struct attn_kv_desc *desc, struct attn_error *err);

int32_t opencl_kv_copy_slots(struct attn_backend_impl *backend, const struct attn_kv_copy_slots_args *args,
                             const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                             struct attn_error *err);
int32_t opencl_kv_copy_blocks(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                              const struct attn_kv_ref *caches, void *stream, struct attn_error *err);
int32_t opencl_kv_swap_blocks(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                              const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                              struct attn_error *err);
int32_t opencl_kv_gather(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                         const struct attn_kv_ref *cache, void *stream, struct attn_error *err);
int32_t opencl_kv_convert(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                          const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                          struct attn_error *err);
int32_t opencl_kv_advance_step(struct attn_backend_impl *backend,
                               const struct attn_kv_advance_step_args *args, void *stream,
                               struct attn_error *err);

/* ---------------------------------------------------------------- tables (caps.c, plan.c, kv.c, merge.c) */

int32_t opencl_query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out);
int32_t opencl_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count);

/* Whether elements of a type are read and written. */
bool opencl_is_served(uint32_t dtype);

extern const struct attn_plan_table opencl_plan_table;
extern const struct attn_kv_table opencl_kv_table;
extern const struct attn_merge_table opencl_merge_table;

/* Bytes of an element. */
static inline uint32_t opencl_size(uint32_t dtype)
{
    return dtype >> 11 & 31;
}

#endif
