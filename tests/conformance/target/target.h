/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A target is a backend of the plugin at one kernel level, with the ways to lend it threads. */
#ifndef TARGET_H
#define TARGET_H

#include "step.h"

/* ---------------------------------------------------------------- executor.c */

enum executor {
    EXECUTOR_POOL,
    EXECUTOR_SERIAL,
    EXECUTOR_PARALLEL,
    EXECUTOR_TEAM_2,
    EXECUTOR_TEAM_3,
    EXECUTORS
};

typedef int32_t (*call_fn)(void *arg, void *stream, struct attn_error *err);

const char *executor_name(enum executor executor);
/* From now on calls are made as if on the plugin's pool, whatever is asked for. */
void executors_lend_nothing(void);
/* Makes the same call on the plugin's pool, through parallel_for, or as a team. */
int32_t executor_call(enum executor executor, call_fn call, void *arg, struct attn_error *err);

/* ---------------------------------------------------------------- target.c */

enum { MAX_TARGETS = 32, POOLS = 3 };

struct target {
    char name[64];
    char level[64];
    struct attn_device device;
    char device_name[64]; /* "cpu:0" */
    struct attn_context *context;
    struct attn_backend *backend;
    struct attn_backend *pools[POOLS]; /* with 1, 2, 3 threads */
    uint32_t accepted;
};

struct target_list {
    struct target targets[MAX_TARGETS];
    uint32_t count; /* to be judged; the others behind them have a say in alignment and strides alone */
    uint32_t opened;
    struct attn_context *contexts[MAX_TARGETS];
    uint32_t context_count;
};

/*
 * Opens every backend of the plugin at every level; those that match come first. 0, or the exit status of the
 * program after a text on stderr. `file` is the plugin as the user called it.
 */
int targets_open(struct target_list *list, const char *plugin_path, const char *file, const char *backend,
                 const char *level);
void targets_close(struct target_list *list);
/* Whether the memory of the targets is out of the host's reach. */
bool targets_mirrored(const struct target_list *list);
/* Alignment and strides that a target demands for a problem. */
void target_demands(const struct target *target, const struct attn_problem *problem, struct layout *layout);
/* What all targets demand, the same whichever of them are judged. */
void targets_demand(const struct target_list *list, const struct attn_problem *problem,
                    struct layout *layout);

/* ---------------------------------------------------------------- plugin-path.c */

/*
 * Makes a private directory that holds nothing but a link to `file` under a name that libattn looks for, and
 * takes every variable of libattn out of the environment, so that a run depends on its arguments alone.
 * 0, or the exit status after a text on stderr.
 */
int plugin_path_make(const char *file);
const char *plugin_path(void);      /* the directory */
const char *plugin_path_file(void); /* absolute path of the file */
void plugin_path_remove(void);

#endif
