/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the files of libattn share: the objects behind the handles, and the calls from one file to another.
 *
 * The folder plugin/ goes from the search path to an open plugin: scan.c finds a file, elfnote.c reads its
 * note, registry.c keeps its record. When a call wants the plugin, probe.c has it probed in a child process,
 * loader.c loads it and negotiate.c copies its tables; select/ then asks its backends. Strings that records
 * point to belong to the object that holds the record.
 */
#ifndef ATTN_CORE_H
#define ATTN_CORE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "args.h"
#include "attn/attn.h"
#include "attn/plugin.h"
#include "fail.h"

/* ---------------------------------------------------------------- fork.c */

/* ATTN_E_STATE in a child after fork; `born` is attn__fork_generation() when the object was created. */
uint32_t attn__fork_generation(void);
int32_t attn__check_fork(uint32_t born, const char *what, struct attn_error *err);

/* Guards what all contexts of the process share. Held only briefly, because a fork waits for it. */
void attn__shared_lock(void);
void attn__shared_unlock(void);

/* ---------------------------------------------------------------- suggest.c */

/* The nearest of `count` names, ignoring case, - and _; NULL if none is near enough. */
const char *attn__nearest(const char *name, const char *const *names, size_t count);
/* Equality of backend names, ignoring case, - and _. */
bool attn__same_name(const char *a, const char *b);
/* For names of kinds of devices, as "gpu": which backends those are; NULL for other names. */
const char *attn__kind_hint(const char *name);
/* Adds a name to "a, b" unless it is there or does not fit. */
void attn__add_name(char *list, size_t size, const char *name);
/* Glob match (fnmatch) of backend names under the same rule. */
bool attn__name_matches(const char *pattern, const char *name);

/* ---------------------------------------------------------------- env.c: one row per variable of env.def */

enum attn__variable {
#define ATTN_VARIABLE(name, type, fallback, elevated, help) ATTN__VAR_##name,
#include "base/env.def"
    ATTN__VARIABLES
};

struct attn__env {
    struct attn_variable_record *records; /* ATTN__VARIABLES of them, then those of unknown variables */
    uint32_t count;
    bool elevated; /* AT_SECURE */
    char **owned;  /* strings of the records, and the snapshot of plugins' variables */
    uint32_t owned_count;
    char **environment; /* a copy, made with the context */
    const char *
        *plugin_names; /* variables of plugins, as ATTN_CPU_...: name and value in turn, for get_option */
    uint32_t plugin_count;
};

int32_t attn__env_init(struct attn__env *env, const struct attn_context_options *options,
                       struct attn_error *err);
void attn__env_finish(struct attn__env *env);
/* The value that counts, never NULL. */
const char *attn__env_get(const struct attn__env *env, enum attn__variable variable);
/* True if the value came from the call or the environment. */
bool attn__env_is_given(const struct attn__env *env, enum attn__variable variable);
/* attn_host.get_option: any variable of the table or of a plugin, or NULL. */
const char *attn__env_option(const struct attn__env *env, const char *key);
/* Another variable, as HOME, or NULL; always NULL in an elevated process. */
const char *attn__env_outside(const struct attn__env *env, const char *name);

/* ---------------------------------------------------------------- clock.c */

/* Local time with milliseconds, as 2026-11-23T12:34:56.789; safe in a child after fork. */
void attn__time_text(char *text, size_t size);

/* ---------------------------------------------------------------- log.c */

struct attn__log {
    attn_log_fn fn;
    void *user;
    bool callback; /* lines go to fn, or nowhere if that is NULL */
    int fd;        /* ATTN_LOG_FILE, or 2 */
    bool own_fd;
    uint32_t level; /* of subsystems without a level of their own */
    struct {
        char name[16];
        uint32_t level;
    } subsystem[16];
    uint32_t subsystems;
    pthread_mutex_t lock; /* of `said` */
    uint64_t *said;       /* hashes of lines that are logged once */
    uint32_t said_count;
};

