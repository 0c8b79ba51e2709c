/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One greedy run of a model in one configuration. */
#ifndef TESTS_MODEL_GREEDY_H
#define TESTS_MODEL_GREEDY_H

#include "serve/engine.h"

enum { GREEDY_TOKENS = 16 };

struct greedy_config {
    const char *name;
    const char *backend;  /* NULL: as libattn selects */
    const char *variable; /* "NAME=VALUE" for the context, or NULL */
    const char *kv;
    uint32_t block;
    uint32_t chunk; /* 0: the whole prompt */
    uint32_t threads;
    const char *q; /* NULL: f32 */
};

struct greedy_result {
    int32_t ids[GREEDY_TOKENS];
    double margins[GREEDY_TOKENS]; /* between the two largest logits */
    char backend[64];
    char kernels[256];
};

int greedy_run(struct engine *e, const struct tokens *prompt, const struct greedy_config *config,
               struct greedy_result *out, struct failure *err);

#endif
