/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What every call into a chosen backend does before and after: arguments in, status and words out. */
#ifndef ATTN_CALL_H
#define ATTN_CALL_H

#include "check.h"
#include "core.h"

/* Bytes of an element of a type that was checked before. */
static inline uint32_t attn__element_size(uint32_t dtype)
{
    return (dtype >> 8 & 0xff) / 8;
}

/* NULL handle, a child after fork, or a lost device. */
int32_t attn__call_begin(const struct attn_backend *backend, const char *what, struct attn_error *err);

/*
 * Judges what a plugin returned: passes its words on under the backend's name, remembers a lost device, and
 * calls a foreign number ATTN_E_PLUGIN. `own` is the error that the plugin had.
 */
int32_t attn__call_end(struct attn_backend *backend, int32_t status, struct attn_error *own, const char *what,
                       struct attn_error *err);

/* The slow ways of the three below. */
int32_t attn__argument_copy(const void *given, void *copy, size_t size, const char *name, const void **out,
                            struct attn_error *err);
int32_t attn__argument_unknown(const struct attn_backend *backend, const void *argument, size_t size,
                               uint32_t plugin_size, const char *name, struct attn_error *err);

/*
 * A sized argument in this library's size: the caller's own if the sizes are equal, else a copy. Then what
 * the plugin is too old to know must be zero.
 */
static inline int32_t attn__argument(const struct attn_backend *backend, const void *given, void *copy,
                                     size_t size, uint32_t plugin_size, const char *name, const void **out,
                                     struct attn_error *err)
{
    *out = given;
    if (given == NULL || *(const uint32_t *)given != (uint32_t)size) {
        const int32_t status = attn__argument_copy(given, copy, size, name, out, err);
        if (status != ATTN_OK)
            return status;
    }
    return plugin_size >= size ? ATTN_OK
                               : attn__argument_unknown(backend, *out, size, plugin_size, name, err);
}

/* True if `bytes` holds a non-zero byte at or behind `from`. */
bool attn__has_bytes(const void *bytes, size_t from, size_t size);

/* Hands an answer to the caller's sized struct, whatever its size. */
int32_t attn__answer(void *out, const void *own, size_t size, const char *name, struct attn_error *err);
/* The same check before anything is asked. */
int32_t attn__answer_begin(const void *out, size_t size, const char *name, struct attn_error *err);

/* ---------------------------------------------------------------- batch.c, kv-check.c, kv-batch.c */

/* Scalars and presence of arrays; cheap enough for every run. */
int32_t attn__batch_check(const struct attn_problem *problem, const struct attn_batch *batch,
                          struct attn_error *err);
/* The part of it that says where keys are, for calls that have no queries. */
int32_t attn__batch_check_keys(const struct attn_problem *problem, const struct attn_batch *batch,
                               struct attn_error *err);
/* Contents of the host copies, if there are any. */
int32_t attn__batch_check_host(const struct attn_problem *problem, const struct attn_batch *batch,
                               struct attn_error *err);

/* A description by itself. */
int32_t attn__kv_check(const struct attn_kv_desc *desc, struct attn_error *err);
/* A checked description against the problem of a plan. */
int32_t attn__kv_fits(const struct attn_kv_desc *desc, const struct attn_problem *problem,
                      struct attn_error *err);
/* Exactly one of a handle of this backend and a bare description, which is checked. *out is what it says. */
int32_t attn__kv_choose(const struct attn_backend *backend, const struct attn_kv *kv,
                        const struct attn_kv_desc *bare, struct attn_kv_desc *copy,
                        const struct attn_kv_desc **out, struct attn_error *err);

/* Two checked descriptions: same types, layout, heads, dimensions and granularities of scales. */
int32_t attn__kv_alike(const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                       struct attn_error *err);
/* The part of it that holds for every pair of caches: heads, dimensions, MLA or not. */
int32_t attn__kv_same_vectors(const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                              struct attn_error *err);
/* An element type of the problem string. */
bool attn__kv_is_element(uint32_t dtype);

/* How a call on a cache finds the keys of a batch. */
struct attn__kv_find {
    uint32_t addressing;
    uint32_t index_dtype;
    uint32_t block;
    uint32_t pages; /* 0 = not known */
    bool queries;   /* places of the last q_len keys; else nothing is asked of queries */
};
/* A batch by itself, against the cache as far as host copies tell. *out is the batch in this library's size.
 */
int32_t attn__kv_batch(const struct attn_backend *backend, const struct attn_batch *given,
                       const struct attn__kv_find *find, struct attn_batch *copy,
                       const struct attn_batch **out, struct attn_error *err);

/* Present, of an 8-byte range of strides that fits `tokens` and `heads`, and in whole elements. */
int32_t attn__tensor_check(const struct attn_tensor *tensor, uint32_t dtype, uint64_t tokens, uint64_t heads,
                           uint64_t dim, const char *name, struct attn_error *err);
/* The same of a tensor that is written: no two elements share memory. */
int32_t attn__output_check(const struct attn_tensor *tensor, uint32_t dtype, uint64_t tokens, uint64_t heads,
                           uint64_t dim, const char *name, struct attn_error *err);
/* A scale of the granularity that the problem says; `granularity` NONE or 0: none may be given. */
int32_t attn__scale_check(const struct attn_scale *scale, uint32_t granularity, const char *name,
                          struct attn_error *err);
/* sum of |stride| * (count - 1) and `last` bytes in int64. */
bool attn__extent_fits(const int64_t *strides, const uint64_t *counts, uint32_t n, uint64_t last);

#endif