int32_t attn__log_init(struct attn__log *log, const struct attn_context_options *options,
                       struct attn__env *env, struct attn_error *err);
void attn__log_finish(struct attn__log *log);
bool attn__log_wants(const struct attn__log *log, uint32_t level, const char *subsystem);
void attn__log_line(struct attn__log *log, uint32_t level, const char *subsystem, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, but each text is logged once per context. */
void attn__log_once(struct attn__log *log, uint32_t level, const char *subsystem, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---------------------------------------------------------------- scan.c: where plugins are looked for */

/* Identifies a file, and the version of its contents. */
struct attn__identity {
    uint64_t device, inode, size;
    int64_t mtime_ns, ctime_ns; /* ctime also changes when a file is renamed or linked */
};

struct attn__directory {
    char *path;
    const char *origin;
    bool own; /* libattn's own plugin directory */
    uint32_t reason;
    uint32_t group_writable;
    char text[512];
    struct attn__identity identity; /* zeroes if it could not be judged */
};

void attn__directories_destroy(struct attn__directory *directories, uint32_t count);

/* ---------------------------------------------------------------- registry.c: one record per file seen */

struct attn__plugin;

/* One backend of an open plugin, with its tables in this library's size. Its address does not change. */
struct attn__backend {
    struct attn__plugin *plugin;
    struct attn_backend_table table; /* sub-tables point into this struct, or to those of libattn-serving */
    struct attn_plan_table plan;
    struct attn_kv_table kv;
    struct attn_merge_table merge;
    struct attn_memory_table memory;
    struct attn_builder_table builder;
    struct attn_state_table state;
    struct attn_layer_table layer;
    const char *flavour; /* behind the slash of the name */
};

/* One file. Address stable for the context's life. */
struct attn__plugin {
    struct attn_context *context;
    char *path;
    struct attn__identity identity; /* when its note was read: what loading compares with */
    uint64_t memory;                /* bytes of address space that it takes */
    bool own;                       /* came with libattn */
    bool vanished;                  /* not found by the last scan */

    /* Written under context->lock. */
    uint32_t stage; /* enum attn_stage */
    uint32_t reason;
    char text[320];
    char linker[256];
    char library[128];
    uint64_t nanoseconds;
    uint32_t signal;   /* with reason CRASHED */
    char effects[160]; /* the side effects that its probe saw, or "" */
    bool has_note;
    struct attn_note note;

    enum { ATTN__CLOSED = 0, ATTN__OPEN, ATTN__FAILED } state;
    void *handle; /* dlopen */
    struct attn_host host;
    struct attn_instance *instance;
    struct attn_plugin table; /* a copy in this library's size */
    struct attn__backend *backends;
    uint32_t backend_count;

    bool asked;             /* for devices */
    uint32_t device_reason; /* NO_DRIVER, NO_DEVICE or 0 */
    char device_text[256];
    struct attn_device_info *devices;
    uint32_t device_count;
};

/* Any function of a plugin. */
typedef void (*attn__function)(void);
/* Returns a wrapper that checks how the function returns; the names are for messages. */
typedef attn__function (*attn__check_call_fn)(attn__function function, const char *table, const char *name);

struct attn__recorder;

struct attn_context {
    _Atomic uint32_t refs;          /* one of the handle, and one of each object made of it */
    uint32_t born;                  /* fork generation */
    attn__check_call_fn check_call; /* set inside attn-probe, which wraps the plugin's functions; else NULL */
    struct attn__env env;
    struct attn__log log;
    char *plugin_path; /* the caller's option, or NULL */
    attn_parallel_for_fn parallel_for;
    void *parallel_for_arg;
    struct attn__recorder *recorder; /* ATTN_RECORD, or NULL */
    struct attn__directory *directories;
    uint32_t directory_count;
    pthread_mutex_t opening; /* one plugin at a time is opened or asked for devices; taken before `lock` */
    pthread_mutex_t lock;    /* registry and states below; never held while plugin code runs */
    struct attn__plugin **plugins; /* search order */
    uint32_t plugin_count;
};

void attn__context_hold(struct attn_context *context);
void attn__context_drop(struct attn_context *context);

/* Scans the directories. Keeps records of files that are open. */
int32_t attn__registry_scan(struct attn_context *context, struct attn_error *err);
/* A copy of the list, less vanished files, to iterate over without the lock; the caller frees it. */
int32_t attn__registry_list(struct attn_context *context, struct attn__plugin ***out, uint32_t *out_count);
/* Checks one file outside of the registry: trust and note. The caller destroys the record. */
struct attn__plugin *attn__plugin_create(struct attn_context *context, const char *path);
void attn__plugin_destroy(struct attn__plugin *plugin);
/* True if the record may be opened, or was: its note was read, it is no duplicate and not vanished. */
bool attn__plugin_is_usable(const struct attn__plugin *plugin);
/*
 * Loads and negotiates once; later calls answer the same. ATTN_OK, or ATTN_E_PLUGIN with reason in the
 * record. If a file fails, the next one of the same plugin name becomes usable. `named`: it was asked for by
 * name; then a quarantined plugin is probed again.
 */
int32_t attn__plugin_open(struct attn__plugin *plugin, bool named);
/* Lists devices once (opens first). ATTN_OK even without devices: see device_reason. */
int32_t attn__plugin_ask_devices(struct attn__plugin *plugin);

/* ---------------------------------------------------------------- plugin/loader.c, negotiate.c */

/* dlopen, ownership check, entry, negotiate. Called once by attn__plugin_open, under `opening` alone. */
int32_t attn__loader_load(struct attn__plugin *plugin);
/* Copies and checks tables; fills plugin->table and backends. */
int32_t attn__negotiate(struct attn__plugin *plugin, const struct attn_plugin *given);
void attn__host_init(struct attn__plugin *plugin);

/* ---------------------------------------------------------------- select.c, wanted.c */

/* True if the wanted list and ATTN_DISABLE allow any backend of the note; otherwise *out_reason is set. */
bool attn__wanted_plugin(const struct attn_context *context, const char *wanted,
                         const struct attn__plugin *plugin, uint32_t *out_reason);
/* The same for one backend name. */
bool attn__wanted_backend(const struct attn_context *context, const char *wanted, const char *name,
                          uint32_t *out_reason);
/* "cpu:0" into text. */
void attn__device_name(const struct attn__plugin *plugin, const struct attn_device *device, char *text,
                       size_t size);
/* "cpu": what a plugin calls its devices. */
const char *attn__device_type(const struct attn__plugin *plugin, const struct attn_device *device);

/* ---------------------------------------------------------------- backend.c: open handles */

struct attn_backend {
    _Atomic uint32_t refs;
    _Atomic uint32_t lost; /* 1 after ATTN_E_DEVICE_LOST */
    uint32_t born;
    bool trace;                   /* ATTN_LOG=trace, or trace:call, when it was opened */
    bool record;                  /* ATTN_RECORD */
    struct attn_context *context; /* held */
    struct attn__backend *entry;
    struct attn_backend_impl *impl;
    struct attn_device device;
    char device_name[32];
};

void attn__backend_hold(struct attn_backend *backend);
void attn__backend_drop(struct attn_backend *backend);
/* Remembers a lost device; returns status. */
int32_t attn__backend_result(struct attn_backend *backend, int32_t status);

struct attn_plan {
    _Atomic uint32_t refs;
    struct attn_backend *backend; /* held */
    struct attn_plan_impl *impl;
    struct attn_problem problem; /* resolved */
    struct attn_plan_sizes sizes;
    struct attn_plan_info answer; /* from the query; used if the plugin has no describe */
};

struct attn_kv {
    _Atomic uint32_t refs;
    struct attn_backend *backend; /* held */
    struct attn_kv_impl *impl;
    struct attn_kv_desc desc;
};

#endif
