/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin without a host: entered directly, with options and logs of the test. */
#ifndef TEST_CPU_PLUGIN_H
#define TEST_CPU_PLUGIN_H

#include "attn/plugin.h"

/* What the host services see. */
struct services {
    const char *flags;   /* ATTN_CPU_FLAGS, or NULL */
    const char *threads; /* ATTN_THREADS, or NULL */
    uint32_t warnings;
    char warning[256]; /* the last one */
};

/* An entered plugin with its first backend. */
struct entered {
    struct services services;
    struct attn_instance *instance;
    const struct attn_plugin *plugin;
    const struct attn_backend_table *table;
};

void plugin_enter(struct entered *entered, const char *flags, const char *threads);
void plugin_leave(struct entered *entered);
struct attn_backend_impl *plugin_open(const struct entered *entered, uint32_t threads);

/* A small decode step with all its memory: two sequences of one query token, 40 and 4,100 keys, f32. */
struct step {
    struct attn_problem problem;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    struct attn_plan_impl *plan;
    struct attn_plan_sizes sizes;
    struct attn_span schedule;
    struct attn_scratch scratch;
    int32_t q_offsets[3];
    int32_t kv_lens[2];
    int32_t *table;
    float *cache;
    float *q;
    float *out;
};

enum { STEP_HEADS = 2, STEP_DIM = 8, STEP_BLOCK = 16, STEP_PAGES = 300 };

void step_begin(struct step *step, const struct entered *entered, struct attn_backend_impl *backend);
void step_end(struct step *step, const struct entered *entered);

#endif
