/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Probes of plugin files in child processes.
 *
 * probe.c decides which files are probed, starts a child and reads its result; cache.c keeps the results; and
 * probe-main.c is the program that the child runs: a guard that watches a worker, and the worker, which loads
 * the plugin, calls it and finishes it. The result is what the guard writes, not its exit status: so a host
 * may ignore SIGCHLD or reap every child.
 */
#ifndef ATTN_PLUGIN_PROBE_H
#define ATTN_PLUGIN_PROBE_H

#include "plugin/loader.h"

/* ---------------------------------------------------------------- probe.c */

/* Time for a probe, and how many times as much it gets on a machine that is too busy to run it. */
#define ATTN__PROBE_DEADLINE_NS UINT64_C(2000000000)
#define ATTN__PROBE_DEADLINES   5

/* Where the guard writes to: one byte when it begins, and the result at the end. */
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
    uint32_t number;  /* exit status, or the signal; 0: a function harmed its caller */
    int64_t since;    /* seconds of the epoch */
    char step[24];    /* what the worker was doing */
    char text[160];   /* good: its side effects, or ""; unavailable: why; convention: what was broken */
};

/*
 * Probes one file. `helper` is the path of attn-probe, `environment` is what it gets. Takes at most the
 * deadline, whatever the file does, unless the machine gives it no time.
 */
void attn__probe_run(const char *helper, char *const *environment, const char *path,
                     struct attn__result *result);

/* ---------------------------------------------------------------- cache.c */

/* Bytes of a key with its end: a hash of path and host, which names the file of a result, and one of
 * everything else that the result depends on. */
enum { ATTN__KEY_SIZE = 33 };

void attn__cache_key(const struct attn__plugin *plugin, char key[ATTN__KEY_SIZE]);
/* The directory of the cache; false if there is none that may be trusted, and no result is kept. */
bool attn__cache_directory(const struct attn__env *env, char *path, size_t size);
/*
 * True if a result is kept and still valid at `now` (seconds of the epoch): a good one for ever, because its
 * key changes with everything that it depends on; a bad one for a day, after a hang for ten minutes.
 */
bool attn__cache_load(const char *directory, const char *key, int64_t now, struct attn__result *out);
/* Keeps a result, in the place of the one that the same path had before. */
void attn__cache_store(const char *directory, const char *key, const struct attn__result *result);
/* Drops every bad result. */
void attn__cache_reset(const char *directory);

/*
 * Decides whether a file may be loaded; if not, its record says why. `named`: it was asked for by name; then
 * a bad result of an earlier probe does not count.
 */
bool attn__policy_admit(struct attn__plugin *plugin, bool named);
/* Forgets every bad result. */
void attn__policy_reset(struct attn_context *context);

#endif
