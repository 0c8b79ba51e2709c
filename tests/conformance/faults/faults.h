/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the checks of faults share: every call of a plugin and of the library, ready to be made. */
#ifndef FAULTS_H
#define FAULTS_H

#include "fixture.h"

/* A fixture, and the objects that a series of calls is made on. */
struct bench {
    const char *kind; /* "faults", or "distrust" */
    const struct target *target;
    struct fixture fixture;
    struct direct direct;
    /* The plugin's own, and what the call under test makes. */
    struct attn_backend_impl *impl;
    struct attn_plan_impl *plan_impl;
    struct attn_kv_impl *kv_impl;
    struct attn_instance *made_instance;
    const struct attn_plugin *made_plugin;
    struct attn_backend_impl *made_impl;
    struct attn_plan_impl *made_plan_impl;
    struct attn_kv_impl *made_kv_impl;
    /* The library's, and what the call under test makes. */
    struct attn_context *context; /* its own */
    struct attn_decision *decision;
    struct attn_plan *plan;
    struct attn_kv *kv;
    struct attn_context *made_context;
    struct attn_report *made_report;
    struct attn_decision *made_decision;
    struct attn_parts *made_parts;
    struct attn_backend *made_backend;
    struct attn_plan *made_plan;
    struct attn_kv *made_kv;
    /* Either's. */
    struct attn_buffer made_buffer;
    void *made_memory;
    struct attn_tensors tensors; /* with the cache of `kv` */
    struct attn_merge_args merge;
    struct attn_merge_part parts[2];
    struct attn_tensor lses[2];
    struct attn_rescale_args rescale;
    struct guarded *merged;
    char plugin_path[4096];
    char directory[4096];
};

/* One call. What cannot go wrong has no check, what leaves nothing behind no undo. */
struct call {
    const char *name;
    int32_t (*act)(struct bench *bench, struct attn_error *err);
    bool (*check)(struct bench *bench, char *why, size_t size); /* of a call that succeeded */
    void (*undo)(struct bench *bench);
    bool quiet;    /* may not allocate */
    bool optional; /* may be unsupported */
};

/* As fixture_init. */
int bench_init(struct bench *bench, const struct target *target, const char *problem, uint64_t seed,
               char *why, size_t size);
void bench_finish(struct bench *bench);
/* As many as the backend of a target has: the scratch of the fixture is for so many. */
#define BENCH_THREADS 2
/* Opens the backend past the library. */
int32_t bench_open(struct bench *bench, struct attn_backend_impl **out, struct attn_error *err);
/* A context of its own, which may be hurt, for the plugin and the level of the target. */
int32_t bench_create_context(const struct bench *bench, struct attn_context **out, struct attn_error *err);

/* faults-direct.c, faults-core.c: the calls, ended by one without a name. */
extern const struct call direct_calls[];
extern const struct call core_calls[];
/* A whole life, from opening to closing, with the plugin's threads. */
extern const struct call life_calls[];

/* faults-arguments.c, faults-handles.c */
void faults_arguments(struct bench *bench, const char *text, uint64_t seed);
/* On request alone: what a plugin may leave to its caller. */
void faults_entry(struct bench *bench, const char *text, uint64_t seed);
void faults_distrust(struct bench *bench, const char *text, uint64_t seed);
void faults_handles(struct bench *bench, const char *text, uint64_t seed);

#endif
