/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What every call into a backend does: takes arguments before, and status and error message afterwards. */
#ifndef ATTN_CALL_H
#define ATTN_CALL_H

#include "check.h"
#include "core.h"

/* Bytes of an element of a type that was checked before. */
static inline uint32_t attn__element_size(uint32_t dtype)
{
    return (dtype >> 8 & 0xff) / 8;
}

/* Refuses a NULL handle, a child after fork, and a lost device. */
int32_t attn__call_begin(const struct attn_backend *backend, const char *what, struct attn_error *err);

/* Whether what a plugin returned is a status of this library. */
bool attn__is_status(int32_t status);
/*
 * Handles what a plugin returned: passes its message on with the backend's name, remembers a lost device, and
 * turns an unknown status into ATTN_E_PLUGIN. `own` is the error that the plugin filled.
 */
int32_t attn__call_end(struct attn_backend *backend, int32_t status, struct attn_error *own, const char *what,
                       struct attn_error *err);

/* The slow paths of the three functions below. */
int32_t attn__argument_copy(const void *given, void *copy, size_t size, const char *name, const void **out,
                            struct attn_error *err);
int32_t attn__argument_unknown(const struct attn_backend *backend, const void *argument, size_t size,
                               uint32_t plugin_size, const char *name, struct attn_error *err);

/*
 * Takes a sized argument in this library's size: the caller's struct if the sizes are equal, else a copy.
 * Members that the plugin is too old to know must be zero.
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

/* True if a byte in [from, size) is not zero. */
bool attn__has_bytes(const void *bytes, size_t from, size_t size);

/* Copies a result into the caller's sized struct, whatever its size. */
int32_t attn__answer(void *out, const void *own, size_t size, const char *name, struct attn_error *err);
/* Checks the caller's struct as attn__answer does, before any work is done. */
int32_t attn__answer_begin(const void *out, size_t size, const char *name, struct attn_error *err);

/* ---------------------------------------------------------------- batch.c, kv-check.c, kv-batch.c */

/* Checks scalars and presence of arrays; cheap enough for every run. */
int32_t attn__batch_check(const struct attn_problem *problem, const struct attn_batch *batch,
                          struct attn_error *err);
/* The part of it about keys, for calls without queries. */
int32_t attn__batch_check_keys(const struct attn_problem *problem, const struct attn_batch *batch,
                               struct attn_error *err);
/* Checks the contents of the host copies, if there are any. */
int32_t attn__batch_check_host(const struct attn_problem *problem, const struct attn_batch *batch,
                               struct attn_error *err);

/* Checks a cache description by itself. */
int32_t attn__kv_check(const struct attn_kv_desc *desc, struct attn_error *err);
/* Checks it against the problem of a plan. */
int32_t attn__kv_fits(const struct attn_kv_desc *desc, const struct attn_problem *problem,
                      struct attn_error *err);
/* Takes either a handle of this backend or a bare description, which is checked. *out is the description. */
int32_t attn__kv_choose(const struct attn_backend *backend, const struct attn_kv *kv,
                        const struct attn_kv_desc *bare, struct attn_kv_desc *copy,
                        const struct attn_kv_desc **out, struct attn_error *err);

/* Checks that two caches have the same types, layout, heads, dimensions and granularities of scales. */
int32_t attn__kv_alike(const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                       struct attn_error *err);
/* The part of it that every pair of caches needs: heads, dimensions, MLA or not. */
int32_t attn__kv_same_vectors(const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                              struct attn_error *err);
/* Refuses a cache whose types have blocks to a call (`what`) that writes or moves vectors. */
int32_t attn__kv_refuse_blocks(const struct attn_kv_desc *desc, const char *what, struct attn_error *err);
/* True for element types of the problem string that have no blocks. */
bool attn__kv_is_element(uint32_t dtype);

/* How a call on a cache finds the keys of a batch. */
struct attn__kv_find {
    uint32_t addressing;
    uint32_t index_dtype;
    uint32_t block;
    uint32_t pages; /* 0 = not known */
    bool queries;   /* the last q_len keys are wanted; else queries are not checked */
};
/* Checks a batch, also against the cache if there are host copies. *out is the batch in this library's size.
 */
int32_t attn__kv_batch(const struct attn_backend *backend, const struct attn_batch *given,
                       const struct attn__kv_find *find, struct attn_batch *copy,
                       const struct attn_batch **out, struct attn_error *err);

/* Checks that a tensor is given, that its strides fit int64 for `tokens` and `heads`, and are whole elements.
 */
int32_t attn__tensor_check(const struct attn_tensor *tensor, uint32_t dtype, uint64_t tokens, uint64_t heads,
                           uint64_t dim, const char *name, struct attn_error *err);
/* The same for a tensor that is written, in which no two elements may share memory. */
int32_t attn__output_check(const struct attn_tensor *tensor, uint32_t dtype, uint64_t tokens, uint64_t heads,
                           uint64_t dim, const char *name, struct attn_error *err);
/* Checks a scale of the problem's granularity; with NONE or 0 it must not be given. */
int32_t attn__scale_check(const struct attn_scale *scale, uint32_t granularity, const char *name,
                          struct attn_error *err);
/* Whether the sum of |stride| * (count - 1), plus `last` bytes, fits int64. */
bool attn__extent_fits(const int64_t *strides, const uint64_t *counts, uint32_t n, uint64_t last);

#endif
