/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The interface between libattn and a plugin. A plugin is one shared object named libattn-VENDOR.so with
 *
 *   - an ELF note, written by ATTN_PLUGIN_NOTE, that is read before anything of the file runs, and
 *   - one exported function, attn_plugin_entry_v1, that returns a constant table.
 *
 * A plugin links nothing of libattn: services come in through struct attn_host. plugins/README.md has the ten
 * steps and the rules; plugins/template is the smallest complete plugin.
 *
 * Rules for every function in every table:
 *   - it returns an int32_t status (attn/types.h) unless it returns nothing; it fills `err` if it fails and
 *     err is not NULL, with the name of the argument at fault in `field`;
 *   - sized structs come in with at least the size that the plugin stated in its table; bytes beyond it are
 *     zero, or the host has refused the call;
 *   - strings in tables are static; no memory is freed by the other side;
 *   - it may be called from any thread; no lock of the host is held;
 *   - nothing is printed, no signal handler, exit handler, environment variable, locale or floating-point
 *     mode is changed, and no thread outlives finish.
 *
 * What a function may rely on: arguments are judged once, by the host, before a plugin sees them.
 *   - What the problem needs is given, what it does not use is not; of a handle and a description one is.
 *   - Counts are within the plan's maxima; types, layouts, heads, dimensions and granularities of scales are
 *     the problem's, or those of both caches of a call.
 *   - Strides are whole elements, extents fit 63 bits, rows that are written do not overlap.
 *   - Blocks have the bytes that the plan's sizes say.
 *   - Host copies of a batch and lists in host memory hold values within their ranges.
 *
 * What only the plugin can know it checks itself: the alignment of addresses, limits of its own, whether a
 * schedule is the plan's, and what arrays in its memory hold, if it can look. Where it cannot (a kernel has
 * no way to fail) it leaves that to the caller. Builders call memory tables and advance_step directly,
 * with arrays of their own.
 *
 * Tables are const, begin with their size, and are copied once into zeroed tables of the host's size. A NULL
 * entry that is marked optional means "not offered"; a NULL entry that is not makes the plugin unusable
 * (reason MISSING_FUNCTION).
 */
#ifndef ATTN_PLUGIN_H
#define ATTN_PLUGIN_H

#include "attn/layer-types.h"
#include "attn/types.h"
#include "attn/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- the note */

/* Lowest CPU level of the whole file, checked before loading. Kernels of higher levels are chosen at run
 * time. */
enum attn_cpu_level {
    ATTN_CPU_BASELINE = 1, /* any CPU of the architecture */
    ATTN_CPU_X86_64_V2 = 2,
    ATTN_CPU_X86_64_V3 = 3,
    ATTN_CPU_X86_64_V4 = 4
};

#define ATTN_NOTE_OWNER   "libattn" /* 8 bytes with its end */
#define ATTN_NOTE_TYPE    1         /* of the ELF note */
#define ATTN_NOTE_VERSION 1         /* of struct attn_note */

/* The note's contents. All texts end with a zero byte inside of their arrays. */
struct attn_note {
    uint32_t note_version; /* ATTN_NOTE_VERSION */
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t device_class; /* enum attn_device_class: the best that the file can offer */
    uint32_t cpu_level;    /* enum attn_cpu_level */
    uint32_t reserved;
    char name[32];      /* VENDOR of the file name and of the backend names */
    char vendor[64];    /* who makes it, for people */
    char version[32];   /* of the plugin */
    char backends[160]; /* comma-separated names: "cpu/flash-attn,cpu/flashinfer" */
};

/* AddressSanitizer of clang would put gaps around the note, and the gaps into the note section. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ATTN__NOTE_GAPLESS __attribute__((no_sanitize("address")))
#endif
#endif
#ifndef ATTN__NOTE_GAPLESS
#define ATTN__NOTE_GAPLESS
#endif

/* Places the note. Once per plugin, outside of any function. */
#define ATTN_PLUGIN_NOTE(name_, vendor_, version_, backends_, device_class_, cpu_level_)                     \
    ATTN__NOTE_GAPLESS __attribute__((used, aligned(4), section(".note.libattn"))) static const struct {     \
        uint32_t name_size, desc_size, type;                                                                 \
        char owner[8];                                                                                       \
        struct attn_note note;                                                                               \
    } attn_plugin_note = {sizeof ATTN_NOTE_OWNER,                                                            \
                          sizeof(struct attn_note),                                                          \
                          ATTN_NOTE_TYPE,                                                                    \
                          ATTN_NOTE_OWNER,                                                                   \
                          {ATTN_NOTE_VERSION, ATTN_ABI_MAJOR, ATTN_ABI_MINOR, (device_class_), (cpu_level_), \
                           0, name_, vendor_, version_, backends_}}

