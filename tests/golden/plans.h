/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* States on the recording plugin, and its calls written as the original's. */
#ifndef GOLDEN_PLANS_H
#define GOLDEN_PLANS_H

#include "attn/layer.h"
#include "golden.h"
#include "recorder.h"

/* The recording plugin's calls since the last clear; NULL if the plugin is not loaded. */
const struct recorded_call *plans_calls(uint32_t *out_count);
void plans_clear(void);

/* The recording backend for a flavour; the common ones share one. */
const char *plans_backend(uint32_t flavour);

/* What a state is made for. */
struct plans_model {
    uint32_t flavour;
    int64_t block;
    int64_t columns; /* of the block tables that graphs see */
    int64_t max_blocks;
    int64_t max_indices;
    int64_t max_seqs;
    int64_t max_tokens; /* new ones of a step */
    int64_t max_len;    /* tokens of a sequence */
    bool cross;
};

/* 8 heads, 2 kv heads of 128, float16: what was recorded. */
int32_t plans_problem(const struct plans_model *model, struct attn_problem *problem, struct attn_error *err);
/* A message, and NULL, if it cannot be made. */
struct attn_state *plans_state(struct golden *g, struct attn_backend *backend,
                               const struct plans_model *model);

/* A prepare call as the planning call of the prefill or of the decode part. */
json_t *plans_prefill(const struct recorded_call *call, const char *name);
json_t *plans_decode(const struct recorded_call *call, const char *name);

/* Compares recorded calls with `actual`; the ends of plans count for nothing, and indices are compared as far
 * as they are used. */
void plans_compare(struct golden *g, const json_t *expected, const json_t *actual);

#endif
