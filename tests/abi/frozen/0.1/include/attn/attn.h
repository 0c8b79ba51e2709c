/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * libattn: the attention layer of a language-model server, on whatever hardware is there.
 *
 * The simple way, for one layer class and one step at a time:
 *
 *   attn_open       a problem string; selects a backend and opens it.
 *   attn_forward    lengths and tensors of one layer; memory is made on first use and kept.
 *   attn_close
 *
 * The full way, where nothing is allocated and nothing waits while a step runs:
 *
 *   1. attn_context_create    reads the environment and the notes of the plugins on the search path;
 *                             nothing of any plugin has run yet.
 *   2. attn_problem_parse     "heads=32 kv_heads=8 head_dim=128 q=bf16 max_seqs=8 ..."
 *   3. attn_select            loads what was asked for, asks the candidates, decides, and keeps why.
 *   4. attn_backend_open      the winner, on its device.
 *   5. attn_plan_create       once per layer class: chosen kernels, immutable.
 *   6. attn_plan_prepare      once per step: a schedule in the caller's memory.
 *   7. attn_kv_write, attn_plan_run    once per layer: write the new keys, run attention.
 *
 * Errors: every fallible function returns a status (0 = ATTN_OK, negative = error) and fills the optional
 * struct attn_error with one sentence that names the argument, its value and what is accepted. The library
 * never aborts, never exits, and prints only through its log sink.
 *
 * Parameters that mean the same in all functions, device.h and layer.h included:
 *   err       where an error is described; NULL: not wanted. It stays as it is if the call succeeds.
 *   out       where the result goes; after a failure a handle is NULL there, unless the function says more.
 *   stream    the backend's queue that the work is put in order of, as the vendor's runtime has it; NULL: its
 *             default one. attn_stream_create makes one; on the CPU: struct attn_cpu_executor.
 *   index     number of what is asked for, from 0.
 *   count     how many the array in front of it has.
 *
 * Ownership: whoever allocates frees. Cache, inputs, outputs, schedules and scratch belong to the caller.
 * Handles are counted: they may be destroyed in any order, and a parent goes with its last child. Destroy
 * takes NULL and never fails. Strings returned by a handle live as long as the handle.
 *
 * Threads: contexts, reports, decisions, parts, backends, plans and kv handles may be used from any thread at
 * once. After fork a child may only destroy handles or make a new context; other calls answer ATTN_E_STATE.
 */
#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H

#include "attn/types.h"
#include "attn/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Defined as nothing where functions are linked into something else, which exports its own. */
#ifndef ATTN_API
#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif
#endif

struct attn_context;
struct attn_report;
struct attn_decision;
struct attn_backend;
struct attn_plan;
struct attn_kv;

/* ---------------------------------------------------------------- version, names, texts */

/* "0.1.0", static. */
ATTN_API const char *attn_version(void);

/* Name of a `status`: "ATTN_E_SIZE", static; never NULL ("ATTN_E_UNKNOWN" for a foreign number). */
ATTN_API const char *attn_status_name(int32_t status);
/* What a `status` says, in one line, static; never NULL. */
ATTN_API const char *attn_status_text(int32_t status);
/* What to do about a `status`, in one line, static; never NULL. */
ATTN_API const char *attn_status_advice(int32_t status);

/* Name of a `reason`: "HEAD_DIM", static; never NULL. Codes of plugins are "PRIVATE". */
ATTN_API const char *attn_reason_name(uint32_t reason);
/* What a `reason` says, in one line, static; never NULL. */
ATTN_API const char *attn_reason_text(uint32_t reason);
/* What to do about a `reason`, in one line, static; never NULL. */
ATTN_API const char *attn_reason_advice(uint32_t reason);

/* 1 if the reason is an absence (information), 0 if it is a refusal or an advice. */
ATTN_API int32_t attn_reason_is_absence(uint32_t reason);
/*
 * 1 if the reason's text is a message of its own: where a backend that was asked for gives it, errors, logs
 * and decisions say that text and nothing else.
 */
