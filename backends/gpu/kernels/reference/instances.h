/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of reference kernels, for device code that instantiates them and host code that chooses one. */
#ifndef ATTN_GPU_REFERENCE_INSTANCES_H
#define ATTN_GPU_REFERENCE_INSTANCES_H

#include "attn/types.h"

enum {
    /* Grid: query tokens times query heads, the heads of a token one after the other. */
    REFERENCE_WARPS = 8,
    REFERENCE_THREADS = 256,
    /* Largest head_dim and head_dim_vo. */
    REFERENCE_MAX_DIM = 576,
    /* In place of a dtype of keys and values: any 8-bit types, or any types; the two may differ. */
    REFERENCE_ANY_8BIT = 8,
    REFERENCE_ANY = 0
};

/*
 * X(name, dim, type): head_dim and head_dim_vo up to dim; type of keys and values: a dtype of both, or one of
 * the two above. The first that fits is the fastest.
 */
#define REFERENCE_DIMS(X, suffix, type)                                                                      \
    X(attn_reference_128_##suffix, 128, type)                                                                \
    X(attn_reference_256_##suffix, 256, type)                                                                \
    X(attn_reference_576_##suffix, 576, type)

#define REFERENCE_INSTANCES(X)                                                                               \
    REFERENCE_DIMS(X, f32, ATTN_F32)                                                                         \
    REFERENCE_DIMS(X, f16, ATTN_F16)                                                                         \
    REFERENCE_DIMS(X, bf16, ATTN_BF16)                                                                       \
    REFERENCE_DIMS(X, 8, REFERENCE_ANY_8BIT)                                                                 \
    REFERENCE_DIMS(X, mixed, REFERENCE_ANY)

/* Whether a kernel of the list takes a problem. */
static inline int reference_fits(const struct attn_problem *p, uint32_t dim, uint32_t type)
{
    const uint32_t k = p->k_dtype, v = p->mla != 0 ? p->k_dtype : p->v_dtype;

    if (p->head_dim > dim || p->head_dim_vo > dim)
        return 0;
    if (type == REFERENCE_ANY_8BIT)
        return (k >> 8) == (ATTN_INT8 >> 8) && (v >> 8) == (ATTN_INT8 >> 8); /* one lane of 8 bits */
    return type == REFERENCE_ANY || (k == type && v == type);
}

#endif
