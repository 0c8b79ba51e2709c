/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A small step with everything around it that the calls need, made once and used again and again by the
 * checks of faults and of threads; and a plugin without a host.
 */
#ifndef RIG_H
#define RIG_H

#include "attn/plugin.h"
#include "conform.h"

/* ---------------------------------------------------------------- direct.c: the plugin's own tables */

struct direct {
    const struct target *target;
    void *library;
    int32_t (*entry)(const struct attn_host *host, const struct attn_plugin **out, struct attn_error *err);
    struct attn_host host;
    const struct attn_plugin *plugin;
    struct attn_instance *instance;
    const struct attn_backend_table *table; /* of the target */
};

/* The file of a target, as the report of its context says. False if it does not. */
bool target_file(const struct target *target, char *path, size_t size);
/* Loads the plugin of a target once more, calls its entry and finds the target's table. */
bool direct_init(struct direct *direct, const struct target *target, char *why, size_t size);
void direct_finish(struct direct *direct);

/* ---------------------------------------------------------------- rig.c */

struct rig {
    struct conform_case the_case;
    struct step step;
    struct arena arena; /* the blocks of the plan */
    struct attn_span schedule;
    struct attn_span staging;
    struct attn_scratch scratch;
    struct attn_kv_write_args write; /* by slot mapping, into a cache of its own */
    struct attn_kv_desc write_kv;
    struct guarded *write_memory;
    int64_t slots[4];
    struct reference reference;
    unsigned char *expected_out; /* what a run leaves, pattern included */
    unsigned char *expected_lse;
    bool deterministic; /* det=1 is served: all runs have these bits */
};

/*
 * A step of a problem, with det=1 where that is served, with a few sequences, laid out for the target, and
 * its right result. 1 = made, 0 = refused by the query (why), -1 = failed (why).
 */
int rig_init(struct rig *rig, const struct target *target, const char *problem, uint64_t seed, char *why,
             size_t size);
void rig_finish(struct rig *rig);
/* Blocks for a plan of the step's problem. */
void rig_blocks(struct rig *rig, const struct attn_plan_sizes *sizes);
/* Puts the pattern back into the outputs. */
void rig_clear(struct rig *rig);
/* Whether the outputs hold the right result, and nothing else was written. */
bool rig_judge(const struct rig *rig, char *why, size_t size);
/* Whether the outputs still hold the pattern alone. */
bool rig_untouched(const struct rig *rig);

#endif