ATTN_API int32_t attn_reason_is_explicit(uint32_t reason);

/* Name of a `dtype`: "f16", static; NULL for a number that is no enum attn_dtype. */
ATTN_API const char *attn_dtype_name(uint32_t dtype);
/* Bytes of an element of a `dtype`; 0 for foreign numbers, and for types that have blocks: attn_row_bytes. */
ATTN_API uint32_t attn_dtype_size(uint32_t dtype);

/* ---------------------------------------------------------------- the simple way */

struct attn_session;

/*
 * Selects the backend for one problem, by the rules of attn_select, and opens it. Maxima that the problem
 * leaves out follow from the calls; those that it gives are limits. `device` says whose memory the
 * tensors are in: "cpu" for arrays of the program, "cuda", "cuda:1"; NULL takes the best device there is. A
 * session belongs to one thread and one stream at a time: a program waits for the one before it goes on with
 * another.
 *
 * ATTN_E_INVALID (the problem string), ATTN_E_NO_BACKEND, ATTN_E_UNSUPPORTED: addr=csr, positions=1,
 * seq_causal=1 and cp=1, which attn_forward has no arguments for.
 */
ATTN_API int32_t attn_open(const char *problem, const char *device, struct attn_session **out,
                           struct attn_error *err);
/* On a stream other than NULL the program waits for what it runs first, and then destroys the stream. */
ATTN_API void attn_close(struct attn_session *session);

/* The session's backend, for memory, streams and kv handles; lives as long as the session. */
ATTN_API struct attn_backend *attn_session_get_backend(const struct attn_session *session);

/*
 * One layer of one step. Lengths and tables are host memory and are read during the call; tensors and caches
 * are the backend's memory (on the CPU they are the same). n is `seqs`.
 */
struct attn_forward_args {
    uint32_t struct_size;
    uint32_t seqs;
    const int32_t *q_lens;  /* [n] query tokens of each sequence; NULL = one each */
    const int32_t *kv_lens; /* [n] keys of each, those of this call included; NULL = q_lens */
    const int32_t
        *table; /* addr=table: [n, table_width] pages of each; a negative entry is an invalid block */
    uint32_t table_width;
    float softmax_scale; /* 0 = 1 / sqrt(head_dim); MLA has no default */
    /* Rows of all sequences, one after the other. A tensor that carries its dtype is checked. */
    struct attn_tensor q;   /* [tokens, heads, head_dim] */
    struct attn_tensor k;   /* [tokens, kv_heads, head_dim] new keys; optional with kv_source=cache */
    struct attn_tensor v;   /* [tokens, kv_heads, head_dim_vo]; MLA has none */
    struct attn_tensor out; /* [tokens, heads, head_dim_vo] */
    struct attn_tensor lse; /* problem.lse: f32 [tokens, heads] */
    /*
     * The cache, unless kv_source=new: contiguous [pages, block, kv_heads, head_dim] and the same with
     * head_dim_vo, or `kv`. New keys and values are written to it first, behind the keys that are there. With
     * addr=dense sequence i has page i.
     */
    struct attn_buffer k_cache;
    struct attn_buffer v_cache; /* MLA has none */
    uint32_t pages;
    uint32_t block;     /* tokens per page; 0 = the problem's */
    struct attn_kv *kv; /* instead of the two: any layout, and caches with scales */
    /*
     * Masks, slopes, sinks, scales and q_rope, where the problem has them. Its q, k_new, v_new, out, lse,
     * caches and softmax_scale are not read.
     */
    const struct attn_tensors *extras;
};

/*
 * Runs one layer. The step is prepared anew if its lengths or tables differ from those of the last call: the
 * layers of a step after the first one cost what attn_plan_run costs and the comparison, which reads the
 * tables. Memory grows with the steps and stays until attn_close. The call does not wait for the result:
 * attn_stream_synchronize does; on the CPU it is there when the call returns. Not for graph capture.
 *
 * ATTN_E_INVALID names the member, its value and what is accepted. ATTN_E_MEMORY.
 */