/* ---------------------------------------------------------------- host services */

/* An instance of a plugin, made by one call of its entry. Defined by the plugin. */
struct attn_instance;

/* Services of the host. Callable from any thread until finish returns. */
struct attn_host {
    uint32_t struct_size;
    uint32_t abi_minor;                  /* of the host */
    void *ctx;                           /* first argument of the functions */
    struct attn_instance **out_instance; /* where the entry puts its instance; stays NULL if it has none */
    /* One line of text. */
    void (*log)(void *ctx, uint32_t level, const char *subsystem, const char *text);
    /* The caller's threads, or NULL if the caller gave none: then the plugin uses its own. */
    attn_parallel_for_fn parallel_for; /* first argument: ctx */
    /* Monotonic nanoseconds. */
    uint64_t (*clock)(void *ctx);
    /* Value of an option (ATTN_THREADS, ATTN_<PLUGIN>_...) or NULL. Lives until finish returns. */
    const char *(*get_option)(void *ctx, const char *key);
};

/* ---------------------------------------------------------------- tables */

struct attn_backend_impl; /* one backend on one device; defined by the plugin */
struct attn_plan_impl;
struct attn_kv_impl;
struct attn_graph_impl;

/* One device of a plugin. */
struct attn_device_info {
    uint32_t struct_size;
    uint32_t device_class; /* enum attn_device_class of this device */
    struct attn_device device;
    uint64_t memory_bytes; /* 0 = not known */
    uint32_t units;        /* multiprocessors, cores */
    uint32_t reserved;
    char name[64]; /* for people */
    char arch[32]; /* "sm_90", "gfx942", "avx2" */
};

/*
 * Plans. `stream` is the vendor's: cudaStream_t, hipStream_t, cl_command_queue, struct attn_cpu_executor *.
 */
struct attn_plan_table {
    uint32_t struct_size;
    uint32_t reserved;
    /*
     * Required. All lazy initialisation happens here. The problem is resolved, with all four maxima given,
     * and the query accepted it for this device.
     */
    int32_t (*create)(struct attn_backend_impl *backend, const struct attn_problem *problem,
                      struct attn_plan_impl **out, struct attn_error *err);
    /* Required. */
    int32_t (*sizes)(const struct attn_plan_impl *plan, struct attn_plan_sizes *out);
    /* Required. Writes a schedule: no pointers inside. */
    int32_t (*prepare)(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                       const struct attn_span *schedule, const struct attn_span *staging, void *stream,
                       struct attn_error *err);
    /*
     * Required. Reads the schedule, allocates nothing, waits for nothing. At most one of kv and desc is
     * given.
     */
    int32_t (*run)(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                   const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                   const struct attn_kv_desc *desc, const struct attn_span *schedule,
                   const struct attn_scratch *scratch, void *stream, struct attn_error *err);
    /* Required. */
    void (*destroy)(struct attn_plan_impl *plan);
    /* Optional. Prepares n plans with one staging copy. */
    int32_t (*prepare_many)(const struct attn_plan_impl *const *plans,
                            const struct attn_batch *const *batches, const struct attn_span *schedules,
                            uint32_t n, const struct attn_span *staging, void *stream,
                            struct attn_error *err);
    /* Optional. */
    int32_t (*describe)(const struct attn_plan_impl *plan, struct attn_plan_info *out);
};

/* Leaf. One cache of a call: exactly one of the two is given. */
struct attn_kv_ref {
    const struct attn_kv_impl *kv;
    const struct attn_kv_desc *desc;
};

/* Caches of one call of copy_blocks. */
#define ATTN_KV_LAYERS_MAX 16

/*
 * Caches. The optional entries are described with their arguments in types.h; the host
 * passes no call on that has nothing to do. Caches come as references; the handles and
 * descriptions in the arguments are not looked at.
 */
