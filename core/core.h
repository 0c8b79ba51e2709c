/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the files of libattn share: the objects behind the handles, and the calls from one file to another.
 *
 * The folder plugin/ leads from the search path to an open plugin: path.c finds a file, elfnote.c reads its
 * note, registry.c keeps it; when somebody wants it, policy.c has it probed in a child process, loader.c
 * loads it and negotiate.c copies its tables. select.c asks it. Strings that records point to live in the
 * object that holds the record.
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

/* ATTN_E_STATE in a child after fork, else ATTN_OK. `born` is attn__fork_generation() at creation. */
uint32_t attn__fork_generation(void);
int32_t attn__check_fork(uint32_t born, const char *what, struct attn_error *err);

/* Held for moments, around what all contexts of the process share; a fork waits for it. */
void attn__shared_lock(void);
void attn__shared_unlock(void);

/* ---------------------------------------------------------------- suggest.c */

/* The nearest of `count` names (case, - and _ do not count), or NULL if none is near enough. */
const char *attn__nearest(const char *name, const char *const *names, size_t count);
/* Equality of backend names: case, - and _ do not count. */
bool attn__same_name(const char *a, const char *b);
/* Glob match (fnmatch) of backend names under the same rule. */
bool attn__name_matches(const char *pattern, const char *name);

/* ---------------------------------------------------------------- env.c: one row per variable of env.def */

enum attn__variable {
#define ATTN_VARIABLE(name, type, fallback, elevated, help) ATTN__VAR_##name,
#include "base/env.def"
    ATTN__VARIABLES
};

struct attn__env {
    struct attn_variable_record *records; /* ATTN__VARIABLES rows, then unknown ones */
    uint32_t count;
    bool elevated; /* AT_SECURE */
    char **owned;  /* strings behind the records, and the snapshot of plugin-owned variables */
    uint32_t owned_count;
    char **environment;        /* everything, as it was when the context was made */
    const char **plugin_names; /* "ATTN_CPU_..." style variables: name, value pairs for get_option */
    uint32_t plugin_count;
};

int32_t attn__env_init(struct attn__env *env, const struct attn_context_options *options,
                       struct attn_error *err);
void attn__env_finish(struct attn__env *env);
/* Value in force, never NULL. */
const char *attn__env_get(const struct attn__env *env, enum attn__variable variable);
/* 1 if the value came from the call or the environment. */
bool attn__env_is_given(const struct attn__env *env, enum attn__variable variable);
/* Any variable of the table or of a plugin, or NULL: behind attn_host.get_option. */
const char *attn__env_option(const struct attn__env *env, const char *key);
/* A variable of others (HOME) in the snapshot, or NULL; an elevated process has none. */
const char *attn__env_outside(const struct attn__env *env, const char *name);

/* ---------------------------------------------------------------- log.c */

struct attn__log {
    attn_log_fn fn;
    void *user;
    bool callback; /* fn counts, even if NULL */
    int fd;        /* ATTN_LOG_FILE, or 2 */
    bool own_fd;
    uint32_t level; /* of every subsystem without an own one */
    struct {
        char name[16];
        uint32_t level;
    } subsystem[16];
    uint32_t subsystems;
    pthread_mutex_t lock; /* once-only list */
    uint64_t *said;       /* hashes of lines that are said once */
    uint32_t said_count;
};

int32_t attn__log_init(struct attn__log *log, const struct attn_context_options *options,
                       struct attn__env *env, struct attn_error *err);