ATTN_API int32_t attn_forward(struct attn_session *session, const struct attn_forward_args *args,
                              void *stream, struct attn_error *err);

/* ---------------------------------------------------------------- problems */

/*
 * Parses `text`, a problem string: KEY=VALUE separated by spaces or commas, in any order, each key once.
 * Keys, values and defaults: docs/problem.md. The result is resolved (see below). ATTN_E_INVALID names the
 * key, the value, what is accepted, and the nearest known key or value.
 */
ATTN_API int32_t attn_problem_parse(const char *text, struct attn_problem *out, struct attn_error *err);

/*
 * Checks a problem and fills every default, so that no member but `given` and counts depends on another one.
 * `out` may be `problem`. Resolving twice changes nothing.
 */
ATTN_API int32_t attn_problem_resolve(const struct attn_problem *problem, struct attn_problem *out,
                                      struct attn_error *err);

/*
 * Writes into `text` the canonical string of a problem: heads and head_dim, then every key that differs from
 * its default, in a fixed order. Parsing it gives the same problem. Always ends with a zero byte if size > 0.
 * *out_needed (optional) is the size it takes, with the end. ATTN_E_SIZE if it did not fit.
 */
ATTN_API int32_t attn_problem_format(const struct attn_problem *problem, char *text, size_t size,
                                     size_t *out_needed, struct attn_error *err);

/*
 * Name of key number `index` in canonical order, static, or NULL past the last one. Its default goes to
 * *out_default, what it accepts to *out_values; either may be NULL.
 */
ATTN_API const char *attn_problem_key(uint32_t index, const char **out_default, const char **out_values);

/* ---------------------------------------------------------------- context */

/* Receives log lines, from any thread. `text` has no line end. */
typedef void (*attn_log_fn)(void *user, uint32_t level, const char *subsystem, const char *text);

/* Bits of attn_context_options.given. */
#define ATTN_GIVEN_LOG UINT32_C(1) /* `log` counts even if NULL: silence */

/* How a context is made; all of it may be left out. */
struct attn_context_options {
    uint32_t struct_size;
    uint32_t given;          /* ATTN_GIVEN_* */
    const char *plugin_path; /* over ATTN_PLUGIN_PATH */
    attn_log_fn log;         /* replaces stderr */
    void *log_user;
    attn_parallel_for_fn parallel_for; /* the caller's threads, for plugins that compute on the host */
    void *parallel_for_arg;
    const char *const *variables; /* "NAME=VALUE" strings that take precedence over the environment */
    uint32_t variable_count;
    uint32_t reserved;
};

/*
 * Makes a context. `options` may be NULL. Takes a snapshot of the environment, lists the search path and
 * reads the note of each plugin file; loads nothing. What the process does to its environment afterwards does
 * not matter to the context; setenv, putenv or unsetenv in another thread during this call is a data race, as
 * it is with getenv. Bad values of variables are logged and kept in the
 * records of attn_context_get_variable, and the default holds. ATTN_E_INVALID (options), ATTN_E_MEMORY.
 */
ATTN_API int32_t attn_context_create(const struct attn_context_options *options, struct attn_context **out,
                                     struct attn_error *err);
/* Gives a context back; reports and backends that were made with it stay. NULL is ignored. */
ATTN_API void attn_context_destroy(struct attn_context *context);

/*
 * Reads the directories again: new files are seen, vanished ones are dropped unless they are loaded, and
 * every quarantine ends.
 */
ATTN_API int32_t attn_context_rescan(struct attn_context *context, struct attn_error *err);

/*
 * Opens every plugin that the wanted list admits, and lists its devices. `attn_select` opens only what it
 * needs; this is for programs that show everything.
 */
ATTN_API int32_t attn_context_load_all(struct attn_context *context, struct attn_error *err);