struct attn_kv_table {
    uint32_t struct_size;
    uint32_t reserved;
    /*
     * Required. Shape of a cache of `pages` pages for a resolved problem. Here and in create
     * ATTN_E_UNSUPPORTED if k or v has blocks (attn_block_bytes) and the plugin has no kernels for that; no
     * call that writes or moves vectors gets such a cache.
     */
    int32_t (*shape)(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                     struct attn_kv_shape *out, struct attn_error *err);
    /* Required. Encodes a description. The plugin copies it. */
    int32_t (*create)(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                      struct attn_kv_impl **out, struct attn_error *err);
    /* Required. */
    void (*destroy)(struct attn_kv_impl *kv);
    /* Required. Exactly one of kv and desc is given. */
    int32_t (*write)(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                     const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                     struct attn_error *err);
    /* Optional. */
    int32_t (*slot_mapping)(struct attn_backend_impl *backend, const struct attn_kv_slot_mapping_args *args,
                            void *stream, struct attn_error *err);
    /* Optional. */
    int32_t (*copy_slots)(struct attn_backend_impl *backend, const struct attn_kv_copy_slots_args *args,
                          const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                          struct attn_error *err);
    /*
     * Optional. `caches` has args->layers members, at most ATTN_KV_LAYERS_MAX: for more layers the host
     * makes several calls.
     */
    int32_t (*copy_blocks)(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                           const struct attn_kv_ref *caches, void *stream, struct attn_error *err);
    /* Optional. */
    int32_t (*swap_blocks)(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                           const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                           struct attn_error *err);
    /* Optional. */
    int32_t (*gather)(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                      const struct attn_kv_ref *cache, void *stream, struct attn_error *err);
    /* Optional. */
    int32_t (*convert)(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                       const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                       struct attn_error *err);
    /* Optional. */
    int32_t (*advance_step)(struct attn_backend_impl *backend, const struct attn_kv_advance_step_args *args,
                            void *stream, struct attn_error *err);
};

/* Merge of partial results. The whole table is optional. */
struct attn_merge_table {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*merge)(struct attn_backend_impl *backend, const struct attn_merge_args *args, void *stream,
                     struct attn_error *err); /* optional */
    int32_t (*rescale)(struct attn_backend_impl *backend, const struct attn_rescale_args *args, void *stream,
                       struct attn_error *err); /* optional */
};

/* Memory, streams, events and graphs. attn/device.h says what the optional ones do. */
struct attn_memory_table {
    uint32_t struct_size;
    uint32_t reserved;
    /* Required. Aligned to 64 bytes at least. */
    int32_t (*alloc)(struct attn_backend_impl *backend, uint64_t size, struct attn_buffer *out,
                     struct attn_error *err);
    /* Required. */
    void (*free)(struct attn_backend_impl *backend, const struct attn_buffer *buffer);
    /* Required. In stream order; host memory must stay until the stream has passed. */
    int32_t (*copy)(struct attn_backend_impl *backend, const struct attn_buffer *to,
                    const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                    struct attn_error *err);
    /* Optional: pinned host memory. */
    int32_t (*alloc_pinned)(struct attn_backend_impl *backend, uint64_t size, void **out,
                            struct attn_error *err);
    void (*free_pinned)(struct attn_backend_impl *backend, void *memory);
    /* Optional: streams. *out is what the other functions take as `stream`. */
    int32_t (*stream_create)(struct attn_backend_impl *backend, void **out, struct attn_error *err);
    int32_t (*stream_synchronize)(struct attn_backend_impl *backend, void *stream, struct attn_error *err);
    void (*stream_destroy)(struct attn_backend_impl *backend, void *stream);
    /* Optional, all or none: events. A query answers ATTN_OK or ATTN_E_BUSY. */
    int32_t (*event_create)(struct attn_backend_impl *backend, void **out, struct attn_error *err);
    int32_t (*event_record)(struct attn_backend_impl *backend, void *event, void *stream,
                            struct attn_error *err);
    int32_t (*event_query)(struct attn_backend_impl *backend, void *event, struct attn_error *err);
    int32_t (*event_synchronize)(struct attn_backend_impl *backend, void *event, struct attn_error *err);
    void (*event_destroy)(struct attn_backend_impl *backend, void *event);
    /*
     * Optional, all or none: graphs. A plugin whose query answers a graph level has them. The host passes no
     * stream NULL to graph_begin, calls add_host only before and launch only after a graph_end that
     * succeeded. Plans and caches may be destroyed before the graph.
     */
    int32_t (*graph_begin)(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                           struct attn_error *err);
    int32_t (*graph_add_host)(struct attn_graph_impl *graph, attn_host_fn fn, void *arg,
                              struct attn_error *err);
    int32_t (*graph_end)(struct attn_graph_impl *graph, struct attn_error *err);
    int32_t (*graph_launch)(struct attn_graph_impl *graph, void *stream, struct attn_error *err);
    void (*graph_destroy)(struct attn_graph_impl *graph);
};

