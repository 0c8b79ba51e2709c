/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Capabilities of a backend, found by asking it: one key is varied at a time around a problem that it serves.
 */
#ifndef CAPABILITY_H
#define CAPABILITY_H

#include <stdbool.h>

#include "attn/attn.h"
#include "key-values.h"

enum { BASE_KEYS = 5 };

/* A backend under question, and the problem that is varied. */
struct subject {
    struct attn_context *context;
    const char *backend;
    const struct attn_device *device; /* NULL: what needs no device */
    const struct attn_axis *axes;
    uint32_t axis_count;
    char base[BASE_KEYS][24]; /* values of heads, kv_heads, head_dim, q, block */
};

/* Finds a base problem. False if the backend serves none of those tried. */
bool subject_init(struct subject *subject, struct attn_context *context, const char *backend,
                  const struct attn_device *device, struct attn_error *err);

/* What a backend says to one value of one key. */
struct answer {
    bool served;
    uint32_t reason;      /* 0 if served */
    uint32_t graph_level; /* if served: enum attn_graph_level */
    uint32_t speed;       /* if served: enum attn_speed of the slowest kernel; 0 = not said */
    char text[160];
};

/* Asks for the base problem with the keys of `extra` in place of its own; whether it is served. */
bool subject_serves(const struct subject *subject, const char *extra, struct answer *out);

/*
 * Asks for key=value with everything else as in the base problem, alone or with the keys that it needs. If
 * that can be in more than one way, one that optimised kernels serve counts.
 */
void subject_judge(const struct subject *subject, const char *key, const char *value, struct answer *out);

/*
 * The served values of a key; ranges as "1-1024", or "16-256/16" with a step. `generic`, or NULL, gets
 * "key=value" of those that generic kernels serve.
 */
void subject_values(const struct subject *subject, const char *key, struct words *out, struct words *generic);

/* "key" or "key=value" of everything beside types, sizes and the attention type; of `generic` the same. */
void subject_features(const struct subject *subject, struct words *out, struct words *generic);

#endif