/* One environment variable. */
struct attn_variable_record {
    const char *name;
    const char *value;  /* in force */
    const char *origin; /* "default", "environment", "call", "ignored: elevated process" */
    const char *type;
    const char *fallback; /* the default */
    const char *help;
    const char *problem; /* what is wrong with the given value, or NULL */
};

/*
 * Record number `index`, or NULL past the last one: the variables of the table, then unknown ATTN_ variables
 * (help says which known name is near). Lives as long as the context.
 */
ATTN_API const struct attn_variable_record *attn_context_get_variable(const struct attn_context *context,
                                                                      uint32_t index);

/* ---------------------------------------------------------------- report */

/* How far a file came. */
enum attn_stage {
    ATTN_STAGE_FOUND = 1,
    ATTN_STAGE_TRUSTED = 2,
    ATTN_STAGE_NOTE = 3,
    ATTN_STAGE_PROBED = 4,
    ATTN_STAGE_LOADED = 5,
    ATTN_STAGE_NEGOTIATED = 6,
    ATTN_STAGE_READY = 7
};
/* Name of a `stage` (enum attn_stage): "found", "trusted", "note", ... static. */
ATTN_API const char *attn_stage_name(uint32_t stage);

/* One directory of the search path. */
struct attn_directory_record {
    const char *path;
    const char *origin;      /* the variable, "option", "libattn" or "compiled-in" */
    uint32_t reason;         /* 0 = trusted */
    uint32_t group_writable; /* accepted, but worth a look */
    const char *text;
};

/* One plugin file, or what lies in its place. */
struct attn_file_record {
    const char *path;
    uint32_t stage;  /* enum attn_stage: the last one reached */
    uint32_t reason; /* enum attn_reason_code; 0 = nothing to say */
    uint32_t signal; /* CRASHED: which */
    uint32_t reserved;
    uint64_t microseconds; /* spent on this file */
    const char *text;      /* one sentence, "" if reason is 0 */
    const char *advice;
    const char *linker;  /* the dynamic linker's message, "" if it was not at fault */
    const char *library; /* MISSING_LIBRARY: which, else "" */
    const char *name;    /* from the note, "" if it was not read */
    const char *vendor;
    const char *version;
    const char *backends; /* comma-separated, from the note */
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t device_class;
    uint32_t cpu_level;
};

/* Whether a backend can be used. */
enum attn_backend_state {
    ATTN_BACKEND_READY = 1,
    ATTN_BACKEND_NO_DEVICE = 2,
    ATTN_BACKEND_NOT_ASKED = 3,
    ATTN_BACKEND_REFUSED = 4
};
/* Name of a `state` (enum attn_backend_state): "ready", "no-device", "not-asked", "refused", static. */
ATTN_API const char *attn_backend_state_name(uint32_t state);

/* One backend on one device, or a backend without one. */
struct attn_backend_record {
    const char *name;   /* "cpu/flash-attn" */
    const char *vendor; /* who makes it */
    const char *flavour;
    const char *file;
    uint32_t state; /* enum attn_backend_state */
    uint32_t reason;
    const char *text;
    const char *advice;
    uint32_t device_class;
    uint32_t has_device; /* 1: the members below count */
    struct attn_device device;
    const char *device_name; /* "cpu:0" */
    const char *device_text; /* the device's own name */
    const char *device_arch;
    uint64_t memory_bytes;
    uint32_t units;
    uint32_t reserved;
    const char *device_type; /* "cpu": what its plugin calls its devices */
};

/* A copy of what is known now; immutable, lives on its own. */
ATTN_API int32_t attn_context_get_report(struct attn_context *context, struct attn_report **out,
                                         struct attn_error *err);
/*
 * Everything about one file, wherever it lies: goes through the same stages as a file of the search path, and
 * is loaded only if it is loadable. The context's own registry is not changed.
 */
ATTN_API int32_t attn_context_inspect(struct attn_context *context, const char *path,
                                      struct attn_report **out, struct attn_error *err);