/* ---------------------------------------------------------------- serving */

struct attn_backend; /* handles of the host */
struct attn_plan;
struct attn_kv;
struct attn_builder_impl;  /* defined by the implementation of the builder */
struct attn_metadata_impl; /* belongs to its builder */

struct attn_cp; /* attn/parallel.h, which is experimental */
struct attn_cp_params;
struct attn_cp_run_args;

/*
 * The backend that a builder, a state or a layer belongs to: its own tables, and functions of attn.h and
 * device.h by these names, which check arguments as for any caller. An implementation that keeps it copies
 * it; it is valid until the object that it was given for is destroyed. A builder without a backend gets
 * struct_size and device_type (ATTN_DEVICE_CPU) alone, and works in host memory; otherwise all is given.
 */
struct attn_serving_host {
    uint32_t struct_size;
    uint32_t device_type; /* enum attn_device_type of the backend's device */
    const char *name;     /* "vendor/flavour" */
    struct attn_backend_impl *impl;
    const struct attn_memory_table *memory;
    const struct attn_kv_table *kv;
    struct attn_backend *backend; /* first argument of the functions */
    /* Fills in defaults, as attn_problem_resolve, and what the context's environment adds. */
    int32_t (*problem_resolve)(struct attn_backend *backend, const struct attn_problem *in,
                               struct attn_problem *out, struct attn_error *err);
    /* ATTN_OK if the backend serves a problem, ATTN_E_UNSUPPORTED with its reason if not. */
    int32_t (*problem_ask)(struct attn_backend *backend, const struct attn_problem *problem,
                           struct attn_error *err);
    int32_t (*plan_create)(struct attn_backend *backend, const struct attn_problem *problem,
                           struct attn_plan **out, struct attn_error *err);
    void (*plan_destroy)(struct attn_plan *plan);
    int32_t (*plan_get_sizes)(const struct attn_plan *plan, struct attn_plan_sizes *out,
                              struct attn_error *err);
    int32_t (*plan_prepare_many)(const struct attn_plan *const *plans,
                                 const struct attn_batch *const *batches, const struct attn_span *schedules,
                                 uint32_t n, const struct attn_span *staging, void *stream,
                                 struct attn_error *err);
    int32_t (*plan_run)(const struct attn_plan *plan, const struct attn_batch *batch,
                        const struct attn_tensors *tensors, const struct attn_span *schedule,
                        const struct attn_scratch *scratch, void *stream, struct attn_error *err);
    int32_t (*kv_write)(struct attn_backend *backend, const struct attn_kv_write_args *args, void *stream,
                        struct attn_error *err);
    int32_t (*memory_alloc)(struct attn_backend *backend, uint64_t size, struct attn_buffer *out,
                            struct attn_error *err);
    void (*memory_free)(struct attn_backend *backend, const struct attn_buffer *buffer);
    int32_t (*memory_copy)(struct attn_backend *backend, const struct attn_buffer *to,
                           const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                           struct attn_error *err);
    int32_t (*memory_alloc_pinned)(struct attn_backend *backend, uint64_t size, void **out,
                                   struct attn_error *err);
    void (*memory_free_pinned)(struct attn_backend *backend, void *memory);
    int32_t (*stream_synchronize)(struct attn_backend *backend, void *stream, struct attn_error *err);
    int32_t (*event_create)(struct attn_backend *backend, void **out, struct attn_error *err);
    int32_t (*event_record)(struct attn_backend *backend, void *event, void *stream, struct attn_error *err);
    int32_t (*event_query)(struct attn_backend *backend, void *event, struct attn_error *err);
    void (*event_destroy)(struct attn_backend *backend, void *event);
    /* Keys on several ranks, for states with collectives. Experimental, as attn/parallel.h is. */
    int32_t (*cp_create)(struct attn_backend *backend, const struct attn_cp_params *params,
                         struct attn_cp **out, struct attn_error *err);
    void (*cp_destroy)(struct attn_cp *cp);
    int32_t (*cp_run)(struct attn_cp *cp, const struct attn_cp_run_args *args, void *stream,
                      struct attn_error *err);
    int32_t (*cp_wait)(struct attn_cp *cp, void *stream, struct attn_error *err);
};

