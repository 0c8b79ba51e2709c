/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A layer that keeps to the limits of the original and to its order of writes and runs. */
#ifndef COMPAT_RUN_H
#define COMPAT_RUN_H

#include "attn/layer.h"
#include "flavour.h"

enum { COMPAT_SEQS = 64, COMPAT_SCHEDULE = 4096 };

/* One layer, of class 0, in a step that attn_state_begin_forward has begun. Its memory is the host's. */
struct compat_run {
    struct attn_backend *backend;
    const struct attn_problem *problem; /* of the class, resolved */
    const struct attn_layer_desc *desc;
    const struct attn_layer *layer;
    struct attn_state *state;
    struct attn_metadata *metadata;
    struct attn_kv *kv; /* NULL without a cache */
    const struct attn_layer_tensors *tensors;
    float k_scale; /* of a cache, as the engine gave them */
    float v_scale;
};

/* The prefill and the decode part of a step. */
struct compat_parts {
    uint32_t count; /* 0: the runs of the state are the original's */
    const struct attn_plan *plan;
    const struct attn_scratch *scratch;
    uint32_t prompt_tokens;
    struct attn_batch batch[2];
    struct attn_span schedule[2];
    int32_t starts[COMPAT_SEQS]; /* of the queries of decodes */
    _Alignas(64) char memory[2][COMPAT_SCHEDULE];
};

/* What the original refuses when a layer is made. */
int32_t compat_check_layer(struct attn_backend *backend, const struct attn_problem *problem,
                           struct attn_error *err);
/* Plans prompts and decodes apart where the state has planned one run over both. */
int32_t compat_split(const struct compat_run *run, struct compat_parts *out, struct attn_error *err);
/* What it refuses in a forward, then all new keys into the cache, the prompts and the decodes. */
int32_t compat_forward_layer(const struct compat_run *run, const struct compat_parts *parts,
                             struct attn_error *err);

#endif