/* Gives a report back with its records. NULL is ignored. */
ATTN_API void attn_report_destroy(struct attn_report *report);

/* Directory number `index` in search order, or NULL past the last one. Lives as long as the report. */
ATTN_API const struct attn_directory_record *attn_report_get_directory(const struct attn_report *report,
                                                                       uint32_t index);
/* File number `index` in the order seen, or NULL past the last one. Lives as long as the report. */
ATTN_API const struct attn_file_record *attn_report_get_file(const struct attn_report *report,
                                                             uint32_t index);
/* Backend number `index`, or NULL past the last one. Lives as long as the report. */
ATTN_API const struct attn_backend_record *attn_report_get_backend(const struct attn_report *report,
                                                                   uint32_t index);

/* ---------------------------------------------------------------- selection */

/* What a call asks for; it has precedence over the environment. */
struct attn_select_options {
    uint32_t struct_size;
    uint32_t ask_all;    /* 1: ask every candidate, also those behind the winner's class */
    const char *backend; /* wanted list, over ATTN_BACKEND; NULL = not given */
    const char *device;  /* "cuda:3", "cuda", "cpu", ... or "any"; NULL = any */
    /*
     * 1: a fallback is ATTN_E_NO_BACKEND. 2: so is a backend that would serve a problem by generic kernels,
     * if none serves it by optimised ones. The stricter of this and ATTN_STRICT holds.
     */
    uint32_t strict;
    uint32_t reserved;
};

/* Which layer decided about the wanted list. */
enum attn_decided_by {
    ATTN_DECIDED_BY_CALL = 1,
    ATTN_DECIDED_BY_ENVIRONMENT = 2,
    ATTN_DECIDED_BY_AUTOMATIC = 3
};
/* Name of `decided_by` (enum attn_decided_by): "call", "environment", "automatic", static. */
ATTN_API const char *attn_decided_by_name(uint32_t decided_by);

/* One backend that was considered, and what it said. */
struct attn_candidate {
    const char *name;   /* "cpu/flash-attn", or a wanted name that no plugin offers */
    const char *device; /* "cpu:0", or NULL */
    uint32_t accepted;
    uint32_t device_class;
    uint32_t cost_rank;
    uint32_t graph_level;
    const struct attn_kernel_info *kernels; /* rows that serve, of all problems */
    uint32_t kernel_count;
    uint32_t reason_count;
    const struct attn_reason *reasons; /* also of rows of an accepted candidate */
};

/* What was decided. */
struct attn_decision_info {
    const char *requested; /* the wanted list in force */
    const char *effective; /* the winner's name; NULL if there is none */
    const char *device;    /* its device, "cpu:0"; NULL */
    uint32_t decided_by;   /* enum attn_decided_by */
    uint32_t fallback;     /* 1: not the first that was asked for, or below a refused better device */
    const char *text;      /* the decision in one line, as it was logged */
    uint32_t candidate_count;
    uint32_t reserved;
};

/*
 * Chooses the backend that serves all `count` problems (the layer classes of one model) with one cache
 * layout. `options` may be NULL. Order and fallback rules: docs/selection.md. Even on ATTN_E_NO_BACKEND *out
 * is a decision that holds every candidate and its reasons; destroy it too. On other errors *out is NULL.
 * `none` gives ATTN_OK and a decision without winner.
 */
ATTN_API int32_t attn_select(struct attn_context *context, const struct attn_problem *problems,
                             uint32_t count, const struct attn_select_options *options,
                             struct attn_decision **out, struct attn_error *err);
/* Gives a decision back with its candidates. NULL is ignored. */
ATTN_API void attn_decision_destroy(struct attn_decision *decision);
/* What was decided; lives as long as the decision. NULL for NULL. */
ATTN_API const struct attn_decision_info *attn_decision_get_info(const struct attn_decision *decision);
/* Candidate number `index` in the order asked, or NULL past the last one. */
ATTN_API const struct attn_candidate *attn_decision_get_candidate(const struct attn_decision *decision,
                                                                  uint32_t index);