/*
 * A builder of metadata. The whole table is optional: without one libattn uses that of libattn-serving, a
 * static library for plugins that change a part of it. attn/layer.h says what the calls do.
 */
struct attn_builder_table {
    uint32_t struct_size;
    uint32_t params_size; /* of the argument structs that the plugin was built with: ATTN_BUILDER_SIZES */
    uint32_t add_size;
    uint32_t row_size;
    uint32_t build_size;
    uint32_t advance_size;
    /* Required. Strings and lists behind the parameters are the caller's. */
    int32_t (*create)(const struct attn_serving_host *host, const struct attn_builder_params *params,
                      struct attn_builder_impl **out, struct attn_error *err);
    /* Required. Not called in a child after fork, unless the builder has no backend. */
    void (*destroy)(struct attn_builder_impl *builder);
    /* Required. */
    int32_t (*reset)(struct attn_builder_impl *builder, struct attn_error *err);
    /* Required. */
    int32_t (*add)(struct attn_builder_impl *builder, const struct attn_builder_add_args *args,
                   struct attn_error *err);
    /* Required. */
    int32_t (*set_row)(struct attn_builder_impl *builder, const struct attn_builder_row_args *args,
                       struct attn_error *err);
    /* Required. `args` is never NULL. */
    int32_t (*build)(struct attn_builder_impl *builder, const struct attn_builder_build_args *args,
                     void *stream, struct attn_metadata_impl **out, struct attn_error *err);
    /*
     * Required. `out` has this plugin's size or more; its kind is ATTN_VIEW_NULL for fields without a value.
     * ATTN_E_INVALID for numbers that are no field, group or modality. Reads what the builder made, and what
     * a state's get_capture_metadata gave.
     */
    int32_t (*get)(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index,
                   struct attn_view *out, struct attn_error *err);
    /* Optional, like the rest. */
    int32_t (*part)(struct attn_builder_impl *builder, uint32_t part, struct attn_metadata_impl **out,
                    struct attn_error *err);
    int32_t (*advance)(struct attn_builder_impl *builder, const struct attn_advance_args *args, void *stream,
                       struct attn_error *err);
    /* *out_size is set to what is needed even if that is more than `capacity`. */
    int32_t (*serialise)(const struct attn_builder_impl *builder, void *data, uint64_t capacity,
                         uint64_t *out_size, struct attn_error *err);
    int32_t (*restore)(struct attn_builder_impl *builder, const void *data, uint64_t size, void *stream,
                       struct attn_metadata_impl **out, struct attn_error *err);
    int32_t (*set_device)(struct attn_builder_impl *builder, const struct attn_builder_device_args *args,
                          struct attn_error *err);
};

/* The sizes of a struct attn_builder_table, as designated initialisers. */
#define ATTN_BUILDER_SIZES                                                                                   \
    .params_size = sizeof(struct attn_builder_params), .add_size = sizeof(struct attn_builder_add_args),     \
    .row_size = sizeof(struct attn_builder_row_args), .build_size = sizeof(struct attn_builder_build_args),  \
    .advance_size = sizeof(struct attn_advance_args)

struct attn_state_impl; /* defined by the implementation of the state, */
struct attn_layer_impl; /* and of the layers */

/*
 * A state: plans of a model's layer classes, and what graphs are captured with. The whole table is optional:
 * without one libattn uses that of libattn-serving, which plugins can take a part of. Metadata comes from the
 * backend's builder or from get_capture_metadata. attn/layer.h says what the calls do; the host deals with
 * handles, forks and lost devices.
 */
