/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Trial of plugin files in child processes.
 *
 * gate.c decides which files need one, known.c and verdict.c keep what came of earlier ones, probe.c starts
 * the children and listens, and probe-main.c is the program that they run: a guard that watches a worker, and
 * the worker that leads the plugin through one short life. The host only ever reads what the guard writes, so
 * neither a host that ignores SIGCHLD nor one that reaps every child disturbs it.
 */
#ifndef ATTN_PROBE_H
#define ATTN_PROBE_H

#include "loader.h"

/* ---------------------------------------------------------------- probe.c */

#define ATTN__PROBE_DEADLINE_NS UINT64_C(2000000000)

/* Where the children write to. */
#define ATTN__PROBE_FD 3

enum attn__outcome {
    ATTN__NO_VERDICT = 0, /* refused by the linker or by its tables: the host's own attempt decides */
    ATTN__GOOD = 1,
    ATTN__CRASHED = 2,
    ATTN__TIMED_OUT = 3,
    ATTN__EXITED = 4,
    ATTN__UNAVAILABLE = 5 /* no child could be started; text says why */
};

struct attn__verdict {
    uint32_t outcome; /* enum attn__outcome */
    uint32_t number;  /* signal, or exit status */
    int64_t since;    /* seconds of the epoch */
    char step[24];    /* what the worker was doing */
    char text[160];   /* good: its bad manners, or ""; unavailable: why */
};

/*
 * Tries `count` files, many at once, and fills one verdict each. `helper` is the path of attn-probe,
 * `environment` is what the children get. Each takes at most the deadline, whatever it does, unless the
 * machine gives it no time.
 */
void attn__probe_run(const char *helper, const char *const *paths, char *const *environment,
                     struct attn__verdict *verdicts, uint32_t count);
/* Path of the helper that belongs to this library. False if there is none. */
bool attn__probe_find_helper(char *path, size_t size);

/* ---------------------------------------------------------------- verdict.c */

/* Bytes of a key with its end: everything that a verdict depends on, hashed. */
enum { ATTN__KEY_SIZE = 33 };

void attn__verdict_key(const struct attn__plugin *plugin, char key[ATTN__KEY_SIZE]);
/* The directory of the cache; false if there is none that may be trusted, and nothing is kept. */
bool attn__verdict_directory(const struct attn__env *env, char *path, size_t size);
/* True if a verdict is kept and still counts at `now` (seconds of the epoch). */
bool attn__verdict_load(const char *directory, const char *key, int64_t now, struct attn__verdict *out);
/* Good verdicts count for ever, for their key guards them; bad ones a day, or ten minutes. */
bool attn__verdict_counts(const struct attn__verdict *verdict, int64_t now);
/* Keeps verdicts, beside those that others have kept; what no longer counts is dropped. */
void attn__verdict_store(const char *directory, const char (*keys)[ATTN__KEY_SIZE],
                         const struct attn__verdict *verdicts, uint32_t count, int64_t now);
/* Drops every bad verdict. */
void attn__verdict_pardon(const char *directory);

/* ---------------------------------------------------------------- known.c */

/* True if this process knows a verdict that still counts at `now`. */
bool attn__known_recall(const char *key, int64_t now, struct attn__verdict *out);
/* Drops every bad verdict. */
void attn__known_pardon(void);

/* A trial under way. */
struct attn__trial;

/*
 * Joins the trial of a key, or begins one: then *out_first is true, and the caller ends it. Every caller
 * takes the verdict, for which it waits. NULL without memory.
 */
struct attn__trial *attn__trial_begin(const char *key, bool *out_first);
/* Lets everybody know, and this process remember. */
void attn__trial_end(struct attn__trial *trial, const char *key, const struct attn__verdict *verdict);
void attn__trial_take(struct attn__trial *trial, struct attn__verdict *out);

/* ---------------------------------------------------------------- gate.c */

/*
 * Says for each of `count` files whether it may be loaded; the record of one that may not says why. `named`:
 * somebody asked for them by name, so that bad verdicts of earlier trials do not count.
 */
void attn__gate_pass(struct attn_context *context, struct attn__plugin *const *plugins, bool *passed,
                     uint32_t count, bool named);
/* Forgets every bad verdict, in memory and in the cache. */
void attn__gate_pardon(struct attn_context *context);

#endif