void attn__log_finish(struct attn__log *log);
bool attn__log_wants(const struct attn__log *log, uint32_t level, const char *subsystem);
void attn__log_line(struct attn__log *log, uint32_t level, const char *subsystem, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, but a text is said only once per context. */
void attn__log_once(struct attn__log *log, uint32_t level, const char *subsystem, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---------------------------------------------------------------- path.c: where plugins are looked for */

struct attn__directory {
    char *path;
    const char *origin;
    uint32_t reason;
    uint32_t group_writable;
    char *text;
    uint64_t device_id, inode; /* 0: it could not be judged */
};

/* Search order of interface and docs/operator.md. Directories that are not there have a reason too. */
int32_t attn__path_init(const struct attn__env *env, const char *option, struct attn__directory **out,
                        uint32_t *out_count, struct attn_error *err);
void attn__path_finish(struct attn__directory *directories, uint32_t count);

/* ---------------------------------------------------------------- registry.c: one record per file seen */

struct attn__plugin;

/* One backend of an open plugin: its tables in this library's size. Address stable. */
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
    /* Of the file when its note was read: what loading compares with. */
    uint64_t device_id, inode, size;
    int64_t mtime_ns, ctime_ns;
    uint64_t memory; /* bytes of address space that it takes */
    bool vanished;   /* not found by the last scan */

    /* Written under context->lock; text belongs to the record. */
    uint32_t stage; /* enum attn_stage */
    uint32_t reason;
    char text[320];
    char linker[256];
    char library[128];
    uint64_t nanoseconds;
    uint32_t signal;   /* CRASHED: which */
    char effects[160]; /* the side effects that its probe saw, or "" */
    bool has_note;
    struct attn_note note;

    /* Opening happens once; others wait. */
    enum { ATTN__CLOSED = 0, ATTN__OPENING, ATTN__OPEN, ATTN__FAILED } state;
    void *handle; /* dlopen */
    struct attn_host host;
    struct attn_instance *instance;
    struct attn_plugin table; /* copied, this library's size */
    struct attn__backend *backends;
    uint32_t backend_count;

    /* Devices are asked for once. */
    enum { ATTN__NOT_ASKED = 0, ATTN__ASKING, ATTN__ASKED } device_state;
    uint32_t device_reason; /* NO_DRIVER, NO_DEVICE or 0 */
    char device_text[256];
    struct attn_device_info *devices;
    uint32_t device_count;
};

/* A function of a plugin, whatever its type. */
typedef void (*attn__function)(void);
/* Puts a function in front of another one that judges how it returns; the names are for messages. */
typedef attn__function (*attn__check_call_fn)(attn__function function, const char *table, const char *name);

struct attn_context {
    _Atomic uint32_t refs; /* the handle's and one per child */
    uint32_t born;         /* fork generation */
    attn__check_call_fn
        check_call; /* inside attn-probe, where plugins are probed and not trusted; else NULL */
    struct attn__env env;
    struct attn__log log;
    char *plugin_path; /* option, or NULL */
    attn_parallel_for_fn parallel_for;
    void *parallel_for_arg;
    struct attn__directory *directories;
    uint32_t directory_count;
    pthread_mutex_t lock; /* registry and states below; never held while plugin code runs */
    pthread_cond_t changed;
    struct attn__plugin **plugins; /* search order */
    uint32_t plugin_count;
};

void attn__context_hold(struct attn_context *context);
void attn__context_drop(struct attn_context *context);

/* Scans the directories. Keeps records of files that are open. */
int32_t attn__registry_scan(struct attn_context *context, struct attn_error *err);
/* Stable copy of the list for iteration without the lock; free() it. */
int32_t attn__registry_list(struct attn_context *context, struct attn__plugin ***out, uint32_t *out_count);
/* A record for one file, apart from the registry: trust, note. Freed by attn__plugin_destroy. */
struct attn__plugin *attn__plugin_create(struct attn_context *context, const char *path);
void attn__plugin_destroy(struct attn__plugin *plugin);
/* True if the record may be opened: its note was read, it is no duplicate and not vanished. */
bool attn__plugin_is_usable(const struct attn__plugin *plugin);
/*
 * Loads and negotiates once; later calls answer the same. ATTN_OK, or ATTN_E_PLUGIN with reason in the
 * record. If a file fails, the next one of the same plugin name becomes usable.
 */
int32_t attn__plugin_open(struct attn__plugin *plugin);
/*
 * The same for several at once, whose probes run side by side. `named`: somebody asked for them by name, so
 * that a quarantined one is probed again. The records say what went wrong.
 */
void attn__plugins_open(struct attn_context *context, struct attn__plugin *const *plugins, uint32_t count,
                        bool named);
/* Lists devices once (opens first). ATTN_OK even without devices: see device_reason. */
int32_t attn__plugin_ask_devices(struct attn__plugin *plugin);

/* ---------------------------------------------------------------- plugin/loader.c, negotiate.c, host.c */

/* dlopen, ownership check of the entry symbol, entry, negotiate. Called once by attn__plugin_open, no lock.
 */
int32_t attn__loader_load(struct attn__plugin *plugin);
/* Copies and checks tables; fills plugin->table and backends. */
int32_t attn__negotiate(struct attn__plugin *plugin, const struct attn_plugin *given);
/* Fills plugin->host. */
void attn__host_init(struct attn__plugin *plugin);

/* ---------------------------------------------------------------- select.c, wanted.c */

/* True if the wanted list and ATTN_DISABLE admit any backend of the note; else *out_reason says why not. */
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
    struct attn_plan_info answer; /* what the query said: stands in for a plugin without describe */
};

struct attn_kv {
    _Atomic uint32_t refs;
    struct attn_backend *backend; /* held */
    struct attn_kv_impl *impl;
    struct attn_kv_desc desc;
};

#endif