/* ---------------------------------------------------------------- backend */

/*
 * Opens the winner of a decision on its device. `config` may be NULL. The backend holds what it needs of
 * context and decision. ATTN_E_STATE if the decision has no winner.
 */
ATTN_API int32_t attn_backend_open(struct attn_context *context, const struct attn_decision *decision,
                                   const struct attn_open_config *config, struct attn_backend **out,
                                   struct attn_error *err);
/* Gives a backend back; plans, caches and what else was made with it keep it open. NULL is ignored. */
ATTN_API void attn_backend_destroy(struct attn_backend *backend);
/* "cpu/flash-attn"; lives as long as the backend. */
ATTN_API const char *attn_backend_get_name(const struct attn_backend *backend);
/* "cpu:0"; lives as long as the backend. */
ATTN_API const char *attn_backend_get_device(const struct attn_backend *backend);
/*
 * Asks an opened backend whether it serves a problem on its device, with which kernels and at what speed, or
 * why not: struct attn_query, whose arrays are the caller's. Cheaper than a selection, for programs that ask
 * before each of many problems. ATTN_OK with `accepted` 0 if it refuses; ATTN_E_INVALID for a problem that is
 * none; ATTN_E_UNSUPPORTED if the problem has a value that the plugin is too old to know. Any thread may call
 * it at any time.
 */
ATTN_API int32_t attn_backend_query(struct attn_backend *backend, const struct attn_problem *problem,
                                    struct attn_query *query, struct attn_error *err);

/* ---------------------------------------------------------------- cache */

/*
 * The shape that the backend's flavour gives the cache of one layer of a problem with `pages` pages.
 * Any strides may be used instead; this is the shape that the flavour has in vLLM.
 */
ATTN_API int32_t attn_kv_get_shape(struct attn_backend *backend, const struct attn_problem *problem,
                                   uint32_t pages, struct attn_kv_shape *out, struct attn_error *err);

/* Fills a description from a shape and the allocation that was made for it; scales are left to the caller. */
ATTN_API void attn_kv_desc_init(struct attn_kv_desc *desc, const struct attn_kv_shape *shape,
                                const struct attn_buffer *memory);

/* Checks and encodes the cache of one layer. The memory stays the caller's and must outlive the handle. */
ATTN_API int32_t attn_kv_create(struct attn_backend *backend, const struct attn_kv_desc *desc,
                                struct attn_kv **out, struct attn_error *err);
/* Gives a handle back; the memory of the cache stays. NULL is ignored. */
ATTN_API void attn_kv_destroy(struct attn_kv *kv);

/* Writes new keys and values into a cache: struct attn_kv_write_args. */
ATTN_API int32_t attn_kv_write(struct attn_backend *backend, const struct attn_kv_write_args *args,
                               void *stream, struct attn_error *err);

/*
 * The other operations on caches, each described with its arguments in types.h. A backend need not offer
 * them: ATTN_E_UNSUPPORTED names the backend and the operation.
 */

/* Slots of a batch's new tokens: struct attn_kv_slot_mapping_args. */
ATTN_API int32_t attn_kv_slot_mapping(struct attn_backend *backend,
                                      const struct attn_kv_slot_mapping_args *args, void *stream,
                                      struct attn_error *err);
/* Single tokens to other slots: struct attn_kv_copy_slots_args. */
ATTN_API int32_t attn_kv_copy_slots(struct attn_backend *backend, const struct attn_kv_copy_slots_args *args,
                                    void *stream, struct attn_error *err);
/* Whole pages within the caches of all layers: struct attn_kv_copy_blocks_args. */
ATTN_API int32_t attn_kv_copy_blocks(struct attn_backend *backend,
                                     const struct attn_kv_copy_blocks_args *args, void *stream,
                                     struct attn_error *err);
