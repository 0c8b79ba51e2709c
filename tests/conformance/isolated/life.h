/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * One plugin file, driven through its tables without the core in between, in a process of its own.
 *
 * The core would hide who did what: here every call is a stage with a name, and whatever changed in the
 * process is put down to the stage after which it was seen.
 */
#ifndef LIFE_H
#define LIFE_H

#include <stdatomic.h>

#include "conform.h"

#include "attn/plugin.h"

/* ---------------------------------------------------------------- isolated.c: a process for some checks */

enum { ISOLATED_LINES = 48, ISOLATED_TEXT = 700 };
enum isolated_result { ISOLATED_PASSED = 1, ISOLATED_FAILED, ISOLATED_SKIPPED };

struct isolated_line {
    char name[48];
    uint32_t result;
    char text[ISOLATED_TEXT];
};

/* What the child tells its parent, in memory of both. */
struct isolated {
    char stage[96];          /* what the plugin is doing */
    _Atomic uint32_t stages; /* begun so far */
    bool finished;           /* it came to its end by itself */
    uint32_t count;
    struct isolated_line lines[ISOLATED_LINES];
};

typedef void (*isolated_fn)(struct isolated *isolated, const char *plugin);

void isolated_stage(struct isolated *isolated, const char *stage);
void isolated_pass(struct isolated *isolated, const char *name);
void isolated_fail(struct isolated *isolated, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void isolated_skip(struct isolated *isolated, const char *name, const char *why);
/* Fails if the text is not empty. */
void isolated_judge(struct isolated *isolated, const char *name, const char *text);
/*
 * Calls fn in a child that has loaded nothing yet, and reports its lines. A child that dies or hangs is a
 * failure of the line `name`, with the stage; one that ends well and has no such line passes it.
 */
void isolated_run(const struct run_options *options, const char *name, isolated_fn fn);

/* ---------------------------------------------------------------- life-host.c: services */

/*
 * The table lies on a page that is taken away after finish. The functions stay and remember late calls,
 * because a plugin may have copied the table.
 */
struct life_host;

struct life_host *life_host_create(void);
const struct attn_host *life_host_table(const struct life_host *host);
struct attn_instance *life_host_instance(const struct life_host *host);
/* From now on every use is a fault. */
void life_host_revoke(struct life_host *host);
/* Name of the service that was used since, or NULL. */
const char *life_host_late(const struct life_host *host);
void life_host_destroy(struct life_host *host);

/* ---------------------------------------------------------------- life.c */

enum { LIFE_DEVICES = 8 };

struct life;
/* Called after every stage, and within some (`during`: only what belongs to the whole process counts). */
typedef void (*life_watch_fn)(struct life *life, const char *stage, bool during);

struct life {
    struct isolated *isolated;
    void *handle;
    int32_t (*entry)(const struct attn_host *host, const struct attn_plugin **out, struct attn_error *err);
    struct life_host *host;
    const struct attn_plugin *table;
    struct attn_instance *instance;
    const struct attn_backend_table *const *backends;
    uint32_t backend_count;
    struct attn_device_info devices[LIFE_DEVICES];
    uint32_t device_count;
    bool without_errors; /* passes NULL for every err */
    struct attn_error err;
    bool ran; /* some backend accepted a problem and ran it */
    life_watch_fn watch;
    void *watch_arg;
    char stage[96];
    char why[512]; /* why it ended early */
};

/* One open backend. */
struct life_backend {
    struct life *life;
    const struct attn_backend_table *table;
    struct attn_backend_impl *impl;
    struct attn_problem problem; /* one that is accepted; heads is 0 if none is */
    void *stream;
};

/* dlopen as the core does it, and the entry. */
bool life_load(struct life *life, struct isolated *isolated, const char *plugin);
/* Entry and get_backends. A life can begin again after its end. */
bool life_begin(struct life *life);
/* axes and query, with and without a device; get_devices. */
bool life_ask(struct life *life);
/* False with an empty why: there is no device. */
bool life_open(struct life *life, uint32_t backend, struct life_backend *out);
void life_close(struct life_backend *backend);
/* finish; the host is kept, revoked, until life_forget. */
void life_end(struct life *life);
void life_forget(struct life *life);
/* Everything from the entry to finish, on every backend. */
bool life_live(struct life *life);
/*
 * Whether the plugin has devices behind a driver of its vendor, which opens descriptors and starts threads
 * for the rest of the process when it is used first: what one life leaves is then where counting begins, and
 * no later one may leave more. Where there is no such device nothing may be left at all.
 */
bool life_has_driver(const struct life *life);

/* What to pass for err: cleared, or NULL. */
struct attn_error *life_error(struct life *life);
void life_enter(struct life *life, const char *stage);
/* After the call: tells the watcher, judges the status. */
bool life_leave(struct life *life, int32_t status, const struct attn_error *err);

/* ---------------------------------------------------------------- life-work.c */

/* Caches, plans, a write, runs, a merge: everything that an open backend offers. */
bool life_work(struct life_backend *backend);
/* The first problem of a list that the backend accepts on a device (or none); heads = 0 if it takes none. */
bool life_choose(struct life *life, const struct attn_backend_table *table, const struct attn_device *device,
                 struct attn_problem *out);

/* ---------------------------------------------------------------- trace.c: what a process is like */

enum { TRACES = 20 };

/* Remembers how the process is now. Standard input, output and error are files of the checker from here. */
void trace_begin(void);
/* Compares; differences are put down to `stage`, and remembered as the state from then on. */
void trace_stage(struct life *life, const char *stage, bool during);
/* From here on descriptors and threads may be what they are now, and no more. */
void trace_restart(void);
/* Compares what may only come back at the end: descriptors and threads. Then reports every line. */
void trace_end(struct isolated *isolated);
/* Numbers of open descriptors and of threads; threads that are ending are waited for. */
uint32_t trace_count_descriptors(void);
uint32_t trace_count_threads(uint32_t expected);
/* Where it is not known how many stay: their number when it has not changed for a while. */
uint32_t trace_settle_threads(void);
/* "0, 3 (/dev/null)": open descriptors that `before` does not hold. */
void trace_list_descriptors(char *text, size_t size);

/* ---------------------------------------------------------------- handlers.c: exit and fork handlers */

/* Writes a line for each handler that code within [from, to) has installed so far. */
void handlers_list(const void *from, const void *to, char *text, size_t size);

/* Where the loaded plugin lies. */
bool life_range(const struct life *life, const void **out_from, const void **out_to);

#endif
