/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of lane.h: for device code that makes them and host code that picks one. */
#ifndef ATTN_GPU_LANE_LIST_H
#define ATTN_GPU_LANE_LIST_H

#include "attn/types.h"

/* Grid: query rows times query heads, the heads of a row one after the other. */
#define GPU_LANE_WARPS   8u
#define GPU_LANE_THREADS 256u
/* Largest head_dim and head_dim_vo. */
#define GPU_LANE_DIM 576u

/*
 * X(name, dim, type): head_dim and head_dim_vo up to dim; type of keys and values: a dtype of both, 8u = any
 * of 8 bits each, 0u = any at all each. The first that fits is the fastest.
 */
#define GPU_LANE_DIMS(X, suffix, type)                                                                       \
    X(attn_lane_128_##suffix, 128, type)                                                                     \
    X(attn_lane_256_##suffix, 256, type)                                                                     \
    X(attn_lane_576_##suffix, 576, type)

#define GPU_LANE_LIST(X)                                                                                     \
    GPU_LANE_DIMS(X, f32, ATTN_F32)                                                                          \
    GPU_LANE_DIMS(X, f16, ATTN_F16)                                                                          \
    GPU_LANE_DIMS(X, bf16, ATTN_BF16)                                                                        \
    GPU_LANE_DIMS(X, 8, 8u)                                                                                  \
    GPU_LANE_DIMS(X, mixed, 0u)

/* Whether a kernel of the list takes a problem. */
static inline int gpu_lane_fits(const struct attn_problem *p, uint32_t dim, uint32_t type)
{
    const uint32_t k = p->k_dtype, v = p->mla != 0 ? p->k_dtype : p->v_dtype;

    if (p->head_dim > dim || p->head_dim_vo > dim)
        return 0;
    if (type == 8)
        return (k >> 8 & 0xff) == 8 && (v >> 8 & 0xff) == 8;
    return type == 0 || (k == type && v == type);
}

#endif
