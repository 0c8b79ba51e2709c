/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What wrapped calls share. The linker sends each attn_x of the rest of the checker to __wrap_attn_x, and
 * __real_attn_x is the library's.
 */
#ifndef MIRROR_CALL_H
#define MIRROR_CALL_H

#include "attn/device.h"
#include "mirror.h"

/* A call that stops at its first failure. */
struct call {
    struct mirror *mirror;
    void *stream;
    int32_t status;
    struct attn_error own;
    struct attn_error *err;
};

/* The capture that is under way, and the graph that came of it: the checker has one at a time. */
struct call_capture {
    struct attn_backend *backend;
    const struct attn_graph *graph;
    void *stream; /* NULL unless it is captured */
};
extern struct call_capture call_capture;

/* False: the backend has no mirror, and the library's own call is made. */
bool call_begin(struct call *call, const struct attn_backend *backend, void *stream, struct attn_error *err);
/* Twins are up to date. */
bool call_ready(struct call *call);
/* Results are back. */
int32_t call_end(struct call *call, int32_t status);

/* Addresses become those of twins. */
void call_buffer(struct call *call, struct attn_buffer *buffer);
void call_scale(struct call *call, struct attn_scale *scale);
void call_batch(struct call *call, struct attn_batch *batch);
void call_cache(struct call *call, struct attn_kv_desc *desc);
void call_tensors(struct call *call, struct attn_tensors *tensors);
/* A copy of a bare cache; NULL stays NULL. */
const struct attn_kv_desc *call_bare(struct call *call, const struct attn_kv_desc *from,
                                     struct attn_kv_desc *to);

/* The backend of a plan that was made through here, or NULL. */
struct attn_backend *call_backend_of(const struct attn_plan *plan);

#define WRAP(type, name, ...)                                                                                \
    type __real_##name(__VA_ARGS__);                                                                         \
    type __wrap_##name(__VA_ARGS__);                                                                         \
    type __wrap_##name(__VA_ARGS__)

#endif