struct attn_state_table {
    uint32_t struct_size;
    uint32_t params_size; /* of the argument structs that the plugin was built with: ATTN_STATE_SIZES */
    uint32_t capture_size;
    uint32_t step_size;
    /* Required. `classes` and what `params` points to are the caller's. */
    int32_t (*create)(const struct attn_serving_host *host, const struct attn_layer_class *classes,
                      uint32_t count, const struct attn_state_params *params, struct attn_state_impl **out,
                      struct attn_error *err);
    /*
     * Required. Clones may outlive their state. Called in a child after fork too, where the host's functions
     * release nothing of the device: memory of the device is given back through them alone.
     */
    void (*destroy)(struct attn_state_impl *state);
    /* Required. */
    int32_t (*begin_forward)(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                             void *stream, struct attn_error *err);
    /* Optional, all or none, like the rest: graphs. */
    int32_t (*begin_capture)(struct attn_state_impl *state, uint32_t max_batch, void *stream,
                             struct attn_error *err);
    int32_t (*end_capture)(struct attn_state_impl *state, struct attn_error *err);
    /*
     * The metadata lives until the next call, the end of the capture, or as long as the clone that is made of
     * it. ATTN_E_UNSUPPORTED: a size that this state captures no graphs of.
     */
    int32_t (*get_capture_metadata)(struct attn_state_impl *state, const struct attn_state_capture_args *args,
                                    void *stream, struct attn_metadata_impl **out, struct attn_error *err);
    int32_t (*clone)(struct attn_state_impl *state, uint32_t batch, struct attn_state_impl **out,
                     struct attn_error *err);
    int32_t (*get_input)(const struct attn_state_impl *state, uint32_t field, uint32_t index,
                         struct attn_view *out, struct attn_error *err);
    int32_t (*prepare)(struct attn_state_impl *state, const struct attn_metadata_impl *metadata, void *stream,
                       struct attn_error *err);
    /* Optional. For engines that run plans themselves. */
    int32_t (*get_step)(const struct attn_state_impl *state, uint32_t layer_class,
                        struct attn_state_step *out, struct attn_error *err);
    /* Optional. attn_state_wait; a state without it is given no collectives. */
    int32_t (*wait)(struct attn_state_impl *state, void *stream, struct attn_error *err);
};

/* The sizes of a struct attn_state_table, as designated initialisers. */
#define ATTN_STATE_SIZES                                                                                     \
    .params_size = sizeof(struct attn_state_params), .capture_size = sizeof(struct attn_state_capture_args), \
    .step_size = sizeof(struct attn_state_step)

/* Layers. Given exactly if the table of the state is. */
struct attn_layer_table {
    uint32_t struct_size;
    uint32_t desc_size; /* of the argument structs that the plugin was built with: ATTN_LAYER_SIZES */
    uint32_t tensors_size;
    uint32_t reserved;
    /* Required. The class in `desc` is the caller's. */
    int32_t (*create)(const struct attn_serving_host *host, const struct attn_layer_desc *desc,
                      struct attn_layer_impl **out, struct attn_error *err);
    /* Required. Called in a child after fork too, as that of a state. */
    void (*destroy)(struct attn_layer_impl *layer);
    /* Required. Allocates nothing. Layer and state are of one backend; `kv` is NULL or of it. */
    int32_t (*forward)(const struct attn_layer_impl *layer, struct attn_state_impl *state,
                       const struct attn_metadata_impl *metadata, struct attn_kv *kv,
                       const struct attn_layer_tensors *tensors, void *stream, struct attn_error *err);
};

/* The sizes of a struct attn_layer_table, as designated initialisers. */
#define ATTN_LAYER_SIZES                                                                                     \
    .desc_size = sizeof(struct attn_layer_desc), .tensors_size = sizeof(struct attn_layer_tensors)