/* Whole pages between device and host: struct attn_kv_swap_blocks_args. */
ATTN_API int32_t attn_kv_swap_blocks(struct attn_backend *backend,
                                     const struct attn_kv_swap_blocks_args *args, void *stream,
                                     struct attn_error *err);
/* Keys and values of sequences as contiguous rows: struct attn_kv_gather_args. */
ATTN_API int32_t attn_kv_gather(struct attn_backend *backend, const struct attn_kv_gather_args *args,
                                void *stream, struct attn_error *err);
/* Whole pages to another type or layout: struct attn_kv_convert_args. */
ATTN_API int32_t attn_kv_convert(struct attn_backend *backend, const struct attn_kv_convert_args *args,
                                 void *stream, struct attn_error *err);

/* One step of decoding in place: struct attn_kv_advance_step_args. */
ATTN_API int32_t attn_kv_advance_step(struct attn_backend *backend,
                                      const struct attn_kv_advance_step_args *args, void *stream,
                                      struct attn_error *err);

/* ---------------------------------------------------------------- plan */

/*
 * Fixes kernels and layouts for a problem with all four maxima given. Immutable: any thread, any stream.
 * ATTN_E_UNSUPPORTED with the first reason if the backend does not serve it.
 */
ATTN_API int32_t attn_plan_create(struct attn_backend *backend, const struct attn_problem *problem,
                                  struct attn_plan **out, struct attn_error *err);
/* Gives a plan back. Its schedules can no longer be run. NULL is ignored. */
ATTN_API void attn_plan_destroy(struct attn_plan *plan);

/* Sizes of schedule, scratch, counters and staging. */
ATTN_API int32_t attn_plan_get_sizes(const struct attn_plan *plan, struct attn_plan_sizes *out,
                                     struct attn_error *err);
/*
 * Kernels, splits, demands on alignment. Of a plugin that does not describe its plans: names of the kernels
 * and graph level, as its query gave them.
 */
ATTN_API int32_t attn_plan_describe(const struct attn_plan *plan, struct attn_plan_info *out,
                                    struct attn_error *err);

/*
 * Plans one step: writes a schedule into the caller's memory, once per step, read by every layer's run.
 * With host copies the batch is checked: ATTN_E_INVALID names array, index, value and range.
 * ATTN_E_SIZE if schedule or staging is too small, with both numbers. staging may be NULL if its size is 0.
 */
ATTN_API int32_t attn_plan_prepare(const struct attn_plan *plan, const struct attn_batch *batch,
                                   const struct attn_span *schedule, const struct attn_span *staging,
                                   void *stream, struct attn_error *err);

/* The same for n plans at once; staging is as large as the n plans' staging together. */
ATTN_API int32_t attn_plan_prepare_many(const struct attn_plan *const *plans,
                                        const struct attn_batch *const *batches,
                                        const struct attn_span *schedules, uint32_t n,
                                        const struct attn_span *staging, void *stream,
                                        struct attn_error *err);

/*
 * Runs one layer. Allocates nothing, waits for nothing; on the CPU it has completed when it returns. Rows
 * that see no key become zeros with lse -inf (or the sink); rows from q_offsets[n] on are not touched.
 */
ATTN_API int32_t attn_plan_run(const struct attn_plan *plan, const struct attn_batch *batch,
                               const struct attn_tensors *tensors, const struct attn_span *schedule,
                               const struct attn_scratch *scratch, void *stream, struct attn_error *err);

/* ---------------------------------------------------------------- merge */

/* Merges partial results: struct attn_merge_args. ATTN_E_UNSUPPORTED if the backend has no merge. */
ATTN_API int32_t attn_merge(struct attn_backend *backend, const struct attn_merge_args *args, void *stream,
                            struct attn_error *err);
/* Rescales a partial result by its share of the merged one: struct attn_rescale_args. */
ATTN_API int32_t attn_rescale(struct attn_backend *backend, const struct attn_rescale_args *args,
                              void *stream, struct attn_error *err);

