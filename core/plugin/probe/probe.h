/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Probes of plugin files in child processes.
 *
 * policy.c decides which files are probed, cache.c keeps the results of earlier probes, probe.c starts the
 * children and listens, and probe-main.c is the program that they run: a guard that watches a worker, and the
 * worker that leads the plugin through one short life. The host only reads what the guard writes, so neither
 * a host that ignores SIGCHLD nor one that reaps every child disturbs it.
 */
#ifndef ATTN_PLUGIN_PROBE_H
#define ATTN_PLUGIN_PROBE_H

#include "plugin/loader.h"

/* ---------------------------------------------------------------- probe.c */

#define ATTN__PROBE_DEADLINE_NS UINT64_C(2000000000)

/* Where the children write to. */
#define ATTN__PROBE_FD 3

enum attn__outcome {
    ATTN__NO_RESULT = 0, /* refused by the linker or by its tables: the host's own attempt decides */
    ATTN__GOOD = 1,
    ATTN__CRASHED = 2,
    ATTN__TIMED_OUT = 3,
    ATTN__EXITED = 4,
    ATTN__UNAVAILABLE = 5 /* no child could be started; text says why */
};

struct attn__result {
    uint32_t outcome; /* enum attn__outcome */
    uint32_t number;  /* exit status, or the signal; 0: a function broke the calling convention */
    int64_t since;    /* seconds of the epoch */
    char step[24];    /* what the worker was doing */
    char text[160];   /* good: its side effects, or ""; unavailable: why; convention: what was broken */
};

/* Bytes of a key with its end: everything that a result depends on, hashed. */
enum { ATTN__KEY_SIZE = 33 };

/* The probe of one file. */
struct attn__probe {
    const char *path;
    char key[ATTN__KEY_SIZE];
    struct attn__result result;
};

/*
 * Probes `count` files, many at once, and fills their results. `helper` is the path of attn-probe,
 * `environment` is what the children get. Each takes at most the deadline, whatever it does, unless the
 * machine gives it no time.
 */
void attn__probe_run(const char *helper, char *const *environment, struct attn__probe *probes,
                     uint32_t count);
/* Path of the helper that belongs to this library. False if there is none. */
bool attn__probe_find_helper(char *path, size_t size);

/* ---------------------------------------------------------------- cache.c: directory NULL is memory */

void attn__cache_key(const struct attn__plugin *plugin, char key[ATTN__KEY_SIZE]);
/* The directory of the cache; false if there is none that may be trusted, and only memory keeps results. */
bool attn__cache_directory(const struct attn__env *env, char *path, size_t size);
/* True if a result is kept and still counts at `now` (seconds of the epoch). */
bool attn__cache_load(const char *directory, const char *key, int64_t now, struct attn__result *out);
/* Good results count for ever, for their key guards them; bad ones a day, or ten minutes after a hang. */
bool attn__result_counts(const struct attn__result *result, int64_t now);
/* Keeps results, beside those that others have kept; what no longer counts is dropped. */
void attn__cache_store(const char *directory, const struct attn__probe *probes, uint32_t count, int64_t now);
/* Drops every bad result. */
void attn__cache_reset(const char *directory);

/* ---------------------------------------------------------------- policy.c */

/*
 * Says for each of `count` files whether it may be loaded; the record of one that may not says why. `named`:
 * somebody asked for them by name, so that bad results of earlier probes do not count.
 */
void attn__policy_admit(struct attn_context *context, struct attn__plugin *const *plugins, bool *admitted,
                        uint32_t count, bool named);
/* Forgets every bad result, in memory and in the cache. */
void attn__policy_reset(struct attn_context *context);

#endif