/* One backend: a vendor's kernels under one flavour. */
struct attn_backend_table {
    uint32_t struct_size;
    uint32_t device_class; /* enum attn_device_class */
    const char *name;      /* "vendor/flavour", as in the note */
    const struct attn_plan_table *plan;
    const struct attn_kv_table *kv;
    const struct attn_merge_table *merge; /* optional */
    const struct attn_memory_table *memory;
    /*
     * Required. Fills the caller's arrays. With device NULL only predicates that need no device are asked and
     * no driver is opened. The problem is resolved. Returns ATTN_OK whether it is served or not.
     */
    int32_t (*query)(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out);
    /*
     * Required. Per key of the problem string a constant list of values or ranges such that, other keys
     * equal, one answer holds within a range.
     */
    int32_t (*axes)(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count);
    /* Required. */
    int32_t (*open)(struct attn_instance *instance, const struct attn_device *device,
                    const struct attn_open_config *config, struct attn_backend_impl **out,
                    struct attn_error *err);
    /* Required. Every plan and kv of it was destroyed before. */
    void (*close)(struct attn_backend_impl *backend);
    /* Optional. A table of an extension, or NULL. */
    const void *(*get_extension)(struct attn_instance *instance, const char *name);
    const struct attn_builder_table *builder; /* optional, like the next two, which come together with it */
    const struct attn_state_table *state;
    const struct attn_layer_table *layer;
};

/* A plugin. Every member is required but the last. */
struct attn_plugin {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    /* Sizes of the argument structs that the plugin was built with: ATTN_PLUGIN_SIZES. */
    uint32_t problem_size;
    uint32_t batch_size;
    uint32_t tensors_size;
    uint32_t kv_desc_size;
    uint32_t kv_write_size;
    uint32_t merge_size;
    uint32_t rescale_size;
    uint32_t scratch_size;
    uint32_t open_config_size;
    uint32_t slot_mapping_size;
    uint32_t copy_slots_size;
    uint32_t copy_blocks_size;
    uint32_t swap_blocks_size;
    uint32_t gather_size;
    uint32_t convert_size;
    uint32_t advance_step_size;
    uint32_t reserved;
    const char *name; /* as in the note */
    const char *vendor;
    const char *version;
    /*
     * Devices, best first. Opens the driver. Writes at most `capacity` records and the true number. No
     * driver: ATTN_E_DEVICE with reason NO_DRIVER; no device: ATTN_OK and 0.
     */
    int32_t (*get_devices)(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *out_count, struct attn_error *err);
    /* The tables of all backends; static. */
    int32_t (*get_backends)(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *out_count, struct attn_error *err);
    /* Joins all threads, releases all driver objects. */
    void (*finish)(struct attn_instance *instance);
    /*
     * What its devices are called in device= and in "NAME:0": at most 20 of [a-z0-9_-]. NULL: "cpu" for
     * devices of type ATTN_DEVICE_CPU, else the plugin's name.
     */
    const char *device_type;
};

/* The sizes of a struct attn_plugin, as designated initialisers. */
#define ATTN_PLUGIN_SIZES                                                                                    \
    .problem_size = sizeof(struct attn_problem), .batch_size = sizeof(struct attn_batch),                    \
    .tensors_size = sizeof(struct attn_tensors), .kv_desc_size = sizeof(struct attn_kv_desc),                \
    .kv_write_size = sizeof(struct attn_kv_write_args), .merge_size = sizeof(struct attn_merge_args),        \
    .rescale_size = sizeof(struct attn_rescale_args), .scratch_size = sizeof(struct attn_scratch),           \
    .open_config_size = sizeof(struct attn_open_config),                                                     \
    .slot_mapping_size = sizeof(struct attn_kv_slot_mapping_args),                                           \
    .copy_slots_size = sizeof(struct attn_kv_copy_slots_args),                                               \
    .copy_blocks_size = sizeof(struct attn_kv_copy_blocks_args),                                             \
    .swap_blocks_size = sizeof(struct attn_kv_swap_blocks_args),                                             \
    .gather_size = sizeof(struct attn_kv_gather_args), .convert_size = sizeof(struct attn_kv_convert_args),  \
    .advance_step_size = sizeof(struct attn_kv_advance_step_args)

#if defined(__GNUC__)
#define ATTN_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define ATTN_PLUGIN_EXPORT
#endif
/*
 * The entry. Puts its constant table into *out and, if it has state, its instance into *host->out_instance.
 * May be called many times; each call is ended by finish. Opens no driver, starts no thread.
 */
ATTN_PLUGIN_EXPORT int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                                                struct attn_error *err);

#ifdef __cplusplus
}
#endif
#endif