/*
 * What may change in any release, also after 1.0. Programs that define ATTN_EXPERIMENTAL before they include
 * this file see it, and are to be compiled again with every release.
 */
#ifdef ATTN_EXPERIMENTAL

/* ---------------------------------------------------------------- selection, part by part */

struct attn_parts;

/* What a step does with a sequence. */
enum attn_phase { ATTN_PHASE_PREFILL = 1, ATTN_PHASE_DECODE = 2 };

/* One part of a model: a layer class, or one phase of it. */
struct attn_model_part {
    uint32_t struct_size;
    uint32_t layer_class; /* numbered from 0 without a gap */
    uint32_t phase;       /* enum attn_phase; 0 = both, and the class has no other part */
    uint32_t reserved;
    const struct attn_problem *problem; /* as the part needs it: max_q and graph may differ between phases */
    const char *backend; /* wanted list of this part alone, over that of the options; NULL = not given */
};

/* What was decided for one part. */
struct attn_part_decision {
    uint32_t layer_class;
    uint32_t phase;
    int32_t status; /* ATTN_OK, or ATTN_E_NO_BACKEND: no backend serves the part */
    uint32_t reserved;
    const struct attn_decision
        *decision; /* for attn_backend_open; parts decided together have the same one */
    /*
     * The lowest-numbered part whose metadata serves this one too, so that one builder, of that part's
     * backend, is enough for both; or its own number. The texts say what differs from each part that was
     * compared and does not share, as "parts[0]: device: cuda:0 and cpu:0"; "" = nothing.
     */
    uint32_t metadata_part;
    /*
     * The same for caches: this part's backend takes a cache as attn_kv_get_shape describes it on that part's
     * backend. Phases of one class need that, for what one writes the other reads: each makes a kv handle of
     * its own over the same memory. For parts of different classes it says that one pool can hold both.
     */
    uint32_t cache_part;
    const char *metadata_text;
    const char *cache_text;
};

/*
 * Chooses backends for a model whose layer classes, or whose prefill and decode, may want different ones, by
 * the rules of attn_select. If one backend serves all parts that have no list of their own, they get that
 * one. Otherwise each class gets one, and where none serves a class, each phase of it; the decisions' texts
 * say so, and why. `options` may be NULL. To compare caches of two backends on one device both are opened
 * for as long as this call takes.
 *
 * ATTN_E_NO_BACKEND: some part has no backend; the error names the first one. Even then *out holds the
 * decisions of all parts with every candidate and its reasons; destroy it too. On other errors *out is NULL.
 * ATTN_E_INVALID names a member of a part.
 */
ATTN_API int32_t attn_select_parts(struct attn_context *context, const struct attn_model_part *parts,
                                   uint32_t count, const struct attn_select_options *options,
                                   struct attn_parts **out, struct attn_error *err);
/* Gives parts back with their decisions. NULL is ignored. */
ATTN_API void attn_parts_destroy(struct attn_parts *parts);
/* What was decided for part number `index` of the call, or NULL past the last one. Lives as long as `parts`.
 */
ATTN_API const struct attn_part_decision *attn_parts_get_decision(const struct attn_parts *parts,
                                                                  uint32_t index);

/* ---------------------------------------------------------------- questions to one backend */

/*
 * Asks one loaded backend by name about one problem, on one device or (device NULL) on none; see struct
 * attn_query. Loads the plugin if its name is wanted. For tools that walk capabilities.
 */
ATTN_API int32_t attn_context_query(struct attn_context *context, const char *backend,
                                    const struct attn_device *device, const struct attn_problem *problem,
                                    struct attn_query *query, struct attn_error *err);
/* The axes of a backend, *out_count of them; they live as long as the context. */
ATTN_API int32_t attn_context_get_axes(struct attn_context *context, const char *backend,
                                       const struct attn_axis **out, uint32_t *out_count,
                                       struct attn_error *err);

#endif

#ifdef __cplusplus
}
#endif
#endif
