/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the files of the conformance checker share.
 *
 * A case is a problem and a seed, a step is a case in memory, a target is a backend at one kernel level. The
 * same step runs on every target and is judged by the oracle. A folder holds what belongs together: the parts
 * that all kinds of checks use are cases, memory, target, judge and report; the others are kinds.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include "judge.h"

/* ---------------------------------------------------------------- tap.c */

enum filter_kind { FILTER_PROBLEM = 1, FILTER_PATTERN, FILTER_NAME };

struct run_options {
    const char *plugin;          /* absolute path of the file, for kinds that open it themselves */
    const char *plugin_path;     /* directory that holds it alone, for attn_context_options */
    const char *running;         /* the kind that runs now */
    const char *kind;            /* names with commas between; NULL = all */
    const char *filter;          /* NULL = none */
    uint32_t filter_kind;        /* enum filter_kind, 0 = none */
    struct attn_problem problem; /* FILTER_PROBLEM */
    bool random;                 /* ... which the random cases cover */
    uint64_t seed;
    bool seed_given;
    uint32_t cases; /* 0 = as the mode says */
    bool full;
    const char *transport;  /* of kind cp: local, or that of the processes that run with this one */
    uint32_t share, shares; /* this process runs case `share` of every `shares` */
};

/*
 * Names what runs now: for the result line, the reproduction line, and the signal handler. `text` is the
 * problem string, or the name of a case that has none; "" where the seed alone tells cases apart.
 */
void tap_begin(const struct target *target, const char *kind, const char *text, uint64_t seed);
void tap_pass(void);
void tap_skip(const char *why);
void tap_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line for people, which is no result. */
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---------------------------------------------------------------- the kinds of checks */

/* In processes of their own: the plugin is not loaded in this one. */
void check_side_effects(const struct run_options *options);
void check_abi(const struct run_options *options);

void check_attention(struct target_list *list, const struct run_options *options);
void check_replay(struct target_list *list, const struct run_options *options);
void check_cascade(struct target_list *list, const struct run_options *options);
void check_parallel(struct target_list *list, const struct run_options *options);
void check_deterministic(struct target_list *list, const struct run_options *options);
void check_write(struct target_list *list, const struct run_options *options);
void check_cache(struct target_list *list, const struct run_options *options);
void check_merge(struct target_list *list, const struct run_options *options);
void check_serving(struct target_list *list, const struct run_options *options);
void check_nan(struct target_list *list, const struct run_options *options);
void check_long(struct target_list *list, const struct run_options *options);
void check_query(struct target_list *list, const struct run_options *options);
void check_faults(struct target_list *list, const struct run_options *options);
void check_distrust(struct target_list *list, const struct run_options *options);
void check_huge(struct target_list *list, const struct run_options *options);
void check_axes(struct target_list *list, const struct run_options *options);
void check_replays(struct target_list *list, const struct run_options *options);
void check_streams(struct target_list *list, const struct run_options *options);
void check_exhausted(struct target_list *list, const struct run_options *options);
void check_concurrency(struct target_list *list, const struct run_options *options);

/* Whether --filter admits a case of the running kind that has this text (see tap_begin). */
bool options_wants(const struct run_options *options, const char *text);
/* Seed number `n` of a run, and its problem: the filter's, or a random one. False if the filter excludes it.
 */
bool options_problem(const struct run_options *options, uint32_t n, uint64_t salt,
                     struct attn_problem *out_problem, uint64_t *out_seed);
/*
 * The same for kinds that need a problem that is served: a random one that no target accepts is brought
 * closer to a plain one until one does.
 */
bool options_served(const struct run_options *options, const struct target_list *list, uint32_t n,
                    uint64_t salt, struct attn_problem *out_problem, uint64_t *out_seed);
/* Makes a problem what its text says, so that a reproduction line says what was run. */
void problem_through_text(struct attn_problem *problem);
uint32_t options_cases(const struct run_options *options, uint32_t quick, uint32_t full);
/* Whether case number `n` of a kind is of this process's share. */
bool options_mine(const struct run_options *options, uint64_t n);

#endif
